"""How fast does the loss fall with data? L(D) = L0 + A·D^−γ, and how many tokens a gap is worth.

The exponent is searched on a grid and the other two solved linearly, so there are no starting values
and no false minima. Where the losses do not pin γ down, the local slope dL/d ln D stands in and says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

_GAMMAS = np.exp(np.linspace(np.log(0.02), np.log(2.0), 240))


@dataclass(frozen=True)
class LossLaw:
    """L0 + A·(D / reference)^−γ, or a local slope where γ is not identified."""

    floor: float
    amplitude: float
    gamma: float
    reference: float
    identified: bool
    slope: float  # dL / d ln D at the largest measured D, negative

    def loss(self, tokens: ArrayLike) -> Array:
        """The fitted loss."""
        return self.floor + self.amplitude * (np.asarray(tokens, float) / self.reference) ** -self.gamma

    def local_slope(self, tokens: float) -> float:
        """dL / d ln D at `tokens`."""
        if not self.identified:
            return self.slope
        return -self.gamma * self.amplitude * (tokens / self.reference) ** -self.gamma

    def extra_ratio(self, tokens: float, gap: ArrayLike) -> Array:
        """D_extra / D that makes up for a loss gap at `tokens`; inf where no amount of data does."""
        gap = np.asarray(gap, float)
        if not self.identified:
            exponent = gap / -self.slope if self.slope < 0 else np.where(gap > 0, np.inf, 0.0)
            return np.where(exponent < 50, np.expm1(np.minimum(exponent, 50)), np.inf)
        left = 1 - gap / (self.amplitude * (tokens / self.reference) ** -self.gamma)
        exponent = -np.log(np.maximum(left, 1e-300)) / self.gamma
        # beyond e^50 of the run's own data is as good as never
        return np.where((left > 0) & (exponent < 50), np.expm1(np.minimum(exponent, 50)), np.inf)


def fit_loss_law(tokens: ArrayLike, loss: ArrayLike) -> LossLaw | None:
    """Fit the power law; None with fewer than two data scales or a loss that does not fall."""
    d, y = np.asarray(tokens, float), np.asarray(loss, float)
    good = np.isfinite(d) & np.isfinite(y)
    d, y = d[good], y[good]
    order = np.argsort(d)
    d, y = d[order], y[order]
    if len(np.unique(d)) < 2:
        return None
    slope = _end_slope(d, y)
    if slope >= 0:
        return None
    reference = float(np.exp(np.mean(np.log(d))))
    local = LossLaw(float("nan"), float("nan"), float("nan"), reference, False, slope)
    if len(np.unique(d)) < 4:
        return local
    x = (d / reference)[None, :] ** -_GAMMAS[:, None]
    centered = x - x.mean(axis=1, keepdims=True)
    amplitude = (centered @ (y - y.mean())) / np.maximum((centered**2).sum(axis=1), 1e-300)
    floor = y.mean() - amplitude * x.mean(axis=1)
    error = ((y[None] - floor[:, None] - amplitude[:, None] * x) ** 2).sum(axis=1)
    error[amplitude <= 0] = np.inf
    best = int(np.argmin(error))
    if not np.isfinite(error[best]) or best in (0, len(_GAMMAS) - 1) or floor[best] <= 0:
        return local
    # identified: halving or doubling γ must fit clearly worse than the best does
    wrong = min(error[np.argmin(np.abs(_GAMMAS - _GAMMAS[best] * f))] for f in (0.5, 2.0))
    freedom = max(len(d) - 3, 1)
    identified = wrong > error[best] * (1 + 8.0 / freedom)
    return LossLaw(float(floor[best]), float(amplitude[best]), float(_GAMMAS[best]), reference, bool(identified), slope)


def _end_slope(d: Array, y: Array) -> float:
    """dL / d ln D at the largest D: from the points within two octaves of it, at least two."""
    x = np.log(d)
    near = x >= min(x[-1] - 2 * np.log(2), x[-2])
    if len(np.unique(x[near])) >= 3:
        # a parabola in ln D: the curve flattens, and its end is what is asked for
        c2, c1, _ = np.polyfit(x[near] - x[-1], y[near], 2)
        if c1 < 0 and c2 > 0:
            return float(c1)
    return float(np.polyfit(x[near] - x[-1], y[near], 1)[0])
