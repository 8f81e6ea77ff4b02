"""How was the sweep trained, and how will the target be? λ, warm-up, schedule and batch, of either.

The sweep's settings are what all its runs share. The target's are the sweep's unless the user says
otherwise; the theory needs them to know how long the weight norm has to move.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from etastar.errors import InputError
from etastar.estimate.cells import Group
from etastar.scale import format_number
from etastar.theory.planned import Optimizer, PlannedRun
from etastar.theory.schedules import Schedule

MOST_STEPS = 20_000_000
_SCHEDULES = ("wsd", "cosine", "constant")


class RunSettings(BaseModel):
    """All of a run but its learning rate and length."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    optimizer: Optimizer
    schedule: str
    weight_decay: float = Field(ge=0)
    batch_tokens: float = Field(gt=0)
    warmup_steps: float = Field(ge=0)
    decay_steps: float | None = Field(default=None, ge=0)
    decay_fraction: float | None = Field(default=None, ge=0, le=1)  # where the decay grows with the run
    independent_decay: bool = False

    def steps(self, tokens: float) -> int:
        """T = D / B, rounded."""
        steps = round(tokens / self.batch_tokens)
        if steps > MOST_STEPS:
            raise InputError(
                f"{format_number(tokens)} tokens are {format_number(steps)} steps of "
                f"{format_number(self.batch_tokens)} tokens: more than {format_number(MOST_STEPS)}",
                hint="is the batch in tokens, not in sequences?",
            )
        return max(steps, 1)

    def decay_of(self, steps: int) -> int:
        """Steps of WSD's decay in a run of so many."""
        if self.schedule != "wsd":
            return 0
        if self.decay_steps is not None:
            return round(self.decay_steps)
        return round((self.decay_fraction or 0.0) * steps)

    def planned(self, tokens: float) -> PlannedRun:
        """The run of this many tokens, as the theory takes it; a run inside its warm-up is refused in words."""
        steps = self.steps(tokens)
        return self._run(self.schedule, steps, self.decay_of(steps))

    def trunk(self, steps: int) -> PlannedRun:
        """The constant-LR trunk that WSD branches leave."""
        return self._run("constant", steps, 0)

    def _run(self, kind: str, steps: int, decay: int) -> PlannedRun:
        schedule = Schedule.model_validate(
            {"kind": kind, "steps": steps, "warmup_steps": round(self.warmup_steps), "decay_steps": decay}
        )
        return PlannedRun(
            schedule=schedule,
            weight_decay=self.weight_decay,
            independent_decay=self.independent_decay,
            optimizer=self.optimizer,
        )

    def same_course(self, other: RunSettings) -> bool:
        """Do λ, warm-up and schedule agree? The batch is another matter."""
        return self.model_copy(update={"batch_tokens": other.batch_tokens}) == other


def sweep_settings(group: Group) -> RunSettings | str:
    """What a group's runs share, or what is missing of it, in words."""
    known = group.conditions
    optimizer, schedule = str(known.get("optimizer")).lower(), str(known.get("schedule")).lower()
    if optimizer not in tuple(Optimizer):
        return f"the theory knows {', '.join(Optimizer)}; the runs' optimizer is {known.get('optimizer') or 'unknown'}"
    if schedule not in _SCHEDULES:
        return f"the theory knows {', '.join(_SCHEDULES)}; the runs' schedule is {known.get('schedule') or 'unknown'}"
    fixes = Optimizer(optimizer).fixes_norm or optimizer == "adam"
    wanted = ["batch_tokens", "warmup_steps", *([] if fixes else ["weight_decay"])]
    fraction = known.get("decay_fraction")
    if schedule == "wsd" and fraction is None:
        wanted.append("decay_steps")
    missing = [name for name in wanted if not isinstance(known.get(name), (int, float))]
    if missing:
        return f"the runs do not share one known {', '.join(missing)}"
    return RunSettings(
        optimizer=Optimizer(optimizer),
        schedule=schedule,
        weight_decay=_number(known.get("weight_decay")),
        batch_tokens=_number(known.get("batch_tokens")),
        warmup_steps=_number(known.get("warmup_steps")),
        decay_steps=None if fraction is not None else _number(known.get("decay_steps")),
        decay_fraction=float(fraction) if isinstance(fraction, (int, float)) else None,
        independent_decay=known.get("decay") == "independent",
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
