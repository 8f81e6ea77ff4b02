"""Does a calibration predict ‖w‖ and η_eff on steps that it was not fitted on, and if not, why?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from etastar.errors import InputError
from etastar.theory.calibrate import WeightCalibration, schedule_rates
from etastar.theory.letters import Floats, beta1_of_factor
from etastar.theory.planned import PlannedRun
from etastar.theory.recursion import run_recursion
from etastar.theory.trajectories import Trajectory


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


def forecast_weight(
    fit: WeightCalibration, *, run: PlannedRun, stop: int, measured: Trajectory | None = None
) -> tuple[Floats, Floats]:
    """‖w_t‖ and η_eff(t) at steps fit_stop … stop − 1, continued from the norm measured at fit_stop.

    With `measured` its ‖u_t‖ drives the recursion instead of the fitted constant U.
    """
    beta = beta1_of_factor(fit.factor)
    factors = run.factors()[fit.fit_stop : stop]
    _, delta = schedule_rates(run, fit.lr, fit.fit_stop + 1)
    steady = -fit.lr * factors[0] * beta * fit.update_norm**2 / (1.0 - (1.0 - delta[-1]) * beta)
    most = fit.stop_weight_norm * fit.update_norm  # no vectors have a larger ⟨u, w⟩
    profile = None if measured is None else measured.every_step("update_norm", fit.fit_stop, stop)
    walked = run_recursion(
        factors,
        lr=fit.lr,
        weight_decay=run.decay,
        beta1=beta,
        weight_norm0=fit.stop_weight_norm,
        update_norm=fit.update_norm if measured is None else 1.0,
        update_profile=profile,
        update_dot_weight0=np.clip(steady, -most, most),
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
            f"trajectory of {trajectory.weight[:60]!r}: {rows.size} logged steps to hold out, expected {bins}",
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
        cause=_cause(fit, trajectory, run, rows, bias),
    )


def _cause(fit: WeightCalibration, trajectory: Trajectory, run: PlannedRun, rows: np.ndarray, bias: float) -> str:
    """Which assumption to blame: drive the recursion with the measured ‖u_t‖ and see what error is left."""
    if abs(bias) < 0.02:
        return ""
    stop = int(rows[-1]) + fit.fit_stop + 1
    _, rates = forecast_weight(fit, run=run, stop=stop, measured=trajectory)
    true = trajectory.eff_lr[np.isin(trajectory.step, rows + fit.fit_stop)]
    left = float(np.mean(rates[rows]) / np.mean(true) - 1.0)
    return "update norm" if abs(left) < 0.5 * abs(bias) else "correlation"


def _binned(predicted: Floats, measured: Floats, bins: int) -> Floats:
    parts = zip(np.array_split(predicted, bins), np.array_split(measured, bins), strict=True)
    return np.array([float(np.mean(p) / np.mean(m)) - 1.0 for p, m in parts])
