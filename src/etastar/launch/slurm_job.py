"""What does a Slurm job run? One worker process, which is told in time when the job must go.

This is what submitit pickles; it imports nothing heavy, so that a job starts even where the launcher's
packages are not all there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any


def code_file(study: str | Path, job: str) -> Path:
    """Where a job leaves its worker's exit code."""
    return Path(study) / "slurm" / f"{job}.code"


class SlurmCall:
    """Starts the worker and waits for it; `checkpoint` is submitit's call before a time-out."""

    def __init__(self, study: str, task: str) -> None:
        self.study = study
        self.task = task
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self) -> int:
        """The worker's exit code; it is also left in a file, since a result that submitit keeps is a pickle."""
        from submitit import JobEnvironment  # pyright: ignore[reportMissingImports]

        ended = code_file(self.study, JobEnvironment().job_id)
        ended.unlink(missing_ok=True)  # of this job before it was requeued
        command = [sys.executable, "-m", "etastar.launch.worker", self.study, self.task, "--parent", str(os.getpid())]
        log = Path(self.study) / "logs" / f"{self.task}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
            code = self._process.wait()
        whole = ended.with_suffix(".tmp")
        whole.write_text(str(code), encoding="ascii")
        whole.replace(ended)  # one that is lost makes the task start again, no more
        return code

    def checkpoint(self) -> Any:
        """Let the worker save; the job is then requeued with the same call."""
        from submitit.helpers import DelayedSubmission  # pyright: ignore[reportMissingImports]

        if self._process is not None:
            # This runs inside a signal handler, on top of a `wait` that holds the process object's lock: only
            # the operating system may be asked, and it must not reap the child from under that call.
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._process.pid, signal.SIGTERM)
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        return DelayedSubmission(SlurmCall(self.study, self.task))

    def __getstate__(self) -> dict[str, Any]:
        return {"study": self.study, "task": self.task, "_process": None}
