"""Does a study survive what clusters do: lost nodes, requeues, time-outs, preemption, lost launchers?

Against a real Ray of two nodes and a real Slurm on this machine; said aloud where they do not start.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from studies import LocalSlurm, assert_same, command, environment, plan_of, small, undisturbed, write

from etastar.errors import InputError
from etastar.launch.drive import Outcome, launch
from etastar.launch.on_ray import RayExecutor, RayOptions
from etastar.launch.on_slurm import SlurmExecutor, SlurmOptions
from etastar.launch.study import Study, prepare
from etastar.plan.study_plan import StudyPlan
from etastar.store import read_events, read_runs

pytestmark = pytest.mark.cluster


def long(steps: int = 200) -> StudyPlan:
    return plan_of([{**s.model_dump(), "horizons": [12, steps]} for s in small().stacks])


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return undisturbed(long(), tmp_path_factory.mktemp("plain"))


def in_background(study: Study, executor: Any) -> tuple[threading.Thread, list[Outcome], list[str]]:
    outcomes: list[Outcome] = []
    said: list[str] = []
    thread = threading.Thread(target=lambda: outcomes.append(launch(study, executor, say=said.append)))
    thread.start()
    return thread, outcomes, said


def until(what: Any, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


def starts(study: Path) -> int:
    return sum(event["event"] == "started" for event in read_events(study))


# ------------------------------------------------------------------------------------------------ ray


def test_ray_a_lost_nodes_runs_start_again_from_their_checkpoint(tmp_path: Path, plain: Path) -> None:
    ray = pytest.importorskip("ray", reason="the ray suite did not run: ray is not installed")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        other = cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, logging_level="error", log_to_driver=False)
        study = prepare(long(), tmp_path / "study")
        thread, outcomes, _ = in_background(study, RayExecutor(study.path, RayOptions()))
        until(lambda: read_runs(study.path).num_rows == 4)  # both stacks are past their first horizon
        cluster.remove_node(other, allow_graceful=False)
        cluster.add_node(num_cpus=1)
        thread.join(180)
        assert outcomes
        assert outcomes[0].finished
        assert starts(study.path) >= 3
        assert_same(study.path, plain)
        with pytest.raises(InputError, match="asks for 1 GPUs, and the Ray cluster has 0"):
            RayExecutor(study.path, RayOptions(num_gpus=1))
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_ray_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the ray suite did not run: ray is not installed")
    with pytest.raises(InputError, match=r"ray: cannot reach 127\.0\.0\.1:1"):
        RayExecutor(tmp_path, RayOptions(address="127.0.0.1:1"))


# ---------------------------------------------------------------------------------------------- slurm


@pytest.fixture(scope="module")
def slurm() -> Iterator[LocalSlurm]:
    pytest.importorskip("submitit", reason="the slurm suite did not run: submitit is not installed")
    here = LocalSlurm(Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp")))
    if not here.start():
        pytest.skip(f"the slurm suite did not run: {here.reason}")
    yield here
    here.stop()


def jobs(state: str = "R") -> list[str]:
    done = subprocess.run(["squeue", "-h", "-r", "-t", state, "-o", "%i"], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize("how", ["requeue", "time-out", "preempt"])
def test_slurm_jobs_that_are_taken_away_come_back(slurm: LocalSlurm, tmp_path: Path, plain: Path, how: str) -> None:
    study = prepare(long(), tmp_path / "study")
    thread, outcomes, said = in_background(study, SlurmExecutor(study.path, SlurmOptions(timeout_min=10)))
    until(lambda: read_runs(study.path).num_rows >= 2)
    running = jobs()
    assert running
    if how == "requeue":  # SIGTERM, which submitit does not turn into a checkpoint
        subprocess.run(["scontrol", "requeue", running[0]], check=True)
    elif how == "time-out":  # what Slurm sends before the time is up
        subprocess.run(["scancel", "--signal=USR2", running[0]], check=True)
    else:  # a job of a higher partition takes the whole node
        wrap = ["sbatch", "--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=sleep 1"]
        subprocess.run(wrap, check=True, capture_output=True, cwd=tmp_path)
    thread.join(240)
    assert outcomes, said
    assert outcomes[0].finished, said
    assert starts(study.path) >= 3
    assert_same(study.path, plain)


def test_slurm_jobs_outlive_their_launcher_and_are_found_again(slurm: LocalSlurm, tmp_path: Path, plain: Path) -> None:
    plan, study = write(long(), tmp_path / "plan.yaml"), tmp_path / "study"
    launcher = subprocess.Popen(
        command("launch", plan, "--out", str(study), "--on", "slurm"), env=environment(), stdout=subprocess.DEVNULL
    )
    until(lambda: starts(study) >= 1)
    os.kill(launcher.pid, signal.SIGKILL)
    launcher.wait()
    opened = prepare(long(), study)
    outcome = launch(opened, SlurmExecutor(study), say=lambda _: None)
    assert outcome.finished
    submitted = [event["task"] for event in read_events(study) if event["event"] == "submitted"]
    assert len(submitted) == 2  # by the first launcher alone
    assert_same(study, plain)


def test_slurm_refusals_are_one_line(slurm: LocalSlurm, tmp_path: Path) -> None:
    study = prepare(small(), tmp_path)
    executor = SlurmExecutor(tmp_path, SlurmOptions(partition="absent"))
    with pytest.raises(InputError, match=r"slurm refused the jobs: .*partition"):
        launch(study, executor, say=lambda _: None)
    executor = SlurmExecutor(tmp_path, SlurmOptions(gpus_per_node=2))
    with pytest.raises(InputError, match="slurm refused the jobs"):
        launch(study, executor, say=lambda _: None)
    with contextlib.suppress(FileNotFoundError):
        assert jobs("PD") == []
