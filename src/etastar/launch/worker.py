"""What does one worker do? `python -m etastar.launch.worker STUDY TASK`, on any machine that sees the folder.

It trains the task's part of its stack into the study, and tells the journal. SIGTERM and SIGINT make it save
and end after the present step; so does the death of the process that started it (`--parent`). Killed
outright, it goes on from its last checkpoint when it is started again.
"""

from __future__ import annotations

import argparse
import enum
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from etastar.errors import EtastarError
from etastar.store import HeldError, Journal, LostError

CLAIM_WAIT = 20.0  # seconds to wait for another process on the same stack before giving up the machine
QUIET = 10.0  # seconds between lines of progress in the journal, after the first


class Exit(enum.IntEnum):
    """How a worker ends."""

    DONE = 0
    CRASHED = 1
    REFUSED = 2  # a bad input: trying again would not help
    STOPPED = 3  # asked to stop: saved
    BUSY = 4  # another process is at it


class JournalReporter:
    """A training's reports as events of the study."""

    def __init__(self, journal: Journal, task: str) -> None:
        self._journal = journal
        self._task = task
        self._last = -math.inf

    def message(self, text: str) -> None:
        """Into the log, and the journal."""
        print(text, flush=True)
        self._journal.write("message", task=self._task, text=text)

    def progress(self, progress: Any) -> None:
        """Into the journal now and then."""
        now = time.monotonic()
        if now - self._last < QUIET:
            return
        self._last = now
        self._journal.write(
            "progress",
            task=self._task,
            segment=progress.segment,
            step=progress.step,
            fraction=progress.fraction,
            tokens_per_second=_finite(progress.tokens_per_second),
            seconds_left=_finite(progress.seconds_left),
            losses=[_finite(loss) for loss in progress.losses],
            alive=list(progress.alive),
        )

    def evaluated(self, horizon: int, cells: list[Any]) -> None:
        """A branch is in the store."""
        rows = [{"lr": c.lr, "loss": _finite(c.loss), "mean_eff_lr": c.mean_eff_lr, "status": c.status} for c in cells]
        print(f"evaluated after {horizon} steps: {len(rows)} rows", flush=True)
        self._journal.write("evaluated", task=self._task, horizon=horizon, rows=rows)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


class _Told:
    """Whatever ends the work is in the journal, an unforeseen error too."""

    def __init__(self, journal: Journal, task: str) -> None:
        self.journal = journal
        self.task = task

    def __enter__(self) -> _Told:
        self.journal.write("started", task=self.task, pid=os.getpid(), host=os.uname().nodename)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            said = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            event = "busy" if isinstance(error, (HeldError, LostError)) else "failed"
            self.journal.write(event, task=self.task, reason=said)
        self.journal.close()


def run_task(study: Path, task: str, *, should_stop: Callable[[], bool]) -> Exit:
    """Carry out one task of a study in this process."""
    with _Told(Journal(study, writer="worker"), task) as told:
        from etastar.launch.graph import parse_task
        from etastar.launch.repack import take_over
        from etastar.launch.study import RunIndex, read_record
        from etastar.train.loop import train

        reporter = JournalReporter(told.journal, task)
        stack, only = parse_task(task)
        record = read_record(study, stack)
        there = RunIndex(study).there()
        missing = tuple(
            h for h in record.spec.horizons if any(record.run_id(lr, h) not in there for lr in record.spec.lrs)
        )
        if not isinstance(only, int) and (taken := take_over(study, record, missing)):
            reporter.message(f"goes on at step {taken[1]} with models of {taken[0]}")
        result = train(record.spec, study, reporter=reporter, should_stop=should_stop, only=only, wait=CLAIM_WAIT)
        told.journal.write("finished" if result.finished else "stopped", task=task)
    return Exit.DONE if result.finished else Exit.STOPPED


@contextmanager
def _stop_signals(stop: threading.Event) -> Iterator[None]:
    def ask(*_: object) -> None:
        stop.set()

    # USR2 is what Slurm sends to all of a job before its time is up; unhandled it would end the process
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)
    before = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch_parent(parent: int, stop: threading.Event, *, patience: float = 60.0) -> None:
    """Stop when the starter is gone; a process that does not get to its next step is ended outright."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        stop.set()
        time.sleep(patience)
        os._exit(Exit.STOPPED)

    threading.Thread(target=watch, daemon=True, name="parent watch").start()


def main(arguments: list[str] | None = None) -> int:
    """Run one task; see `Exit` for the codes."""
    parser = argparse.ArgumentParser(prog="python -m etastar.launch.worker", description="Carry out one task.")
    parser.add_argument("study", type=Path, help="the study's folder")
    parser.add_argument(
        "task", help="STACK, STACK@trunk or STACK@HORIZON; `etastar launch --print-commands` lists them"
    )
    parser.add_argument("--parent", type=int, help="end when this process is no longer the parent")
    given = parser.parse_args(arguments)
    stop = threading.Event()
    with _stop_signals(stop):
        if given.parent is not None:
            _watch_parent(given.parent, stop)
        try:
            return run_task(given.study, given.task, should_stop=stop.is_set)
        except (HeldError, LostError) as error:
            print(f"busy: {error}", file=sys.stderr)
            return Exit.BUSY
        except EtastarError as error:
            print(f"error: {error}", file=sys.stderr)
            return Exit.REFUSED


if __name__ == "__main__":
    ended = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ended)  # all is on disk; the watching thread must not wake up in a Python that shuts down
