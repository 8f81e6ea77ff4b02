"""By what factor is the peak LR multiplied at each step of a planned run?

Plain numpy, with the trainer's conventions: the warm-up reaches 1 at its last step, a linear decay
starts from 1 at its first step and would be 0 at `steps`, the first step that is not taken. Every
function of this room that takes a schedule also takes an array of factors, so a foreign schedule needs
no name here.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, model_validator

from etastar.errors import SpecError
from etastar.theory.letters import Floats


class Schedule(BaseModel):
    """A warm-up, then a plateau with a decay to zero (`wsd`), a half cosine, or a constant."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["wsd", "cosine", "constant"] = "wsd"
    steps: int
    warmup_steps: int = 0
    decay_steps: int = 0

    @model_validator(mode="before")
    @classmethod
    def _carries_out(cls, given: Any) -> Any:
        # before validation, and as our own error: pydantic would wrap the words in its report
        if isinstance(given, dict):
            _refuse_impossible(given)
        return given

    def factors(self) -> Floats:
        """η(t)/η for t = 0 … steps − 1."""
        t = np.arange(self.steps, dtype=float)
        factor = np.ones(self.steps)
        if self.kind == "cosine":
            done = (t - self.warmup_steps) / max(self.steps - self.warmup_steps, 1)
            factor = 0.5 * (1.0 + np.cos(np.pi * np.clip(done, 0.0, 1.0)))
        elif self.kind == "wsd" and self.decay_steps:
            factor = np.minimum(1.0, (self.steps - t) / self.decay_steps)
        if self.warmup_steps:
            warm = t < self.warmup_steps
            factor[warm] = (t[warm] + 1.0) / self.warmup_steps
        return factor

    def plateau(self) -> np.ndarray:
        """Which steps lie between warm-up and decay (none of a cosine's)."""
        t = np.arange(self.steps)
        if self.kind == "cosine":
            return np.zeros(self.steps, bool)
        decay = self.decay_steps if self.kind == "wsd" else 0
        return (t >= self.warmup_steps) & (t < self.steps - decay)

    def mean(self) -> float:
        """The schedule's mean factor: what a hyperball optimizer's mean η_eff is, in units of η."""
        return float(self.factors().mean())


def factors_of(schedule: Schedule | Floats) -> Floats:
    """The factors of a schedule, or a given array of them after a check."""
    if isinstance(schedule, Schedule):
        return schedule.factors()
    factors = np.asarray(schedule, float)
    if factors.ndim != 1 or factors.size == 0:
        raise SpecError(
            f"schedule: an array of shape {factors.shape} is not a factor a step",
            hint="give a one-dimensional array of η(t)/η, one entry a step",
        )
    if not (np.isfinite(factors).all() and (factors >= 0).all() and factors.any()):
        raise SpecError("schedule: the factors must be finite, not negative and not all zero", hint="give η(t)/η")
    return factors


def _refuse_impossible(given: dict[str, Any]) -> None:
    counts = {name: given.get(name, 0) for name in ("steps", "warmup_steps", "decay_steps")}
    for name, value in counts.items():
        whole = isinstance(value, (int, float, np.integer)) and float(value).is_integer()
        if not whole or value < (1 if name == "steps" else 0):
            raise SpecError(f"{name}: {value!r} is not a whole number of steps", hint=f"give {name} in steps")
    if given.get("kind", "wsd") != "wsd":
        counts["decay_steps"] = 0
    if counts["steps"] < counts["warmup_steps"]:
        raise SpecError(
            f"steps: {counts['steps']:g} steps end inside the warm-up of {counts['warmup_steps']:g}: "
            "the run never sees the learning rate asked for",
            hint="give more steps or a shorter warm-up",
        )
    if counts["steps"] < counts["warmup_steps"] + counts["decay_steps"]:
        raise SpecError(
            f"steps: {counts['steps']:g} is less than warm-up {counts['warmup_steps']:g} "
            f"plus decay {counts['decay_steps']:g}",
            hint="give more steps, or shorten warm-up or decay",
        )
