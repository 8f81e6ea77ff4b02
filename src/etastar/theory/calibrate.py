"""What are W₀, U and the correlation of each matrix, and do they predict steps they were not fitted on?

From a constant-LR trunk (warm-up, then a plateau). With measured ‖u_t‖ the norm is linear in the one
unknown of the recursion, the correlation factor κ:

    W²_t = W²_a·Π α² + κ·Σ_i η_i²·‖u_i‖²·Π_{j>i} α_j²,   a ≤ i < t,

so κ comes from least squares in relative error; it is (1+αβ)/(1−αβ) of the updates' β, which is solved for.
Theory says (1+β₁)/(1−β₁). Real matrices have half to
twice that, settle on it only some time after the warm-up and drift slowly; so the fit looks at the later
part of what it may see, and forecasts start from the norm measured there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from etastar.errors import InputError
from etastar.theory.letters import Floats, correlation_factor, decay_per_step
from etastar.theory.planned import PlannedRun
from etastar.theory.recursion import linear_scan
from etastar.theory.trajectories import Trajectory

_LEAST_FACTOR = 1e-2
_LOGGED, _MEMORIES = 10, 10  # logged steps and correlation times that a window holds
_LATEST, _LONGEST = 0.1, 1 / 3  # its least and largest share of what may be seen


@dataclass(frozen=True, kw_only=True)
class WeightCalibration:
    """One matrix at one LR: what was fitted on steps [fit_start, fit_stop)."""

    weight: str
    lr: float
    weight_norm0: float  # ‖w‖ at the first logged step
    update_norm: float  # root mean square of ‖u_t‖ over the window
    factor: float  # κ = (1+β)/(1−β), fitted to the norms
    factor_theory: float  # (1+β₁)/(1−β₁)
    factor_from_dot: float  # the same from ⟨u,w⟩ = −ηU²β/(1−αβ) over the window; NaN where it is not logged
    fit_residual: float  # root mean square relative error of ‖w‖ in the window
    update_drift: float  # octaves of U per octave of t in the window
    fit_start: int
    fit_stop: int
    stop_weight_norm: float  # ‖w‖ before step fit_stop
    head_eff_lr: float  # mean η_eff of the steps before fit_stop; NaN where it is not logged
    flags: tuple[str, ...] = ()


def calibrate_weight(
    trajectory: Trajectory,
    *,
    lr: float,
    run: PlannedRun,
    beta1: float,
    fit_stop: int,
    window: float | None = None,
    warmup_steps: int = 0,
) -> WeightCalibration:
    """Fit U and κ of one matrix on the last `window` of the steps between warm-up and `fit_stop`.

    By default as late as the log and the noise allow: the last tenth, but at least ten logged steps and ten
    correlation times 1/(1−β₁), and a third at most.
    `run` carries the trunk's schedule (its factors over the steps logged), λ and how λ acts.
    """
    if window is None:
        logged = int(((trajectory.step >= warmup_steps) & (trajectory.step < fit_stop)).sum())
        memory = _MEMORIES / (1.0 - abs(beta1)) / max(fit_stop - warmup_steps, 1)
        window = float(np.clip(max(_LOGGED / max(logged, 1), memory), _LATEST, _LONGEST))
    start = int(warmup_steps + (1.0 - window) * (fit_stop - warmup_steps))
    inside = (trajectory.step >= start) & (trajectory.step < fit_stop)
    if inside.sum() < 8:
        raise InputError(
            f"trajectory of {trajectory.weight[:60]!r}: {int(inside.sum())} logged steps between {start} and "
            f"{fit_stop}, expected at least 8",
            hint="calibrate on a longer part of the trunk, or log more often",
        )
    start = int(trajectory.step[inside][0])
    rates, delta = schedule_rates(run, lr, fit_stop)
    kept, pushed = _responses(trajectory, rates, delta, start, fit_stop)
    rows = trajectory.step[inside] - start
    squared = trajectory.weight_norm[inside] ** 2
    factor, residual = _fit(squared, squared[0] * kept[rows], pushed[rows])
    shrink = float(np.mean(delta[start:fit_stop]))
    norm = float(np.sqrt(np.mean(trajectory.update_norm[inside] ** 2)))
    dots = trajectory.update_dot_weight[inside] / (rates[trajectory.step[inside]] * norm**2)
    dot = -float(np.mean(dots))  # β/(1−αβ) in the limit of equation (correlation)
    before = trajectory.step < fit_stop
    return WeightCalibration(
        weight=trajectory.weight,
        lr=lr,
        weight_norm0=float(trajectory.weight_norm[0]),
        update_norm=norm,
        factor=_of_updates(factor, shrink),
        factor_theory=float(correlation_factor(beta1)),
        factor_from_dot=_factor(dot / (1.0 + (1.0 - shrink) * dot)),
        fit_residual=residual,
        update_drift=_slope(trajectory.step[inside], trajectory.update_norm[inside]),
        fit_start=start,
        fit_stop=fit_stop,
        stop_weight_norm=float(np.interp(fit_stop, trajectory.step, trajectory.weight_norm)),
        head_eff_lr=float(np.mean(trajectory.every_step("eff_lr", 0, fit_stop)))
        if np.isfinite(trajectory.eff_lr[before]).all()
        else float("nan"),
        flags=("no-growth: the norm shrank faster than its decay, κ is set to 0.01",)
        if factor <= _LEAST_FACTOR
        else (),
    )


def schedule_rates(run: PlannedRun, lr: float, stop: int) -> tuple[Floats, Floats]:
    """η_t and δ_t of steps 0 … stop − 1."""
    factors = run.factors()
    if len(factors) < stop:
        raise InputError(
            f"the trunk's schedule has {len(factors)} steps, fewer than the {stop} to look at",
            hint="give the schedule of the whole trunk",
        )
    delta = decay_per_step(lr, run.decay, independent_decay=run.independent_decay)
    factors = factors[:stop]
    return lr * factors, factors * delta


def _responses(trajectory: Trajectory, rates: Floats, delta: Floats, start: int, stop: int) -> tuple[Floats, Floats]:
    """Π α² since `start`, and the growth that κ = 1 would give, at steps start … stop − 1."""
    shrink = (1.0 - delta[start:stop]) ** 2
    push = (rates[start:stop] * trajectory.every_step("update_norm", start, stop)) ** 2
    kept = np.concatenate([[1.0], np.cumprod(shrink[:-1])])
    return kept, linear_scan(shrink[:, None], push[:, None], np.zeros(1))[:-1, 0]


def _fit(squared: Floats, kept: Floats, pushed: Floats) -> tuple[float, float]:
    """κ by least squares of relative errors of W² (at least a hundredth: flagged), and ‖w‖'s residual."""
    growth, shape = (squared - kept) / squared, pushed / squared
    factor = max(float(growth @ shape / (shape @ shape)), _LEAST_FACTOR)
    return factor, float(np.sqrt(np.mean((0.5 * (factor * shape - growth)) ** 2)))


def _of_updates(factor: float, shrink: float) -> float:
    """The κ of the updates alone: the fitted one is (1+αβ)/(1−αβ), less by the decay of their memory."""
    return _factor((factor - 1.0) / (factor + 1.0) / (1.0 - shrink))


def _factor(beta: float) -> float:
    beta = float(np.clip(beta, -0.9999, 0.9999))
    return (1.0 + beta) / (1.0 - beta)


def factor_drift(fit: WeightCalibration, trajectory: Trajectory, run: PlannedRun) -> float:
    """Octaves of κU² per octave of t: κ fitted on the later half of a fit's window against that on the earlier."""
    start, stop = fit.fit_start, fit.fit_stop
    rates, delta = schedule_rates(run, fit.lr, stop)
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
