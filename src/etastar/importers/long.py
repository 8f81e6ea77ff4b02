"""Is this table one row a run, or one row a step? The second kind, and Lightning's `metrics.csv`, become raw runs.

In a table of steps, a run's rows share its settings: a column that is the same in all rows of every run is a
setting, one that changes is a metric.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from etastar.importers.hparams import read_hparams
from etastar.importers.raw import Gathered, RawRun, number, relative

KIND = "a table of steps"
KIND_LIGHTNING = "metrics.csv of Lightning's CSVLogger"
STEPS = ("step", "iter", "iteration", "global_step", "_step", "train_step")
RUNS = ("run", "run_id", "run_name", "name", "id", "trunk")


def long_columns(frame: pl.DataFrame, mapping: Mapping[str, str]) -> tuple[str, str] | None:
    """The columns of run and step, where a run has several steps; None for a table of runs."""
    plain = {name.lower(): name for name in reversed(frame.columns)}
    step = mapping.get("step") or next((plain[name] for name in STEPS if name in plain), None)
    run = mapping.get("run") or next((plain[name] for name in RUNS if name in plain), None)
    if run is None or step is None or run not in frame.columns or step not in frame.columns:
        return None
    if not frame[step].dtype.is_numeric():
        return None
    if frame[run].null_count() or frame[run].dtype.is_nested() or frame[run].n_unique() == frame.height:
        return None
    several = frame.group_by(run).agg(pl.col(step).n_unique().alias("n"))["n"].max()
    return (run, step) if isinstance(several, int) and several > 1 else None


def runs_from_long(frame: pl.DataFrame, run_column: str, step_column: str, source: str) -> Gathered:
    """Raw runs of a table of steps, in the order in which they appear."""
    others = [c for c in frame.columns if c not in (run_column, step_column) and not frame[c].dtype.is_nested()]
    counts = frame.group_by(run_column).agg([pl.col(c).drop_nulls().n_unique() for c in others])
    most = {c: counts[c].max() for c in others}
    settings = [c for c in others if isinstance(n := most[c], int) and n <= 1]
    metrics = [c for c in others if c not in settings and frame[c].dtype.is_numeric()]
    runs = []
    for (name,), rows in frame.group_by([run_column], maintain_order=True):
        raw = RawRun(id=str(name), name=str(name), source=source)
        for column in settings:
            values = rows[column].drop_nulls()
            raw.config[column] = values[0] if values.len() else None
        _points(raw, rows, step_column, metrics)
        runs.append(raw)
    note = f"one row a step: {len(runs)} runs by {run_column!r}, {len(metrics)} metrics over {step_column!r}"
    return Gathered(KIND, tuple(runs), (), (note,))


def _points(raw: RawRun, rows: pl.DataFrame, step_column: str, metrics: list[str]) -> None:
    steps = rows[step_column].cast(pl.Float64).to_list()
    for column in metrics:
        for step, value in zip(steps, rows[column].to_list(), strict=True):
            if step is not None and value is not None and step == step and abs(step) < 2**62:
                raw.add(column, int(step), 0.0, float(value))


def is_lightning(path: Path) -> bool:
    """A metrics.csv whose header has Lightning's columns."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            header = [name.strip() for name in file.readline(65536).split(",")]
    except OSError:
        return False
    return "step" in header and ("epoch" in header or (path.parent / "hparams.yaml").is_file())


def read_lightning(paths: list[Path], root: Path) -> Gathered:
    """Runs of CSVLogger folders: a metrics.csv each, hparams.yaml beside it."""
    runs, problems = [], []
    for path in sorted(paths):
        name = relative(path.parent, root)
        run = RawRun(id=name, name=name, source=relative(path, root))
        run.config, said = read_hparams(path.with_name("hparams.yaml"), root)
        run.problems += said
        try:
            _lines(run, path)
        except OSError as error:
            problems.append(f"{run.source}: cannot be read ({error.strerror})")
            continue
        runs.append(run)
    return Gathered(KIND_LIGHTNING, tuple(runs), tuple(problems))


def _lines(run: RawRun, path: Path) -> None:
    """Row by row, so that a torn last line costs itself alone."""
    bad = 0
    with path.open(encoding="utf-8", errors="replace", newline="") as lines:
        first = lines.readline(2**20)
        header = [name.strip().strip('"') for name in first.rstrip("\r\n").split(",")]
        if not first.endswith("\n"):
            run.problems.append(f"{run.source}: ends within its header")
            return
        place = header.index("step") if "step" in header else -1
        for line in lines:
            cells = line.rstrip("\r\n").split(",")
            step = _cell(cells[place]) if 0 <= place < len(cells) else None
            if step is None or step != step or abs(step) >= 2**62 or len(cells) != len(header) or line[-1] != "\n":
                bad += 1
                continue
            for name, text in zip(header, cells, strict=True):
                if name not in ("step", "epoch") and (value := _cell(text)) is not None:
                    run.add(name, int(step), 0.0, value)
    if bad:
        run.problems.append(f"{run.source}: {bad} lines are not whole and are left out")


def _cell(text: Any) -> float | None:
    try:
        return number(float(text)) if str(text).strip() else None
    except ValueError:
        return None
