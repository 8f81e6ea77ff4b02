"""How does a specification come in from YAML, and what is said when it cannot?

`load_spec` reads a file (safe_load), `build_spec` a mapping; what is wrong is one line with a hint.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from etastar.errors import SpecError
from etastar.settings import read_yaml
from etastar.train.spec import TrainSpec


def build_spec(content: Mapping[str, Any], *, where: str = "spec") -> TrainSpec:
    """A mapping → a checked specification; what is wrong is one line with a hint."""
    try:
        return TrainSpec.model_validate(dict(content))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or where
        raise SpecError(f"{where}: {place}: {_spoken(first)}", hint=_hint(first)) from None


def _spoken(problem: Mapping[str, Any]) -> str:
    if problem["type"] == "missing":
        return "is missing"
    if problem["type"] == "extra_forbidden":
        return "is not a known setting"
    return f"{str(problem['input'])[:60]!r}: {problem['msg'].lower()}"


def _hint(problem: Mapping[str, Any]) -> str:
    fields: Mapping[str, Any] = TrainSpec.model_fields
    for part in problem["loc"][:-1]:
        kind = fields[part].annotation if part in fields else None
        fields = getattr(kind, "model_fields", {})
    if problem["type"] == "extra_forbidden" and fields:
        return f"settings here are {', '.join(fields)}"
    return "`etastar train --preset rope --show` prints a whole specification to start from"


def load_spec(path: str | Path) -> TrainSpec:
    """Read a specification from YAML (safe_load)."""
    return build_spec(read_yaml(path, what="settings", hint="see --preset rope --show"), where=str(path))
