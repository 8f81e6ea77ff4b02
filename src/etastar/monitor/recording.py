"""How does a monitored run reach a study's folder?

As a trained one does: trajectory rows in parts named after the run and the steps they span, and one row in
the runs table when it is finished. Rows wait in memory and are written every so many. After a resume the rows of
steps that will be taken again go; a run that begins anew under a name that is there replaces it, aloud.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from etastar.records import TRAJECTORY_SCHEMA, content_id
from etastar.store import parts, read_part, write_runs, write_trajectories
from etastar.train.statistics import STATISTICS

ROWS_IN_MEMORY = 20_000


class Recording:
    """Rows of one run on their way to the store."""

    def __init__(self, study: str | Path, run: str) -> None:
        self.study = Path(study)
        self.run = run
        self._rows: list[dict[str, Any]] = []
        self._losses: dict[tuple[int, str], dict[str, Any]] = {}
        self._begun = False

    def statistics(self, step: int, weights: Sequence[str], values: Sequence[Sequence[float]]) -> None:
        """Keep the statistics of one step: a row a weight, in the order of `STATISTICS`."""
        for weight, row in zip(weights, values, strict=True):
            seen = {name: None if value != value else value for name, value in zip(STATISTICS, row, strict=True)}
            self._rows.append({"run": self.run, "step": step, "weight": weight, **seen})
        if len(self._rows) >= ROWS_IN_MEMORY:
            self.flush()

    def loss(self, step: int, column: str, value: float) -> None:
        """Keep a training or validation loss at a step; of several at one step the last that can still be told."""
        if (step, column) in self._losses:
            self._losses[step, column][column] = value
            return
        self._losses[step, column] = row = {"run": self.run, "step": step, column: value}
        self._rows.append(row)

    def flush(self) -> None:
        """Write what waits as one part."""
        if not self._rows:
            return
        if not self._begun:
            self._replace()
        steps = [row["step"] for row in self._rows]
        span = (min(steps), max(steps) + 1)
        write_trajectories(
            self.study, pa.Table.from_pylist(self._rows, schema=TRAJECTORY_SCHEMA), self._free_name(*span)
        )
        self._rows = []

    def _replace(self) -> None:
        """This run begins here: what an earlier one of its name left goes."""
        self._begun = True
        old = list(self._written())
        if old:
            warnings.warn(f"{self.study}: the run {self.run!r} was there already and is replaced", stacklevel=2)
        for path, _, _ in old:
            path.unlink(missing_ok=True)

    def resume(self, step: int) -> None:
        """Go on at `step`: forget its rows and later ones, here and on disk."""
        self._begun = True
        self._rows = [row for row in self._rows if row["step"] < step]
        self._losses = {key: row for key, row in self._losses.items() if key[0] < step}
        for path, start, stop in list(self._written()):
            if stop <= step:
                continue
            table = read_part(path)
            kept = None if table is None else table.filter(pa.array([s < step for s in table["step"].to_pylist()]))
            if kept is not None and kept.num_rows:
                write_trajectories(self.study, kept, self._free_name(start, step))
            path.unlink(missing_ok=True)

    def _written(self) -> Iterator[tuple[Path, int, int]]:
        """This run's parts with the steps they span."""
        name = re.compile(rf"{re.escape(self.part)}-(\d{{9,}})-(\d{{9,}})(\+\d+)?")
        for path in parts(self.study, "trajectories", f"{self.part}-"):
            if found := name.fullmatch(path.stem):
                yield path, int(found[1]), int(found[2])

    def _free_name(self, start: int, stop: int) -> str:
        """A part's name; a loss told after its step's part was written spans the same steps again."""
        name = f"{self.part}-{start:09d}-{stop:09d}"
        taken = {path.stem for path, _, _ in self._written()}
        count = 1
        free = name
        while free in taken:
            free, count = f"{name}+{count}", count + 1
        return free

    def finish(self, row: pa.Table) -> None:
        """Write what waits and the run's row."""
        self.flush()
        write_runs(self.study, row, self.part)

    @property
    def part(self) -> str:
        """The parts' first name: the run's where it may be a file's, else with a hash that keeps it apart."""
        plain = re.sub(r"[^A-Za-z0-9._-]", "_", self.run).lstrip(".")[:80] or "run"
        return plain if plain == self.run else f"{plain}-{content_id({'run': self.run})}"
