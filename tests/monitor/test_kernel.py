"""Do the kernels sum what the plain path sums? In Triton's interpreter, where there is no GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from loops import OPTIMIZERS, small, train

pytest.importorskip("triton", reason="triton is not installed")
if torch.cuda.is_available():
    pytest.skip("the kernels themselves are tested in test_gpu.py", allow_module_level=True)

from etastar.monitor import StepMonitor, reconstruct, snapshot, workspace
from etastar.monitor.kernel import KernelSums
from etastar.monitor.sums import Moments, PlainSums, Sums, sums_for
from etastar.monitor.watch import Watched
from etastar.monitor.workspace import Workspace, fill

SHAPES = [(3, 5), (128, 64), (300, 70), (1, 9000)]


def both(*, keep: bool, parts: int = 1) -> tuple[list[torch.Tensor], Workspace, list[Sums]]:
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(shape, generator=generator) for shape in SHAPES]
    watched = [
        Watched(f"w{i}", t, 0, part, n)
        for i, t in enumerate(tensors)
        for n in [parts if t.shape[0] % parts == 0 else 1]
        for part in range(n)
    ]
    space = Workspace(watched, keep=keep)
    return [w.param for w in watched], space, [PlainSums(space), KernelSums(space)]


@pytest.mark.parametrize("limit", [10**9, 8192])
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_steps(monkeypatch: pytest.MonkeyPatch, limit: int, parts: int, dtype: torch.dtype) -> None:
    monkeypatch.setattr(workspace, "BATCH_ELEMENTS", limit)
    before, space, ways = both(keep=True, parts=parts)
    before = [w.to(dtype) for w in before]
    after = [w + (1e-3 * torch.randn(w.shape)).to(dtype) for w in before]
    seen = []
    for sums in ways:
        for _ in range(2):  # nothing stays from one step to the next
            for batch in space.batches:
                fill(batch, before)
                sums.steps(batch, after)
            last = sums.result()
        seen.append(last)
    assert seen[0].shape == (3, len(before))
    scale = (seen[0][0] * seen[0][2]).sqrt()
    torch.testing.assert_close(seen[1][::2], seen[0][::2], rtol=1e-6, atol=0)
    assert ((seen[1][1] - seen[0][1]).abs() <= 1e-6 * scale).all()
    exact = torch.stack([(a.double() - b.double()).square().sum() for a, b in zip(after, before, strict=True)])
    if parts == 1:
        torch.testing.assert_close(seen[1][2], exact, rtol=1e-6, atol=0)


def test_directions_and_adam() -> None:
    after, space, ways = both(keep=False)
    first = [torch.randn_like(w) for w in after]
    second = [torch.rand_like(w) * 10.0 ** torch.randint(-8, 1, w.shape) for w in after]
    floor = torch.rand(len(after), dtype=torch.float64) * 1e-3
    exact = [m.double() / (v.double().sqrt() + e) for m, v, e in zip(first, second, floor.tolist(), strict=True)]
    expected = torch.stack(
        [
            torch.stack([w.double().square().sum(), (w.double() * d).sum(), d.square().sum()])
            for w, d in zip(after, exact, strict=True)
        ],
        dim=1,
    )
    size = (expected[0] * expected[2]).sqrt()
    for sums in ways:
        for batch in space.batches:
            sums.adam(batch, Moments(first, second, floor), after)
        seen = sums.result()
        assert ((seen - expected).abs() <= 1e-5 * torch.stack([expected[0], size, expected[2]])).all()
        for batch in space.batches:
            fill(batch, [d.float() for d in exact])
            sums.directions(batch, after)
        seen = sums.result()
        assert ((seen - expected).abs() <= 1e-5 * torch.stack([expected[0], size, expected[2]])).all()


def test_what_is_not_dense_or_not_there_goes_the_plain_way() -> None:
    after, space, (plain, kernels) = both(keep=False)
    first = [torch.randn(w.shape[::-1]).T for w in after]
    second: list[torch.Tensor | None] = [torch.rand_like(w) for w in after]
    second[1] = None
    moments = Moments(
        [None if v is None else m for m, v in zip(first, second, strict=True)], second, torch.ones(4).double()
    )
    for _ in range(2):
        results = []
        for sums in (plain, kernels):
            for batch in space.batches:
                sums.adam(batch, moments, after)
            results.append(sums.result())
        torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)
        for sums in (plain, kernels):  # and then the other way again: nothing of it stays
            for batch in space.batches:
                fill(batch, after)
                sums.directions(batch, after)
            results.append(sums.result())
        torch.testing.assert_close(results[3], results[2], rtol=1e-6, atol=0)


@pytest.mark.parametrize("mode", ["snapshot", "reconstruct"])
@pytest.mark.parametrize("kind", ["adamw-fused", "adamw-amsgrad", "adam-l2", "sgd-nesterov", "muon"])
def test_a_monitor_on_the_kernels(monkeypatch: pytest.MonkeyPatch, kind: str, mode: Any) -> None:
    monkeypatch.setattr(snapshot, "sums_for", KernelSums)
    monkeypatch.setattr(reconstruct, "sums_for", KernelSums)
    model = small()
    optimizer = OPTIMIZERS[kind](model)
    monitor = StepMonitor(optimizer, model, mode=mode, log_every=1, split={"up.*": 3}, sinks=[])
    reference = train(model, optimizer, monitor, 4)
    assert monitor.mean_eff_lr == pytest.approx(reference.mean, rel=5e-6 if mode == "snapshot" else 2e-5)


def test_a_rank_without_a_row() -> None:
    """A sharded weight may leave a rank nothing; its sums are zero."""
    for weights in ([torch.empty(0, 5)], [torch.empty(0, 5), torch.ones(2, 2)]):
        space = Workspace([Watched(f"w{i}", w, 0) for i, w in enumerate(weights)], keep=True)
        for sums in (PlainSums(space), KernelSums(space)):
            for batch in space.batches:
                fill(batch, weights)
                sums.steps(batch, [2 * w for w in weights])
            assert sums.result().tolist() == [[w.sum() for w in weights]] * 3
        assert space.squares(weights).tolist() == [w.sum() for w in weights]


def test_the_plain_way_serves_a_cpu() -> None:
    assert isinstance(sums_for(both(keep=True)[1]), PlainSums)
