"""Does the stacked model compute what an independent GPT-2 computes?"""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from toys import toy

from etastar.errors import SpecError
from etastar.scale import gpt_params
from etastar.train.model import final_hidden, init_params, logits, parameter_shapes
from etastar.train.presets import gpt2, rope
from etastar.train.spec import ModelSpec


def _params(model: ModelSpec, stack: int = 1) -> dict[str, torch.Tensor]:
    params = init_params(model, stack=stack, seed=3, device=torch.device("cpu"), dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    for weight in params.values():  # away from the initial symmetries: gains of 1, equal models
        weight.data += 0.05 * torch.randn(weight.shape, generator=generator, dtype=torch.float64)
    return params


@pytest.mark.parametrize("norm_embedding", [False, True])
def test_logits_equal_those_of_transformers_gpt2(norm_embedding: bool) -> None:
    transformers = pytest.importorskip("transformers")
    model = ModelSpec(width=48, layers=3, head_dim=16, vocab=97, context=24, norm_embedding=norm_embedding)
    params = _params(model, stack=2)
    tokens = torch.randint(0, 97, (2, 20), generator=torch.Generator().manual_seed(1))
    mine = logits(model, params, tokens)
    config = transformers.GPT2Config(
        vocab_size=97, n_positions=24, n_embd=48, n_layer=3, n_head=3, activation_function="gelu",
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    for index in range(2):
        other = transformers.GPT2LMHeadModel(config).double().eval()
        _copy_weights(other, {name: weight[index].detach() for name, weight in params.items()})
        with torch.no_grad():
            theirs = (_after_a_norm(other, tokens) if norm_embedding else other(tokens)).logits
        torch.testing.assert_close(mine[index], theirs, rtol=0, atol=1e-10)


def _after_a_norm(other: Any, tokens: torch.Tensor) -> Any:
    """Their model on a stream that begins with an RMS-norm, written out, of tokens and positions."""
    body = other.transformer
    begin = body.wte.weight[tokens] + body.wpe.weight[: tokens.shape[1]]
    body.wpe.weight.zero_()  # they add it to what they are given
    return other(inputs_embeds=begin / (begin.square().mean(-1, keepdim=True) + 1e-6).sqrt())


def _copy_weights(other: Any, params: dict[str, torch.Tensor]) -> None:
    """transformers keeps matrices as (in, out) and has biases, which are zeroed."""
    with torch.no_grad():
        for name, weight in other.named_parameters():
            if name.endswith("bias"):
                weight.zero_()
        body = other.transformer
        body.wte.weight.copy_(params["embed"])
        body.wpe.weight.copy_(params["positions"])
        body.ln_f.weight.copy_(params["gain_final"])
        for layer, block in enumerate(body.h):
            block.ln_1.weight.copy_(params["gain_attn"][layer])
            block.ln_2.weight.copy_(params["gain_mlp"][layer])
            block.attn.c_attn.weight.copy_(params["qkv"][layer].reshape(-1, params["embed"].shape[1]).T)
            block.attn.c_proj.weight.copy_(params["out"][layer, 0].T)
            block.mlp.c_fc.weight.copy_(params["up"][layer, 0].T)
            block.mlp.c_proj.weight.copy_(params["down"][layer, 0].T)


@pytest.mark.parametrize("gpt2", [False, True])
def test_the_future_does_not_reach_the_past(gpt2: bool) -> None:
    model = toy(gpt2=gpt2).model
    params = _params(model)
    tokens = torch.randint(0, 64, (1, 16), generator=torch.Generator().manual_seed(1))
    changed = tokens.clone()
    changed[0, 10:] = (changed[0, 10:] + 1) % 64
    before, after = logits(model, params, tokens), logits(model, params, changed)
    torch.testing.assert_close(before[:, :, :10], after[:, :, :10], rtol=0, atol=1e-12)
    assert not torch.allclose(before[:, :, 10:], after[:, :, 10:])


def test_rope_knows_relative_positions_only() -> None:
    """Without a table of positions, a constant context looks the same from every place of it."""
    model = toy().model
    params = _params(model)
    same = torch.full((1, 12), 5)
    hidden = final_hidden(model, params, same, torch.float64)
    torch.testing.assert_close(hidden[0, 3], hidden[0, 11], rtol=1e-10, atol=1e-10)
    mixed = torch.tensor([[1, 2, 3, 4, 5, 6]])
    swapped = torch.tensor([[1, 3, 2, 4, 5, 6]])
    ends = [final_hidden(model, params, tokens, torch.float64)[0, -1] for tokens in (mixed, swapped)]
    assert not torch.allclose(ends[0], ends[1], atol=1e-6)


def test_a_nan_stays_in_its_model() -> None:
    model = toy().model
    params = _params(model, stack=3)
    tokens = torch.randint(0, 64, (2, 16), generator=torch.Generator().manual_seed(1))
    clean = logits(model, params, tokens)
    params["up"].data[1, 0, 0, 0, 0] = float("nan")
    dirty = logits(model, params, tokens)
    assert dirty[1].isnan().all()
    assert torch.equal(clean[0], dirty[0])
    assert torch.equal(clean[2], dirty[2])


def test_matrix_invariance_under_rescaling() -> None:
    """q and k pass through a norm in the rope model: their scale does not matter, which is why η_eff does."""
    model = toy().model
    params = _params(model)
    tokens = torch.randint(0, 64, (2, 16), generator=torch.Generator().manual_seed(1))
    before = logits(model, params, tokens)
    params["qkv"].data[:, :, :2] *= 3.0
    torch.testing.assert_close(logits(model, params, tokens), before, rtol=1e-4, atol=1e-5)


def test_parameters_count_as_the_project_counts() -> None:
    model = ModelSpec(width=256)
    shapes = parameter_shapes(model)
    counted = [name for name in shapes if name not in ("positions", "gain_attn", "gain_mlp", "gain_final")]
    assert sum(torch.Size(shapes[name]).numel() for name in counted) == model.params == gpt_params(256)


@pytest.mark.parametrize(("init", "spread"), [("gpt2", 0.02), ("width", 128**-0.5)])
def test_initial_spread(init: Literal["gpt2", "width"], spread: float) -> None:
    model = ModelSpec(width=128, layers=2, vocab=512, context=64, init=init)
    params = init_params(model, stack=1, seed=0, device=torch.device("cpu"), dtype=torch.float32)
    for name in ("qkv", "up"):
        assert params[name].std().item() == pytest.approx(spread, rel=0.03)
    for name in ("out", "down"):  # into the stream: divided by √(2·layers)
        assert params[name].std().item() == pytest.approx(spread / 2, rel=0.03)
    for name in ("embed", "positions"):
        assert params[name].std().item() == pytest.approx(0.02, rel=0.03)
    assert (params["gain_final"] == 1).all()


@pytest.mark.parametrize("gpt2", [False, True])
def test_a_normed_embedding_forgets_its_scale(gpt2: bool) -> None:
    """The norm takes tokens and learned positions together; without it, scaling both changes the model."""
    for normed in (True, False):
        model = toy(gpt2=gpt2, model={"norm_embedding": normed}).model
        params = _params(model)
        tokens = torch.randint(0, 64, (2, 16), generator=torch.Generator().manual_seed(1))
        before = final_hidden(model, params, tokens, torch.float64)
        for name in ("embed", "positions"):
            if name in params:
                params[name].data *= 30.0
        after = final_hidden(model, params, tokens, torch.float64)
        assert torch.allclose(after, before, rtol=0, atol=0.01) == normed
        other = model.model_copy(update={"norm_embedding": not normed})
        assert not torch.allclose(
            logits(model, params, tokens), logits(other, params, tokens), rtol=0.01, atol=0.01
        )


def test_toys_are_the_presets_made_small() -> None:
    """What the toys prove of stacks, branches and devices holds for the presets: only sizes differ."""
    sizes = {"width", "layers", "head_dim", "vocab", "context"}
    for small, preset in ((toy(), rope(width=128)), (toy(gpt2=True), gpt2(width=256))):
        assert small.model.model_dump(exclude=sizes) == preset.model.model_dump(exclude=sizes)
    assert (rope(width=128).model.norm_embedding, rope(width=128).model.init) == (True, "width")
    assert (gpt2(width=256).model.norm_embedding, gpt2(width=256).model.init) == (False, "gpt2")


def test_an_unknown_init_is_refused() -> None:
    with pytest.raises(SpecError, match=r"model\.init: 'xavier'"):
        toy(model={"init": "xavier"})
