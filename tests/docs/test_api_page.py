"""Does docs/reference/api.md name things that exist and say what they are?"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
_ENTRY = re.compile(r"^::: (etastar\.[\w.]+)\n(?: +options:\n(?: +members: \[([\w, ]+)\]\n)?)?", re.MULTILINE)


def named() -> list[str]:
    """Every function and class of the page; a module without a list of members stands for itself."""
    return [
        f"{path}.{member}" if member else path
        for path, members in _ENTRY.findall(PAGE)
        for member in (members.split(", ") if members else [""])
    ]


def find(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and not error.name.startswith("etastar"):
            pytest.skip(f"{error.name} is not installed")
    module, _, last = name.rpartition(".")
    return getattr(find(module), last)


def test_the_page_is_read_as_meant() -> None:
    assert len(named()) > 60
    assert PAGE.count("\n::: ") == len(_ENTRY.findall(PAGE))


@pytest.mark.parametrize("name", named())
def test_it_exists_and_is_documented(name: str) -> None:
    found = find(name)
    if inspect.ismodule(found) or inspect.isclass(found) or inspect.isfunction(found):
        assert inspect.getdoc(found), f"{name} has no docstring"
