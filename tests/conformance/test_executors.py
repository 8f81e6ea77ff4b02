"""Does every executor keep the contract? One suite for inline, local, ray and slurm."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from studies import Make, assert_same, break_stack, small, tables, two_widths, undisturbed

from etastar.launch.drive import LaunchOptions, launch
from etastar.launch.graph import Task
from etastar.launch.study import prepare
from etastar.launch.worker import Exit
from etastar.store import read_events, read_runs
from etastar.store.verify import verify_files


def quiet(text: str) -> None:
    """The launcher's lines are not of interest."""


@pytest.mark.parametrize("split", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_study_is_the_same_wherever_it_runs(make: Make, reference: Path, tmp_path: Path, split: bool) -> None:
    """48 rows and all trajectories, to the last bit; the trunk before its branches."""
    study = prepare(two_widths(), tmp_path / "study")
    outcome = launch(study, make(study), LaunchOptions(split=split), say=quiet)
    assert outcome.finished
    assert read_runs(study.path).num_rows == 48
    assert_same(study.path, reference)
    assert [problem for problem in verify_files(study.path) if problem.wrong] == []


def test_branches_are_tasks_that_wait_for_their_point(make: Make, tmp_path: Path) -> None:
    study = prepare(small(), tmp_path / "study")
    outcome = launch(study, make(study), LaunchOptions(split=True), say=quiet)
    assert outcome.finished
    assert_same(study.path, undisturbed(small(), tmp_path / "plain"))
    submitted = [e["task"].partition("@")[::2] for e in read_events(study.path) if e["event"] == "submitted"]
    for record in study.stacks:
        mine = [piece for stack, piece in submitted if stack == record.id]
        assert mine[0] == "trunk"
        assert sorted(mine[1:]) == ["12", "18"]


def test_a_failed_task_is_shown_and_its_siblings_go_on(make: Make, tmp_path: Path) -> None:
    """Then it is mended, and launching again does only what is missing."""
    study = prepare(small(), tmp_path / "study")
    executor = make(study)
    submit = executor.submit

    def broken(tasks: list[Task]) -> None:
        break_stack(study, "s0")
        submit(tasks)

    executor.submit = broken  # type: ignore[method-assign]
    outcome = launch(study, executor, say=quiet)
    assert list(outcome.failed) == ["s0"]
    assert "not a stack's record" in outcome.failed["s0"]
    assert not outcome.finished
    assert read_runs(study.path)["seed"].to_pylist() == [1] * 4
    before = {path: path.stat().st_mtime_ns for path in (study.path / "runs").iterdir()}

    again = prepare(small(), study.path)
    assert launch(again, make(again), say=quiet).finished
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in before.items())
    assert_same(study.path, undisturbed(small(), tmp_path / "plain"))
    started = [e["task"] for e in read_events(study.path) if e["event"] == "submitted"]
    assert len(started) == 3  # two, then the one that was missing


def test_launching_a_finished_study_submits_nothing(make: Make, reference: Path) -> None:
    study = prepare(two_widths(), reference)
    assert launch(study, make(study), say=quiet).finished
    assert [e for e in read_events(reference) if e["event"] == "submitted"] == []


def test_a_stop_is_clean_and_resumable(make: Make, tmp_path: Path) -> None:
    """Stopped in the middle: workers save and end, and the rest gives the same bits."""
    plan = small(spec={"schedule": {"warmup_steps": 4, "decay_steps": 6}, "batch_sequences": 4})
    stacks = [{**s.model_dump(), "horizons": [12, 18, 100]} for s in plan.stacks]
    plan = plan.model_copy(update={"stacks": tuple(type(plan.stacks[0])(**s) for s in stacks)})
    study = prepare(plan, tmp_path / "study")
    stop = threading.Event()

    def strike() -> None:
        while read_runs(study.path).num_rows < 2:
            time.sleep(0.05)
        stop.set()

    watcher = threading.Thread(target=strike)
    watcher.start()
    executor = make(study)
    outcome = launch(study, executor, say=quiet, stop=stop)
    watcher.join()
    assert outcome.stopped
    assert outcome.missing > 0
    assert not executor.running()
    again = prepare(plan, study.path)
    assert launch(again, make(again), say=quiet).finished
    runs, _ = tables(study.path)
    plain, _ = tables(undisturbed(plan, tmp_path / "plain"))
    assert runs.equals(plain)


def test_the_end_of_a_task_is_told_once_with_its_code(make: Make, tmp_path: Path) -> None:
    study = prepare(small(), tmp_path / "study")
    executor = make(study)
    good, bad = study.stacks
    break_stack(study, bad.name)
    tasks = [Task(id=r.id, stack=r.id, name=r.name, kind="stack") for r in (good, bad)]
    executor.submit(tasks)
    assert executor.running() == {good.id, bad.id}
    ended: dict[str, int | None] = {}
    deadline = time.monotonic() + 120
    while len(ended) < 2 and time.monotonic() < deadline:
        for one in executor.poll():
            assert one.task not in ended
            ended[one.task] = one.code
        time.sleep(0.05)
    assert ended == {good.id: Exit.DONE, bad.id: Exit.REFUSED}
    assert executor.running() == set()
    assert executor.poll() == []
    executor.close()
