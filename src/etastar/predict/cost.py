"""What does a wrong learning rate cost? Loss gap → extra tokens → extra compute ratio (ECR).

The gap is read off one fitted curve, so it is never negative. The trajectory is that of decayed losses:
each horizon's curve read at the learning rate in question. It is fitted by L0 + A·D^−γ, anchored at the
target's own loss, and solved for the tokens that make up the gap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from etastar.estimate.curve import Curve, curve_of
from etastar.estimate.estimates import Estimates
from etastar.estimate.flags import Flag
from etastar.laws.loss import LossLaw, fit_loss_law
from etastar.scale import Scale

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Cost:
    """The price of one learning rate at one measured cell; None with its reason where unknown."""

    loss_gap: float | None
    extra_tokens: float | None
    reason: str | None = None
    flags: tuple[Flag, ...] = ()

    def ratio(self, tokens: float) -> float | None:
        """D_extra / D."""
        return None if self.extra_tokens is None else self.extra_tokens / tokens


class Curves:
    """The loss curves of one group's cells, built when first asked for."""

    def __init__(self, estimates: Estimates) -> None:
        self.estimates = estimates
        self._built: dict[int, Curve | None] = {}

    def __getitem__(self, index: int) -> Curve | None:
        if index not in self._built:
            self._built[index] = curve_of(self.estimates, index)
        return self._built[index]

    def members(self, params: float) -> NDArray[np.int64]:
        """Usable cells of one N, by D."""
        found = np.flatnonzero(self.estimates.usable & (self.estimates.params == params))
        return found[np.argsort(self.estimates.tokens[found])]

    def trajectory(self, params: float, log2_lr: float) -> tuple[Array, Array]:
        """(tokens, decayed loss) of one N at one learning rate, where it was inside the sweep."""
        members = self.members(params)
        losses = [float(curve.loss(log2_lr)) if (curve := self[int(k)]) is not None else np.nan for k in members]
        known = np.isfinite(losses)
        return self.estimates.tokens[members][known], np.array(losses)[known]


def cost_at(curves: Curves, index: int, log2_lr: float) -> Cost:
    """The price of `log2_lr` at a measured cell."""
    curve = curves[index]
    if curve is None:
        return Cost(None, None, "the target cell has no interior optimum")
    gap = float(curve.gap(log2_lr))
    if not np.isfinite(gap):
        return Cost(None, None, "the predicted learning rate lies outside the swept range of the target cell")
    gap = max(gap, 0.0)
    tokens = float(curves.estimates.tokens[index])
    law = fit_loss_law(*curves.trajectory(float(curves.estimates.params[index]), log2_lr))
    if law is None:
        return Cost(gap, None, "fewer than two horizons hold this learning rate, or its loss does not fall with data")
    extra = float(law.extra_ratio(tokens, gap))
    if not np.isfinite(extra):
        return Cost(gap, None, "the optimal loss lies below the asymptote of this learning rate's trajectory")
    return Cost(gap, extra * tokens, None, () if law.identified else (Flag.LOCAL_SLOPE,))


@dataclass(frozen=True)
class Price:
    """Expected ECR as a function of the learning rate, at a target that was not measured."""

    offsets: Array  # octaves from the optimum, ascending
    gaps: Array  # loss gap there
    law: LossLaw
    tokens: float

    def ecr(self, offset: ArrayLike) -> Array:
        """ECR of being `offset` octaves off; the gap continues straight beyond what was swept."""
        z = np.asarray(offset, float)
        inside = np.interp(z, self.offsets, self.gaps)
        low = (self.gaps[1] - self.gaps[0]) / (self.offsets[1] - self.offsets[0])
        high = (self.gaps[-1] - self.gaps[-2]) / (self.offsets[-1] - self.offsets[-2])
        beyond = np.where(
            z < self.offsets[0],
            (z - self.offsets[0]) * min(low, 0.0),
            np.where(z > self.offsets[-1], (z - self.offsets[-1]) * max(high, 0.0), 0.0),
        )
        # a gap no data makes up counts as 10: ten times the run again
        return np.minimum(self.law.extra_ratio(self.tokens, inside + beyond), 10.0)

    def expected(self, candidates: Array, optimum_redraws: Array) -> Array:
        """Mean ECR of each candidate log2 η over the redraws of log2 η*."""
        return self.ecr(candidates[:, None] - optimum_redraws[None, :]).mean(axis=1)


def price_at(curves: Curves, target: Scale) -> Price | None:
    """The loss shape of the cell nearest the target, and the loss law of its N; None without either."""
    estimates = curves.estimates
    usable = np.flatnonzero(estimates.usable)
    if len(usable) == 0:
        return None
    distance = 4 * np.abs(np.log2(estimates.params[usable] / target.params)) + np.abs(
        np.log2(estimates.tokens[usable] / target.tokens)
    )
    for index in usable[np.argsort(distance, kind="stable")]:
        curve = curves[int(index)]
        members = curves.members(float(estimates.params[index]))
        law = fit_loss_law(estimates.tokens[members], [estimates.optima[k].loss for k in members])
        if curve is not None and law is not None:
            gaps = np.maximum(curve.losses - curve.optimal_loss, 0.0)
            return Price(curve.log2_lr - curve.log2_optimal_lr, gaps, law, target.tokens)
    return None
