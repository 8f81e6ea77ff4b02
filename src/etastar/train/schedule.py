"""By what factor is every learning rate multiplied at step t?

A pure function of the step: a resumed run, a branch and another machine take the same factor. A branch
of horizon T leaves the trunk at `leaves_trunk_at(T)`; before that step the factor does not depend on T.
"""

from __future__ import annotations

import math

from etastar.train.spec import ScheduleSpec


def lr_factor(schedule: ScheduleSpec, step: int, horizon: int | None) -> float:
    """The factor at `step` (from 0) of a run that ends at `horizon`, or of the trunk (None).

    The warm-up reaches 1 at its last step; the linear decay starts from 1 at its first step and would
    be 0 at `horizon`, the first step that is not taken.
    """
    if step < schedule.warmup_steps:
        return (step + 1) / schedule.warmup_steps
    if schedule.kind == "cosine":
        if horizon is None:
            raise ValueError("a cosine schedule has no trunk: it needs its horizon from the first step")
        done = (step - schedule.warmup_steps) / max(horizon - schedule.warmup_steps, 1)
        return 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
    decay = schedule.decay_of(horizon) if horizon is not None else 0
    if horizon is None or step < horizon - decay:
        return 1.0
    return (horizon - step) / decay


def leaves_trunk_at(schedule: ScheduleSpec, horizon: int) -> int:
    """The first step at which a run of this horizon differs from the trunk."""
    return 0 if schedule.kind == "cosine" else horizon - schedule.decay_of(horizon)


def on_plateau(schedule: ScheduleSpec, step: int, horizon: int | None) -> bool:
    """Is the step between warm-up and decay? A cosine schedule has no plateau."""
    if schedule.kind == "cosine" or step < schedule.warmup_steps:
        return False
    return horizon is None or step < leaves_trunk_at(schedule, horizon)
