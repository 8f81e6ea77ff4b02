"""What does the user see of a launch: on the command line, when it fails, when it is stopped?"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from studies import assert_same, command, environment, etastar, plan_of, small, two_widths, undisturbed, write

from etastar.cli import main
from etastar.errors import InputError
from etastar.launch.study import prepare
from etastar.store import read_runs


@pytest.fixture(scope="module")
def call():
    """`etastar …` in this process: its exit code, stdout and stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        before, sys.argv = sys.argv, ["etastar", *arguments]
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
                main()
        finally:
            sys.argv = before
        return int(ended.value.code or 0), out.getvalue(), err.getvalue()

    return call


@pytest.fixture(scope="module")
def refused(call):
    """The same for what cannot be: exit code 2, one line and a hint."""

    def refused(*arguments: str) -> str:
        code, _, err = call(*arguments)
        assert code == 2, err
        assert [line.partition(":")[0] for line in err.splitlines()] == ["error", "hint"], err
        return err

    return refused


def _workers(study: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"etastar.launch.worker" in line and str(study).encode() in line:
                found.append(int(entry.name))
    return found


def test_launch_status_verify(tmp_path: Path, call) -> None:
    plan, study = write(small(), tmp_path / "plan.yaml"), tmp_path / "study"
    code, out, _ = call("launch", plan, "--out", str(study), "--on", "inline")
    assert code == 0
    assert "done: s0" in out
    assert "8 rows in" in out
    told = json.loads(call("status", str(study), "--json")[1])
    assert told["finished"]
    assert [(s["name"], s["state"], s["done"]) for s in told["stacks"]] == [("s0", "done", 4), ("s1", "done", 4)]
    code, out, _ = call("status", str(study), "--watch")  # off a terminal: lines, and it ends with the study
    assert code == 0
    assert "s0: done  4 of 4 cells" in out
    assert "\x1b" not in out
    assert call("verify", str(study))[0] == 0
    part = sorted((study / "runs").iterdir())[0]
    part.write_bytes(b"PAR1")
    code, out, _ = call("verify", str(study), "--json")
    assert code == 1
    files = [problem["file"] for problem in json.loads(out)["problems"] if problem["wrong"]]
    assert files in ([f"runs/{part.name}", "stack s0"], [f"runs/{part.name}", "stack s1"])
    with pytest.warns(UserWarning, match="left out"):
        code, _, _ = call("launch", str(study), "--on", "inline")  # the folder is enough
    assert code == 0
    assert_same(study, undisturbed(small(), tmp_path / "plain"))


def test_merge_by_command(tmp_path: Path, call) -> None:
    halves = [plan_of([stack.model_dump()]) for stack in small().stacks]
    for name, half in zip("ab", halves, strict=True):
        undisturbed(half, tmp_path / name)
    code, out, _ = call("merge", str(tmp_path / "a"), str(tmp_path / "b"), "--to", str(tmp_path / "c"))
    assert code == 0
    assert "8 runs in" in out
    assert "the plans differ" in out
    undisturbed(small(), tmp_path / "whole")
    assert_same(tmp_path / "c", tmp_path / "whole")


def test_commands_for_other_schedulers(tmp_path: Path, call) -> None:
    """Each printed line, run as it is in any order that its comments allow, makes the study."""
    plan, study = write(small(), tmp_path / "plan.yaml"), tmp_path / "study"
    lines = call("launch", plan, "--out", str(study), "--print-commands")[1].splitlines()
    assert [line.split()[:3] for line in lines] == [["python", "-m", "etastar.launch.worker"]] * 2
    assert read_runs(study).num_rows == 0
    first = subprocess.run(
        [sys.executable, *lines[0].partition("#")[0].split()[1:]], env=environment(), capture_output=True, check=False
    )
    assert first.returncode == 0
    assert read_runs(study).num_rows == 4
    left = call("launch", plan, "--out", str(study), "--print-commands")[1].splitlines()
    assert left == lines[1:]


BAD = [
    (("--on", "warp"), "--on 'warp' is not known", "inline, local, ray, slurm"),
    (("--option", "workrs=2"), "local has no option 'workrs'", "workers=…, gpus=…"),
    (("--option", "workers=none"), "option workers", "workers=…"),
    (("--option", "workers"), "is not NAME=VALUE", "--option workers=2"),
    (("--option", "gpus=3"), "3 GPUs are asked for, and this machine has", "--option gpus="),
    (("--on", "inline", "--option", "x=1"), "inline has no option 'x'", "none"),
    (("--on", "ray", "--option", "gpu=1"), "ray has no option 'gpu'", "num_gpus"),
    (("--on", "slurm", "--option", "time=1"), "slurm has no option 'time'", "timeout_min=240"),
    (("--adaptive", "maybe"), "--adaptive 'maybe' is not known", "on or off"),
]


@pytest.mark.parametrize(("arguments", "message", "hint"), BAD)
def test_bad_calls(tmp_path: Path, refused, arguments: tuple[str, ...], message: str, hint: str) -> None:
    said = refused("launch", write(small(), tmp_path / "p.yaml"), "--out", str(tmp_path / "study"), *arguments)
    assert message in said
    assert hint in said
    assert not (tmp_path / "study" / "runs").exists()


def test_what_is_not_there(tmp_path: Path, refused, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, out = write(small(), tmp_path / "p.yaml"), ("--out", str(tmp_path / "study"))
    assert "absent.yaml: cannot be read" in refused("launch", str(tmp_path / "absent.yaml"))
    assert "no plan.yaml" in refused("status", str(tmp_path))
    assert "is no folder" in refused("verify", str(tmp_path / "absent"))
    spec = {"execution": {"device": "cuda"}}
    (tmp_path / "gpu").mkdir()
    gpu = write(plan_of([s.model_dump() for s in small().stacks], spec=spec), tmp_path / "gpu" / "p.yaml")
    import torch

    if not torch.cuda.is_available():
        assert "cuda is asked for, and this machine has no GPU" in refused("launch", gpu, *out, "--on", "local")
        assert "cuda is asked for" in refused("launch", gpu, *out, "--on", "inline")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ray", None)
        assert "pip install 'etastar[ray]'" in refused("launch", plan, *out, "--on", "ray")
        patch.setitem(sys.modules, "submitit", None)
        assert "pip install 'etastar[slurm]'" in refused("launch", plan, *out, "--on", "slurm")
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", "/nowhere")
    assert "no sbatch on this machine" in refused("launch", plan, *out, "--on", "slurm")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("horizons: [9]", "9 steps are fewer than the 4 of warm-up and 6 of decay"),
        ("width: 33", "33 is not a multiple"),
        ("lrs: [0]", "lrs"),
        ("colour: red", "colour"),
    ],
)
def test_plans_that_cannot_be(tmp_path: Path, refused, change: str, message: str) -> None:
    content = small().model_dump(mode="json")
    content["stacks"][0] |= yaml.safe_load(change)
    file = tmp_path / "p.yaml"
    file.write_text(yaml.safe_dump(content))
    assert message in refused("launch", str(file), "--out", str(tmp_path / "study"))
    assert not (tmp_path / "study").exists()


def test_one_launcher_at_a_time(tmp_path: Path) -> None:
    from etastar.launch.drive import launch
    from etastar.launch.on_inline import InlineExecutor
    from etastar.store import HeldError, acquire

    study = prepare(small(), tmp_path)
    claim = acquire(tmp_path, "launcher")
    with pytest.raises(HeldError):
        launch(study, InlineExecutor(tmp_path), say=lambda _: None)
    claim.release()


def test_every_worker_has_a_gpu_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs by name, three tasks: two at once, each sees one, and the third waits."""
    from etastar.launch import on_local
    from etastar.launch.graph import Task

    monkeypatch.setattr(on_local, "visible_gpus", lambda: ["4", "GPU-7"])
    executor = on_local.LocalExecutor(tmp_path, on_local.LocalOptions())
    executor.submit([Task(id=name, stack=name, name=name, kind="stack") for name in "abc"])
    assert executor.running() == {"a", "b", "c"}
    seen = [Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") for pid in executor.pids().values()]
    given = [entry for names in seen for entry in names if entry.startswith(b"CUDA_VISIBLE_DEVICES=")]
    assert given == [b"CUDA_VISIBLE_DEVICES=4", b"CUDA_VISIBLE_DEVICES=GPU-7"]
    executor.cancel(grace=0)
    assert executor.running() == set()
    with pytest.raises(InputError, match="3 workers are asked for, and there are 2 GPUs"):
        on_local.LocalExecutor(tmp_path, on_local.LocalOptions(workers=3))
    one = on_local.LocalExecutor(tmp_path, on_local.LocalOptions(gpus=1))
    assert one.workers == 1


def _launch_and(study: Path, plan: str, number: int, *, rows: int) -> int:
    """Launch on local processes, wait for some rows, signal the launcher alone; its exit code."""
    launcher = subprocess.Popen(
        command("launch", plan, "--out", str(study), "--on", "local"),
        env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while read_runs(study).num_rows < rows and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _workers(study)
    os.kill(launcher.pid, number)
    return launcher.wait(timeout=60)


def _long() -> object:
    stacks = [{**s.model_dump(), "horizons": [12, 18, 250]} for s in small().stacks]
    return plan_of(stacks)


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGKILL, -9), pytest.param(signal.SIGTERM, 130, marks=pytest.mark.slow)],
)
def test_a_launcher_that_goes_leaves_no_orphans_and_a_study_to_go_on_with(
    tmp_path: Path, number: int, code: int
) -> None:
    plan, study = write(_long(), tmp_path / "plan.yaml"), tmp_path / "study"  # type: ignore[arg-type]
    assert _launch_and(study, plan, number, rows=2) == code
    deadline = time.monotonic() + 15
    while _workers(study) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _workers(study) == []
    assert 2 <= read_runs(study).num_rows < 12
    done = etastar("launch", plan, "--out", str(study), "--on", "local")
    assert done.returncode == 0, done.stderr
    assert_same(study, undisturbed(_long(), tmp_path / "plain"))  # type: ignore[arg-type]


@pytest.mark.cluster
def test_a_killed_worker_is_started_again_from_its_checkpoint(tmp_path: Path) -> None:
    plan, study = write(two_widths(), tmp_path / "plan.yaml"), tmp_path / "study"
    launcher = subprocess.Popen(
        command("launch", plan, "--out", str(study), "--on", "local"),
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    while read_runs(study).num_rows < 6:
        time.sleep(0.05)
    for pid in _workers(study):
        os.kill(pid, signal.SIGKILL)
    said, _ = launcher.communicate(timeout=120)
    assert launcher.returncode == 0, said
    assert "killed by SIGKILL; goes on from its checkpoint" in said
    assert_same(study, undisturbed(two_widths(), tmp_path / "plain"))
