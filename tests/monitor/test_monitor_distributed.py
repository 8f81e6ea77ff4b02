"""Are norms those of whole tensors where weights are replicated or sharded over two processes?"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gloo import two_with_gloo
from loops import loss_of, small, train
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from etastar.monitor import StepMonitor
from etastar.store import read_runs, read_trajectories
from etastar.store.verify import verify_files

STEPS = 4
Wrap = Callable[[torch.nn.Module], torch.nn.Module]


def _ddp(model: torch.nn.Module) -> torch.nn.Module:
    return DistributedDataParallel(model)


def _fsdp(model: torch.nn.Module) -> torch.nn.Module:
    mesh = init_device_mesh("cpu", (2,))
    fully_shard(model.up, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def _hsdp(model: torch.nn.Module) -> torch.nn.Module:
    """A mesh of 2 × 1: replicated along the first dimension, sharded along the second."""
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
    return fully_shard(model, mesh=mesh)


def _some_sharded(model: torch.nn.Module) -> torch.nn.Module:
    """One weight a DTensor, the other plain."""
    mesh = init_device_mesh("cpu", (2,))
    fully_shard(model.up, mesh=mesh)
    return model


def _losses(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()


@pytest.mark.parametrize("mode", ["snapshot", "reconstruct"])
@pytest.mark.parametrize("wrap", [_ddp, _fsdp, _hsdp, _some_sharded])
def test_two_processes_see_what_one_sees(tmp_path: Path, wrap: Wrap, mode: Any) -> None:
    def work(rank: int) -> None:
        model = wrap(small(dtype=torch.float64))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
        study = tmp_path / "study"
        monitor = StepMonitor(optimizer, model, mode=mode, log_every=2, sinks=[], study=study, run="r")
        _losses(model, optimizer, STEPS)
        assert monitor.latest is not None
        seen = [monitor.mean_eff_lr, monitor.weights, monitor.latest.values, monitor.memory().parameters]
        (tmp_path / f"{rank}.json").write_text(json.dumps(seen))
        monitor.finish(loss=2.0, tokens=100)

    two_with_gloo(work)
    model = small(dtype=torch.float64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    alone = StepMonitor(optimizer, model, mode=mode, log_every=2, sinks=[])
    reference = train(model, optimizer, alone, STEPS)
    assert alone.latest is not None
    assert alone.mean_eff_lr == pytest.approx(reference.mean, rel=1e-8)
    sizes = []
    for rank in range(2):
        mean, weights, values, size = json.loads((tmp_path / f"{rank}.json").read_text())
        sizes.append(size)
        assert tuple(weights) == alone.weights
        assert mean == pytest.approx(reference.mean, rel=1e-8)
        for left, right in zip(values, alone.latest.values, strict=True):
            assert left == pytest.approx(right, rel=1e-8)
    if wrap is _fsdp:
        assert sum(sizes) == 2 * 12 * 33
    # one process writes
    assert read_runs(tmp_path / "study")["params"].to_pylist() == [
        alone.finish(loss=2.0, tokens=100)["params"][0].as_py()
    ]
    assert sorted(set(read_trajectories(tmp_path / "study")["step"].to_pylist())) == [0, 2]
    assert verify_files(tmp_path / "study") == []
