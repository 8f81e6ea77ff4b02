"""Does each optimizer take the step it is named for?"""

from __future__ import annotations

import math

import pytest
import torch
from toys import CORPUS, alone, steps, toy

from etastar.errors import SpecError
from etastar.train.engine import Engine
from etastar.train.head import CHUNK_ELEMENTS, losses_and_grads, summed_losses
from etastar.train.model import GAINS, MATRICES, final_hidden
from etastar.train.optim import OptimizerState, clip_scales, gradient_norms, moved, rule_for, step_table
from etastar.train.orthogonal import orthogonalized
from etastar.train.presets import gpt2, octaves, rope
from etastar.train.schedule import lr_factor
from etastar.train.spec import TrainSpec
from etastar.train.state import TrainState


def _torch_reference(spec: TrainSpec, count: int) -> tuple[dict[str, torch.Tensor], list[float]]:
    """The same run by torch.optim.AdamW and autograd, parameter groups as the spec says."""
    engine = Engine(spec, device=torch.device("cpu"), micro_batch=10**6)
    params = {name: w.detach().clone().requires_grad_() for name, w in engine.fresh_state().params.items()}
    main = {"betas": (spec.optimizer.beta1, spec.optimizer.beta2), "eps": spec.optimizer.eps}
    own = {"betas": (spec.embedding.beta1, spec.embedding.beta2), "eps": spec.embedding.eps}
    groups = []
    for name, weight in params.items():
        if name in MATRICES:
            groups.append({"params": [weight], "lr": spec.lrs[0], "weight_decay": spec.optimizer.decay_rate, **main})
        elif name in GAINS:
            groups.append({"params": [weight], "lr": spec.lrs[0], "weight_decay": 0.0, **main})
        else:
            decay = spec.embedding_decay
            groups.append({"params": [weight], "lr": spec.embedding.lr, "weight_decay": decay, **own})
    optimizer = torch.optim.AdamW(groups)
    peaks = [group["lr"] for group in optimizer.param_groups]
    losses = []
    for step in range(count):
        for group, peak in zip(optimizer.param_groups, peaks, strict=True):
            group["lr"] = peak * lr_factor(spec.schedule, step, None)
        rows = torch.from_numpy(CORPUS.batch(seed=0, step=step, sequences=4, length=16))
        hidden = final_hidden(spec.model, params, rows[:, :-1], torch.float64)
        logits = (hidden @ params["embed"].mT)[0]
        loss = torch.nn.functional.cross_entropy(logits, rows[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return params, losses


@pytest.mark.parametrize("kind", ["adamw", "adam"])
@pytest.mark.parametrize("gpt2", [False, True])
def test_adam_equals_torch(kind: str, gpt2: bool) -> None:
    spec = toy(gpt2=gpt2, lrs=[2**-7], optimizer={"kind": kind}, execution={"precision": "fp64"})
    state, losses, _ = steps(spec, 25)
    params, expected = _torch_reference(spec, 25)
    assert losses[:, 0].tolist() == pytest.approx(expected, abs=1e-10)
    for name, weight in params.items():
        torch.testing.assert_close(state.params[name], weight, rtol=0, atol=1e-10)


def test_adamh_keeps_every_norm_and_its_eff_lr_is_the_lr() -> None:
    spec = toy(lrs=[2**-11, 2**-9, 2**-7], optimizer={"kind": "adamh"}, schedule={"kind": "constant"})
    state, _, engine = steps(spec, 100)
    first = engine.fresh_state().params
    for name in MATRICES:
        before = torch.linalg.vector_norm(first[name].double(), dim=(-2, -1))
        after = torch.linalg.vector_norm(state.params[name].double(), dim=(-2, -1))
        torch.testing.assert_close(after, before, rtol=1e-6, atol=0)
    # Over the plateau the measured η_eff is the LR, but for the part of u along w, which does not turn w.
    torch.testing.assert_close(state.tally.means()[1], engine.lrs, rtol=0.1, atol=0)
    # Step by step it is the chord from ŵ to (ŵ − ηû)/‖ŵ − ηû‖, exactly.
    weight, _, _, update, dot, eff_lr = last_statistics(spec, state, step=100).unbind(-1)
    cosine, lr = dot / (update * weight), engine.lrs[:, None]
    along, across = 1 - lr * cosine, lr * (1 - cosine**2).sqrt()
    chord = torch.hypot(along / torch.hypot(along, across) - 1, across / torch.hypot(along, across))
    torch.testing.assert_close(eff_lr, chord, rtol=1e-4, atol=0)


def last_statistics(spec: TrainSpec, state: TrainState, *, step: int) -> torch.Tensor:
    """Statistics (K, matrices, 6) of one more step."""
    engine = Engine(spec, device=torch.device("cpu"), micro_batch=10**6)
    row = step_table(spec, start=step, stop=step + 1, horizon=None, device=engine.device)[0]
    rows = CORPUS.batch(seed=spec.seed, step=step, sequences=4, length=16)
    return engine.step(state, torch.from_numpy(rows), row).statistics


def test_muonh_keeps_every_norm() -> None:
    state, losses, engine = steps(toy(lrs=[2**-7, 2**-5], optimizer={"kind": "muonh"}), 60)
    for name in MATRICES:
        before = torch.linalg.vector_norm(engine.fresh_state().params[name].double(), dim=(-2, -1))
        after = torch.linalg.vector_norm(state.params[name].double(), dim=(-2, -1))
        torch.testing.assert_close(after, before, rtol=1e-6, atol=0)
    assert (losses[-5:].mean(0) < losses[0] - 0.3).all()


def test_adamh_follows_algorithm_1() -> None:
    """One matrix against the algorithm's lines, written out with its own loop."""
    torch.manual_seed(0)
    spec = toy(optimizer={"kind": "adamh"})
    rule = rule_for(spec, "out")
    weight = torch.randn(1, 2, 1, 5, 7, dtype=torch.float64)
    grads = torch.randn(4, *weight.shape, dtype=torch.float64)
    mine, first, second = weight.clone(), torch.zeros_like(weight), torch.zeros_like(weight)
    radius = torch.linalg.vector_norm(weight, dim=(-2, -1))
    lr, none = torch.tensor(0.01, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64)
    for t, grad in enumerate(grads, start=1):
        bias1, bias2 = (torch.tensor(1 - b**t, dtype=torch.float64) for b in (rule.beta1, rule.beta2))
        mine = moved(rule, mine, grad, first, second, radius, lr, none, bias1, bias2)[1]
    for layer in range(2):
        w = weight[0, layer, 0].clone()
        r, m, v = w.norm(), torch.zeros_like(w), torch.zeros_like(w)
        for t, grad in enumerate(grads[:, 0, layer, 0], start=1):
            m = rule.beta1 * m + (1 - rule.beta1) * grad
            v = rule.beta2 * v + (1 - rule.beta2) * grad**2
            u = (m / (1 - rule.beta1**t)) / ((v / (1 - rule.beta2**t)).sqrt() + rule.eps)
            w = w - 0.01 * r * u / u.norm()
            w = r * w / w.norm()
        torch.testing.assert_close(mine[0, layer, 0], w, rtol=1e-12, atol=1e-14)


def test_hyperball_refuses_a_zero_matrix() -> None:
    spec = toy(optimizer={"kind": "adamh"})
    params = steps(spec, 1)[2].fresh_state().params
    params["down"].data[:, 1] = 0
    with pytest.raises(SpecError, match=r"blocks\.1\.down starts at zero") as raised:
        OptimizerState.fresh(spec, params)
    assert raised.value.hint


def test_orthogonalized_pushes_singular_values_to_one() -> None:
    torch.manual_seed(0)
    for shape in ((3, 2, 24, 8), (3, 2, 8, 24)):
        u, s, v = torch.linalg.svd(torch.randn(shape, dtype=torch.float64), full_matrices=False)
        result = orthogonalized(u @ torch.diag_embed(s) @ v)
        along = torch.diagonal(u.mT @ result @ v.mT, dim1=-2, dim2=-1)
        assert (along > 0.6).all()
        assert (along < 1.3).all()


def test_independent_decay_does_not_know_the_learning_rate() -> None:
    """With the gradient's part taken out, the weights shrink by (1 − λ) a step whatever η is."""
    for lr in (2**-20, 2**-18):
        spec = toy(lrs=[lr], optimizer={"decay": "independent", "weight_decay": 0.01}, schedule={"warmup_steps": 0})
        state, _, engine = steps(spec, 10)
        shrunk = state.params["up"].norm() / engine.fresh_state().params["up"].norm()
        assert shrunk.item() == pytest.approx(0.99**10, rel=2e-3)


def test_clipping_is_per_model() -> None:
    free = toy(execution={"precision": "fp64"})
    limit = 0.05
    clipped = toy(optimizer={"clip": limit}, execution={"precision": "fp64"})
    together = steps(clipped, 20)[1]
    for index in range(3):
        lone = steps(alone(clipped, index), 20)[1]
        torch.testing.assert_close(together[:, index], lone[:, 0], rtol=0, atol=1e-10)
    assert not torch.allclose(together, steps(free, 20)[1], atol=1e-6, rtol=0)
    grads = {"a": torch.tensor([[3.0, 4.0], [0.3, 0.4]])}
    assert clip_scales(gradient_norms(grads), 1.0).tolist() == pytest.approx([0.2, 1.0], rel=1e-5)


def test_rules_are_the_papers() -> None:
    spec = gpt2(width=256)
    main, table, gain = (rule_for(spec, name) for name in ("qkv", "positions", "gain_attn"))
    assert (main.beta1, main.beta2, main.eps, main.weight_decay, main.own_lr) == (0.95, 0.95, 1e-8, 0.1, None)
    assert (table.own_lr, table.beta1, table.beta2, table.eps) == (0.0036, 0.9, 0.95, 1e-8)
    assert table.weight_decay == 0.1
    assert (gain.weight_decay, gain.hyperball, gain.own_lr) == (0.0, False, None)
    hyper = gpt2(width=256, optimizer="adamh")
    assert rule_for(hyper, "embed").weight_decay == 0
    assert not rule_for(hyper, "embed").hyperball
    assert not rule_for(hyper, "gain_final").hyperball


def test_presets_carry_the_papers_values() -> None:
    spec = gpt2(width=2048)
    assert [math.log2(lr) for lr in spec.lrs] == list(range(-15, -6))
    assert [math.log2(lr) for lr in gpt2(width=256, optimizer="adamh").lrs] == list(range(-11, -6))
    assert (spec.batch_sequences, spec.model.context, spec.batch_tokens) == (512, 1024, 524288)
    assert (spec.schedule.warmup_steps, spec.schedule.decay_steps) == (1000, 5000)
    assert (spec.horizons[0], spec.horizons[-1], spec.eval_tokens) == (10_000, 200_000, 10_000_000)
    assert spec.optimizer.clip is None
    assert round(spec.model.params / 1e6, 1) == 707.0
    assert len(rope(width=128).lrs) == 11
    assert octaves(-2, -1, per_octave=2) == pytest.approx((0.25, 2**-1.5, 0.5))


def test_chunked_head_equals_cross_entropy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHUNK_ELEMENTS, "cpu", 2 * 11 * 4)
    torch.manual_seed(0)
    hidden = torch.randn(2, 13, 5, dtype=torch.float64, requires_grad=True)
    embed = torch.randn(2, 11, 5, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, 11, (13,))
    with torch.no_grad():
        loss, *mine = losses_and_grads(hidden, embed, targets, total=26)
        summed = summed_losses(hidden, embed, targets)
    logits = hidden @ embed.mT
    expected = torch.stack([torch.nn.functional.cross_entropy(x, targets, reduction="sum") for x in logits])
    theirs = torch.autograd.grad(expected.sum() / 26, (hidden, embed))
    torch.testing.assert_close(loss, expected / 26)
    torch.testing.assert_close(summed, expected)
    for left, right in zip(mine, theirs, strict=True):
        torch.testing.assert_close(left, right)
