"""Do many writers in one study lose or invent a row while some of them are killed?"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
from counts import SEED, Table, counted

from etastar.store import Journal, read_events, read_runs, write_runs
from etastar.store.verify import verify_files

BATCH = 10  # rows a Parquet part


def _write(study: Path, told: Path, first: int, rows: int) -> None:
    """Rows as parts and as lines, each acknowledged (in a file of this writer alone) once its write has returned."""
    journal = Journal(study, writer="w")
    with told.open("ab", buffering=0) as acknowledge:
        for start in range(first, first + rows, BATCH):
            numbers = range(start, min(start + BATCH, first + rows))
            for number in numbers:
                journal.write("row", number=number)
                acknowledge.write(b"line %d\n" % number)
            table = [{"params": 1e6, "tokens": 1e7, "lr": 0.1, "loss": n / 7, "run": f"r{n}"} for n in numbers]
            write_runs(study, pa.Table.from_pylist(table), f"part-{start:07d}")
            acknowledge.write(b"".join(b"run %d\n" % number for number in numbers))


def test_exactly_the_acknowledged_rows(tmp_path: Path, full: bool) -> None:
    writers = counted("writers", full=16, quick=4, is_full=full)
    rows = counted("rows", full=1000, quick=40, is_full=full)
    kills = counted("writer_kills", full=100, quick=3, is_full=full)
    study, rng, context = tmp_path / "study", random.Random(SEED), multiprocessing.get_context("fork")
    goal = "16 processes × 1,000 rows, 100 killed: exactly the acknowledged rows"
    with Table(5, "Concurrent writers", goal=goal, is_full=full) as table:
        alive: dict[Any, tuple[int, Path]] = {}
        started = struck = 0
        acknowledgements: list[Path] = []
        last = time.monotonic()
        while started < writers + kills or alive:
            while len(alive) < writers and started < writers + kills:
                told = tmp_path / f"told-{started}"
                acknowledgements.append(told)
                child = context.Process(target=_write, args=(study, told, started * rows, rows))
                child.start()
                alive[child] = (started, told)
                started += 1
            if struck < kills and time.monotonic() - last > 0.02:
                last = time.monotonic()
                victim = rng.choice(list(alive))
                if victim.exitcode is None and alive[victim][1].exists() and rng.random() < 0.5:
                    os.kill(victim.pid, signal.SIGKILL)
                    victim.join()
                    struck += victim.exitcode == -signal.SIGKILL
                    assert victim.exitcode in (0, -signal.SIGKILL)
            for child in [child for child in alive if child.exitcode is not None]:
                assert child.exitcode in (0, -signal.SIGKILL)
                del alive[child]
            time.sleep(0.002)
        said = [line for path in acknowledgements if path.exists() for line in path.read_text().splitlines()]
        runs = read_runs(study)
        found = [f"run {name[1:]}" for name in runs["run"].to_pylist()]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            lines = [f"line {event['number']}" for event in read_events(study)]
        lost = set(said) - set(found) - set(lines)
        # between a write and its acknowledgement a kill may fall: at most one line and one part a killed process
        beyond = len(set(found) | set(lines)) - len(set(said))
        values = sum(row["loss"] != int(row["run"][1:]) / 7 for row in runs.to_pylist())
        wrong = [problem for problem in verify_files(study) if problem.wrong]
        table.add(processes=started, killed=struck, acknowledged=len(said), lost=len(lost),
                  twice=len(found) + len(lines) - len(set(found)) - len(set(lines)),
                  written_and_not_yet_acknowledged=beyond, other_values=values)  # fmt: skip
        assert not lost
        assert not wrong
        assert values == 0
        assert 0 <= beyond <= struck * BATCH
        assert len(found) + len(lines) == len(set(found)) + len(set(lines))
        assert struck >= min(kills, 1)
