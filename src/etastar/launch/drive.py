"""How does a plan get from nothing to all its rows, whatever breaks on the way?

A loop: ask the store what is missing, give the executor the tasks that can begin, listen for those that
ended, ask the store again. A task that ended without its rows was refused (it fails), crashed or was lost
(it is tried again, a bounded number of times), was stopped, or found another process at its work (it waits).
One failed task does not stop its siblings.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from etastar.launch.adaptive import Rounds
from etastar.launch.executor import Ended, Executor
from etastar.launch.graph import Task, Wanted, packs, tasks_of
from etastar.launch.study import RunIndex, StackRecord, Study
from etastar.launch.worker import Exit
from etastar.store import Journal, acquire
from etastar.train.checkpoint import CheckpointFolder, Mark

POLL = 0.1  # seconds
BUSY_PAUSE = 5.0  # seconds before a task is offered again whose stack another process holds


@dataclass(frozen=True)
class LaunchOptions:
    """How a plan is run, whatever runs it."""

    split: bool = False  # branches as tasks of their own
    retries: int = 3  # of a task that crashed or was lost
    grace: float = 30.0  # seconds that workers get to save when asked to stop
    adaptive: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a launch leaves: reasons of failed tasks by name, what was not begun, whether it was stopped."""

    failed: dict[str, str]
    skipped: tuple[str, ...]
    stopped: bool
    missing: int  # cells without a row

    @property
    def finished(self) -> bool:
        """Is every row there?"""
        return self.missing == 0 and not self.failed


Say = Callable[[str], None]


@dataclass
class _Driver:
    study: Study
    executor: Executor
    options: LaunchOptions
    say: Say
    journal: Journal
    rounds: Rounds | None
    stop: threading.Event = field(default_factory=threading.Event)
    names: dict[str, str] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    not_before: dict[str, float] = field(default_factory=dict)
    written: dict[str, StackRecord] = field(default_factory=dict)
    reached: dict[str, tuple[int, tuple[Mark, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.index = RunIndex(self.study.path)

    def missing(self) -> list[Wanted]:
        """What the plan (and the adaptive rule's decisions) want and the store has not."""
        there = self.index.there()
        found: list[Wanted] = []
        for record in self.study.stacks:
            if self.rounds is not None:
                wanted = self.rounds.wanted(record, there)
            else:
                wanted = dict.fromkeys(record.spec.lrs, record.spec.horizons)
            found += packs(record, wanted, there)
        return found

    def tasks(self) -> list[Task]:
        """Missing tasks; their specifications are in the study's folder before anyone can start them."""
        found: list[Task] = []
        for pack in self.missing():
            mine = tasks_of(self.study, pack, split=self.options.split)
            if self.written.get(pack.record.id) != pack.record:
                self.study.write_record(pack.record)
                self.written[pack.record.id] = pack.record
            self.names |= {task.id: task.name for task in mine}
            found += mine
        return found

    def run(self) -> Outcome:
        while True:
            tasks = self.tasks()
            waiting = self._offer(tasks)
            if not waiting and not self.executor.running():
                return self._outcome(tasks)
            self._listen()
            if self.stop.is_set():
                self.say("stopping: workers save and end …")
                self.executor.cancel(grace=self.options.grace)
                self.journal.write("launch stopped")
                return self._outcome(self.tasks(), stopped=True)

    def _offer(self, tasks: list[Task]) -> bool:
        """Submit what can begin; is anything left that will be able to?"""
        running, now = self.executor.running(), time.monotonic()
        open_tasks = [t for t in tasks if t.id not in running and t.id not in self.failed]
        ready = [t for t in open_tasks if t.ready and self.not_before.get(t.id, 0.0) <= now]
        # an executor that has lost sight of a worker must not get its twin: the claim would make it wait
        if ready:
            for task in ready:
                self.journal.write("submitted", task=task.id, name=task.name, executor=self.executor.name)
            self.executor.submit(ready)
        paused = [t for t in open_tasks if t.ready and self.not_before.get(t.id, 0.0) > now]
        return bool(paused)

    def _listen(self) -> None:
        """Wait until a task has ended, a second has passed (a trunk leaves points on its way), or a stop."""
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline and not self.stop.is_set():
            if ended := self.executor.poll():
                done_before = {task.id for task in self.tasks()}
                for one in ended:
                    self._take_note(one, still_missing=one.task in done_before)
                return
            self.stop.wait(POLL)

    def _take_note(self, ended: Ended, *, still_missing: bool) -> None:
        name = self.names.get(ended.task, ended.task)
        if not still_missing:
            self.journal.write("done", task=ended.task)
            self.say(f"done: {name}")
        elif ended.code == Exit.BUSY:
            self.not_before[ended.task] = time.monotonic() + BUSY_PAUSE
            self.say(f"{name}: another process is at it; looking again")
        elif ended.code == Exit.REFUSED:
            self._fail(ended.task, ended.reason or "refused")
        else:
            self._try_again(ended)

    def _try_again(self, ended: Ended) -> None:
        name = self.names.get(ended.task, ended.task)
        reason = ended.reason or ("stopped from outside" if ended.code == Exit.STOPPED else "ended without its rows")
        stack = ended.task.partition("@")[0]
        marks = CheckpointFolder(self.study.path / "checkpoints" / stack, stack_id=stack).marks()
        now = (len(self.index.there()), tuple(marks))
        if self.reached.get(ended.task) not in (None, now):
            self.attempts[ended.task] = 0  # it got further since it was last lost: a preempted job may be lost often
        self.reached[ended.task] = now
        self.attempts[ended.task] = self.attempts.get(ended.task, 0) + 1
        self.journal.write("lost", task=ended.task, reason=reason)
        if self.attempts[ended.task] > self.options.retries:
            self._fail(ended.task, reason)
        elif not self.stop.is_set():
            self.say(
                f"{name}: {reason}; goes on from its checkpoint ({self.attempts[ended.task]} of {self.options.retries})"
            )

    def _fail(self, task: str, reason: str) -> None:
        self.failed[task] = reason
        self.journal.write("failed", task=task, reason=reason)
        self.say(f"failed: {self.names.get(task, task)}: {reason}")

    def _outcome(self, tasks: list[Task], *, stopped: bool = False) -> Outcome:
        skipped = tuple(t.name for t in tasks if t.id not in self.failed and not stopped)
        cells = sum(len(p.missing) * len(p.record.spec.lrs) for p in self.missing())
        failed = {self.names.get(task, task): reason for task, reason in self.failed.items()}
        return Outcome(failed=failed, skipped=skipped, stopped=stopped, missing=cells)


@contextmanager
def _signals(stop: threading.Event, say: Say) -> Iterator[None]:
    """The first Ctrl-C (or SIGTERM) stops cleanly, the second at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, _: object) -> None:
        if stop.is_set():
            say("stopped at once; launching again goes on from the last checkpoints")
            os._exit(130)
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def launch(
    study: Study,
    executor: Executor,
    options: LaunchOptions | None = None,
    *,
    say: Say = print,
    stop: threading.Event | None = None,
) -> Outcome:
    """Run what is missing of a study; one launcher at a time."""
    options = options or LaunchOptions()
    stop = stop or threading.Event()
    claim = acquire(study.path, "launcher", wait=2.0)
    journal = Journal(study.path, writer="launcher")
    rounds = Rounds(study, say=say) if options.adaptive else None
    try:
        journal.write("launched", executor=executor.name, pid=os.getpid(), split=options.split)
        driver = _Driver(study, executor, options, say, journal, rounds, stop)
        with _signals(stop, say):
            return driver.run()
    finally:
        executor.close()
        if rounds is not None:
            rounds.close()
        journal.close()
        claim.release()


def missing_tasks(study: Study, options: LaunchOptions) -> list[Task]:
    """The tasks that a launch would begin with or lead to; their specifications are written."""
    found: list[Task] = []
    there = RunIndex(study.path).there()
    for record in study.stacks:
        for pack in packs(record, dict.fromkeys(record.spec.lrs, record.spec.horizons), there):
            study.write_record(pack.record)
            found += tasks_of(study, pack, split=options.split)
    return found
