"""What is the loss at a learning rate that was not run? A cell's curve, at any η inside its sweep.

Near the minimum it is the fitted polynomial; further out, where that polynomial was not asked to be
right, it is a shape-preserving interpolation of the measured losses. It never dips below its minimum,
so a loss gap read off it is never negative.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import PchipInterpolator

from etastar.estimate.cells import Quantity
from etastar.estimate.estimates import Estimates, cell_map
from etastar.estimate.optimum import Status

Array = NDArray[np.float64]
_KNOTS = 257


@dataclass(frozen=True)
class Curve:
    """Loss against log2 η over the swept range of one cell, as a dense table."""

    log2_lr: Array
    losses: Array
    log2_optimal_lr: float
    optimal_loss: float

    def loss(self, log2_lr: ArrayLike) -> Array:
        """Loss at log2 η; NaN outside the swept range."""
        return np.interp(np.asarray(log2_lr, float), self.log2_lr, self.losses, left=np.nan, right=np.nan)

    def gap(self, log2_lr: ArrayLike) -> Array:
        """Loss above the optimum's at log2 η; NaN outside the swept range."""
        return self.loss(log2_lr) - self.optimal_loss


def curve_of(estimates: Estimates, index: int) -> Curve | None:
    """The curve of one cell of the estimates in η; None unless its optimum is INTERIOR."""
    optimum = estimates.optima[index]
    if optimum.status is not Status.INTERIOR or optimum.polynomial is None:
        return None
    block, row = estimates.locate(index)
    known = np.isfinite(block.loss[row])
    x, y = block.log2_lr[known], block.loss[row][known]
    best, lowest = optimum.log2_value, optimum.loss
    low, high = min(optimum.polynomial.near[0], best), max(optimum.polynomial.near[1], best)
    core = np.unique(np.concatenate([np.linspace(low, high, 129), [best]]))
    carry = cell_map(block, row, Quantity.LR, optimum.polynomial.coordinate)
    inner = np.maximum(optimum.polynomial(core if carry is None else carry(core)), lowest)
    outside = (x < low - 1e-9) | (x > high + 1e-9)
    knots_x = np.concatenate([x[outside], core[[0, -1]]])
    knots_y = np.concatenate([np.maximum(y[outside], lowest), inner[[0, -1]]])
    # one point alone may carry the fit: then both ends of the core are the same knot
    knots_x, order = np.unique(knots_x, return_index=True)
    grid = np.unique(np.concatenate([np.linspace(x[0], x[-1], _KNOTS), core]))
    values = PchipInterpolator(knots_x, knots_y[order])(grid)
    inside = (grid >= low) & (grid <= high)
    values[inside] = np.interp(grid[inside], core, inner)
    values[np.searchsorted(grid, best)] = lowest
    return Curve(grid, np.maximum(values, lowest), best, lowest)
