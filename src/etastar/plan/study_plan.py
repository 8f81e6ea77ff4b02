"""What is to be run? The plan file, the contract between planning and launching.

A plan is one training specification that all its runs share (`spec`), and stacks: each a width, a seed,
learning rates and horizons, and what of the specification it changes. One stack is one trunk a learning
rate with its decay branches. A plan says nothing of devices or clusters beyond what it assumed for its price.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from etastar.errors import SpecError
from etastar.scale import gpt_params, gpt_params_nonembedding, parse_number

PLAN_VERSION = 1


def _number(value: Any) -> Any:
    return parse_number(value) if isinstance(value, str) else value


def _whole(value: Any) -> Any:
    number = _number(value)
    return int(number) if isinstance(number, float) and number.is_integer() else number


Positive = Annotated[float, BeforeValidator(_number), Field(gt=0)]
Count = Annotated[int, BeforeValidator(_whole), Field(gt=0)]
Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")]


class PlanSettings(BaseModel):
    """A frozen, keyword-only settings object that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class StackPlan(PlanSettings):
    """One trunk of several learning rates with its branches: the unit that is launched and resumed."""

    name: Label
    width: Count
    seed: int = 0
    lrs: tuple[Positive, ...] = Field(min_length=1)
    horizons: tuple[Count, ...] = Field(min_length=1)  # steps, the decay included
    settings: dict[str, Any] = {}  # of the training specification, over the plan's own `spec`


class Target(PlanSettings):
    """The run whose learning rate is wanted."""

    params: Positive
    tokens: Positive
    width: Count | None = None


class Hardware(PlanSettings):
    """What the price assumes."""

    gpu: str = "H100"
    peak_flops: Positive = 989e12  # dense bf16, a second
    mfu: Annotated[float, Field(gt=0, le=1)] = 0.4
    gpus: Count = 1
    tokens_per_second: dict[str, Positive] = {}  # measured, by stack name; in place of the MFU


class StudyPlan(PlanSettings):
    """A whole study: every number in it can be edited, and is checked when it is read."""

    version: int = PLAN_VERSION
    name: Label = "study"
    spec: dict[str, Any]  # a training specification without width, seed, learning rates and horizons
    stacks: tuple[StackPlan, ...] = Field(min_length=1)
    target: Target | None = None
    hardware: Hardware = Hardware()
    adaptive: bool = False  # stop trunks far above the optimum, widen a grid whose minimum is at its edge

    @model_validator(mode="after")
    def _is_consistent(self) -> StudyPlan:
        if self.version != PLAN_VERSION:
            raise SpecError(
                f"version: {self.version} is not known, expected {PLAN_VERSION}", hint="make the plan again"
            )
        names = [stack.name for stack in self.stacks]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SpecError(f"stacks: the name {twice!r} is there twice", hint="give each stack its own name")
        return self

    def content_of(self, stack: StackPlan) -> dict[str, Any]:
        """The whole training specification of one stack, as the mapping that the trainer checks and reads."""
        content = merged(merged(self.spec, stack.settings), {"model": {"width": stack.width}})
        return content | {
            "name": stack.name,
            "seed": stack.seed,
            "lrs": list(stack.lrs),
            "horizons": list(stack.horizons),
        }

    def params_of(self, stack: StackPlan) -> int:
        """N of a stack's models: the token embedding counts once."""
        model = self.content_of(stack)["model"]
        return gpt_params(stack.width, layers=int(model["layers"]), vocab=int(model["vocab"]))

    def params_nonembedding_of(self, stack: StackPlan) -> int:
        """N of a stack's models without the embedding."""
        return gpt_params_nonembedding(stack.width, layers=int(self.content_of(stack)["model"]["layers"]))

    def batch_tokens_of(self, stack: StackPlan) -> int:
        """Tokens a step."""
        content = self.content_of(stack)
        return int(content["batch_sequences"]) * int(content["model"]["context"])

    def to_yaml(self) -> str:
        """The plan as YAML that `load_plan` reads back."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over` in their places; mappings are merged, everything else is replaced."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        result[key] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return result


def build_plan(content: Mapping[str, Any], *, where: str = "plan") -> StudyPlan:
    """A mapping → a checked plan; what is wrong is one line with a hint."""
    try:
        return StudyPlan.model_validate(dict(content))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "plan"
        value = str(first["input"])[:60]
        raise SpecError(
            f"{where}: {place}: {value!r}: {first['msg'].lower()}", hint="see `etastar plan --help`"
        ) from None


def load_plan(path: str | Path) -> StudyPlan:
    """Read a plan from YAML (safe_load)."""
    file = Path(path)
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise SpecError(f"{file}: cannot be read ({reason})", hint="give the path of a plan in YAML") from None
    except yaml.YAMLError as error:
        raise SpecError(f"{file}: not YAML ({str(error).splitlines()[0][:80]})", hint="check its indentation") from None
    if not isinstance(content, Mapping):
        raise SpecError(f"{file}: expected a plan, found {type(content).__name__}", hint="`etastar plan` writes one")
    return build_plan(content, where=str(file))
