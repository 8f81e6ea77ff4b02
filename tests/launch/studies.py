"""Small plans, ways to run them, and what it means that two studies are equal."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from etastar.launch.executor import Executor
from etastar.launch.study import Study, prepare
from etastar.plan.study_plan import StudyPlan, build_plan
from etastar.store import read_runs, read_trajectories
from etastar.train.loop import train

Make = Callable[[Study], Executor]

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
SIX = [2.0**-k for k in (10, 9, 8, 7, 6, 5)]

SPEC: dict[str, Any] = {
    "model": {
        "layers": 2, "head_dim": 16, "vocab": 64, "context": 16, "positions": "rope", "norm": "rmsnorm",
        "qk_norm": True, "norm_embedding": True, "init": "width",
    },
    "data": {
        "synthetic_vocab": 64, "synthetic_seed": 1, "synthetic_tokens": 20_000, "synthetic_validation_tokens": 4_000,
    },
    "schedule": {"warmup_steps": 4, "decay_steps": 6},
    "batch_sequences": 4,
    "eval_tokens": 1024,
    "execution": {"threads": 1, "device": "cpu", "log_every": 3, "checkpoint_every": 5},
}  # fmt: skip


def plan_of(stacks: list[dict[str, Any]], **changes: Any) -> StudyPlan:
    spec = SPEC | changes.pop("spec", {})
    return build_plan({"name": "tiny", "spec": spec, "stacks": stacks, **changes})


def two_widths(**changes: Any) -> StudyPlan:
    """2 widths × 6 learning rates × 4 horizons."""
    stacks = [{"name": f"w{w}", "width": w, "lrs": SIX, "horizons": [16, 20, 26, 34]} for w in (32, 64)]
    return plan_of(stacks, **changes)


def small(**changes: Any) -> StudyPlan:
    """Two stacks of two learning rates and two horizons."""
    stacks = [{"name": f"s{seed}", "width": 32, "seed": seed, "lrs": SIX[2:4], "horizons": [12, 18]} for seed in (0, 1)]
    return plan_of(stacks, **changes)


class Silent:
    def message(self, text: str) -> None: ...

    def progress(self, progress: Any) -> None: ...

    def evaluated(self, horizon: int, cells: Any) -> None: ...


def undisturbed(plan: StudyPlan, folder: Path) -> Path:
    """The study as plain calls of `train` make it: no launcher, no tasks."""
    study = prepare(plan, folder)
    for record in study.stacks:
        train(record.spec, folder, reporter=Silent())
    return folder


def tables(folder: Path) -> tuple[pa.Table, pa.Table]:
    """Runs and trajectories in one order, to compare with `equals`: every bit of every column."""
    runs = read_runs(folder).sort_by([("run", "ascending")])
    paths = read_trajectories(folder)
    order = [(name, "ascending") for name in ("run", "step", "weight", "val_loss")]
    return runs.combine_chunks(), paths.sort_by(order).combine_chunks()


def assert_same(left: Path, right: Path) -> None:
    for one, other in zip(tables(left), tables(right), strict=True):
        assert one.num_rows == other.num_rows
        assert one.equals(other)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}


def etastar(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own."""
    return subprocess.run(
        command(*arguments), env=environment(), capture_output=True, text=True, timeout=300, check=False, **options
    )


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from etastar.cli import main; main()", *arguments]


def write(plan: StudyPlan, path: Path) -> str:
    path.write_text(yaml.safe_dump(plan.model_dump(mode="json")), encoding="utf-8")
    return str(path)


def break_stack(study: Study, name: str) -> None:
    """Make a stack that no worker can train: its specification is gone from the folder."""
    record = next(r for r in study.stacks if r.name == name)
    (study.path / "specs" / f"{record.id}.yaml").write_text("id: nothing\n", encoding="utf-8")


class LocalSlurm:
    """slurmctld and slurmd of this machine, for as long as the object is used as a context."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reason = ""

    def start(self) -> bool:
        done = subprocess.run(
            ["bash", str(HERE / "slurm_here.sh"), "start", str(self.folder)],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if done.returncode:
            self.reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "slurm did not start"
            return False
        os.environ["SLURM_CONF"] = done.stdout.strip().partition("=")[2]
        return True

    def stop(self) -> None:
        os.environ.pop("SLURM_CONF", None)
        subprocess.run(["bash", str(HERE / "slurm_here.sh"), "stop", str(self.folder)], check=False, timeout=60)
        shutil.rmtree(self.folder, ignore_errors=True)
