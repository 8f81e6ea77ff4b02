"""The smallest study with a trunk, branches and several checkpoints, and what it means that two are equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from etastar.plan.study_plan import StudyPlan, build_plan
from etastar.store import read_runs, read_trajectories
from etastar.train.data import SyntheticCorpus
from etastar.train.spec import TrainSpec
from etastar.train.spec_file import build_spec

SYNTHETIC = {"vocab": 64, "seed": 1, "tokens": 4_000, "validation_tokens": 400}
CORPUS = SyntheticCorpus(**SYNTHETIC)

_SPEC: dict[str, Any] = {
    "model": {
        "layers": 1, "head_dim": 8, "vocab": 64, "context": 16, "positions": "rope", "norm": "rmsnorm",
        "qk_norm": True, "norm_embedding": True, "init": "width",
    },
    "data": {f"synthetic_{name}": value for name, value in SYNTHETIC.items()},
    "schedule": {"warmup_steps": 2, "decay_steps": 2},
    "batch_sequences": 2,
    "eval_tokens": 64,
    "execution": {
        "threads": 1, "device": "cpu", "log_every": 2, "checkpoint_every": 3, "checkpoint_seconds": 0,
    },
}  # fmt: skip


def spec(**changes: Any) -> TrainSpec:
    """Two learning rates, one layer of width 8, horizons of 6 and 9 steps; `changes` are merged one level deep."""
    content = _SPEC | {"model": _SPEC["model"] | {"width": 8}, "lrs": [2**-9, 2**-7], "horizons": [6, 9]}
    for key, value in changes.items():
        content[key] = content.get(key, {}) | value if isinstance(value, dict) else value
    return build_spec(content)


def plan(seeds: int = 2) -> StudyPlan:
    """The same as a plan of one stack for every seed."""
    stacks = [
        {"name": f"s{seed}", "width": 8, "seed": seed, "lrs": [2**-9, 2**-7], "horizons": [6, 9]}
        for seed in range(seeds)
    ]
    return build_plan({"name": "tiny", "spec": _SPEC, "stacks": stacks})


def tables(study: Path) -> tuple[pa.Table, pa.Table]:
    """Runs and trajectories in one order: equal tables are equal in every bit."""
    runs = read_runs(study).sort_by([("run", "ascending")])
    order = [(name, "ascending") for name in ("run", "step", "weight", "val_loss")]
    return runs.combine_chunks(), read_trajectories(study).sort_by(order).combine_chunks()


def differences(study: Path, reference: Path) -> list[str]:
    """What a study has lost, doubled or changed against the undisturbed one; empty if nothing."""
    said = []
    for kind, mine, theirs in zip(("runs", "trajectories"), tables(study), tables(reference), strict=True):
        keys = ("run",) if kind == "runs" else ("run", "step", "weight", "train_loss", "val_loss")
        found = list(zip(*(mine[key].to_pylist() for key in keys), strict=True))
        wanted = set(zip(*(theirs[key].to_pylist() for key in keys), strict=True))
        if lost := len(wanted - set(found)):
            said.append(f"{kind}: {lost} rows lost")
        if twice := len(found) - len(set(found)):
            said.append(f"{kind}: {twice} rows twice")
        if not said and not mine.equals(theirs):
            said.append(f"{kind}: other values")
    return said
