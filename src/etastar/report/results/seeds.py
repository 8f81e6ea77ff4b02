"""What would one seed have said? A study cut down to what one user would have run.

The truth at a test cell is the optimum of all seeds together, with its own interval; a prediction comes from one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etastar.estimate.cells import Quantity, build_groups
from etastar.predict.cost import Curves, cost_at
from etastar.records import group_labels
from etastar.report.view import StudyView
from etastar.scale import Scale


@dataclass(frozen=True)
class Truth:
    """The measured optimum of a test cell, and what other learning rates cost there."""

    target: Scale
    log2_lr: float
    log2_interval: tuple[float, float]
    index: int
    curves: Curves

    def error(self, log2_lr: float) -> float:
        """Octaves, predicted − measured."""
        return log2_lr - self.log2_lr

    def ecr(self, log2_lr: float) -> float | None:
        """Extra compute that this learning rate costs here."""
        return cost_at(self.curves, self.index, log2_lr).ratio(self.target.tokens)


def truth_of(view: StudyView) -> Truth | None:
    """The largest test cell of the main group, if its optimum is interior."""
    params, (_, longest) = view.test_cells(view.main)
    lr = view.estimates(view.main)[Quantity.LR]
    (index,) = np.flatnonzero((lr.params == params) & (lr.tokens == longest))
    interval = lr.optima[index].log2_interval
    if not lr.usable[index] or interval is None:
        return None
    return Truth(Scale(params, longest), float(lr.log2_values[index]), interval, int(index), Curves(lr))


def seeds_of(view: StudyView, params: float) -> list[int | None]:
    """Seeds that the main group trained at one N; [None] where none is known."""
    rows = main_rows(view)
    mine = rows.filter(pc.field("params") == params)
    return sorted({seed for seed in mine["seed"].to_pylist() if seed is not None}) or [None]


def main_rows(view: StudyView) -> pa.Table:
    """The runs of the main group."""
    labels = group_labels(view.table, view.group_columns)
    return view.table.filter(pa.array([label == view.main.label for label in labels]))


def one_seed(view: StudyView, seed: int | None, keep: pa.Table | None = None, *, steps: int | None = None) -> StudyView:
    """The main group with one replicate a size: this seed, or the first where a size was not trained with it.

    `keep` are the rows to choose from, by default all; trajectories end before `steps`, so that nothing is
    looked at which such a study would not have seen.
    """
    rows = main_rows(view) if keep is None else keep
    taken = []
    for params in sorted(set(rows["params"].to_pylist())):
        mine = rows.filter(pc.field("params") == params)
        there = {one for one in mine["seed"].to_pylist() if one is not None}
        if there:
            mine = mine.filter(pc.field("seed") == (seed if seed in there else min(there)))
        taken.append(mine)
    table = pa.concat_tables(taken)
    paths = view.trajectories
    if paths is not None and steps is not None:
        paths = paths.before(steps)
    groups = tuple(group for group in build_groups(table, eff_column=view.eff_column) if group.blocks)
    return replace(view, table=table, groups=groups, trajectories=paths)
