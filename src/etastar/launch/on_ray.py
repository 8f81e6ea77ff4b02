"""Ray core tasks, on a cluster that is there or on a local one that is started for the study.

A Ray task starts one worker process and waits for it. Ray tries a task again whose node or process is lost;
the worker then goes on from its checkpoint. All nodes must see the study's folder.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from etastar.errors import InputError
from etastar.launch.executor import Ended, ExecutorOptions, last_words, log_of, worker_environment
from etastar.launch.graph import Task
from etastar.launch.worker import Exit

_HOST_AND_PORT = re.compile(r"^(?:ray://)?\[?([^/\]]+?)\]?:(\d+)$")


class RayOptions(ExecutorOptions):
    """Where Ray is, and what one task takes of it."""

    address: str | None = None  # null: RAY_ADDRESS, a cluster on this machine, or a new local one
    num_cpus: float = Field(default=1, ge=0)
    num_gpus: float | None = Field(default=None, ge=0)  # null: one where the cluster has any
    retries: int = Field(default=3, ge=-1)  # by Ray itself, of a task whose node or process is lost; -1: always


def import_ray() -> Any:
    """Ray, or one line that says how to get it."""
    try:
        import ray  # pyright: ignore[reportMissingImports]
        import ray.exceptions  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        raise InputError("--on ray needs ray, which is not installed", hint="pip install 'etastar[ray]'") from None
    return ray


class RayExecutor:
    """Ray runs the workers; it owns their number at once through its resources."""

    name = "ray"

    def __init__(self, study: Path, options: RayOptions | None = None, *, cpu_only: bool = False) -> None:
        options = options or RayOptions()
        self._ray = import_ray()
        self._study = study.resolve()
        self._mine = not self._ray.is_initialized()
        if self._mine:
            self._connect(options)
        self._remote = self._remote_of(options, cpu_only)
        self._refs: dict[Any, str] = {}

    def _connect(self, options: RayOptions) -> None:
        address = options.address or os.environ.get("RAY_ADDRESS")
        if address and (place := _HOST_AND_PORT.match(address)):
            try:  # Ray itself tries for minutes
                socket.create_connection((place[1], int(place[2])), timeout=10).close()
            except OSError as error:
                raise InputError(
                    f"ray: cannot reach {address}: {error.strerror or error}", hint="is the cluster up? `ray status`"
                ) from None
        try:
            # the launcher prints what matters; the workers' output is in the study's logs
            self._ray.init(address=options.address, log_to_driver=False, include_dashboard=False, logging_level="error")
        except (ConnectionError, RuntimeError, ValueError) as error:
            where = options.address or os.environ.get("RAY_ADDRESS") or "a local cluster"
            said = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
            raise InputError(f"ray: cannot reach {where}: {said}", hint="`ray status` shows what is running") from None

    def _remote_of(self, options: RayOptions, cpu_only: bool) -> Any:
        there = self._ray.cluster_resources()
        gpus = options.num_gpus
        if gpus is None:
            gpus = 1 if there.get("GPU", 0) >= 1 and not cpu_only else 0
        for what, asked, name in ((there.get("GPU", 0), gpus, "GPU"), (there.get("CPU", 0), options.num_cpus, "CPU")):
            if asked > what:
                raise InputError(
                    f"a task asks for {asked:g} {name}s, and the Ray cluster has {what:g}",
                    hint=f"--option num_{name.lower()}s={what:g}, or add nodes to the cluster",
                )
        function = _task_function()
        return self._ray.remote(num_cpus=options.num_cpus, num_gpus=gpus, max_retries=options.retries, max_calls=1)(
            function
        )

    def submit(self, tasks: Sequence[Task]) -> None:
        """Give tasks to Ray."""
        path = worker_environment()["PYTHONPATH"]
        for task in tasks:
            log = str(log_of(self._study, task.id))
            ref = self._remote.remote(str(self._study), task.id, log, path)
            self._refs[ref] = task.id

    def poll(self) -> list[Ended]:
        """Results, and tasks that Ray has given up."""
        if not self._refs:
            return []
        ready, _ = self._ray.wait(list(self._refs), num_returns=len(self._refs), timeout=0)
        return [self._ended(ref) for ref in ready]

    def _ended(self, ref: Any) -> Ended:
        task = self._refs.pop(ref)
        try:
            code = int(self._ray.get(ref))
        except self._ray.exceptions.RayError as error:
            said = str(error).splitlines()[0][:160] if str(error) else ""
            return Ended(task, None, f"{type(error).__name__}: {said}")
        if code < 0:
            return Ended(task, None, f"killed by signal {-code}")
        return Ended(task, code, last_words(self._study, task) if code else "")

    def running(self) -> set[str]:
        """Tasks that Ray has."""
        return set(self._refs.values())

    def cancel(self, *, grace: float) -> None:
        """Interrupt every task, which stops its worker; end the rest by force."""
        for ref in self._refs:
            self._ray.cancel(ref, force=False)
        deadline = time.monotonic() + grace
        while self._refs and time.monotonic() < deadline:
            self.poll()
            time.sleep(0.1)
        for ref in self._refs:
            self._ray.cancel(ref, force=True)
        self._refs.clear()

    def close(self) -> None:
        """Leave the cluster; one that was started for the study ends."""
        if self._mine and self._ray.is_initialized():
            self._ray.shutdown()


def _task_function() -> Callable[[str, str, str, str], int]:
    """What a node runs. Made here so that it travels by value: a node needs no etastar to receive it."""
    stopped = int(Exit.STOPPED)

    def etastar_task(study: str, task: str, log: str, path: str) -> int:
        import os
        import signal
        import subprocess
        import sys

        command = [sys.executable, "-m", "etastar.launch.worker", study, task, "--parent", str(os.getpid())]
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
        with open(log, "ab") as out:
            child = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=environment)
            try:
                while True:
                    try:
                        return child.wait(timeout=0.2)  # in slices: a cancellation must find Python awake
                    except subprocess.TimeoutExpired:
                        continue
            except KeyboardInterrupt:
                child.send_signal(signal.SIGTERM)
                child.wait()
                return stopped
            finally:
                if child.poll() is None:
                    child.send_signal(signal.SIGTERM)

    return etastar_task
