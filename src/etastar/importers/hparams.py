"""Which settings does a YAML file beside the logs hold? Read as data alone, whatever tags it carries.

Lightning writes hyperparameters with Python's tags (`!!python/tuple`, even objects): their content is taken as
lists, mappings and text, and nothing of it is ever made into an object.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from etastar.importers.raw import flatten, relative

LONGEST = 2**20  # bytes


class _Plain(yaml.SafeLoader):
    """Tagged values as their bare content."""


def _bare(loader: yaml.SafeLoader, _tag: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node) if isinstance(node, yaml.ScalarNode) else None


_Plain.add_multi_constructor("", _bare)


def plain_yaml(text: str) -> Any:
    """YAML as plain data; ValueError where it is none."""
    try:
        return yaml.load(text, Loader=_Plain)
    except (yaml.YAMLError, RecursionError, TypeError) as error:
        raise ValueError(str(error).splitlines()[0][:120] if str(error) else type(error).__name__) from None


def read_yaml(path: Path) -> Any:
    """A small YAML file as plain data, None where there is no file; ValueError says what is wrong."""
    try:
        if not path.is_file():
            return None
        if path.stat().st_size > LONGEST:
            raise ValueError(f"is larger than {LONGEST} bytes")
        return plain_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror})") from None


def read_hparams(path: Path, root: Path) -> tuple[dict[str, Any], list[str]]:
    """Settings with dotted names, and what was wrong with the file."""
    try:
        content = read_yaml(path)
    except ValueError as error:
        return {}, [f"{relative(path, root)}: {error}"]
    return (flatten(content), []) if isinstance(content, dict) else ({}, [])
