"""Does the stack train on CUDA as it does on a CPU?"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_loop import rows, run
from toys import BF16_START, CORPUS, FP32_START, steps, toy

pytest.importorskip("triton", reason="triton is not installed")

from etastar.train import kernel_layers
from etastar.train.engine import Engine
from etastar.train.fused_attention import LibraryAttention, ShortAttention
from etastar.train.graph import GraphedStep
from etastar.train.head_fp8 import fp8_logits
from etastar.train.optim import step_table
from etastar.train.spec import TrainSpec
from etastar.train.state import TrainState

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def _on_cuda(spec: TrainSpec, count: int, *, graphed: bool = False) -> tuple[torch.Tensor, TrainState]:
    device = torch.device("cuda")
    engine = Engine(spec, device=device, micro_batch=10**6)
    state = engine.fresh_state()
    take = GraphedStep(engine).step if graphed else engine.step
    table = step_table(spec, start=0, stop=count, horizon=None, device=device)
    losses = []
    for step in range(count):
        batch = torch.from_numpy(CORPUS.batch(seed=0, step=step, sequences=4, length=16)).to(device)
        losses.append(take(state, batch, table[step]).loss)
    return torch.stack(losses).cpu().double(), state


def _same_outcome(state: TrainState, expected: TrainState, *, tolerance: float) -> None:
    """Every weight, every sum of η_eff and the verdict on every model."""
    for name, weight in expected.params.items():
        torch.testing.assert_close(state.params[name].cpu(), weight.cpu(), rtol=0, atol=tolerance)
    torch.testing.assert_close(state.tally.total.cpu(), expected.tally.total.cpu(), rtol=tolerance, atol=0)
    assert state.watch.alive.tolist() == expected.watch.alive.tolist()


@pytest.mark.parametrize("gpt2", [False, True])
def test_fp64_losses_equal_the_cpus(gpt2: bool) -> None:
    spec = toy(gpt2=gpt2, execution={"precision": "fp64", "compile": "off"})
    expected, losses, _ = steps(spec, 20)
    seen, state = _on_cuda(spec, 20)
    torch.testing.assert_close(seen, losses, rtol=0, atol=1e-9)
    _same_outcome(state, expected, tolerance=1e-9)


@pytest.mark.parametrize("gpt2", [False, True])
@pytest.mark.parametrize("compiled", ["off", "default"])
def test_fp32_losses_start_as_the_cpus(gpt2: bool, compiled: str) -> None:
    spec = toy(gpt2=gpt2, execution={"precision": "fp32", "compile": compiled})
    expected = steps(toy(gpt2=gpt2), FP32_START.steps)[1].double()
    torch.testing.assert_close(_on_cuda(spec, FP32_START.steps)[0], expected, rtol=0, atol=FP32_START.atol)


@pytest.mark.parametrize("kind", ["adamw", "adamh", "muonh"])
def test_bf16_losses_start_near_the_cpus(kind: str) -> None:
    spec = toy(optimizer={"kind": kind}, execution={"precision": "bf16", "compile": "off"})
    expected = steps(toy(optimizer={"kind": kind}), BF16_START.steps)[1].double()
    losses, state = _on_cuda(spec, BF16_START.steps)
    torch.testing.assert_close(losses, expected, rtol=0, atol=BF16_START.atol)
    assert all(weight.dtype == torch.float32 for weight in state.params.values())


def test_a_recorded_step_is_the_step() -> None:
    spec = toy(execution={"precision": "fp64", "compile": "off"})
    plain, one = _on_cuda(spec, 20)
    replayed, other = _on_cuda(spec, 20, graphed=True)
    torch.testing.assert_close(replayed, plain, rtol=0, atol=1e-9)
    _same_outcome(other, one, tolerance=1e-9)


def test_a_recorded_compiled_step_starts_as_the_step() -> None:
    spec = toy(execution={"precision": "fp32", "compile": "default"})
    plain, one = _on_cuda(spec, FP32_START.steps)
    replayed, other = _on_cuda(spec, FP32_START.steps, graphed=True)
    torch.testing.assert_close(replayed, plain, rtol=0, atol=FP32_START.atol)
    torch.testing.assert_close(other.tally.total, one.tally.total, rtol=FP32_START.atol, atol=0)


def test_branch_equals_an_uninterrupted_run_bitwise(tmp_path: Path) -> None:
    execution = {"device": "cuda", "deterministic": True, "compile": "off"}
    try:
        both = run(toy(execution=execution), tmp_path / "both")
        lone = run(toy(execution=execution, horizons=[24]), tmp_path / "lone")
    finally:
        torch.use_deterministic_algorithms(False)
    assert [row for row in rows(both, "lr") if row["steps"] == 24] == rows(lone, "lr")


@pytest.mark.parametrize("kind", ["adamw", "adamh"])
@pytest.mark.parametrize("gpt2", [False, True])
def test_kernels_measure_what_the_plain_path_measures(kind: str, gpt2: bool) -> None:
    """In fp32, where rounding leaves no excuse: weights, losses and every sum of η_eff after 20 steps."""
    asked = {"precision": "fp32", "compile": "off"}
    fused, one = _on_cuda(toy(gpt2=gpt2, optimizer={"kind": kind}, execution=asked | {"kernels": "triton"}), 20)
    plain, other = _on_cuda(toy(gpt2=gpt2, optimizer={"kind": kind}, execution=asked | {"kernels": "plain"}), 20)
    torch.testing.assert_close(fused, plain, rtol=0, atol=1e-3)
    _same_outcome(one, other, tolerance=1e-3)


@pytest.mark.parametrize("residual", ["auto", "fp32"])
@pytest.mark.parametrize("kind", ["adamw", "adamh"])
def test_kernels_lose_nothing_over_200_steps(kind: str, residual: str) -> None:
    """Losses of the last 50 steps: no farther from the plain bf16 path than a few times its distance to fp32."""
    asked = {"compile": "off"}
    spec = toy(optimizer={"kind": kind}, execution=asked | {"precision": "bf16", "kernels": "plain"})
    plain = _on_cuda(spec, 200)[0]
    exact = _on_cuda(toy(optimizer={"kind": kind}, execution=asked | {"precision": "fp32", "kernels": "plain"}), 200)[0]
    kernels = {"precision": "bf16", "kernels": "triton", "residual": residual}
    fused = _on_cuda(toy(optimizer={"kind": kind}, execution=asked | kernels), 200, graphed=True)[0]
    noise = (plain[-50:] - exact[-50:]).abs().mean()
    assert (fused[-50:] - plain[-50:]).abs().mean() < 4 * noise + 2e-3


@pytest.mark.skipif(torch.cuda.is_available() and torch.cuda.get_device_capability() < (8, 9), reason="no fp8 products")
def test_an_fp8_head_loses_nothing_over_200_steps() -> None:
    """Losses of the last 50 steps: no farther from the bf16 head than a few times that head's distance to fp32."""
    asked = {"compile": "off", "precision": "bf16"}
    head = _on_cuda(toy(execution=asked | {"head": "fp8"}), 200)[0]
    plain = _on_cuda(toy(execution=asked), 200)[0]
    exact = _on_cuda(toy(execution=asked | {"precision": "fp32"}), 200)[0]
    noise = (plain[-50:] - exact[-50:]).abs().mean()
    assert (head[-50:] - plain[-50:]).abs().mean() < 4 * noise + 2e-3


def test_an_fp8_head_is_what_the_engine_takes() -> None:
    spec = toy(execution={"precision": "bf16", "head": "fp8"})
    assert Engine(spec, device=torch.device("cuda"), micro_batch=2)._logits is fp8_logits


@pytest.mark.parametrize("dim", [16, 32, 64])
@pytest.mark.parametrize("length", [1, 17, 100, 256])
@pytest.mark.parametrize("turned", [False, True])
def test_short_attention_in_bf16_is_attention(dim: int, length: int, turned: bool) -> None:
    """Against the library's in fp32; and the bits repeat, since nothing is added up by atomics."""
    torch.manual_seed(dim + length)
    shape = (5, length, 3, 3, dim)
    qkv, coming = torch.randn(shape, device="cuda").bfloat16(), torch.randn(5, length, 3, dim, device="cuda").bfloat16()
    angles = torch.rand(length, dim // 2, device="cuda") * 6
    turns = torch.stack([angles.cos(), angles.sin()]) if turned else None
    seen = []
    for kind, dtype in (
        (ShortAttention, torch.bfloat16),
        (ShortAttention, torch.bfloat16),
        (LibraryAttention, torch.float32),
    ):
        attention = kind(turned)
        mixed, kept = attention.forward(qkv.to(dtype), turns, keep=True)
        seen.append((mixed, attention.backward(coming.to(dtype), qkv.to(dtype), kept, turns)))
    for one, again, exact in zip(*seen, strict=True):
        assert torch.equal(one, again)
        assert (one.float() - exact).norm() < 0.01 * exact.norm()


@pytest.mark.parametrize(("stack", "rows", "width"), [(2, 40_000, 128), (1, 5_000, 768), (1, 3_000, 5_120)])
@pytest.mark.parametrize("stream", [torch.bfloat16, torch.float32])
def test_backward_norms_over_many_tiles(stack: int, rows: int, width: int, stream: torch.dtype) -> None:
    torch.manual_seed(width)
    x = torch.randn(stack, rows, width, device="cuda").to(stream)
    dh, dx = torch.randn_like(x).bfloat16(), torch.randn_like(x)
    gain = torch.rand(stack, width, device="cuda") + 0.5
    wide, factor = x.double().requires_grad_(), gain.double().requires_grad_()
    normed = torch.nn.functional.layer_norm(wide, (width,), eps=1e-5) * factor[:, None]
    expected, to_gain = torch.autograd.grad(normed, (wide, factor), dh.double())
    expected = expected + dx.double()
    sums = kernel_layers.gain_sums(x, 1)
    found, narrow = kernel_layers.norm_backward(dh, x, gain, dx, sums[:, 0], kind="layernorm", eps=1e-5)
    for one in (found, narrow):
        assert (one.double() - expected).norm() < 4e-3 * expected.norm()
    assert (sums[:, 0].sum(1).double() - to_gain).norm() < 1e-3 * to_gain.norm()
