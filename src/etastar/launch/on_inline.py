"""One task after another in the launcher's own process: the simplest way to run, and to debug."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from etastar.errors import EtastarError
from etastar.launch.executor import Ended, ExecutorOptions
from etastar.launch.graph import Task
from etastar.launch.worker import Exit, run_task
from etastar.store import HeldError, LostError


class InlineOptions(ExecutorOptions):
    """There is nothing to set."""


class InlineExecutor:
    """A thread trains, so that signals and the display stay with the launcher."""

    name = "inline"

    def __init__(self, study: Path, options: InlineOptions | None = None) -> None:
        self._study = study
        self._stop = threading.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="inline")
        self._waiting: deque[tuple[str, Future[Exit]]] = deque()

    def submit(self, tasks: Sequence[Task]) -> None:
        """Put tasks in the queue."""
        for task in tasks:
            future = self._thread.submit(run_task, self._study, task.id, should_stop=self._stop.is_set)
            self._waiting.append((task.id, future))

    def poll(self) -> list[Ended]:
        """What the thread is done with."""
        ended = []
        while self._waiting and self._waiting[0][1].done():
            task, future = self._waiting.popleft()
            error = None if future.cancelled() else future.exception()
            if future.cancelled():
                ended.append(Ended(task, Exit.STOPPED))
            elif error is None:
                ended.append(Ended(task, future.result()))
            else:
                code = Exit.REFUSED if isinstance(error, EtastarError) else Exit.CRASHED
                code = Exit.BUSY if isinstance(error, (HeldError, LostError)) else code
                ended.append(Ended(task, code, str(error).splitlines()[0][:200] or type(error).__name__))
        return ended

    def running(self) -> set[str]:
        """Queued or in training."""
        return {task for task, _ in self._waiting}

    def cancel(self, *, grace: float) -> None:
        """Stop after the present step; a thread cannot be ended outright."""
        self._stop.set()
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._waiting.clear()

    def close(self) -> None:
        """Let the thread go."""
        self._stop.set()
        self._thread.shutdown(wait=True, cancel_futures=True)
