"""How does a monitored run reach a study's folder?

As a trained one does: trajectory rows in parts named after the run and the steps they span, and one row in
the runs table when it is finished. Rows wait in memory and are written every so many logged steps. After a
resume the rows of steps that will be taken again go.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from etastar.records import TRAJECTORY_SCHEMA, content_id
from etastar.store import parts, read_part, write_runs, write_trajectories
from etastar.train.statistics import STATISTICS

_SPAN = re.compile(r"-(\d{9,})-(\d{9,})$")
ROWS_IN_MEMORY = 20_000


class Recording:
    """Rows of one run on their way to the store."""

    def __init__(self, study: str | Path, run: str) -> None:
        self.study = Path(study)
        self.run = run
        self._rows: list[dict[str, Any]] = []

    def statistics(self, step: int, weights: Sequence[str], values: Sequence[Sequence[float]]) -> None:
        """Keep the statistics of one step: a row a weight, in the order of `STATISTICS`."""
        for weight, row in zip(weights, values, strict=True):
            seen = {name: _number(value) for name, value in zip(STATISTICS, row, strict=True)}
            self._rows.append({"run": self.run, "step": step, "weight": weight, **seen})
        if len(self._rows) >= ROWS_IN_MEMORY:
            self.flush()

    def loss(self, step: int, column: str, value: float) -> None:
        """Keep a training or validation loss at a step."""
        self._rows.append({"run": self.run, "step": step, column: value})

    def flush(self) -> None:
        """Write what waits as one part."""
        if not self._rows:
            return
        steps = [row["step"] for row in self._rows]
        table = pa.Table.from_pylist(self._rows, schema=TRAJECTORY_SCHEMA)
        name = f"{self.part}-{min(steps):09d}-{max(steps) + 1:09d}"
        taken = {path.stem for path in parts(self.study, "trajectories", self.part)}
        count = 0
        while (free := name if not count else f"{self.part}-{count}-{min(steps):09d}-{max(steps) + 1:09d}") in taken:
            count += 1  # a loss noted after its step's part was written
        write_trajectories(self.study, table, free)
        self._rows = []

    def resume(self, step: int) -> None:
        """Forget rows of `step` and later, here and on disk."""
        self._rows = [row for row in self._rows if row["step"] < step]
        for path in parts(self.study, "trajectories", f"{self.part}-"):
            span = _SPAN.search(path.stem)
            if span is None or int(span[2]) <= step:
                continue
            table = read_part(path)
            kept = None if table is None else table.filter(pa.array([s < step for s in table["step"].to_pylist()]))
            if kept is not None and kept.num_rows:
                write_trajectories(self.study, kept, f"{path.stem[: span.start()]}-{int(span[1]):09d}-{step:09d}")
            path.unlink(missing_ok=True)

    def finish(self, row: pa.Table) -> None:
        """Write what waits and the run's row."""
        self.flush()
        write_runs(self.study, row, self.part)

    @property
    def part(self) -> str:
        """The parts' first name: the run's where it may be a file's, else with a hash that keeps it apart."""
        plain = re.sub(r"[^A-Za-z0-9._-]", "_", self.run).lstrip(".")[:80] or "run"
        return plain if plain == self.run else f"{plain}-{content_id({'run': self.run})}"


def _number(value: float) -> float | None:
    return None if value != value else value
