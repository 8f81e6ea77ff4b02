"""If log η_eff* is straight in log D, how does log η* bend?

Each horizon's η_eff* is inverted to η* by the recursion of that horizon. A straight line through the
swept horizons, carried to the target, then misses η* by the bend. Its sign is not always the paper's
(up). Where 2ηλT grows along the optimum the run enters equilibrium and η* tends to bend down, where it
shrinks, up; a norm that has outgrown W₀, and a decay phase of fixed length in runs of growing length,
have their part in it. So it is computed, not ruled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from etastar.errors import InputError
from etastar.theory.invert import invert_eff_lr
from etastar.theory.letters import Floats
from etastar.theory.planned import MatricesAt, PlannedRun


@dataclass(frozen=True)
class Bend:
    """η*(T) that a straight η_eff law implies, at the swept horizons and the target (last)."""

    steps: Floats
    log2_eff_lr: Floats
    log2_lr: Floats
    slopes: Floats  # d log η/d log η_eff at each
    relaxations: Floats  # 2ηλT at each
    line_slope: float  # of the straight η law through the swept horizons: d log η*/d log T
    curvature: float  # second difference quotient of log2 η* in log2 T, over all horizons (+ = up)
    octaves_at_target: float  # log2 η*(target) − the line there (+: the line is too low)
    words: str


def bend(
    *,
    swept_steps: Sequence[int],
    target_steps: int,
    log2_eff_lr_of: Callable[[float], float],
    run_of: Callable[[int], PlannedRun],
    matrices_of: Callable[[PlannedRun], MatricesAt],
) -> Bend:
    """Predict η*(T) and its bend from a law of η_eff*.

    `log2_eff_lr_of(log2_steps)` is the law (see `log_linear`), `run_of(T)` the planned run of a horizon,
    `matrices_of(run)` its matrices (constant, or a calibration's).
    """
    if len(swept_steps) < 2:
        raise InputError(f"{len(swept_steps)} horizons make no line", hint="give at least two swept horizons")
    steps = np.array([*swept_steps, target_steps], float)
    wanted = np.array([log2_eff_lr_of(float(np.log2(t))) for t in steps])
    found = []
    for t, log2_eff_lr in zip((*swept_steps, target_steps), wanted, strict=True):
        run = run_of(int(t))
        inverted = invert_eff_lr(float(2.0**log2_eff_lr), run=run, matrices=matrices_of(run))
        rate = run.decay if run.independent_decay else inverted.value * run.decay
        found.append((np.log2(inverted.value), inverted.slope, 2.0 * rate * t))
    log2_lr, slopes, relaxations = (np.array(column) for column in zip(*found, strict=True))
    x = np.log2(steps)
    slope, level = np.polyfit(x[:-1], log2_lr[:-1], 1)
    gap = float(log2_lr[-1] - (level + slope * x[-1]))
    curvature = 2.0 * float(np.polyfit(x, log2_lr, 2)[0])
    words = _words(gap, relaxations)
    return Bend(steps, wanted, log2_lr, slopes, relaxations, float(slope), curvature, gap, words)


def log_linear(slope: float, intercept: float) -> Callable[[float], float]:
    """log2 η_eff* = slope·log2 T + intercept, as `bend` takes it."""
    return lambda log2_steps: slope * log2_steps + intercept


def _words(gap: float, relaxations: Floats) -> str:
    course = "grows" if relaxations[-1] > relaxations[0] else "shrinks"
    along = f"2ηλT {course} along the optimum from {relaxations[0]:.2g} to {relaxations[-1]:.2g}"
    if abs(gap) < 0.1:
        return f"a straight η law can be trusted to the target: it misses by {abs(gap):.2f} octaves ({along})"
    side, fault = ("up", "too low") if gap > 0 else ("down", "too high")
    verdict = "can be trusted with care" if abs(gap) < 0.3 else "cannot be trusted"
    return (
        f"a straight η law {verdict} to the target: η* bends {side}, "
        f"the line is {abs(gap):.2f} octaves {fault} there ({along})"
    )
