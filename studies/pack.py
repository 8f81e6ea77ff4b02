"""How does a trained study become a data set that is small enough to ship?

    python studies/pack.py STUDY PLAN OUT

One part a stack of the plan: its rows as they are, its trajectories thinned to every 250th step (and to
7 significant digits, which is what fp32 sums carry). OUT is a study's folder like any other.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etastar.plan.study_plan import load_plan
from etastar.store import read_runs, read_trajectories, write_runs, write_trajectories

EVERY = 250  # steps


def thinned(trajectories: pa.Table) -> pa.Table:
    """Every 250th step; float columns rounded to fp32, so that they pack."""
    kept = trajectories.filter(pa.array(trajectories["step"].to_numpy() % EVERY == 0))
    for index, field in enumerate(kept.schema):
        if pa.types.is_float64(field.type):
            kept = kept.set_column(index, field, pc.cast(pc.cast(kept[field.name], pa.float32()), pa.float64()))
    return kept


def main(study: Path, plan_file: Path, out: Path) -> int:
    """Write the parts of every stack that has rows."""
    plan = load_plan(plan_file)
    runs, trajectories = read_runs(study), read_trajectories(study)
    for stack in plan.stacks:
        content = plan.content_of(stack)
        mine = (
            pc.field("params").isin([float(plan.params_of(stack))])
            & pc.field("seed").isin([stack.seed])
            & pc.field("optimizer").isin([content["optimizer"]["kind"]])
            & pc.field("schedule").isin([content["schedule"]["kind"]])
        )
        rows = runs.filter(mine).sort_by([("steps", "ascending"), ("lr", "ascending")])
        if not rows.num_rows:
            continue
        names = np.unique([*rows["run"].to_pylist(), *rows["trunk"].to_pylist()])
        paths = thinned(trajectories.filter(pc.field("run").isin(names.tolist())))
        order = [("run", "ascending"), ("step", "ascending"), ("weight", "ascending")]
        write_runs(out, rows, stack.name)
        write_trajectories(out, paths.sort_by(order), stack.name)
        print(f"{stack.name}: {rows.num_rows} runs, {paths.num_rows} rows of trajectories")
    return 0


if __name__ == "__main__":
    sys.exit(main(*(Path(argument) for argument in sys.argv[1:4])))
