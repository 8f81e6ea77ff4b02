"""What would the adaptive sweep have cost, and found, on a sweep that is complete?

Horizon by horizon the rule sees the decayed losses of the learning rates that it still trains, and decides. Time is
saved only where the stack is packed anew, that is from the next horizon on; a learning rate that is added pays for its
trunk from the start, with the decays that it missed. In the end the optimum at the last horizon is estimated
from what was trained, and compared with that of the whole sweep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from etastar.design.adaptive import SAME_LR, AdaptiveRule, decide, horizons_of
from etastar.errors import InputError
from etastar.estimate.cells import Quantity, build_groups
from etastar.estimate.estimates import Options, estimate_group
from etastar.estimate.optimum import Optimum, Status
from etastar.records import conform_runs

Array = NDArray[np.float64]
MOST_ROUNDS = 20  # of widening at one horizon


@dataclass(frozen=True)
class Round:
    """One horizon: how many learning rates trained on the way to it, and what was decided there."""

    horizon: float
    trained: int
    stopped: tuple[float, ...]
    added: tuple[float, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Replay:
    """An adaptive sweep beside the plain one. Costs are in steps × learning rates."""

    rounds: tuple[Round, ...]
    cost: float
    grid_cost: float  # the planned grid, plain
    whole_cost: float  # everything that is in the table, plain
    adaptive: Optimum  # at the last horizon, from what was trained
    plain: Optimum  # at the last horizon, from the planned grid; from the whole table where that has none
    unavailable: tuple[float, ...]  # added, but not in the table
    kept: pa.Table  # the runs that were made

    @property
    def fraction(self) -> float:
        """The adaptive cost over that of the planned grid."""
        return self.cost / self.grid_cost

    @property
    def agrees(self) -> bool:
        """Does the plain sweep's interval hold the adaptive sweep's η*?"""
        if self.adaptive.status is not Status.INTERIOR or self.plain.status is not Status.INTERIOR:
            return self.adaptive.status is self.plain.status
        low, high = self.plain.log2_interval
        return low <= self.adaptive.log2_value <= high


def replay(
    runs: pa.Table,
    *,
    planned: Sequence[float] | None = None,
    rule: AdaptiveRule = AdaptiveRule(),
    decay_fraction: float | None = None,
) -> Replay:
    """Replay a complete sweep of one N (all its seeds) from the `planned` learning rates, by default all of them.

    Decays are the table's `decay_steps`, or `decay_fraction` of each horizon where it has none.
    """
    table = conform_runs(runs).table
    horizon, log2_lr = horizons_of(table), np.log2(table["lr"].to_numpy())
    ladder = np.unique(horizon)
    if len(ladder) < 2 or len(np.unique(table["params"].to_numpy())) != 1:
        raise InputError(
            f"a replay needs several horizons of one N; there are {len(ladder)}",
            hint="give a sweep whose runs branch at several horizons",
        )
    decays = _decays(table, horizon, ladder, decay_fraction)
    everything = np.unique(np.round(log2_lr, 6))
    start = everything if planned is None else np.round(np.log2(np.asarray(planned, float)), 6)
    trained = sorted(float(x) for x in start)
    had = np.zeros(table.num_rows, dtype=bool)  # the runs that are made
    rounds: list[Round] = []
    unavailable: list[float] = []
    cost = 0.0
    for k, here in enumerate(ladder):
        cost += len(trained) * _segment(ladder, decays, k)
        had |= (horizon == here) & _is_one_of(log2_lr, trained)
        packed, stopped, added, reasons = len(trained), [], [], []
        for _ in range(MOST_ROUNDS):
            said = decide(
                table.filter(pa.array(had)),
                lrs=[2.0**x for x in trained],
                horizon=int(here),
                next_horizons=[int(h) for h in ladder[k + 1 :]],
                planned_lrs=[2.0**x for x in start],
                rule=rule,
            )
            reasons += said.reasons
            new = [x for lr in said.add if not _is_one_of(np.array([x := float(np.log2(lr))]), trained)[0]]
            there = [x for x in new if _is_one_of(np.array([x]), list(everything))[0]]
            unavailable += [x for x in new if x not in there]
            trained = sorted({*trained, *there})
            added += there
            # from the start, with every decay up to here
            cost += len(there) * (ladder[k] - decays[k] + decays[: k + 1].sum())
            had |= (horizon <= here) & _is_one_of(log2_lr, there)
            if not there:
                stopped = [float(np.log2(lr)) for lr in said.stop]
                trained = [x for x in trained if not _is_one_of(np.array([x]), stopped)[0]]
                break
        rounds.append(Round(float(here), packed, tuple(stopped), tuple(added), tuple(reasons)))
    kept = table.filter(pa.array(had))
    whole = ladder[-1] - decays[-1] + decays.sum()
    return Replay(
        rounds=tuple(rounds),
        cost=float(cost),
        grid_cost=float(len(start) * whole),
        whole_cost=float(len(everything) * whole),
        adaptive=_last_optimum(kept, rule),
        plain=_plain_optimum(table, table.filter(pa.array(_is_one_of(log2_lr, list(start)))), rule),
        unavailable=tuple(sorted(set(unavailable))),
        kept=kept,
    )


def _segment(ladder: Array, decays: Array, k: int) -> float:
    """Steps from the branch point before to this horizon: the trunk between, and the decay."""
    leaves = ladder - decays
    return float(leaves[k] - (leaves[k - 1] if k else 0.0) + decays[k])


def _decays(table: pa.Table, horizon: Array, ladder: Array, fraction: float | None) -> Array:
    if table["decay_steps"].null_count == 0:
        decay = table["decay_steps"].to_numpy().astype(float)
        return np.array([decay[horizon == h].max() for h in ladder])
    return (fraction or 0.0) * ladder


def _is_one_of(values: Array, chosen: Sequence[float]) -> NDArray[np.bool_]:
    if not len(chosen):
        return np.zeros(len(values), dtype=bool)
    return np.abs(values[:, None] - np.asarray(chosen)[None]).min(axis=1) < SAME_LR


def _plain_optimum(whole: pa.Table, grid: pa.Table, rule: AdaptiveRule) -> Optimum:
    planned = _last_optimum(grid, rule)
    return planned if planned.status is Status.INTERIOR else _last_optimum(whole, rule)


def _last_optimum(table: pa.Table, rule: AdaptiveRule) -> Optimum:
    groups = [group for group in build_groups(table) if group.blocks]
    options = Options(level=rule.level, replicates=rule.replicates, seed=rule.seed)
    optima = estimate_group(groups[0], options)[Quantity.LR].optima
    return max(optima, key=lambda optimum: optimum.tokens)
