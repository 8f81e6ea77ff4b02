"""How are settings written and read? One frozen base, numbers as people write them, and YAML with clear refusals.

Specifications (`train/spec.py`) and plans (`plan/study_plan.py`) are made of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict

from etastar.errors import SpecError
from etastar.scale import parse_number


def _number(value: Any) -> Any:
    return parse_number(value) if isinstance(value, str) else value


def _whole(value: Any) -> Any:
    number = _number(value)
    return int(number) if isinstance(number, float) and number.is_integer() else number


Number = Annotated[float, BeforeValidator(_number)]  # "2^-9" and "707M" too
Whole = Annotated[int, BeforeValidator(_whole)]


class Settings(BaseModel):
    """A frozen, keyword-only settings object that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def read_yaml(path: str | Path, *, what: str, hint: str) -> Mapping[str, Any]:
    """The mapping in a YAML file (safe_load); anything else is one line with a hint. `what` was expected."""
    file = Path(path)
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise SpecError(f"{file}: cannot be read ({reason})", hint=f"give the path of {what} in YAML") from None
    except yaml.YAMLError as error:
        raise SpecError(f"{file}: not YAML ({str(error).splitlines()[0][:80]})", hint="check its indentation") from None
    if not isinstance(content, Mapping):
        raise SpecError(f"{file}: expected {what}, found {type(content).__name__}", hint=hint)
    return content
