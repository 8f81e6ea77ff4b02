"""What are W₀, U and the correlation of each matrix, and do they predict steps they were not fitted on?

From a constant-LR trunk (warm-up, then a plateau). With measured ‖u_t‖ the norm is linear in the one
unknown of the recursion, the correlation factor κ:

    W²_t = W²_a·Π α² + κ·Σ_i η_i²·‖u_i‖²·Π_{j>i} α_j²,   a ≤ i < t,

so κ comes from least squares in relative error. Theory says (1+β₁)/(1−β₁). Real matrices have half to
twice that, settle on it only some time after the warm-up and drift slowly; so the fit looks at the later
part of what it may see, and forecasts start from the norm measured there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from etastar.errors import InputError
from etastar.theory.letters import Floats, beta1_of_factor, correlation_factor, decay_per_step
from etastar.theory.planned import Matrices, PlannedRun
from etastar.theory.recursion import linear_scan, run_recursion
from etastar.theory.trajectories import Trajectory


@dataclass(frozen=True, kw_only=True)
class WeightCalibration:
    """One matrix at one LR: what was fitted on steps [fit_start, fit_stop)."""

    weight: str
    lr: float
    weight_norm0: float  # ‖w‖ at the first logged step
    update_norm: float  # root mean square of ‖u_t‖ over the window
    factor: float  # κ, fitted to the norms
    factor_theory: float  # (1+β₁)/(1−β₁)
    factor_from_dot: float  # 1 − 2⟨u,w⟩/(ηU²) over the window; NaN where ⟨u,w⟩ is not logged
    fit_residual: float  # root mean square relative error of ‖w‖ in the window
    update_drift: float  # octaves of U per octave of t in the window
    factor_drift: float  # octaves of κU² per octave of t, between the window's halves
    fit_start: int
    fit_stop: int
    stop_weight_norm: float  # ‖w‖ before step fit_stop
    head_eff_lr: float  # mean η_eff of the steps before fit_stop; NaN where it is not logged


def calibrate_weight(
    trajectory: Trajectory,
    *,
    lr: float,
    run: PlannedRun,
    beta1: float,
    fit_stop: int,
    window: float = 0.5,
    warmup_steps: int = 0,
) -> WeightCalibration:
    """Fit U and κ of one matrix on the last `window` of the steps between warm-up and `fit_stop`.

    `run` carries the trunk's schedule (its factors over the steps logged), λ and how λ acts.
    """
    start = int(warmup_steps + (1.0 - window) * (fit_stop - warmup_steps))
    inside = (trajectory.step >= start) & (trajectory.step < fit_stop)
    if inside.sum() < 8:
        raise InputError(
            f"trajectory of {trajectory.weight[:60]!r}: {int(inside.sum())} logged steps between {start} and "
            f"{fit_stop}, expected at least 8",
            hint="calibrate on a longer part of the trunk, or log more often",
        )
    start = int(trajectory.step[inside][0])
    rates, delta = _rates(run, lr, fit_stop)
    kept, pushed = _responses(trajectory, rates, delta, start, fit_stop)
    rows = trajectory.step[inside] - start
    squared = trajectory.weight_norm[inside] ** 2
    factor, residual = _fit(squared, squared[0] * kept[rows], pushed[rows])
    norm = float(np.sqrt(np.mean(trajectory.update_norm[inside] ** 2)))
    dots = trajectory.update_dot_weight[inside] / (rates[trajectory.step[inside]] * norm**2)
    before = trajectory.step < fit_stop
    return WeightCalibration(
        weight=trajectory.weight,
        lr=lr,
        weight_norm0=float(trajectory.weight_norm[0]),
        update_norm=norm,
        factor=factor,
        factor_theory=float(correlation_factor(beta1)),
        factor_from_dot=float(1.0 - 2.0 * np.mean(dots)),
        fit_residual=residual,
        update_drift=_slope(trajectory.step[inside], trajectory.update_norm[inside]),
        factor_drift=_factor_drift(trajectory, rates, delta, start, fit_stop, factor),
        fit_start=start,
        fit_stop=fit_stop,
        stop_weight_norm=float(np.interp(fit_stop, trajectory.step, trajectory.weight_norm)),
        head_eff_lr=float(np.mean(trajectory.every_step("eff_lr", 0, fit_stop)))
        if np.isfinite(trajectory.eff_lr[before]).all()
        else float("nan"),
    )


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """How well one matrix's calibration predicts steps it did not see, from the norm at `fit_stop`."""

    weight: str
    lr: float
    start: int
    stop: int
    weight_norm_error: float  # worst |relative error| of the binned ‖w‖
    eff_lr_error: float  # worst |relative error| of the binned η_eff
    eff_lr_bias: float  # relative error of η_eff's mean over the held-out steps
    cause: str  # which assumption moved most: "update norm" or "correlation", "" within 2 %


def forecast_weight(fit: WeightCalibration, *, run: PlannedRun, stop: int) -> tuple[Floats, Floats]:
    """‖w_t‖ and η_eff(t) at steps fit_stop … stop − 1, continued from the norm measured at fit_stop."""
    beta = beta1_of_factor(fit.factor)
    factors = run.factors()[fit.fit_stop : stop]
    _, delta = _rates(run, fit.lr, fit.fit_stop + 1)
    steady = -fit.lr * factors[0] * beta * fit.update_norm**2 / (1.0 - (1.0 - delta[-1]) * beta)
    walked = run_recursion(
        factors,
        lr=fit.lr,
        weight_decay=run.decay,
        beta1=beta,
        weight_norm0=fit.stop_weight_norm,
        update_norm=fit.update_norm,
        update_dot_weight0=steady,
        independent_decay=run.independent_decay,
    )
    return walked.weight_norm[:-1], walked.eff_lr


def judge_weight(
    fit: WeightCalibration, trajectory: Trajectory, *, run: PlannedRun, start: int, stop: int, bins: int = 8
) -> HeldOut:
    """Compare the forecast with the trajectory on [start, stop), in means over `bins` stretches of it.

    Single steps carry the noise of ‖u_t‖; the paper's curves are smoothed as well.
    """
    norms, rates = forecast_weight(fit, run=run, stop=stop)
    held = (trajectory.step >= max(start, fit.fit_stop)) & (trajectory.step < stop)
    rows = trajectory.step[held] - fit.fit_stop
    if rows.size < bins:
        raise InputError(
            f"trajectory of {trajectory.weight[:60]!r}: {rows.size} logged steps to hold out, "
            f"expected {bins}",
            hint="log more often or hold out more steps",
        )
    norm_errors = _binned(norms[rows], trajectory.weight_norm[held], bins)
    rate_errors = _binned(rates[rows], trajectory.eff_lr[held], bins)
    bias = float(np.mean(rates[rows]) / np.mean(trajectory.eff_lr[held]) - 1.0)
    return HeldOut(
        weight=fit.weight,
        lr=fit.lr,
        start=start,
        stop=stop,
        weight_norm_error=float(np.max(np.abs(norm_errors))),
        eff_lr_error=float(np.max(np.abs(rate_errors))),
        eff_lr_bias=bias,
        cause=_cause(fit, trajectory, held, float(np.mean(norm_errors)), bias),
    )


def _cause(
    fit: WeightCalibration, trajectory: Trajectory, held: np.ndarray, norm_error: float, bias: float
) -> str:
    """η_eff = ηU/W: U off means that the update norm drifted; W off with U right, the correlation."""
    if abs(bias) < 0.02:
        return ""
    size = fit.update_norm / float(np.sqrt(np.mean(trajectory.update_norm[held] ** 2))) - 1.0
    # W follows U in equilibrium: only what U does not explain is laid at the correlation's door
    return "update norm" if abs(size) >= abs(norm_error - size) else "correlation"


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
        if from_start or len(stops) > 1 or not np.isfinite(heads).all():
            start = np.mean(self.table("weight_norm0"), axis=0)
            return Matrices(weight_norm0=np.broadcast_to(start, norm.shape), update_norm=norm, beta1=beta)
        return Matrices(
            weight_norm0=between(self.table("stop_weight_norm"), extend=True),
            update_norm=norm,
            beta1=beta,
            start_step=stops.pop(),
            head_eff_lr=between(heads, extend=True),
        )

    def matrices_for(self, target: PlannedRun) -> tuple[FromCalibration, tuple[str, ...]]:
        """What `invert_eff_lr` needs for a target, and flags: the trunk's own beginning is used where the
        target shares it (λ and every LR factor up to fit_stop), else the recursion starts from W₀."""
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
    window: float = 0.5,
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


def _rates(run: PlannedRun, lr: float, stop: int) -> tuple[Floats, Floats]:
    """η_t and δ_t of steps 0 … stop − 1."""
    factors = run.factors()
    if len(factors) < stop:
        raise InputError(
            f"the trunk's schedule has {len(factors)} steps, fewer than the {stop} to look at",
            hint="give the schedule of the whole trunk",
        )
    delta = decay_per_step(lr, run.decay, independent_decay=run.independent_decay)
    factors = factors[:stop]
    return lr * factors, np.full(stop, float(delta)) if run.independent_decay else factors * delta


def _responses(
    trajectory: Trajectory, rates: Floats, delta: Floats, start: int, stop: int
) -> tuple[Floats, Floats]:
    """Π α² since `start`, and the growth that κ = 1 would give, at steps start … stop − 1."""
    shrink = ((1.0 - delta[start:stop]) ** 2)[:, None]
    push = (rates[start:stop] * trajectory.every_step("update_norm", start, stop))[:, None] ** 2
    kept = linear_scan(shrink, np.zeros_like(push), np.ones(1))
    return kept[:-1, 0], linear_scan(shrink, push, np.zeros(1))[:-1, 0]


def _fit(squared: Floats, kept: Floats, pushed: Floats) -> tuple[float, float]:
    """κ by least squares of relative errors of W², never below a hundredth, and ‖w‖'s residual."""
    growth, shape = (squared - kept) / squared, pushed / squared
    factor = max(float(growth @ shape / (shape @ shape)), 1e-2)
    return factor, float(np.sqrt(np.mean((0.5 * (factor * shape - growth)) ** 2)))


def _factor_drift(
    trajectory: Trajectory, rates: Floats, delta: Floats, start: int, stop: int, factor: float
) -> float:
    """log2 of (κ fitted on the later half / on the earlier half), per octave of t between their middles."""
    middle = (start + stop) // 2
    halves = []
    for low, high in ((start, middle), (middle, stop)):
        inside = (trajectory.step >= low) & (trajectory.step < high)
        if inside.sum() < 4:
            return float("nan")
        first = int(trajectory.step[inside][0])
        kept, pushed = _responses(trajectory, rates, delta, first, high)
        rows, squared = trajectory.step[inside] - first, trajectory.weight_norm[inside] ** 2
        halves.append(_fit(squared, squared[0] * kept[rows], pushed[rows])[0])
    octaves = np.log2((middle + stop) / (start + middle))
    return float(np.log2(halves[1] / halves[0]) / octaves)


def _slope(step: np.ndarray, values: Floats) -> float:
    return float(np.polyfit(np.log2(step + 1.0), np.log2(values), 1)[0])


def _binned(predicted: Floats, measured: Floats, bins: int) -> Floats:
    parts = zip(np.array_split(predicted, bins), np.array_split(measured, bins), strict=True)
    return np.array([np.mean(p) / np.mean(m) - 1.0 for p, m in parts])


def _interpolate(x: Floats, grid: Floats, values: Floats, *, extend: bool) -> Floats:
    """Straight lines between LRs for every matrix: (K,), (L,), (L, matrices) → (K, matrices)."""
    if len(grid) == 1:
        # one LR says nothing of the slope: W keeps its value, η_eff moves with η
        return np.broadcast_to(values, (len(x), values.shape[1])).copy()
    inside = np.clip(x, grid[0], grid[-1])
    out = np.stack([np.interp(inside, grid, column) for column in values.T], axis=1)
    if extend:
        first = (values[1] - values[0]) / (grid[1] - grid[0])
        last = (values[-1] - values[-2]) / (grid[-1] - grid[-2])
        out = (
            out
            + np.minimum(x - grid[0], 0.0)[:, None] * first
            + np.maximum(x - grid[-1], 0.0)[:, None] * last
        )
    return out
