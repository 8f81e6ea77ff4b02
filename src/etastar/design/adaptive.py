"""Which learning rates are still worth training after this horizon, and which are missing?

A pure function of the decayed losses so far. It looks at the losses of branches alone, because the loss of
a constant-LR trunk misranks high learning rates, and it is cheap enough to be asked after every horizon.

- *Stop*: learning rates above the optimum, by more than its interval and a margin that later fits need.
  Never one below: η* falls with D, so what is too small now may be the best later.
- *Add*: where the loss is lowest at an end of the grid, the grid goes on there with its own spacing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from etastar.errors import InputError
from etastar.estimate.cells import Block, Quantity, build_groups
from etastar.estimate.estimates import Options, estimate_group
from etastar.estimate.flags import Flag
from etastar.estimate.optimum import Optimum, Status
from etastar.records import conform_runs, runs_table

Array = NDArray[np.float64]

SAME_LR = 1e-3  # octaves: closer than this, two learning rates are one


class AdaptiveRule(BaseModel):
    """How careful the rule is. The defaults were chosen by `bench/adaptive.py --tuning`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    level: float = Field(default=0.9, ge=0.5, lt=1, description="of the optimum's interval")
    keep_above: float = Field(default=1.5, ge=0, description="octaves kept above the interval, for later fits")
    least_above: int = Field(default=2, ge=1, description="learning rates kept above the optimum, however far")
    least_lrs: int = Field(default=5, ge=3, description="the grid never gets smaller than this")
    add_at_once: int = Field(default=2, ge=1, description="learning rates added at an end")
    widest: float = Field(default=6.0, ge=0, description="octaves beyond an end of the planned grid")
    replicates: int = Field(default=200, ge=50)
    seed: int = 0


@dataclass(frozen=True)
class Decision:
    """What changes before the next horizon. Every learning rate is one of the plan's, or a new one.

    `stop`: their trunks end here. `add`: trained from the start, with all horizons of the plan (one that was
    stopped before goes on from where it stopped). `reasons`: one sentence for each change, or for its absence.
    """

    stop: tuple[float, ...]
    add: tuple[float, ...]
    reasons: tuple[str, ...]
    status: Status  # of the optimum at this horizon
    log2_optimum: float | None = None
    log2_interval: tuple[float, float] | None = None

    @property
    def changes(self) -> bool:
        """Is the stack packed anew?"""
        return bool(self.stop or self.add)


def decide(
    runs: pa.Table | Iterable[Mapping[str, Any]],
    *,
    lrs: Sequence[float],
    horizon: int,
    next_horizons: Sequence[int] = (),
    params: float | None = None,
    planned_lrs: Sequence[float] | None = None,
    rule: AdaptiveRule = AdaptiveRule(),
) -> Decision:
    """Decide after `horizon` (steps, decay included) which of `lrs` stop and which are added.

    `runs` is a runs table, or rows of one, with the branches' results so far: all seeds, of one group and one N
    (`params` picks it from several). Rows of later horizons are not looked at. `lrs` are the learning rates that
    train now, `planned_lrs` those of the plan (default `lrs`), `next_horizons` those still to come: without any,
    nothing is stopped. One decision serves all seeds of a width.
    """
    table = runs if isinstance(runs, pa.Table) else runs_table(runs)
    block, row, optimum = _optimum_at(conform_runs(table).table, horizon, params, rule)
    if optimum is None or block is None:
        return Decision((), (), (f"no run of horizon {horizon} has ended: nothing changes",), Status.TOO_FEW_POINTS)
    grid: Array = np.unique(np.round(np.log2(np.asarray(lrs, float)), 6)).astype(float)
    planned = grid if planned_lrs is None else np.log2(np.asarray(planned_lrs, float))
    if optimum.status is not Status.INTERIOR:
        add, reason = _widen(block, row, optimum, grid, planned, rule)
        return Decision((), add, (reason,), optimum.status)
    known = (optimum.status, optimum.log2_value, optimum.log2_interval)
    add, reason = _widen_shaky(block, row, optimum, grid, planned, rule)
    if add:
        return Decision((), add, (reason,), *known)
    diverged = block.log2_lr[block.diverged[: row + 1].any(axis=0)]
    stop, reason = _stop(optimum, grid, diverged, list(next_horizons), rule)
    return Decision(_as_given(stop, lrs), (), (reason,), *known)


def _optimum_at(
    table: pa.Table, horizon: int, params: float | None, rule: AdaptiveRule
) -> tuple[Block | None, int, Optimum | None]:
    """The block of the one N, its row at this horizon, and the optimum there; None where nothing ended."""
    steps = horizons_of(table)
    keep = steps <= horizon
    if params is not None:
        keep &= np.abs(np.log2(table["params"].to_numpy() / params)) < SAME_LR
    table = table.filter(pa.array(keep))
    at = steps[keep] == horizon
    if not at.any():
        return None, 0, None
    groups = [group for group in build_groups(table) if group.blocks]
    blocks = [block for group in groups for block in group.blocks]
    if len(blocks) > 1:
        raise InputError(
            f"the runs hold {len(groups)} groups and {len(blocks)} sweeps, a decision is about one",
            hint="name params, and keep runs that were trained alike",
        )
    tokens = float(table.filter(pa.array(at))["tokens"][0].as_py())
    row = int(np.argmin(np.abs(blocks[0].tokens - tokens)))
    options = Options(level=rule.level, replicates=rule.replicates, seed=rule.seed)
    return blocks[0], row, estimate_group(groups[0], options)[Quantity.LR].optima[row]


def horizons_of(table: pa.Table) -> Array:
    """The horizon of every row: its steps, or its tokens in a table without steps."""
    column = "steps" if table["steps"].null_count == 0 else "tokens"
    return table[column].to_numpy(zero_copy_only=False).astype(float)


def _as_given(log2_lrs: Iterable[float], lrs: Sequence[float]) -> tuple[float, ...]:
    """The caller's own numbers for these learning rates, so that they can be looked up."""
    given = np.log2(np.asarray(lrs, float))
    return tuple(float(lrs[int(np.argmin(np.abs(given - x)))]) for x in log2_lrs)


def _stop(
    optimum: Optimum,
    grid: Array,
    diverged: Array,
    next_horizons: list[int],
    rule: AdaptiveRule,
) -> tuple[list[float], str]:
    low, high = optimum.log2_interval
    where = f"η* = 2^{optimum.log2_value:.2f}, between 2^{low:.2f} and 2^{high:.2f}"
    if not next_horizons:
        return [], f"{where}: the last horizon, nothing is left to stop"
    if Flag.NOISE_UNKNOWN in optimum.flags or Flag.QUADRATIC_FALLBACK in optimum.flags:
        return [], f"{where}: too few learning rates to trust that interval, so none stops"
    line = max(high, optimum.log2_value) + rule.keep_above
    lost = np.array([np.abs(diverged - x).min(initial=np.inf) < SAME_LR for x in grid]) & (grid > high)
    alive = grid[~lost]
    above = alive[alive > optimum.log2_value]
    # the nearest ones stay whatever their distance, so that a minimum further down keeps its right side
    far = [float(x) for x in above[rule.least_above :] if x > line]
    far = far[max(len(far) - max(len(alive) - rule.least_lrs, 0), 0) :]
    stop = sorted([*far, *(float(x) for x in grid[lost])])
    said = [
        *([f"2^{far[0]:g} and above lie more than {rule.keep_above:g} octaves above that, and stop"] if far else []),
        *([f"{int(lost.sum())} above it diverged, and stop"] if lost.any() else []),
    ]
    if not stop:
        return [], f"{where}: no learning rate lies more than {rule.keep_above:g} octaves above that"
    return stop, f"{where}: {'; '.join(said)}"


def _widen(
    block: Block,
    row: int,
    optimum: Optimum,
    grid: Array,
    planned: Array,
    rule: AdaptiveRule,
) -> tuple[tuple[float, ...], str]:
    """Learning rates beyond the end at which the loss is lowest."""
    losses = block.loss[row]
    finite = np.flatnonzero(np.isfinite(losses))
    if optimum.status is Status.TOO_FEW_POINTS or len(finite) == 0:
        return (), f"only {len(finite)} learning rates have a loss here: nothing changes"
    lowest = int(finite[np.argmin(losses[finite])])
    if optimum.status is Status.NO_MINIMUM and lowest not in (finite[0], finite[-1]):
        return (), "the losses have no clear minimum and are not lowest at an end: nothing changes"
    upwards = lowest != finite[0] and lowest == finite[-1]
    if not upwards and lowest != finite[0]:
        # the fit leans over an end although the raw minimum is one off it: go on at the nearer end
        upwards = lowest - finite[0] > finite[-1] - lowest
    return _beyond(block, row, grid, planned, upwards=upwards, rule=rule)


def _widen_shaky(
    block: Block,
    row: int,
    optimum: Optimum,
    grid: Array,
    planned: Array,
    rule: AdaptiveRule,
) -> tuple[tuple[float, ...], str]:
    """An interior minimum whose interval runs over an end, or that has no point beyond it, is at the edge too."""
    there = block.log2_lr[np.isfinite(block.loss[row])]
    low, high = optimum.log2_interval
    edge = Flag.RAW_MINIMUM_AT_EDGE in optimum.flags
    if low < there[0] or (edge and optimum.log2_value < there.mean()):
        return _beyond(block, row, grid, planned, upwards=False, rule=rule)
    if high > there[-1] or edge:
        return _beyond(block, row, grid, planned, upwards=True, rule=rule)
    return (), ""


def _beyond(
    block: Block,
    row: int,
    grid: Array,
    planned: Array,
    *,
    upwards: bool,
    rule: AdaptiveRule,
) -> tuple[tuple[float, ...], str]:
    """The next learning rates past one end, at the grid's own spacing."""
    spacing = spacing_of(grid)
    end = float(grid[-1] if upwards else grid[0])
    side = "upper" if upwards else "lower"
    blown = block.log2_lr[block.diverged[: row + 1].any(axis=0)]
    if upwards and (blown > block.log2_lr[np.isfinite(block.loss[row])][-1]).any():
        return (), "the loss is lowest next to learning rates that diverged: the grid ends there"
    step = spacing if upwards else -spacing
    wanted = [end + step * (k + 1) for k in range(rule.add_at_once)]
    limit = planned.max() + rule.widest if upwards else planned.min() - rule.widest
    inside = [x for x in wanted if (x <= limit + SAME_LR if upwards else x >= limit - SAME_LR)]
    # one that trains already (its result is not in yet) is not added again
    new = sorted(x for x in inside if np.abs(grid - x).min() > SAME_LR)
    if not new:
        return (), f"the loss is lowest at the {side} end, {rule.widest:g} octaves beyond the plan: no further"
    shown = ", ".join(f"2^{x:g}" for x in new)
    return tuple(
        _spelled(x, planned) for x in new
    ), f"the loss is lowest at the {side} end of the grid, 2^{end:g}: {shown} are added"


def _spelled(log2_lr: float, planned: Array) -> float:
    """2^x, as the plan has it where it has it."""
    nearest = float(planned[np.argmin(np.abs(planned - log2_lr))])
    return 2.0 ** (nearest if abs(nearest - log2_lr) < SAME_LR else log2_lr)


def spacing_of(grid: Array) -> float:
    """The usual distance between neighbours in octaves; half an octave for a single learning rate."""
    return float(np.round(np.median(np.diff(np.sort(grid))), 6)) if len(grid) > 1 else 0.5
