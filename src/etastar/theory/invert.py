"""Which η (or λ) gives a run the mean η_eff that a law asks for?

The mean η_eff of a planned run rises with η (each past update weighs less against the present one the
larger η is), and with λ; so both are found by narrowing a bracket in log2. An interval of η_eff
maps end to end. What no η or λ can reach is refused in words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from etastar.errors import SpecError
from etastar.scale import format_lr
from etastar.theory.letters import Floats
from etastar.theory.network import FromCalibration
from etastar.theory.planned import (
    Matrices,
    MatricesAt,
    Optimizer,
    PlannedRun,
    constant_lr_mean_eff_lr,
    mean_eff_lr,
    mean_eff_lr_by_decay,
)

_TOLERANCE = 1e-5  # octaves of η_eff: far below any measured one
_LOWEST_LOG2_LR = -36.0
_BEYOND = 3.0  # octaves beyond the calibrated LRs within which a solution may lie
_STEP = 0.02  # octaves, for the local slope


@dataclass(frozen=True)
class Inversion:
    """The LR (or weight decay) whose run has the asked mean η_eff."""

    value: float
    log2_interval: tuple[float, float] | None  # of the value, where an interval of η_eff came in
    mean_eff_lr: float  # what the recursion gives at `value`
    slope: float  # d log value / d log η_eff there: 1 before equilibrium, 2 in it
    flags: tuple[str, ...] = ()


def invert_eff_lr(
    eff_lr: float,
    *,
    run: PlannedRun,
    matrices: MatricesAt | None = None,
    log2_interval: tuple[float, float] | None = None,
    model_log2_error: float = 0.0,
    sweep_batch_tokens: float | None = None,
    target_batch_tokens: float | None = None,
    exact: bool = False,
) -> Inversion:
    """η with mean_eff_lr(η) = `eff_lr`, and its interval.

    `log2_interval` holds log2 of the ends of η_eff's interval; `model_log2_error`, the recursion's own
    error (same level, half-width in octaves of η_eff, as a back-test of the calibration gives it), is
    added to each arm in quadrature before the ends are mapped. Hyperball optimizers need no matrices.
    """
    _expect_target(eff_lr)
    flags = _batch_flag(sweep_batch_tokens, target_batch_tokens)
    if run.optimizer.fixes_norm:
        mean = float(run.factors().mean())
        ends = _widened(eff_lr, log2_interval, model_log2_error)
        interval = None if ends is None else (ends[0] - np.log2(mean), ends[1] - np.log2(mean))
        return Inversion(eff_lr / mean, interval, eff_lr, 1.0, flags)
    if matrices is None:
        raise SpecError(
            f"no weight norms to invert η_eff with: {run.optimizer} does not fix them",
            hint="calibrate on a trunk's trajectories, or type W₀, U and β₁ by hand (typed_matrices)",
        )
    bounds = lr_bounds(run, matrices)

    def of_log2(log2_lr: Floats) -> Floats:
        return np.log2(mean_eff_lr(np.exp2(log2_lr), run=run, matrices=matrices, exact=exact))

    words = _lr_words(run)
    if isinstance(matrices, FromCalibration):
        words = f"any LR within {_BEYOND:g} octaves of the calibrated ones reaches"
    return _inverted(eff_lr, of_log2, bounds, log2_interval, model_log2_error, flags, words)


def invert_closed_form(
    eff_lr: float,
    *,
    steps: float,
    weight_decay: float,
    beta1: float,
    weight_norm0: float,
    update_norm: float,
    independent_decay: bool = False,
    log2_interval: tuple[float, float] | None = None,
) -> Inversion:
    """The same from W₀, U, β₁, λ, T typed by hand, by the closed form at a constant LR (no schedule)."""
    _expect_target(eff_lr)
    run = PlannedRun(
        schedule=np.ones(1), weight_decay=weight_decay, independent_decay=independent_decay
    )  # the bounds need λ alone
    typed = Matrices(weight_norm0=np.array(weight_norm0), update_norm=np.array(update_norm), beta1=np.array(beta1))
    bounds = lr_bounds(run, typed)

    def of_log2(log2_lr: Floats) -> Floats:
        mean = constant_lr_mean_eff_lr(
            steps,
            lr=np.exp2(log2_lr),
            weight_decay=weight_decay,
            beta1=beta1,
            weight_norm0=weight_norm0,
            update_norm=update_norm,
            independent_decay=independent_decay,
        )
        return np.log2(mean)

    return _inverted(eff_lr, of_log2, bounds, log2_interval, 0.0, (), _lr_words(run))


def invert_weight_decay(
    eff_lr: float,
    *,
    lr: float,
    run: PlannedRun,
    matrices: Matrices,
    log2_interval: tuple[float, float] | None = None,
    exact: bool = False,
) -> Inversion:
    """λ with which a run at the given η has the asked mean η_eff; the run's own λ is not used.

    An end of the interval that no λ reaches (λ = 0 has more already) is open: infinite in log2, and flagged.
    """
    _expect_target(eff_lr)
    if run.optimizer is not Optimizer.ADAMW:
        raise SpecError(f"optimizer: {run.optimizer} has no weight decay to solve for", hint="solve for the LR instead")

    def of_decay(weight_decay: Floats) -> Floats:
        return np.log2(mean_eff_lr_by_decay(weight_decay, lr=lr, run=run, matrices=matrices, exact=exact))

    least = float(of_decay(np.zeros(1))[0])
    if np.log2(eff_lr) <= least:
        raise SpecError(
            f"η_eff {eff_lr:.4g}: a run at lr {format_lr(lr)} has a mean of {2.0**least:.4g} "
            "without any weight decay, and decay only raises it",
            hint="lower the LR, or ask for a larger η_eff",
        )
    peak = float(run.factors().max()) * (1.0 if run.independent_decay else lr)
    return _inverted(
        eff_lr,
        lambda log2_decay: of_decay(np.exp2(log2_decay)),
        (float(np.log2(0.5 / peak)) - 40.0, float(np.log2(0.5 / peak))),
        log2_interval,
        0.0,
        (),
        f"any weight decay reaches at lr {format_lr(lr)}",
    )


def lr_bounds(run: PlannedRun, matrices: MatricesAt) -> tuple[float, float]:
    """log2 of the LRs between which a solution is sought.

    Of a calibrated network: the swept LRs and three octaves beyond. Otherwise, above: half of a weight
    decayed away in one step, and at most an LR that makes W₀ invisible (2²⁰·W₀/U); below: 2⁻³⁶.
    """
    if isinstance(matrices, FromCalibration):
        log2_swept = np.log2(matrices.calibration.lrs)
        return float(log2_swept[0]) - _BEYOND, float(log2_swept[-1]) + _BEYOND
    some = matrices(np.array([1e-3])) if callable(matrices) else matrices
    top = 20.0 + float(np.log2(np.max(some.weight_norm0 / some.update_norm)))
    if run.decay > 0 and not run.independent_decay:
        top = min(top, -1.0 - float(np.log2(run.decay * run.factors().max())))
    return _LOWEST_LOG2_LR, top


def _inverted(
    eff_lr: float,
    of_log2: Callable[[Floats], Floats],
    bounds: tuple[float, float],
    log2_interval: tuple[float, float] | None,
    model_log2_error: float,
    flags: tuple[str, ...],
    what: str,
) -> Inversion:
    """Solve for the value and both ends of its interval; an end out of reach becomes infinite, flagged."""
    grid = np.linspace(*bounds, int(np.ceil(bounds[1] - bounds[0])) + 1)
    values = of_log2(grid)
    least, most = float(values[0]), float(values[-1])
    target = float(np.log2(eff_lr))
    if target > most:
        raise SpecError(
            f"η_eff {eff_lr:.4g} is above the {2.0**most:.4g} that {what}",
            hint="a longer run lowers what is reachable; check the target, the weight decay, or use AdamH",
        )
    if target < least:
        raise SpecError(
            f"η_eff {eff_lr:.4g} is below the {2.0**least:.4g} that {what}",
            hint="a decay independent of the LR sets η_eff by itself: lower the weight decay",
        )
    if (np.diff(values) < -_TOLERANCE).any():
        flags = (*flags, "not-monotone: the calibrated map falls somewhere; the lowest solution is given")
    ends = _widened(eff_lr, log2_interval, model_log2_error)
    wanted = np.array([target] if ends is None else [target, *ends])
    solved = _solve(of_log2, np.clip(wanted, least, most), grid, values)
    around = of_log2(np.array([solved[0] - _STEP, solved[0], solved[0] + _STEP]))
    rise = float(around[2] - around[0])
    slope = 2.0 * _STEP / rise if rise > 0 else float("inf")
    interval = None
    if ends is not None:
        interval = (
            float(solved[1]) if ends[0] >= least else -float("inf"),
            float(solved[2]) if ends[1] <= most else float("inf"),
        )
        if not np.isfinite(interval).all():
            flags = (*flags, "interval-open: an end of the η_eff interval cannot be reached")
    return Inversion(2.0 ** float(solved[0]), interval, 2.0 ** float(around[1]), slope, flags)


def _solve(of_log2: Callable[[Floats], Floats], targets: Floats, grid: Floats, values: Floats) -> Floats:
    """Where a rising function takes each target: brackets on a grid, cut into eight until they are tiny.

    All targets and all points of a round are one call, since the recursion is as fast for 30 LRs as for one.
    """
    right = np.array([max(1, int(np.argmax(values >= target))) for target in targets])
    low, high, at_low, at_high = grid[right - 1], grid[right], values[right - 1], values[right]
    for _ in range(8):
        if np.all(at_high - at_low < _TOLERANCE) or np.all(high - low < 2e-3):
            break
        inner = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, 9)[1:-1]
        inside = of_log2(inner.reshape(-1)).reshape(inner.shape)
        points = np.concatenate((low[:, None], inner, high[:, None]), axis=1)
        found = np.concatenate((at_low[:, None], inside, at_high[:, None]), axis=1)
        cut = np.maximum(1, np.argmax(found >= targets[:, None], axis=1))[:, None]
        low, high = (np.take_along_axis(points, cut - k, axis=1)[:, 0] for k in (1, 0))
        at_low, at_high = (np.take_along_axis(found, cut - k, axis=1)[:, 0] for k in (1, 0))
    gap = np.where(at_high > at_low, at_high - at_low, 1.0)
    return low + (high - low) * np.clip((targets - at_low) / gap, 0.0, 1.0)


def _widened(
    eff_lr: float, log2_interval: tuple[float, float] | None, model_log2_error: float
) -> tuple[float, float] | None:
    centre = float(np.log2(eff_lr))
    if log2_interval is None:
        return (centre - model_log2_error, centre + model_log2_error) if model_log2_error > 0 else None
    low, high = log2_interval
    if not low <= centre <= high:
        raise SpecError(
            f"η_eff {eff_lr:.4g} lies outside its interval {2.0**low:.4g} … {2.0**high:.4g}",
            hint="give log2 of the lower and upper end",
        )
    return (
        centre - float(np.hypot(centre - low, model_log2_error)),
        centre + float(np.hypot(high - centre, model_log2_error)),
    )


def _expect_target(eff_lr: float) -> None:
    if not 0 < eff_lr < 2:
        raise SpecError(
            f"η_eff: {eff_lr!r} is not between 0 and 2, the diameter of the unit sphere",
            hint="give the mean ‖ŵ_{t+1} − ŵ_t‖",
        )


def _lr_words(run: PlannedRun) -> str:
    if run.decay == 0:
        return "any LR reaches without weight decay: η_eff(t) tends to √((1−β₁)/(1+β₁)/t) however large η is"
    if run.independent_decay:
        return f"any LR reaches with a decay of {run.decay:g} a step, which sets η_eff in equilibrium"
    return f"any LR up to 1/(2λ) reaches at weight decay {run.decay:g}"


def _batch_flag(sweep: float | None, target: float | None) -> tuple[str, ...]:
    if sweep is None or target is None or abs(np.log2(target / sweep)) < 1e-3:
        return ()
    return (f"other-batch: the sweep used {sweep:g} tokens a step, the target {target:g}: outside the evidence",)
