"""Do the Triton kernels compute what the plain path computes? In Triton's interpreter, where there is no GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")
if torch.cuda.is_available():
    pytest.skip("the kernels themselves are tested in test_gpu.py", allow_module_level=True)

from etastar.train import kernel_layers, kernel_loss, kernel_step, optim
from etastar.train.fused_attention import Attention, LibraryAttention, ShortAttention, attention_for
from etastar.train.fused_model import FusedPasses
from etastar.train.head import plain_errors
from etastar.train.model import MATRICES, final_hidden, init_params, rope_table
from etastar.train.presets import rope
from etastar.train.spec import ModelSpec, TrainSpec
from etastar.train.state import TrainState

CPU = torch.device("cpu")
SMALL = ModelSpec(width=64, layers=2, head_dim=32, vocab=50, context=16)
MODELS = {
    "gpt2": SMALL,
    "rope": SMALL.model_copy(
        update={"positions": "rope", "norm": "rmsnorm", "qk_norm": True, "norm_embedding": True, "init": "width"}
    ),
    "odd width": SMALL.model_copy(update={"width": 96, "positions": "rope", "norm_embedding": True}),
}


@pytest.mark.parametrize("vocab", [64, 300, 20_000])
def test_loss_in_place_is_the_cross_entropy(vocab: int) -> None:
    torch.manual_seed(vocab)
    logits, targets = torch.randn(2, 3, vocab) * 3, torch.randint(0, vocab, (3,))
    expected_loss, expected = plain_errors(logits.double(), targets, 0.25)
    loss, error = kernel_loss.errors_in_place(logits.clone(), targets, 0.25)
    torch.testing.assert_close(loss.double(), expected_loss, rtol=0, atol=1e-5)
    torch.testing.assert_close(error.double(), expected, rtol=1e-4, atol=1e-7)


def test_a_model_with_nan_spoils_no_other() -> None:
    logits = torch.randn(2, 3, 64)
    logits[0, 1, 5] = torch.nan
    loss, _ = kernel_loss.errors_in_place(logits, torch.tensor([1, 2, 3]), 1.0)
    assert torch.isnan(loss[0, 1])
    assert torch.isfinite(loss[1]).all()


def test_gelu_and_its_slope() -> None:
    x = torch.linspace(-9, 9, 4001)
    wide = x.double().requires_grad_()
    expected = torch.nn.functional.gelu(wide)
    (slope,) = torch.autograd.grad(expected.sum(), wide)
    torch.testing.assert_close(kernel_layers.gelu(x).double(), expected.detach(), rtol=0, atol=1e-6)
    torch.testing.assert_close(kernel_layers.gelu_backward(torch.ones_like(x), x).double(), slope, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", [LibraryAttention, ShortAttention])
@pytest.mark.parametrize("name", MODELS)
def test_hidden_states_and_gradients_are_autograds(name: str, kind: Callable[[bool], Attention]) -> None:
    model = MODELS[name]
    torch.manual_seed(0)
    params = init_params(model, stack=2, seed=0, device=CPU, dtype=torch.float32)
    # The models of the stack apart, gains away from one: a mixed-up row or a lost factor must show.
    params = {n: (p.detach() + 0.05 * torch.randn_like(p)).requires_grad_() for n, p in params.items()}
    tokens = torch.randint(0, model.vocab, (3, model.context))
    expected = final_hidden(model, params, tokens, torch.float32)
    coming = torch.randn_like(expected)
    slopes = dict(zip(params, torch.autograd.grad(expected, list(params.values()), coming), strict=True))
    fused = FusedPasses(model, compute=torch.float32, stream=torch.float32, attention=kind(model.qk_norm))
    done = fused.forward(params, tokens)
    torch.testing.assert_close(done.hidden, expected, rtol=0, atol=2e-5)
    torch.testing.assert_close(fused.hidden(params, tokens), done.hidden, rtol=0, atol=0)
    grads = fused.backward(params, done, coming, torch.zeros_like(params["embed"]))
    assert list(grads) == list(params)
    for key, grad in grads.items():
        assert (grad - slopes[key]).norm() < 1e-5 * slopes[key].norm(), key


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("name", ["gpt2", "odd width"])
def test_programs_that_walk_many_tiles_add_up_the_same(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU with more rows than programs: the next tile is fetched while this one is written."""
    walk = kernel_layers._Walk.of

    def few(x: torch.Tensor) -> kernel_layers._Walk:
        return replace(walk(x), rows=4, programs=most)

    monkeypatch.setattr(kernel_layers._Walk, "of", few)
    test_hidden_states_and_gradients_are_autograds(name, LibraryAttention)


@pytest.mark.parametrize("length", [1, 17, 64, 100, 130])
@pytest.mark.parametrize("rope_and_norm", [False, True])
def test_short_attention_is_the_librarys(length: int, rope_and_norm: bool) -> None:
    """Lengths within a block, at its edge and past it; one sequence must not see another."""
    model = MODELS["rope" if rope_and_norm else "gpt2"]
    torch.manual_seed(length)
    qkv, coming = torch.randn(3, length, 3, model.heads, 32), torch.randn(3, length, model.heads, 32)
    turns = rope_table(model, length, CPU, torch.float32) if rope_and_norm else None
    seen = []
    for attention in (LibraryAttention(rope_and_norm), ShortAttention(rope_and_norm)):
        mixed, kept = attention.forward(qkv, turns, keep=True)
        seen.append((mixed, attention.backward(coming, qkv, kept, turns)))
    for expected, found in zip(*seen, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_short_attention_serves_short_contexts_in_bf16_alone() -> None:
    assert isinstance(attention_for(SMALL, torch.bfloat16), ShortAttention)
    assert isinstance(attention_for(SMALL, torch.float32), LibraryAttention)
    assert isinstance(attention_for(SMALL.model_copy(update={"context": 1024}), torch.bfloat16), LibraryAttention)
    assert isinstance(attention_for(SMALL.model_copy(update={"head_dim": 8}), torch.bfloat16), LibraryAttention)


def _spec(kind: str, gains: bool) -> TrainSpec:
    spec = rope(width=64, layers=1, optimizer=kind, vocab=64, lrs=(2**-9, 2**-8))
    return spec.model_copy(update={"model": MODELS["gpt2" if gains else "rope"].model_copy(update={"layers": 1})})


@pytest.mark.parametrize("kind", ["adamw", "adam", "adamh"])
@pytest.mark.parametrize("clipped", [False, True])
def test_fused_step_moves_and_measures_as_the_plain_one(kind: str, clipped: bool) -> None:
    spec = _spec(kind, gains=clipped)
    torch.manual_seed(1)
    plain, fused = (TrainState.fresh(spec, device=CPU, dtype=torch.float32) for _ in range(2))
    rules = {name: optim.rule_for(spec, name) for name in plain.params}
    step = kernel_step.FusedStep(rules)
    alive, lrs = torch.tensor([True, False]), torch.tensor(spec.lrs, dtype=torch.float64)
    clip = torch.tensor([0.5, 0.7], dtype=torch.float64) if clipped else None
    shadow = {name: torch.zeros_like(plain.params[name]) for name in MATRICES}
    rows = optim.step_table(spec, start=300, stop=302, horizon=2000, device=CPU)
    for row in rows:
        grads = {name: torch.randn_like(weight) * 0.01 for name, weight in plain.params.items()}
        expected = optim.optimizer_step(rules, _detached(plain), grads, plain.optimizer, lrs, row, alive, clip, {})
        seen = step(_detached(fused), grads, fused.optimizer, lrs, row, alive, clip, shadow)
        torch.testing.assert_close(seen, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(seen[..., -1], expected[..., -1], rtol=1e-5, atol=1e-12)
    for name, weight in plain.params.items():
        torch.testing.assert_close(fused.params[name], weight, rtol=0, atol=1e-6)
        torch.testing.assert_close(fused.optimizer.second[name], plain.optimizer.second[name], rtol=1e-5, atol=1e-12)
    for name, copy in shadow.items():
        assert torch.equal(copy, fused.params[name].detach())


def test_gradient_norms_are_the_plain_ones() -> None:
    grads = {"a": torch.randn(3, 70, 130), "b": torch.randn(3, 5).bfloat16()}
    torch.testing.assert_close(kernel_step.gradient_norms(grads), optim.gradient_norms(grads), rtol=1e-5, atol=0)


def _detached(state: TrainState) -> dict[str, torch.Tensor]:
    return {name: weight.detach() for name, weight in state.params.items()}
