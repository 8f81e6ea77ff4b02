"""What do a study's trajectories say about the theory? Fitted constants, held-out errors, the appendix' figures.

One model size at a time. The constants are fitted on the whole path; the held-out errors come from a second
calibration, on the first half, judged on the last quarter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from etastar.errors import InputError
from etastar.predict.invert import Theory
from etastar.theory.calibrate import WeightCalibration, factor_drift
from etastar.theory.heldout import HeldOut, judge_weight
from etastar.theory.letters import beta1_of_factor
from etastar.theory.network import Calibration
from etastar.theory.nodecay import NoDecayStudy, no_decay_study
from etastar.theory.trajectories import Trajectory
from etastar.theory.validate import correlation_figure, eff_lr_spread, update_norm_figure, weight_norm_figure

SEEN = 0.5  # of the path, for the held-out errors


@dataclass(frozen=True)
class Figures:
    """Median over matrices of each figure's median |relative error|; NaN where it cannot be drawn."""

    update_norm: float  # ‖u_t‖ against a constant
    correlation: float  # −⟨u,w⟩/‖u‖ against equation (correlation) with Adam's β₁
    correlation_fitted: float  # the same with the fitted κ
    weight_norm: float  # ‖w‖² with measured ‖u_t‖², β₁
    weight_norm_fitted: float


@dataclass(frozen=True)
class LrReport:
    """All matrices at one LR."""

    lr: float
    loss: float
    near_optimum: bool  # within an octave of the lowest loss
    factors: tuple[float, float, float]  # κ: least, median, most
    update_drift: float  # octaves of U per octave of t, median
    factor_drift: float
    held_out_median: float  # worst stretch of the last quarter's η_eff, from the first half; over matrices
    held_out_worst: float
    held_out_bias: float  # of the mean over matrices
    causes: dict[str, int]  # matrices that miss by more than 2 %, by the assumption to blame
    figures: Figures
    spread_octaves: float


@dataclass(frozen=True)
class StudyReport:
    """One N of a study, judged by the theory."""

    params: float
    steps: int
    factor_theory: float  # (1+β₁)/(1−β₁)
    lrs: tuple[LrReport, ...]
    weights: tuple[WeightCalibration, ...]  # at the LR with the lowest loss
    held_out: tuple[HeldOut, ...]  # of the same, where there are steps enough
    no_decay: NoDecayStudy | None  # of a constant-LR study without weight decay


def study_report(theory: Theory, params: float) -> StudyReport:
    """Calibrate, hold out, draw: every LR of one N. Refused in words where no path is long enough."""
    whole, paths, found, beta1, longest = _whole(theory, params)
    half = theory.calibration(params, SEEN * longest)
    best = int(np.nanargmin(found)) if np.isfinite(found).any() else 0
    reports, judged = [], []
    for k, (lr, matrices) in enumerate(zip(whole.lrs, paths, strict=True)):
        outside = _held_out(half, float(lr), matrices)
        judged.append(outside)
        near = bool(abs(np.log2(lr / whole.lrs[best])) <= 1.001)
        reports.append(_lr_report(whole, k, matrices, outside, beta1, found[k], near, theory))
    return StudyReport(
        params,
        theory.sweep.steps(longest),
        whole.fits[0][0].factor_theory,
        tuple(reports),
        whole.fits[best],
        judged[best],
        _no_decay(theory, whole, paths, found, beta1),
    )


def no_decay_report(theory: Theory, params: float) -> NoDecayStudy | None:
    """The λ = 0 check of `study_report` alone; None where the study has decay or a schedule."""
    whole, paths, losses, beta1, _ = _whole(theory, params)
    return _no_decay(theory, whole, paths, losses, beta1)


def _whole(
    theory: Theory, params: float
) -> tuple[Calibration, list[tuple[Trajectory, ...]], list[float], float, float]:
    """(calibration on the whole path, matrices and last loss of each LR, β₁, longest D) of one N; or refused."""
    block = next(b for b in theory.group.blocks if b.params == params)
    longest, beta1 = float(block.tokens[-1]), theory.group.conditions.get("beta1")
    whole = theory.calibration(params, longest)
    if isinstance(whole, str) or not isinstance(beta1, (int, float)):
        reason = whole if isinstance(whole, str) else "β₁ is not known"
        raise InputError(
            f"nothing to calibrate at N = {params:.4g}: {reason}",
            hint="log weight_norm and update_norm of every matrix; see docs/concepts/theory.md",
        )
    by_lr = {round(float(np.log2(path.lr)), 6): path.matrices for path in theory.paths[params]}
    losses = {round(float(x), 6): float(loss) for x, loss in zip(block.log2_lr, block.loss[-1], strict=True)}
    keys = [round(float(np.log2(lr)), 6) for lr in whole.lrs]
    return whole, [by_lr[key] for key in keys], [losses.get(key, np.nan) for key in keys], float(beta1), longest


def _held_out(half: Calibration | str, lr: float, matrices: tuple[Trajectory, ...]) -> tuple[HeldOut, ...]:
    if isinstance(half, str):
        return ()
    at = np.flatnonzero(np.abs(np.log2(half.lrs / lr)) < 1e-6)
    end = int(min(one.step[-1] for one in matrices)) + 1
    start = 3 * end // 4
    if len(at) == 0 or any(((one.step >= start) & np.isfinite(one.eff_lr)).sum() < 8 for one in matrices):
        return ()
    # the trunk goes on at the same LR beyond what the calibration has seen
    run = half.run.model_copy(update={"schedule": _longer(half.run.factors(), end)})
    return tuple(
        judge_weight(fit, one, run=run, start=start, stop=end)
        for fit, one in zip(half.fits[int(at[0])], matrices, strict=True)
    )


def _longer(factors: np.ndarray, steps: int) -> np.ndarray:
    return np.concatenate([factors, np.full(max(steps - len(factors), 0), factors[-1])])[:steps]


def _lr_report(
    whole: Calibration,
    k: int,
    matrices: tuple[Trajectory, ...],
    outside: tuple[HeldOut, ...],
    beta1: float,
    loss: float,
    near: bool,
    theory: Theory,
) -> LrReport:
    fits = whole.fits[k]
    factors = np.array([fit.factor for fit in fits])
    errors = np.array([one.eff_lr_error for one in outside])
    warmup = round(theory.sweep.warmup_steps)
    measured = all(np.isfinite(one.eff_lr).all() and (one.eff_lr > 0).all() for one in matrices)
    spread = eff_lr_spread(matrices, warmup_steps=warmup).spread_octaves if measured else float("nan")
    return LrReport(
        lr=float(whole.lrs[k]),
        loss=loss,
        near_optimum=near,
        factors=(float(factors.min()), float(np.median(factors)), float(factors.max())),
        update_drift=float(np.median([fit.update_drift for fit in fits])),
        factor_drift=float(
            np.nanmedian([factor_drift(f, one, whole.run) for f, one in zip(fits, matrices, strict=True)])
        ),
        held_out_median=float(np.median(errors)) if len(errors) else float("nan"),
        held_out_worst=float(errors.max()) if len(errors) else float("nan"),
        held_out_bias=float(np.mean([one.eff_lr_bias for one in outside])) if outside else float("nan"),
        causes={name: sum(o.cause == name for o in outside) for name in ("correlation", "update norm")},
        figures=_figures(whole, k, matrices, beta1, warmup),
        spread_octaves=spread,
    )


def _figures(whole: Calibration, k: int, matrices: tuple[Trajectory, ...], beta1: float, warmup: int) -> Figures:
    rest = {"lr": float(whole.lrs[k]), "warmup_steps": warmup}
    end = max(int(one.step[-1]) for one in matrices) + 1
    run = whole.run.model_copy(update={"schedule": _longer(whole.run.factors(), end)})
    betas = [beta1] * len(matrices), [float(beta1_of_factor(fit.factor)) for fit in whole.fits[k]]
    found = [[update_norm_figure(one, warmup_steps=warmup).goodness for one in matrices]]
    for figure in (correlation_figure, weight_norm_figure):
        for some in betas:
            try:
                goodness = [figure(m, run=run, beta1=b, **rest).goodness for m, b in zip(matrices, some, strict=True)]
            except InputError:  # ⟨u, w⟩ is not logged
                goodness = [float("nan")]
            found.append(goodness)
    return Figures(*(float(np.median(one)) for one in found))


def _no_decay(
    theory: Theory, whole: Calibration, paths: list[tuple[Trajectory, ...]], losses: list[float], beta1: float
) -> NoDecayStudy | None:
    if whole.run.decay != 0 or theory.sweep.schedule != "constant":
        return None
    if len(paths) < 2 or any(not np.isfinite(one.eff_lr).all() for path in paths for one in path):
        return None
    middle = len(paths) // 2
    return no_decay_study(
        lr=whole.lrs.tolist(),
        eff_lr=[np.mean([one.eff_lr for one in path], axis=0) for path in paths],
        steps=[path[0].step for path in paths],
        loss=losses,
        beta1=beta1,
        weight_norm0=np.mean(whole.table("weight_norm0"), axis=0),
        update_norm=whole.table("update_norm")[middle],
    )
