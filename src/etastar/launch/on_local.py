"""Processes of this machine, a bounded number at once, each with a GPU of its own where there are any."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pydantic import Field

from etastar.errors import InputError
from etastar.launch.executor import Ended, ExecutorOptions, last_words, log_of, worker_environment
from etastar.launch.graph import Task, command_of


class LocalOptions(ExecutorOptions):
    """How much of the machine is used."""

    workers: int | None = Field(default=None, gt=0)  # at once; null: one a GPU, or one a CPU core
    gpus: int | None = Field(default=None, ge=0)  # used in all; null: all there are


def visible_gpus() -> list[str]:
    """Names under which CUDA knows the GPUs that this process may use."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return named[:count] if named else [str(index) for index in range(count)]


@dataclass
class _Worker:
    task: str
    process: subprocess.Popen[bytes]
    gpu: str | None
    log: IO[bytes]


class LocalExecutor:
    """A queue of tasks and a few processes that work it off."""

    name = "local"

    def __init__(self, study: Path, options: LocalOptions | None = None, *, cpu_only: bool = False) -> None:
        options = options or LocalOptions()
        there = [] if cpu_only and not options.gpus else visible_gpus()
        asked = len(there) if options.gpus is None else options.gpus
        if asked > len(there):
            raise InputError(
                f"{asked} GPUs are asked for, and this machine has {len(there)}",
                hint=f"--option gpus={len(there)}, or launch on a cluster with --on ray or --on slurm",
            )
        self._study = study
        self._free: list[str] = there[:asked]
        self._gpus = asked > 0
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.workers = options.workers or (asked if self._gpus else cores)
        if self._gpus and self.workers > asked:
            raise InputError(
                f"{self.workers} workers are asked for, and there are {asked} GPUs", hint=f"--option workers={asked}"
            )
        self._queue: deque[Task] = deque()
        self._busy: list[_Worker] = []

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queue tasks, and start as many as there is room for."""
        self._queue.extend(tasks)
        self._start()

    def _start(self) -> None:
        while self._queue and len(self._busy) < self.workers:
            task = self._queue.popleft()
            gpu = self._free.pop(0) if self._gpus else None
            environment = worker_environment()
            if gpu is not None:
                environment["CUDA_VISIBLE_DEVICES"] = gpu
            log = log_of(self._study, task.id).open("ab")
            command = [*command_of(self._study, task, python=sys.executable), "--parent", str(os.getpid())]
            # its own session: a Ctrl-C at the terminal reaches the launcher alone, which then stops each in order
            process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
            )
            self._busy.append(_Worker(task.id, process, gpu, log))

    def poll(self) -> list[Ended]:
        """Processes that have ended; their places are filled again."""
        ended, still = [], []
        for worker in self._busy:
            code = worker.process.poll()
            if code is None:
                still.append(worker)
                continue
            worker.log.close()
            if worker.gpu is not None:
                self._free.append(worker.gpu)
            killed = signal.Signals(-code).name if code < 0 else ""
            reason = f"killed by {killed}" if killed else (last_words(self._study, worker.task) if code else "")
            ended.append(Ended(worker.task, None if killed else code, reason))
        self._busy = still
        self._start()
        return ended

    def running(self) -> set[str]:
        """Queued or with a process."""
        return {task.id for task in self._queue} | {worker.task for worker in self._busy}

    def pids(self) -> dict[str, int]:
        """The processes at work, by task."""
        return {worker.task: worker.process.pid for worker in self._busy}

    def cancel(self, *, grace: float) -> None:
        """SIGTERM to all, then SIGKILL to those that have not ended in time."""
        self._queue.clear()
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline and any(w.process.poll() is None for w in self._busy):
            time.sleep(0.05)
        self._signal(signal.SIGKILL)
        for worker in self._busy:
            worker.process.wait()
            worker.log.close()
        self._busy = []

    def _signal(self, number: Any) -> None:
        for worker in self._busy:
            if worker.process.poll() is None:
                worker.process.send_signal(number)

    def close(self) -> None:
        """End what still runs."""
        if self._busy:
            self.cancel(grace=5.0)
