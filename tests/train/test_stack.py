"""Is a stack of K models the same as K separate models?"""

from __future__ import annotations

import pytest
import torch
from toys import CORPUS, alone, steps, toy

from etastar.train.optim import step_table

CASES = [
    ("fp64", 200, 1e-10, False),
    ("fp32", 200, 1e-3, False),
    ("fp32", 1, 1e-6, False),
    ("fp32", 1, 1e-6, True),
    ("fp64", 40, 1e-10, True),
    pytest.param("fp64", 200, 1e-10, True, marks=pytest.mark.slow),
    pytest.param("fp32", 200, 1e-3, True, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("precision", "count", "tolerance", "gpt2"), CASES)
def test_stacked_equals_separate(precision: str, count: int, tolerance: float, gpt2: bool) -> None:
    spec = toy(gpt2=gpt2, lrs=[2**-10, 2**-7], execution={"precision": precision})
    together, losses, _ = steps(spec, count)
    for index in range(len(spec.lrs)):
        single, lone_losses, _ = steps(alone(spec, index), count)
        torch.testing.assert_close(losses[:, index], lone_losses[:, 0], rtol=0, atol=tolerance)
        for name, weight in single.params.items():
            torch.testing.assert_close(together.params[name][index], weight[0], rtol=0, atol=tolerance)
        means, lone_means = together.tally.means()[0], single.tally.means()[0]
        torch.testing.assert_close(means[index], lone_means[0], rtol=max(tolerance, 1e-9), atol=0)


@pytest.mark.parametrize("kind", ["adam", "adamh", "muonh"])
def test_stacked_equals_separate_for_every_optimizer(kind: str) -> None:
    spec = toy(optimizer={"kind": kind}, execution={"precision": "fp64"})
    _, losses, _ = steps(spec, 30)
    for index in range(len(spec.lrs)):
        _, lone, _ = steps(alone(spec, index), 30)
        torch.testing.assert_close(losses[:, index], lone[:, 0], rtol=0, atol=1e-10)


def test_models_of_a_stack_start_equal_and_as_alone() -> None:
    spec = toy()
    _, losses, engine = steps(spec, 1)
    assert len(set(losses[0].tolist())) == 1
    fresh = engine.fresh_state().params
    lone = steps(alone(spec, 1), 1)[2].fresh_state().params
    for name, weight in fresh.items():
        assert torch.equal(weight[1], lone[name][0])
        assert torch.equal(weight[0], weight[2])


def test_seed_changes_weights_and_data() -> None:
    one, other = steps(toy(), 1)[1], steps(toy(seed=1), 1)[1]
    assert not torch.equal(one, other)
    sizes = {"step": 0, "sequences": 4, "length": 16}
    assert (CORPUS.batch(seed=0, **sizes) != CORPUS.batch(seed=1, **sizes)).any()


@pytest.mark.parametrize("gpt2", [False, True])
def test_micro_batches_change_nothing_but_rounding(gpt2: bool) -> None:
    whole = steps(toy(gpt2=gpt2, execution={"precision": "fp64"}), 20)[1]
    parts = steps(toy(gpt2=gpt2, execution={"precision": "fp64", "micro_batch": 3}), 20)[1]
    torch.testing.assert_close(whole, parts, rtol=0, atol=1e-10)


def test_training_learns_the_language() -> None:
    losses = steps(toy(lrs=[2**-6]), 150)[1]
    assert losses[-10:].mean() < losses[:5].mean() - 0.5


@pytest.mark.parametrize("gpt2", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_step_traces_as_one_graph(gpt2: bool) -> None:
    """torch.compile on CUDA rests on this: no graph break in the model, the head or the optimizer."""
    spec = toy(gpt2=gpt2, execution={"precision": "fp64"})
    _, expected, plain = steps(spec, 3)
    engine = type(plain)(spec, device=torch.device("cpu"), micro_batch=10**6)
    for name in ("_errors", "_norms", "_move"):
        traced = torch.compile(getattr(engine, name), backend="aot_eager", fullgraph=True, dynamic=False)
        setattr(engine, name, traced)
    engine._model.hidden = torch.compile(engine._model.hidden, backend="aot_eager", fullgraph=True, dynamic=False)
    state, seen = engine.fresh_state(), []
    table = step_table(spec, start=0, stop=3, horizon=None, device=engine.device)
    for step in range(3):
        rows = CORPUS.batch(seed=0, step=step, sequences=4, length=16)
        seen.append(engine.step(state, torch.from_numpy(rows), table[step]).loss)
    torch.testing.assert_close(torch.stack(seen), expected, rtol=0, atol=1e-12)
