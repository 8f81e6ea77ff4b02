"""How noisy is one loss, and how much of that noise is shared along a trunk?

From replicates where there are enough, else from what the fits leave over, pooled over all cells.
Both are moment estimates with their degrees of freedom counted exactly for the fits that were made:
if residuals are r = Mε, then E[r_i²] = σ² Σ_j M_ij², and for two cells of one trunk
E[r_i r'_i] = σ_trunk² Σ_j M_ij M'_ij.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from etastar.estimate.cells import Block

Array = NDArray[np.float64]
MIN_REPLICATE_FREEDOM = 8


@dataclass(frozen=True)
class Noise:
    """Standard deviations of one loss, and the degrees of freedom behind them."""

    trunk: float
    branch: float
    freedom: float
    source: str  # "replicates" or "residuals"

    @property
    def total(self) -> float:
        """Standard deviation of a single loss around its cell's curve."""
        return float(np.hypot(self.trunk, self.branch))


@dataclass(frozen=True)
class Residuals:
    """One block's residuals r = Mε and how much each point counts (near the minimum: 1, far: 0)."""

    residual: Array  # (D, L)
    maker: Array  # (D, L, L), M, scaled by the replicates behind each loss
    weight: Array  # (D, L)
    rows: NDArray[np.int64]  # which rows of the block these are


def pool_residuals(parts: list[Residuals]) -> Noise | None:
    """Noise from what the fits leave over; None where no fit has freedom left."""
    square = freedom = cross = cross_freedom = effective = 0.0
    for part in parts:
        weighted = part.weight * part.residual
        made = part.weight[..., None] * part.maker
        per_cell = (made**2).sum(axis=(1, 2))
        square += float((weighted**2).sum())
        freedom += float(per_cell.sum())
        # Σ_{c<c'} of products = (square of the sum − sum of the squares) / 2
        cross += 0.5 * float((weighted.sum(axis=0) ** 2).sum() - (weighted**2).sum())
        cross_freedom += 0.5 * float((made.sum(axis=0) ** 2).sum() - (made**2).sum())
    if freedom < 0.5:
        return None
    total = square / freedom
    trunk = float(np.clip(cross / cross_freedom, 0.0, total)) if cross_freedom > 0.5 else 0.0
    share = trunk / total if total > 0 else 0.0
    for part in parts:
        per_cell = (part.weight[..., None] ** 2 * part.maker**2).sum(axis=(1, 2))
        cells = int((per_cell > 1e-9).sum())
        # averaging correlated squares: each further cell of a trunk adds only what it does not share
        effective += float(per_cell.sum()) / (1 + max(cells - 1, 0) * share**2)
    return Noise(np.sqrt(trunk), np.sqrt(total - trunk), max(effective, 1.0), "residuals")


def from_replicates(blocks: list[Block], weights: list[Array]) -> Noise | None:
    """Noise from seeds that repeat a cell, each seed's common shift removed; None where too few."""
    square = freedom = cross = cross_freedom = 0.0
    for block, weight in zip(blocks, weights, strict=True):
        if block.seeds.shape[0] < 2:
            continue
        near = (weight > 0.1) & np.isfinite(block.loss)
        known = np.isfinite(block.seeds) & near[None]
        residual, free = _two_way(np.where(known, block.seeds, np.nan))
        square += float(np.nansum(residual**2))
        freedom += float(free.sum())
        # a loss that no other seed repeats has no residual
        counted = np.isfinite(residual)
        stacked = np.where(counted, residual, 0.0)
        cross += 0.5 * float((stacked.sum(axis=1) ** 2).sum() - (stacked**2).sum())
        shared = 0.5 * float((counted.sum(axis=1) ** 2).sum() - counted.sum())
        cross_freedom += shared * float(free.sum()) / max(float(counted.sum()), 1.0)
    if freedom < MIN_REPLICATE_FREEDOM:
        return None
    total = square / freedom
    trunk = float(np.clip(cross / cross_freedom, 0.0, total)) if cross_freedom > 0.5 else 0.0
    return Noise(np.sqrt(trunk), np.sqrt(total - trunk), freedom, "replicates")


def _two_way(values: Array) -> tuple[Array, Array]:
    """Residuals of an additive fit (seed + learning rate) in each cell, and its freedom: (S, D, L), (D,)."""
    known = np.isfinite(values)
    usable = known.sum(axis=0) >= 2
    known &= usable[None]
    residual = np.where(known, values, 0.0)
    for _ in range(20):
        for axis in (0, 2):
            count = known.sum(axis=axis, keepdims=True)
            mean = residual.sum(axis=axis, keepdims=True) / np.maximum(count, 1)
            residual = np.where(known, residual - mean, 0.0)
    observations = known.sum(axis=(0, 2))
    seeds = (known.sum(axis=2) > 0).sum(axis=0)
    rates = usable.sum(axis=1)
    free = np.maximum(observations - seeds - rates + 1, 0)
    return np.where(known, residual, np.nan), np.where(observations > 0, free, 0)


def draw(
    noise: Noise, count: NDArray[np.int64], *, replicates: int, rng: np.random.Generator, sigma_scale: Array
) -> Array:
    """(B, D, L) noise for one block: trunk noise shared along D, branch noise not.

    `sigma_scale` (B,) carries the uncertainty of σ itself, drawn once for the whole study.
    """
    root = np.sqrt(np.maximum(count, 1))
    shape = (replicates, *count.shape)
    eps = noise.branch * rng.standard_normal(shape)
    if noise.trunk > 0:
        eps += noise.trunk * rng.standard_normal((replicates, 1, count.shape[1]))
    return eps * (sigma_scale[:, None, None] / root)


def sigma_scales(noise: Noise, replicates: int, rng: np.random.Generator) -> Array:
    """√(ν / χ²_ν): what an estimate of σ from ν degrees of freedom leaves open."""
    freedom = max(noise.freedom, 3.0)
    return np.sqrt(freedom / rng.chisquare(freedom, replicates))
