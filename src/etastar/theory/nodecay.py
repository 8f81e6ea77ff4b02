"""Without weight decay, do all large LRs walk the same η_eff(t) and reach the same loss?

Equation (adam_nowd_efflr): η_eff(t) = 1/√(κt + W₀²/(η²U²)). Once κt ≫ W₀²/(η²U²) the LR drops out, and
with it Σ η_eff(t), and by the paper's assumption the loss. This is that check on a constant-LR study.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from etastar.errors import InputError
from etastar.theory.dynamics import approx_eff_lr
from etastar.theory.letters import Floats, correlation_factor


def collapse_lr(
    t: ArrayLike,
    *,
    beta1: ArrayLike,
    weight_norm0: ArrayLike,
    update_norm: ArrayLike,
    tolerance: float = 0.05,
) -> Floats:
    """The η above which η_eff(t) is within `tolerance` of the common curve 1/√(κt).

    From κt·((1−tolerance)⁻² − 1) = W₀²/(η²U²).
    """
    room = correlation_factor(beta1) * np.asarray(t, float) * ((1.0 - tolerance) ** -2 - 1.0)
    return np.asarray(weight_norm0, float) / (np.asarray(update_norm, float) * np.sqrt(room))


@dataclass(frozen=True)
class NoDecayStudy:
    """One row a LR, LRs rising."""

    lr: Floats
    final_eff_lr: Floats  # mean over the last tenth of the run
    law_eff_lr: Floats  # the λ = 0 law there
    accumulated: Floats  # Σ_t η_eff(t)
    loss: Floats
    collapsed: np.ndarray  # which LRs lie above `collapse_lr` at the end of the run
    collapse_lr: float
    spread_octaves: float  # of final η_eff among the collapsed LRs (NaN with fewer than two)
    free_spread_octaves: float  # what it would be if η_eff were proportional to η
    loss_range: float  # of the collapsed LRs
    loss_range_all: float
    loss_correlation: float  # Spearman of Σ η_eff with loss over all LRs
    law_error: float  # worst |relative error| of the law over LRs
    words: str


def no_decay_study(
    *,
    lr: Sequence[float],
    eff_lr: Sequence[ArrayLike],
    loss: Sequence[float],
    beta1: ArrayLike,
    weight_norm0: ArrayLike,
    update_norm: ArrayLike,
    steps: Sequence[ArrayLike] | None = None,
    tolerance: float = 0.05,
) -> NoDecayStudy:
    """Judge the collapse from η_eff(t) of each LR (all steps, or those in `steps`) and its final loss.

    W₀ and U are of the same matrix as η_eff, or arrays over the matrices whose mean it is: the law is then
    the mean of theirs, and the collapse begins where the median matrix' does. β₁ may be the fitted one.
    Diverged LRs (non-finite loss) are kept as rows and left out of the ranges.
    """
    order = np.argsort(np.asarray(lr, float))
    if len(order) < 2 or not len(lr) == len(eff_lr) == len(loss):
        raise InputError(
            f"{len(lr)} LRs, {len(eff_lr)} trajectories, {len(loss)} losses: expected one each, at least two",
            hint="give lr, eff_lr and loss in the same order",
        )
    lrs, losses = np.asarray(lr, float)[order], np.asarray(loss, float)[order]
    rates = [np.asarray(eff_lr[k], float) for k in order]
    times = [np.arange(len(eff_lr[k])) if steps is None else np.asarray(steps[k], float) for k in order]  # type: ignore[arg-type]
    last = [t >= t[-1] - 0.1 * (t[-1] - t[0]) for t in times]
    final = np.array([rate[late].mean() for rate, late in zip(rates, last, strict=True)])
    law = np.array(
        [
            approx_eff_lr(
                t[late][:, None],
                lr=one,
                weight_decay=0.0,
                beta1=np.atleast_1d(np.asarray(beta1, float)),
                weight_norm0=np.atleast_1d(np.asarray(weight_norm0, float)),
                update_norm=np.atleast_1d(np.asarray(update_norm, float)),
            ).mean()
            for one, t, late in zip(lrs, times, last, strict=True)
        ]
    )
    total = np.array([np.interp(np.arange(t[-1] + 1), t, r).sum() for t, r in zip(times, rates, strict=True)])
    horizon = min(float(t[-1]) for t in times)
    above = collapse_lr(horizon, beta1=beta1, weight_norm0=weight_norm0, update_norm=update_norm, tolerance=tolerance)
    threshold = float(np.median(above))
    return _summary(lrs, final, law, total, losses, threshold)


def _summary(lrs: Floats, final: Floats, law: Floats, total: Floats, losses: Floats, threshold: float) -> NoDecayStudy:
    alive = np.isfinite(losses)
    collapsed = lrs >= threshold
    judged = collapsed & alive
    few = judged.sum() < 2
    spread = np.nan if few else float(np.ptp(np.log2(final[judged])))
    free = np.nan if few else float(np.ptp(np.log2(lrs[judged])))
    flat = np.nan if few else float(np.ptp(losses[judged]))
    everything = float(np.ptp(losses[alive])) if alive.any() else np.nan
    if few:
        words = f"fewer than two trained LRs lie above {threshold:.3g}, where the collapse is predicted"
    elif spread < 0.5 * free:
        words = (
            f"{'collapsed' if spread < 0.25 * free else 'partly collapsed'}: η_eff spans {spread:.2f} octaves over LRs that span {free:.2f}; "
            f"the loss spans {flat:.3g} there and {everything:.3g} over all LRs"
        )
    else:
        words = f"not collapsed: η_eff spans {spread:.2f} octaves over LRs that span {free:.2f}"
    return NoDecayStudy(
        lr=lrs,
        final_eff_lr=final,
        law_eff_lr=law,
        accumulated=total,
        loss=losses,
        collapsed=collapsed,
        collapse_lr=threshold,
        spread_octaves=spread,
        free_spread_octaves=free,
        loss_range=flat,
        loss_range_all=everything,
        loss_correlation=_spearman(total[alive], losses[alive]),
        law_error=float(np.max(np.abs(law / final - 1.0))),
        words=words,
    )


def _spearman(x: Floats, y: Floats) -> float:
    if len(x) < 3:
        return float("nan")
    ranks = [np.argsort(np.argsort(values)).astype(float) for values in (x, y)]
    return float(np.corrcoef(np.stack(ranks))[0, 1])
