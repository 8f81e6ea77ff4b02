"""Does the recipe for torchtitan work on its own model and its own container of optimizers?

Runs where torchtitan is installed (0.3.0 was tried). Its Trainer wants a GPU, and its attention cannot go back on a
CPU, so the gradients are drawn; sharding, optimizers and steps are the real ones.
"""

from __future__ import annotations

import pytest
import torch
from gloo import two_with_gloo
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from etastar.monitor import StepMonitor

pytest.importorskip("torchtitan", reason="torchtitan is not installed")


def _two_modes_on_a_sharded_llama(rank: int) -> None:
    from torchtitan.components.optimizer import default_adamw
    from torchtitan.models.llama3 import llama3_configs

    with torch.device("meta"):
        model = llama3_configs["debugmodel"](attn_backend="flex").build()
    mesh = init_device_mesh("cpu", (2,))
    for layer in model.layers.values():
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    with torch.no_grad():
        model.init_states(buffer_device=None)
    optimizers = default_adamw(lr=1e-3).build(model_parts=[model])
    (optimizer,) = optimizers.optimizers
    monitors = [StepMonitor(optimizer, model, mode=mode, sinks=[]) for mode in ("snapshot", "reconstruct")]
    watched = monitors[0].watched
    assert {weight.name.split(".")[0] for weight in watched} == {"layers"}, "embedding and head are left out"
    expected = []
    for _ in range(3):
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter) * 0.01
        before = [weight.param.full_tensor().double() for weight in watched]
        optimizers.step()
        after = [weight.param.full_tensor().double() for weight in watched]
        turned = [(b / b.norm() - a / a.norm()).norm().item() for a, b in zip(before, after, strict=True)]
        expected.append(sum(turned) / len(turned))
    for monitor, tolerance in zip(monitors, (1e-6, 1e-4), strict=True):
        assert monitor.mean_eff_lr == pytest.approx(sum(expected) / 3, rel=tolerance)


def test_the_recipe() -> None:
    two_with_gloo(_two_modes_on_a_sharded_llama)
