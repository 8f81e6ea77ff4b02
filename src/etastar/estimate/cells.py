"""Which losses belong to one curve? From the runs table to blocks of cells.

A cell is one (group, N, D): the losses of a learning-rate sweep. A block holds all cells of one
(group, N) as arrays of shape (D, LR), because cells of one trunk share its noise and must stay aligned.
Replicates (other seeds of the same cell) are averaged after each seed's common shift is removed.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from etastar.errors import InputError
from etastar.records import RunStatus, group_labels
from etastar.scale import format_number

Array = NDArray[np.float64]
MOST_BLOCKS = 2_000  # (group, N) in one table
MOST_CELLS = 2_000_000  # D × LR of one N, which are held as a full grid


class Quantity(enum.StrEnum):
    """The learning rate that is typed, or the effective one."""

    LR = "lr"
    EFF_LR = "eff_lr"


class EffColumn(enum.StrEnum):
    """Which mean of η_eff stands for a run."""

    MEAN = "mean_eff_lr"
    PLATEAU = "plateau_eff_lr"


@dataclass(frozen=True)
class Block:
    """All cells of one (group, N). Arrays are (D, LR); NaN where a cell lacks that learning rate."""

    group: str
    params: float
    tokens: Array  # (D,) ascending
    log2_lr: Array  # (L,) ascending
    loss: Array  # (D, L), mean over replicates; NaN where there is none or it diverged
    log2_eff_lr: Array  # (D, L), NaN where unknown
    count: NDArray[np.int64]  # (D, L), replicates behind each loss
    diverged: NDArray[np.bool_]  # (D, L), at least one replicate diverged there
    seeds: Array  # (S, D, L), losses by replicate, for the noise
    unmarked: bool  # rows repeat a cell, and no seed or run tells them apart

    @property
    def has_eff_lr(self) -> bool:
        """η_eff is known wherever a loss is."""
        known = np.isfinite(self.log2_eff_lr) | ~np.isfinite(self.loss)
        return bool(known.all() and np.isfinite(self.log2_eff_lr).any())


@dataclass(frozen=True)
class Group:
    """The blocks that one law may be fitted to, and the conditions they share."""

    label: str
    blocks: tuple[Block, ...]
    conditions: dict[str, float | str | None]
    crashed: int
    shared_trunks: bool  # horizons branch off one trunk, which is paid for once
    varied: tuple[str, ...]  # conditions that differ within the group

    @property
    def has_eff_lr(self) -> bool:
        return bool(self.blocks) and all(block.has_eff_lr for block in self.blocks)


CONDITION_COLUMNS = ("optimizer", "batch_tokens", "weight_decay", "beta1", "schedule", "warmup_steps", "decay_steps")


def build_groups(
    runs: pa.Table, *, group_columns: tuple[str, ...] | None = None, eff_column: EffColumn = EffColumn.MEAN
) -> list[Group]:
    """Sort a conformed runs table into groups of blocks, in a fixed order."""
    labels = group_labels(runs, group_columns)
    frame = pl.from_arrow(runs.select([*_needed(runs, eff_column)]))
    assert isinstance(frame, pl.DataFrame)
    frame = frame.with_columns(pl.Series("label", labels), pl.col(eff_column.value).alias("eff_lr"))
    _refuse_crowd(frame)
    groups = []
    for (label,), part in sorted(frame.group_by(["label"], maintain_order=True), key=lambda item: str(item[0])):
        crashed = part.filter(pl.col("status") == RunStatus.CRASHED.value).height
        part = part.filter(pl.col("status") != RunStatus.CRASHED.value)
        blocks = tuple(
            _block(str(label), float(params), rows)
            for (params,), rows in sorted(part.group_by(["params"]), key=lambda item: item[0])
        )
        varied = tuple(n for n in CONDITION_COLUMNS if part[n].drop_nulls().n_unique() > 1)
        groups.append(Group(str(label), blocks, _conditions(part), crashed, _shares_trunks(part), varied))
    if not any(group.blocks for group in groups):
        raise InputError("no run finished: every row is crashed", hint="look at the status column")
    return groups


def _refuse_crowd(frame: pl.DataFrame) -> None:
    blocks = frame.select("label", "params").n_unique()
    if blocks > MOST_BLOCKS:
        labels, sizes = frame["label"].n_unique(), frame["params"].n_unique()
        raise InputError(
            f"{labels} groups and {sizes} different N make {blocks} sweeps, more than {MOST_BLOCKS}",
            hint="keep fewer rows with --where, or name the columns that tell trainings apart with --group",
        )


def _needed(runs: pa.Table, eff_column: EffColumn) -> list[str]:
    wanted = ["params", "tokens", "lr", "loss", eff_column.value, "seed", "run", "trunk", "status", "steps", "decay"]
    wanted += CONDITION_COLUMNS
    return [name for name in dict.fromkeys(wanted) if name in runs.column_names]


def _conditions(part: pl.DataFrame) -> dict[str, float | str | None]:
    """What every run of the group shares; null where it varies or is unknown."""
    shared: dict[str, float | str | None] = {}
    for name in CONDITION_COLUMNS:
        values = part[name].drop_nulls().unique()
        shared[name] = values[0] if len(values) == 1 and part[name].null_count() == 0 else None
    if (
        shared["decay_steps"] is None
        and part.height
        and part["steps"].null_count() + part["decay_steps"].null_count() == 0
    ):
        fractions = (part["decay_steps"] / part["steps"]).to_numpy()
        if np.ptp(fractions) < 0.01:
            shared["decay_fraction"] = round(float(np.mean(fractions)), 4)
    if "decay" in part.columns and set(part["decay"].to_list()) == {"independent"}:
        shared["decay"] = "independent"  # weights shrink by λ a step, not by η·λ: our own trainer's extra column
    return shared


def _shares_trunks(part: pl.DataFrame) -> bool:
    """Several rows name one trunk, and every row names one."""
    trunks = part["trunk"]
    return part.height > 0 and trunks.null_count() == 0 and trunks.n_unique() < part.height


def _block(label: str, params: float, rows: pl.DataFrame) -> Block:
    tokens, d = np.unique(rows["tokens"].to_numpy(), return_inverse=True)
    # learning rates equal to within float noise are one column
    log2_lr, l = np.unique(np.round(np.log2(np.asarray(rows["lr"], dtype=np.float64)), 6), return_inverse=True)
    _refuse_scatter(params, len(tokens), len(log2_lr), rows.height)
    order = np.lexsort((rows["run"].cast(pl.String).fill_null("").to_numpy(), rows["seed"].fill_null(0).to_numpy()))
    loss = rows["loss"].to_numpy().astype(float)
    diverged_row = (rows["status"] == RunStatus.DIVERGED.value).to_numpy() | ~np.isfinite(loss)
    seeds = _replicate_axis(rows, order, d, l, len(tokens), len(log2_lr), np.where(diverged_row, np.nan, loss))
    shape = (len(tokens), len(log2_lr))
    diverged = np.zeros(shape, dtype=bool)
    np.logical_or.at(diverged, (d, l), diverged_row)
    eff = _mean_by_cell(np.where(diverged_row, np.nan, np.log2(rows["eff_lr"].to_numpy().astype(float))), d, l, shape)
    mean = _seed_free_mean(seeds)
    # a learning rate at which a replicate diverged is not a place to be: kept, not fitted
    mean = np.where(diverged, np.nan, mean)
    count = np.isfinite(seeds).sum(axis=0)
    nameless = rows["seed"].null_count() == rows.height and rows["run"].null_count() == rows.height
    unmarked = nameless and len(seeds) > 1
    return Block(label, params, tokens, log2_lr.astype(np.float64), mean, eff, count, diverged, seeds, unmarked)


def _refuse_scatter(params: float, horizons: int, rates: int, rows: int) -> None:
    """Runs that share no learning rate or no D are no sweep, and their grid would not fit into memory."""
    if horizons * rates <= MOST_CELLS and horizons * rates**2 <= 25 * MOST_CELLS:
        return
    raise InputError(
        f"N = {format_number(params)}: {rows} runs have {horizons} different D and {rates} different learning rates",
        hint="a sweep repeats its learning rates at every D: keep those that do with --where, or round tokens and lr",
    )


def _replicate_axis(
    rows: pl.DataFrame,
    order: NDArray[np.int64],
    d: NDArray[np.int64],
    l: NDArray[np.int64],
    nd: int,
    nl: int,
    loss: Array,
) -> Array:
    """Losses as (S, D, L): by seed where there is one, else by order of appearance in the cell."""
    seed_column = rows["seed"]
    if seed_column.null_count() == 0:
        _, replicate = np.unique(seed_column.to_numpy(), return_inverse=True)
        collisions = len(np.unique(np.stack([replicate, d, l]), axis=1).T) < len(loss)
    else:
        replicate, collisions = np.zeros(len(loss), dtype=np.int64), True
    if collisions:
        replicate = np.zeros(len(loss), dtype=np.int64)
        seen: dict[tuple[int, int], int] = {}
        for row in order:
            key = (int(d[row]), int(l[row]))
            replicate[row] = seen.get(key, 0)
            seen[key] = int(replicate[row]) + 1
    out = np.full((int(replicate.max()) + 1, nd, nl), np.nan)
    out[replicate, d, l] = loss
    return out


def _mean_by_cell(values: Array, d: NDArray[np.int64], l: NDArray[np.int64], shape: tuple[int, int]) -> Array:
    known = np.isfinite(values)
    total, count = np.zeros(shape), np.zeros(shape)
    np.add.at(total, (d[known], l[known]), values[known])
    np.add.at(count, (d[known], l[known]), 1)
    return np.divide(total, count, out=np.full(shape, np.nan), where=count > 0)


def _seed_free_mean(seeds: Array) -> Array:
    """Mean over replicates after removing each seed's shift within a cell (an additive two-way fit).

    Where every seed ran every learning rate this is the plain mean; where one seed ran only some, its
    shift would otherwise look like a feature of those learning rates.
    """
    known = np.isfinite(seeds)
    count = known.sum(axis=0)
    values = np.where(known, seeds, 0.0)
    mean = np.divide(values.sum(axis=0), count, out=np.full(seeds.shape[1:], np.nan), where=count > 0)
    if len(seeds) == 1 or (known.all(axis=0) | ~known.any(axis=0)).all():
        return mean
    for _ in range(20):
        residual = np.where(known, seeds - mean, 0.0)
        per_seed = known.sum(axis=2, keepdims=True)
        shift = np.divide(
            residual.sum(axis=2, keepdims=True), per_seed, out=np.zeros(per_seed.shape), where=per_seed > 0
        )
        values = np.where(known, seeds - shift, 0.0)
        mean = np.divide(values.sum(axis=0), count, out=np.full(seeds.shape[1:], np.nan), where=count > 0)
    return mean
