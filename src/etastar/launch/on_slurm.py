"""Slurm jobs through submitit: one array for the tasks that can begin, requeued on time-out and preemption.

submitit signals a job before its time is up: the worker saves, and the job is requeued. A bare preemption or
`scontrol requeue` sends SIGTERM: the worker saves on that too, and on nothing at all it goes on from its last
checkpoint. The jobs belong to Slurm, so they outlive a launcher that dies; the next launch finds them again.
What has ended is read from squeue, because sacct is not there on every cluster.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from etastar.errors import InputError
from etastar.launch.executor import Ended, ExecutorOptions, last_words, worker_environment
from etastar.launch.graph import Task
from etastar.launch.slurm_job import SlurmCall, code_file
from etastar.records import content_id
from etastar.store import Journal, read_events


class SlurmOptions(ExecutorOptions):
    """What one job asks of the cluster; names as submitit has them."""

    partition: str | None = None
    timeout_min: int = Field(default=240, gt=0)
    cpus_per_task: int = Field(default=1, gt=0)
    gpus_per_node: int | None = Field(default=None, ge=0)
    mem_gb: float | None = Field(default=None, gt=0)
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    gres: str | None = None
    nodelist: str | None = None
    exclude: str | None = None
    array_parallelism: int = Field(default=256, gt=0)  # jobs at once
    signal_delay_s: int = Field(default=90, gt=0)  # between the warning and the end of the time
    requeues: int = Field(default=1000, ge=0)  # after a time-out


def import_submitit() -> Any:
    """submitit, or one line that says how to get it; sbatch must be there too."""
    try:
        import submitit  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        raise InputError(
            "--on slurm needs submitit, which is not installed", hint="pip install 'etastar[slurm]'"
        ) from None
    for program in ("sbatch", "srun", "squeue"):
        if shutil.which(program) is None:
            raise InputError(
                f"--on slurm: no {program} on this machine", hint="launch from a login node of the cluster"
            )
    return submitit


class SlurmExecutor:
    """Slurm runs the workers; this one submits, asks and cancels."""

    name = "slurm"

    def __init__(self, study: Path, options: SlurmOptions | None = None) -> None:
        self._submitit = import_submitit()
        self._study = study.resolve()
        self._options = options or SlurmOptions()
        self._journal = Journal(self._study, writer="slurm")
        self.job_name = f"etastar-{content_id({'study': str(self._study)})}"
        self._jobs: dict[str, str] = {}  # task → job
        self._asked_at = 0.0
        self._find_again()

    def _find_again(self) -> None:
        """Jobs of an earlier launcher that are still with Slurm; those it had not noted down are cancelled."""
        alive = self._alive()
        if alive is None:
            raise InputError("slurm: squeue does not answer", hint="is slurmctld up? `sinfo` shows it")
        noted = {e["job"]: e["task"] for e in read_events(self._study) if e["event"] == "slurm job"}
        for job in alive:
            if job in noted:
                self._jobs[noted[job]] = job
            else:
                subprocess.run(["scancel", job], capture_output=True, check=False)

    def submit(self, tasks: Sequence[Task]) -> None:
        """One array job of all tasks (a plain job for a single one)."""
        settings = self._options.model_dump(exclude={"requeues"}, exclude_none=True)
        executor = self._submitit.SlurmExecutor(folder=self._study / "slurm", max_num_timeout=self._options.requeues)
        calls = [SlurmCall(str(self._study), task.id) for task in tasks]
        before = dict(os.environ)
        os.environ.update(worker_environment())  # sbatch carries the environment over
        try:
            executor.update_parameters(
                job_name=self.job_name,
                time=settings.pop("timeout_min"),
                **({"mem": f"{settings.pop('mem_gb'):g}GB"} if "mem_gb" in settings else {}),
                **settings,
                stderr_to_stdout=True,
                additional_parameters={"requeue": True},
            )
            jobs = executor.submit_array(calls)
        except self._submitit.core.utils.FailedJobError as error:
            said = next((x for x in reversed(str(error).splitlines()) if "error" in x.lower()), str(error))[:160]
            raise InputError(
                f"slurm refused the jobs: {said.strip()}", hint="see --option; `sinfo` lists partitions"
            ) from None
        finally:
            for name in os.environ.keys() - before.keys():
                del os.environ[name]
            os.environ.update(before)
        for task, job in zip(tasks, jobs, strict=True):
            self._jobs[task.id] = job.job_id
            self._journal.write("slurm job", task=task.id, job=job.job_id)

    def _alive(self) -> set[str] | None:
        """Jobs of this study that Slurm has, pending and requeued ones too; None if it does not answer."""
        command = ["squeue", "-h", "-r", "-n", self.job_name, "-o", "%i", "-t", "PD,R,S,CF,CG,SI,RQ,RH,RS,SE,ST,SO,RV"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        except subprocess.TimeoutExpired:
            return None
        return set(done.stdout.split()) if done.returncode == 0 else None

    def poll(self) -> list[Ended]:
        """Jobs that Slurm no longer has; asked at most once a second."""
        if not self._jobs or time.monotonic() - self._asked_at < 1.0:
            return []
        alive = self._alive()
        self._asked_at = time.monotonic()
        if alive is None:
            return []
        gone = [task for task, job in self._jobs.items() if job not in alive]
        return [self._ended(task) for task in gone]

    def _ended(self, task: str) -> Ended:
        job_id = self._jobs.pop(task)
        try:
            code = int(code_file(self._study, job_id).read_text(encoding="ascii"))
        except (OSError, ValueError):
            code = None
        if code is not None and code < 0:  # the worker was killed
            code = None
        reason = (
            "" if code == 0 else (last_words(self._study, task) if code else f"job {job_id} ended without a result")
        )
        return Ended(task, code, reason)

    def running(self) -> set[str]:
        """Tasks whose job Slurm has."""
        return set(self._jobs)

    def cancel(self, *, grace: float) -> None:
        """scancel: SIGTERM, and after the cluster's KillWait SIGKILL."""
        subprocess.run(["scancel", "-n", self.job_name], capture_output=True, check=False)
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline and self._alive():
            time.sleep(0.2)
        self._jobs.clear()

    def close(self) -> None:
        """Jobs go on without a launcher."""
        self._journal.close()
