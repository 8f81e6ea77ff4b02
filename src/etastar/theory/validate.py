"""Do real trajectories follow the theory? The figures of the paper's appendix, each with a number.

Every function takes one matrix' trajectory and returns the figure's data (measured and predicted over
steps) and `goodness`: the median |relative error| of the prediction, in means over short stretches,
after the warm-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from etastar.errors import InputError
from etastar.theory.dynamics import update_dot_weight
from etastar.theory.letters import Floats, correlation_factor, decay_per_step
from etastar.theory.planned import PlannedRun
from etastar.theory.recursion import linear_scan
from etastar.theory.trajectories import Trajectory


@dataclass(frozen=True)
class FigureData:
    """One curve against its prediction."""

    weight: str
    step: np.ndarray
    measured: Floats
    predicted: Floats
    goodness: float  # median |relative error| of stretches after the warm-up
    worst: float  # the worst of them


def update_norm_figure(trajectory: Trajectory, *, warmup_steps: int = 0, stretches: int = 20) -> FigureData:
    """‖u_t‖ against a constant, its root mean square after the warm-up (assumption 1)."""
    late = trajectory.step >= warmup_steps
    level = np.sqrt(np.mean(trajectory.update_norm[late] ** 2))
    predicted = np.full(len(trajectory.step), level)
    return _figure(trajectory, trajectory.update_norm, predicted, warmup_steps, stretches)


def correlation_figure(
    trajectory: Trajectory,
    *,
    lr: float,
    run: PlannedRun,
    beta1: float,
    warmup_steps: int = 0,
    stretches: int = 20,
) -> FigureData:
    """−⟨u_t, w_t⟩/‖u_t‖ against η·β₁/(1−αβ₁)·‖u_t‖: equation (correlation), for assumption 2.

    A fitted β₁ in place of Adam's shows how much of the misfit the correlation factor explains.
    """
    if not np.isfinite(trajectory.update_dot_weight).all():
        raise InputError(
            f"trajectory of {trajectory.weight[:60]!r}: update_dot_weight is not logged at every step",
            hint="log ⟨u, w⟩, or use the weight-norm figure",
        )
    rates = lr * run.factors()[trajectory.step]
    live = np.where(rates > 0, rates, lr)
    dot = update_dot_weight(
        trajectory.step,
        lr=live,
        weight_decay=run.decay,
        beta1=beta1,
        update_norm=trajectory.update_norm,
        independent_decay=run.independent_decay,
    )
    measured = -trajectory.update_dot_weight / trajectory.update_norm
    return _figure(trajectory, measured, -dot / trajectory.update_norm, warmup_steps, stretches)


def weight_norm_figure(
    trajectory: Trajectory,
    *,
    lr: float,
    run: PlannedRun,
    beta1: float,
    warmup_steps: int = 0,
    stretches: int = 20,
) -> FigureData:
    """‖w_t‖² against the recursion driven by the measured ‖u_t‖², from the first logged norm.

    The paper puts ‖u_t‖² into the constant-U solution (wt_with_wd); summing it step by step is the same
    where U is constant and right where it is not.
    """
    first, last = int(trajectory.step[0]), int(trajectory.step[-1])
    factors = run.factors()[first:last]
    delta = decay_per_step(lr, run.decay, independent_decay=run.independent_decay)
    shrink = factors * delta
    size = trajectory.every_step("update_norm", first, last)
    added = (lr * factors * size) ** 2 * correlation_factor(beta1, shrink)
    start = np.array([trajectory.weight_norm[0] ** 2])
    squared = linear_scan(((1.0 - shrink) ** 2)[:, None], added[:, None], start)[:, 0]
    rows = trajectory.step - first
    return _figure(trajectory, trajectory.weight_norm**2, squared[rows], warmup_steps, stretches)


@dataclass(frozen=True)
class SpreadData:
    """η_eff of every matrix of a run: does one mean stand for all?"""

    weights: tuple[str, ...]
    mean_eff_lr: Floats  # of each matrix, over the steps after the warm-up
    spread_octaves: float  # standard deviation of log2 over matrices
    widest_octaves: float  # highest to lowest
    goodness: float  # correlation over time of each matrix with the mean over matrices, the median


def eff_lr_spread(trajectories: Sequence[Trajectory], *, warmup_steps: int = 0) -> SpreadData:
    """Per-weight spread of η_eff over matrices logged at the same steps."""
    steps = _common_steps(trajectories)
    table = np.log2(np.stack([one.eff_lr[steps >= warmup_steps] for one in trajectories]))
    if not np.isfinite(table).all():
        raise InputError("eff_lr is missing or zero at some step", hint="log eff_lr of every matrix")
    means = np.log2(np.mean(np.exp2(table), axis=1))
    moving = table - table.mean(axis=1, keepdims=True)
    common = moving.mean(axis=0)
    size = np.sqrt((moving**2).sum(axis=1) * (common**2).sum())
    with_mean = (moving @ common) / np.where(size > 0, size, 1.0)
    return SpreadData(
        weights=tuple(one.weight for one in trajectories),
        mean_eff_lr=np.exp2(means),
        spread_octaves=float(np.std(means)),
        widest_octaves=float(np.ptp(means)),
        goodness=float(np.median(with_mean)),
    )


@dataclass(frozen=True)
class BandData:
    """η_eff over matrices at every logged step."""

    step: np.ndarray
    mean: Floats
    sd: Floats


def eff_lr_band(trajectories: Sequence[Trajectory]) -> BandData:
    """Mean and standard deviation of η_eff over matrices logged at the same steps; steps without it are left out."""
    steps = _common_steps(trajectories)
    table = np.stack([one.eff_lr for one in trajectories])
    known = np.isfinite(table).all(axis=0)
    return BandData(steps[known], table[:, known].mean(axis=0), table[:, known].std(axis=0))


def _common_steps(trajectories: Sequence[Trajectory]) -> np.ndarray:
    steps = trajectories[0].step
    if any(not np.array_equal(one.step, steps) for one in trajectories):
        raise InputError("matrices are logged at different steps", hint="log all matrices of a run together")
    return steps


def _figure(
    trajectory: Trajectory, measured: Floats, predicted: Floats, warmup_steps: int, stretches: int
) -> FigureData:
    late = trajectory.step >= warmup_steps
    if late.sum() < stretches:
        raise InputError(
            f"trajectory of {trajectory.weight[:60]!r}: {int(late.sum())} logged steps after the warm-up, "
            f"expected at least {stretches}",
            hint="log more often, or ask for fewer stretches",
        )
    parts = zip(np.array_split(predicted[late], stretches), np.array_split(measured[late], stretches), strict=True)
    errors = np.array([abs(float(np.mean(p) / np.mean(m)) - 1.0) for p, m in parts])
    return FigureData(
        trajectory.weight,
        trajectory.step,
        measured,
        predicted,
        float(np.median(errors)),
        float(errors.max()),
    )
