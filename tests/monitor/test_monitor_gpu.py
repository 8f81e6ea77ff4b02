"""On CUDA: the same numbers, and a host that does not wait on steps that are not logged."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from loops import OPTIMIZERS, loss_of, small
from torch import nn

from etastar.monitor import StepMonitor
from etastar.monitor.sums import Moments, PlainSums, sums_for
from etastar.monitor.watch import Watched
from etastar.monitor.workspace import Workspace, fill

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class OnCuda(nn.Module):
    """The small model with its inputs sent along."""

    def __init__(self) -> None:
        super().__init__()
        self.net = small().cuda()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.net(tokens.cuda()).cpu()


@pytest.mark.parametrize("mode", ["snapshot", "reconstruct"])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_equals_the_definition(kind: str, mode: Any) -> None:
    model = OnCuda()
    optimizer = OPTIMIZERS[kind](model)
    monitor = StepMonitor(optimizer, model, mode=mode, log_every=2, sinks=[])
    expected = []
    for step in range(5):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        before = [w.param.detach().double().clone() for w in monitor.watched]
        optimizer.step()
        after = [w.param.detach().double() for w in monitor.watched]
        turned = [(a / a.norm() - b / b.norm()).norm().item() for a, b in zip(after, before, strict=True)]
        expected.append(sum(turned) / len(turned))
    assert monitor.mean_eff_lr == pytest.approx(sum(expected) / 5, rel=5e-6 if mode == "snapshot" else 1e-4)


@pytest.mark.parametrize("mode", ["snapshot", "reconstruct"])
@pytest.mark.parametrize("kind", ["adamw-fused", "adamw-foreach", "sgd-momentum", "sgd-nesterov", "muon"])
def test_the_host_does_not_wait(kind: str, mode: Any) -> None:
    model = OnCuda()
    optimizer = OPTIMIZERS[kind](model)
    monitor = StepMonitor(optimizer, model, mode=mode, log_every=100, sinks=[])
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        torch.cuda.set_sync_debug_mode("error" if step else "default")  # step 0 is logged
        try:
            optimizer.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert monitor.steps == 4


@pytest.mark.parametrize("mode", ["snapshot", "reconstruct"])
def test_a_skipped_step_costs_no_wait_either(mode: Any) -> None:
    model = OnCuda()
    optimizer = OPTIMIZERS["adamw-fused"](model)
    monitor = StepMonitor(optimizer, model, mode=mode, log_every=100, sinks=[])
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**8)
    for step in range(4):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, step)).backward()
        if step == 2:
            model.net.up.weight.grad[0, 0] = float("inf")  # type: ignore[index]
        torch.cuda.set_sync_debug_mode("error" if step else "default")
        try:
            scaler.step(optimizer)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        scaler.update()
    assert monitor.steps == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_sum_what_the_plain_path_sums(dtype: torch.dtype) -> None:
    kernel = pytest.importorskip("etastar.monitor.kernel")
    torch.manual_seed(0)
    before = [torch.randn(shape, device="cuda", dtype=dtype) for shape in ((768, 2304), (5, 7), (3000, 4000), (1, 9))]
    after = [w + (1e-2 * torch.randn_like(w)) for w in before]
    moments = Moments(
        [torch.randn(w.shape, device="cuda") for w in before],
        [torch.rand(w.shape, device="cuda") for w in before],
        torch.rand(len(before), device="cuda", dtype=torch.float64) * 1e-3,
    )
    space = Workspace([Watched(f"w{i}", w, 0) for i, w in enumerate(before)], keep=True)
    ways = [PlainSums(space), sums_for(space)]
    assert isinstance(ways[1], kernel.KernelSums)
    seen = []
    for sums in ways:
        for batch in space.batches:
            fill(batch, before)
            sums.steps(batch, after)
        one = sums.result()
        for batch in space.batches:
            sums.adam(batch, moments, after)
        seen.append(torch.stack([one, sums.result()]))
    for plain, kernels in zip(*seen, strict=True):
        scale = torch.stack([plain[0], (plain[0] * plain[2]).sqrt(), plain[2]])
        assert ((plain - kernels).abs() <= 1e-5 * scale).all()
