"""What is to be run? The plan file, the contract between planning and launching.

A plan is one training specification that all its runs share (`spec`), and stacks: each a width, a seed,
learning rates and horizons, and what of the specification it changes. One stack is one trunk a learning
rate with its decay branches. A plan says nothing of devices or clusters beyond what it assumed for its price.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator

from etastar.errors import EtastarError, SpecError
from etastar.plan.gpus import gpu_named
from etastar.plan.training import Training, read_training
from etastar.scale import LARGEST, SMALLEST
from etastar.settings import Number, Settings, Whole, read_yaml

PLAN_VERSION = 1


Positive = Annotated[Number, Field(ge=SMALLEST, le=LARGEST)]
Count = Annotated[Whole, Field(gt=0, le=10**15)]
Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")]


class StackPlan(Settings):
    """One trunk of several learning rates with its branches: the unit that is launched and resumed."""

    name: Label
    width: Count
    seed: int = 0
    lrs: tuple[Positive, ...] = Field(min_length=1)
    horizons: tuple[Count, ...] = Field(min_length=1)  # steps, the decay included
    settings: dict[str, Any] = Field(default_factory=dict)  # of the training specification, over the plan's own `spec`


class Target(Settings):
    """The run whose learning rate is wanted."""

    params: Positive
    tokens: Positive
    width: Count | None = None


class Hardware(Settings):
    """What the price assumes."""

    gpu: str = "H100"
    peak_flops: Positive | None = None  # dense bf16, a second; null: that of the named GPU
    mfu: Annotated[float, Field(gt=0, le=1)] = 0.4
    gpus: Count = 1
    # measured, by stack name, summed over the stack's learning rates; in place of the MFU
    tokens_per_second: dict[str, Positive] = Field(default_factory=dict)

    @property
    def peak(self) -> float:
        """FLOP a second that the MFU is a share of."""
        return gpu_named(self.gpu).peak_flops if self.peak_flops is None else self.peak_flops

    @model_validator(mode="after")
    def _has_a_peak(self) -> Hardware:
        assert self.peak > 0  # an unknown GPU without a peak is refused here
        return self


class Budget(Settings):
    """What the plan was allowed to cost, and how that was counted."""

    ratio: Positive  # of one run of the target (paper), of a sweep at target scale (true)
    counts: Literal["paper", "true"] = "paper"
    axis: Literal["data", "model", "both"] = "data"


class StudyPlan(Settings):
    """A whole study: every number in it can be edited, and is checked when it is read."""

    version: int = PLAN_VERSION
    name: Label = "study"
    spec: dict[str, Any]  # a training specification without width, seed, learning rates and horizons
    stacks: tuple[StackPlan, ...] = Field(min_length=1)
    target: Target | None = None
    hardware: Hardware = Hardware()
    budget: Budget | None = None  # what it was made for; the price is always computed from the stacks
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
        unknown = sorted(set(self.hardware.tokens_per_second) - set(names))
        if unknown:
            raise SpecError(
                f"hardware.tokens_per_second: no stack is called {unknown[0][:40]!r}",
                hint=f"stacks are {', '.join(names[:20])}",
            )
        for place, settings in [("spec", self.spec), *((f"stack {s.name}: settings", s.settings) for s in self.stacks)]:
            if not isinstance(settings.get("model", {}), Mapping):
                shown = str(settings["model"])[:40]
                raise SpecError(f"{place}.model: {shown!r} is not a mapping", hint="write settings under model:")
        for stack in self.stacks:
            _check_stack(stack, self.training_of(stack))
        return self

    def training_of(self, stack: StackPlan) -> Training:
        """What of a stack's specification decides its price."""
        return read_training(self.content_of(stack), where=f"stack {stack.name}")

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
        return self.training_of(stack).params

    def params_nonembedding_of(self, stack: StackPlan) -> int:
        """N of a stack's models without the embedding."""
        return self.training_of(stack).params_nonembedding

    def batch_tokens_of(self, stack: StackPlan) -> int:
        """Tokens a step."""
        return self.training_of(stack).batch_tokens

    def to_yaml(self) -> str:
        """The plan as YAML that `load_plan` reads back."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _check_stack(stack: StackPlan, training: Training) -> None:
    """What the trainer would refuse is refused before anything is launched."""
    for name, values in (("lrs", stack.lrs), ("horizons", stack.horizons)):
        if len(set(values)) < len(values):
            twice = next(value for value in values if values.count(value) > 1)
            raise SpecError(f"stack {stack.name}: {name}: {twice:g} is there twice", hint="name each value once")
    for horizon in stack.horizons:
        training.check_horizon(horizon, where=f"stack {stack.name}: horizons")


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
        if first["type"] in ("missing", "extra_forbidden"):
            said = "is missing" if first["type"] == "missing" else "is not a known setting"
            raise SpecError(f"{where}: {place}: {said}", hint=_settings_at(first["loc"])) from None
        raise SpecError(
            f"{where}: {place}: {value!r}: {first['msg'].lower()}", hint="see `etastar plan --help`"
        ) from None
    except EtastarError as error:
        raise SpecError(f"{where}: {error.message}", hint=error.hint) from None


def _settings_at(place: tuple[int | str, ...]) -> str:
    """The settings that there are beside the one in question."""
    models: dict[Any, type[BaseModel]] = {
        "stacks": StackPlan, "target": Target, "hardware": Hardware, "budget": Budget,
    }  # fmt: skip
    model = models.get(place[0], StudyPlan) if len(place) > 1 else StudyPlan
    return f"settings here are {', '.join(model.model_fields)}"


def load_plan(path: str | Path) -> StudyPlan:
    """Read a plan from YAML (safe_load)."""
    return build_plan(read_yaml(path, what="a plan", hint="`etastar plan` writes one"), where=str(path))
