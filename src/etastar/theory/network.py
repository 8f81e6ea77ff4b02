"""What are a whole network's W, U and κ at an LR that was not swept?

Every matrix of every trunk calibrated, interpolated between the swept LRs, in the form that
`mean_eff_lr` and `invert_eff_lr` take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from etastar.errors import InputError
from etastar.theory.calibrate import WeightCalibration, calibrate_weight
from etastar.theory.letters import Floats, beta1_of_factor
from etastar.theory.planned import Matrices, PlannedRun
from etastar.theory.trajectories import Trajectory


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """All matrices at all swept LRs: fits[k][j] is matrix j at the k-th LR, LRs rising."""

    fits: tuple[tuple[WeightCalibration, ...], ...]
    run: PlannedRun  # the trunk's

    @property
    def lrs(self) -> Floats:
        """The swept LRs, rising."""
        return np.array([row[0].lr for row in self.fits])

    def table(self, name: str) -> Floats:
        """One field of every fit, shape (LRs, matrices)."""
        return np.array([[getattr(fit, name) for fit in row] for row in self.fits])

    def at(self, lr: Floats, *, from_start: bool = False) -> Matrices:
        """Matrices at any LRs: U, κ and the norm at fit_stop interpolated in log2 lr, ends carried on flat
        (the norm at fit_stop carried on along its last slope).

        `from_start` begins at step 0 with W₀ instead: for a λ, warm-up or schedule that the trunk had not.
        """
        stops = {fit.fit_stop for row in self.fits for fit in row}
        heads = self.table("head_eff_lr")
        log2_lr, log2_grid = np.log2(np.atleast_1d(lr)), np.log2(self.lrs)

        def between(values: Floats, *, extend: bool = False) -> Floats:
            return np.exp2(_interpolate(log2_lr, log2_grid, np.log2(values), extend=extend))

        norm, beta = between(self.table("update_norm")), beta1_of_factor(between(self.table("factor")))
        start = np.mean(self.table("weight_norm0"), axis=0)
        if from_start or len(stops) > 1 or not np.isfinite(heads).all():
            return Matrices(weight_norm0=np.broadcast_to(start, norm.shape), update_norm=norm, beta1=beta)
        return Matrices(
            weight_norm0=between(self.table("stop_weight_norm"), extend=True),
            update_norm=norm,
            beta1=beta,
            start_step=stops.pop(),
            head_eff_lr=between(heads, extend=True),
            first_weight_norm=np.broadcast_to(start, norm.shape),
        )

    def matrices_for(self, target: PlannedRun, *, from_start: bool = False) -> tuple[FromCalibration, tuple[str, ...]]:
        """What `invert_eff_lr` needs for a target, and flags: the trunk's own beginning is used where the
        target shares it (λ and every LR factor up to fit_stop), else the recursion starts from W₀.

        With `from_start` it always does: for a comparison of horizons on one footing.
        """
        if from_start:
            return FromCalibration(self, from_start=True), ()
        stop = max(fit.fit_stop for row in self.fits for fit in row)
        shared = (
            target.decay == self.run.decay
            and target.independent_decay == self.run.independent_decay
            and target.steps > stop
            and np.allclose(target.factors()[:stop], self.run.factors()[:stop])
        )
        flags = () if shared else ("other-beginning: the target's first steps are not the trunk's: from W₀",)
        return FromCalibration(self, from_start=not shared), flags


@dataclass(frozen=True)
class FromCalibration:
    """A function of LRs → Matrices, as `mean_eff_lr` and `invert_eff_lr` take it."""

    calibration: Calibration
    from_start: bool = False

    def __call__(self, lr: Floats) -> Matrices:
        return self.calibration.at(lr, from_start=self.from_start)


def calibrate(
    trunks: Sequence[tuple[float, Sequence[Trajectory]]],
    *,
    run: PlannedRun,
    beta1: float,
    fit_stop: int,
    window: float | None = None,
    warmup_steps: int = 0,
) -> Calibration:
    """Calibrate every matrix of every trunk, given as (lr, trajectories); they share schedule and λ."""
    if not trunks:
        raise InputError("no trunk to calibrate on", hint="give at least one run with its trajectories")
    ordered = sorted(trunks, key=lambda trunk: trunk[0])
    names = [trajectory.weight for trajectory in ordered[0][1]]
    for lr, matrices in ordered:
        if [trajectory.weight for trajectory in matrices] != names:
            raise InputError(
                f"the trunk at lr {lr:.4g} holds other matrices than the first",
                hint="use trunks of one model",
            )
    fits = tuple(
        tuple(
            calibrate_weight(
                trajectory,
                lr=lr,
                run=run,
                beta1=beta1,
                fit_stop=fit_stop,
                window=window,
                warmup_steps=warmup_steps,
            )
            for trajectory in matrices
        )
        for lr, matrices in ordered
    )
    return Calibration(fits=fits, run=run)


def _interpolate(x: Floats, grid: Floats, values: Floats, *, extend: bool) -> Floats:
    """A smooth curve through the LRs for every matrix: (K,), (L,), (L, matrices) → (K, matrices).

    Cubic between two LRs, with slopes of the parabola through each LR and its neighbours: straight lines
    cut the corner of the norm's bend, by some hundredths of an octave of η between LRs an octave apart.
    """
    if len(grid) == 1:
        # one LR says nothing of the slope: W keeps its value, η_eff moves with η
        return np.broadcast_to(values, (len(x), values.shape[1])).copy()
    slopes = np.gradient(values, grid, axis=0, edge_order=2 if len(grid) > 2 else 1)
    inside = np.clip(x, grid[0], grid[-1])
    left = np.clip(np.searchsorted(grid, inside, side="right") - 1, 0, len(grid) - 2)
    gap = (grid[left + 1] - grid[left])[:, None]
    s = (inside - grid[left])[:, None] / gap
    out = (
        (1.0 + 2.0 * s) * (1.0 - s) ** 2 * values[left]
        + s * (1.0 - s) ** 2 * gap * slopes[left]
        + s**2 * (3.0 - 2.0 * s) * values[left + 1]
        - s**2 * (1.0 - s) * gap * slopes[left + 1]
    )
    if extend:
        first = (values[1] - values[0]) / (grid[1] - grid[0])
        last = (values[-1] - values[-2]) / (grid[-1] - grid[-2])
        out = out + np.minimum(x - grid[0], 0.0)[:, None] * first + np.maximum(x - grid[-1], 0.0)[:, None] * last
    return out
