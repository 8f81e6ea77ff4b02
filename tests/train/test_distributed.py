"""Do two processes under torchrun train what one process trains?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from test_loop import Silent, rows, run
from toys import CORPUS, toy

from etastar.errors import SpecError
from etastar.store import read_runs, read_trajectories
from etastar.train.distributed import divide
from etastar.train.loop import train
from etastar.train.spec import TrainSpec
from processes import free_port, two_processes


def _two_processes(spec: TrainSpec, study: Path) -> pa.Table:
    def work(_: int) -> None:
        assert train(spec, study, corpus=CORPUS, reporter=Silent()).finished

    two_processes(work)
    return read_runs(study)


@pytest.mark.parametrize(("lrs", "shared"), [([2**-7], True), ([2**-9, 2**-7, 2**-6], False)])
def test_two_processes_equal_one(tmp_path: Path, lrs: list[float], shared: bool) -> None:
    """One LR: the batch is shared and gradients summed. Three LRs: the stack is split 1 + 2."""
    spec = toy(lrs=lrs, execution={"precision": "fp64"})
    many = rows(_two_processes(spec, tmp_path / "many"), "run")
    one = rows(run(spec, tmp_path / "one"), "run")
    assert [row["run"] for row in many] == [row["run"] for row in one]
    for left, right in zip(many, one, strict=True):
        for name in ("loss", "mean_eff_lr", "plateau_eff_lr"):
            assert left[name] == pytest.approx(right[name], rel=1e-9)
        assert left["ranks"] == (2 if shared else 1)
    keys = ("run", "step", "weight")
    paths = [rows(read_trajectories(tmp_path / place), *keys) for place in ("many", "one")]
    assert len(paths[0]) == len(paths[1])
    for left, right in zip(*paths, strict=True):
        assert left["weight"] == right["weight"]
        for name in ("train_loss", "val_loss", "eff_lr", "grad_norm"):
            expected = None if right[name] is None else pytest.approx(right[name], rel=1e-7)
            assert left[name] == expected


def test_the_stack_is_split_without_loss() -> None:
    spec = toy(lrs=[2.0**-k for k in range(5, 16)])
    parts = [divide(spec, rank=rank, ranks=4) for rank in range(4)]
    assert sum((part.lrs for part, _ in parts), ()) == spec.lrs
    assert all(part.lrs and not share.data_parallel and share.writes for part, share in parts)


def test_a_batch_that_cannot_be_shared_is_refused() -> None:
    with pytest.raises(SpecError, match="4 sequences cannot be shared by 3"):
        divide(toy(lrs=[0.1, 0.2]), rank=0, ranks=3)


@pytest.mark.slow
def test_torchrun_itself(tmp_path: Path) -> None:
    spec = toy(lrs=[2**-7])
    file = tmp_path / "spec.yaml"
    file.write_text(spec.to_yaml())
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    place = [
        "--master-port",
        str(free_port()),
        "-m",
        "etastar.train",
        str(file),
        "--out",
        str(tmp_path / "many"),
    ]
    done = subprocess.run([*launcher, *place], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    one = rows(run(spec, tmp_path / "one"), "run")
    for left, right in zip(rows(read_runs(tmp_path / "many"), "run"), one, strict=True):
        assert left["loss"] == pytest.approx(right["loss"], rel=1e-4)
