"""Which training sets does a budget buy, and what do they really cost?

The paper counts β = Σα_k, the cells' compute over the target's. The true cost of a sweep is K learning
rates, with each trunk paid for once where horizons branch off it. Both are stated, always.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from etastar.estimate.cells import Group
from etastar.scale import Scale

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SweepCost:
    """The price of the runs behind a prediction."""

    budget_ratio: float  # the paper's β = Σ 6ND / C(target)
    flop: float  # what the runs really took
    target_sweep_flop: float  # the same learning rates, swept at the target scale
    learning_rates: float  # K, mean over the cells

    @property
    def true_ratio(self) -> float:
        """Real cost over that of a sweep at the target scale."""
        return self.flop / self.target_sweep_flop


def sweep_cost(group: Group, cells: list[tuple[float, float]], target: Scale) -> SweepCost:
    """Price the cells (N, D) of a group; shared trunks are paid once, with each branch's decay."""
    batch, decay = group.conditions.get("batch_tokens"), group.conditions.get("decay_steps")
    decay_tokens = float(batch) * float(decay) if isinstance(batch, float) and isinstance(decay, (int, float)) else 0.0
    flop = 0.0
    counts = []
    for block in group.blocks:
        rows = np.isin(block.tokens, [d for n, d in cells if n == block.params])
        if not rows.any():
            continue
        ran = np.isfinite(block.seeds[:, rows]) | block.diverged[None, rows]
        counts.append(ran.any(axis=0).sum(axis=1).mean())
        tokens = block.tokens[rows]
        if group.shared_trunks:
            longest = np.where(ran, tokens[None, :, None], 0.0).max(axis=1).sum()
            # the longest branch is the trunk's own end; every other one adds its decay
            branches = np.maximum(ran.sum(axis=1) - 1, 0).sum()
            flop += 6 * block.params * (longest + branches * decay_tokens)
        else:
            flop += 6 * block.params * float((ran * tokens[None, :, None]).sum())
    rates = float(np.mean(counts)) if counts else 0.0
    ratio = sum(6 * n * d for n, d in set(cells)) / target.compute
    return SweepCost(ratio, flop, max(rates, 1.0) * target.compute, rates)


def data_pairs(
    tokens: ArrayLike, target_tokens: float, budget_ratio: float, *, first: float
) -> tuple[float, float] | None:
    """The paper's training set along D: α₁·D = `first`, α₂ = β − α₁; None where it does not exist."""
    second = budget_ratio * target_tokens - first
    grid = np.asarray(tokens, float)
    if second <= first * (1 + 1e-9) or second > grid.max() * (1 + 1e-9) or second >= target_tokens:
        return None
    return first, second


def all_data_pairs(tokens: ArrayLike, target_tokens: float) -> list[tuple[float, float, float]]:
    """Every pair of measured D below the target, as (β, D₁, D₂)."""
    grid = np.unique(np.asarray(tokens, float))
    below = grid[grid < target_tokens * (1 - 1e-9)]
    return [((a + b) / target_tokens, float(a), float(b)) for a, b in combinations(below, 2)]


def model_sets(params: ArrayLike, target_params: float) -> list[tuple[float, tuple[float, ...]]]:
    """Every set of two or more smaller model sizes, as (β, sizes), β = ΣN / N_target, ascending."""
    below = [float(n) for n in np.unique(np.asarray(params, float)) if n < target_params * (1 - 1e-9)]
    sets = [
        (sum(chosen) / target_params, chosen)
        for size in range(2, min(len(below), 6) + 1)
        for chosen in combinations(below, size)
    ]
    return sorted(sets)
