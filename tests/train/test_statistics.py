"""Is η_eff what the paper defines, to its last digits?"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import CORPUS, steps, toy

from etastar.train.engine import Engine
from etastar.train.optim import matrix_names, step_table
from etastar.train.statistics import STATISTICS, Tally, effective_lr, step_statistics


def _definition(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    before, after = before.double(), after.double()
    norm = torch.linalg.vector_norm
    turned = after / norm(after, dim=(-2, -1), keepdim=True) - before / norm(before, dim=(-2, -1), keepdim=True)
    return norm(turned, dim=(-2, -1))


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), log2_size=st.integers(-20, 2), radial=st.floats(-0.9, 2))
def test_equals_the_definition_in_float64(seed: int, log2_size: int, radial: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(2, 3, 6, 5, generator=generator, dtype=torch.float64)
    step = 2.0**log2_size * (torch.randn(2, 3, 6, 5, generator=generator, dtype=torch.float64) + radial * weight)
    seen = step_statistics(weight, weight, weight, step)
    torch.testing.assert_close(seen.eff_lr, _definition(weight, weight + step), rtol=1e-7, atol=1e-15)


@pytest.mark.parametrize("log2_lr", [-16, -12])
def test_fp32_run_agrees_with_a_float64_run_at_tiny_rates(log2_lr: int) -> None:
    """A step of a real model in fp32 at η = 2^-16, against the same step in float64 by the definition."""
    wide = toy(lrs=[2.0**log2_lr], schedule={"warmup_steps": 0}, execution={"precision": "fp64"})
    narrow = toy(lrs=[2.0**log2_lr], schedule={"warmup_steps": 0})
    state, _, engine = steps(wide, 3)
    before = {name: weight.detach().clone() for name, weight in state.params.items()}
    row = step_table(wide, start=3, stop=4, horizon=None, device=engine.device)[0]
    batch = torch.from_numpy(CORPUS.batch(seed=0, step=3, sequences=4, length=16))
    engine.step(state, batch, row)
    matrices = ("qkv", "out", "up", "down")
    expected = torch.cat([_definition(before[n], state.params[n].detach()).flatten(1) for n in matrices], 1)

    short, _, single = steps(narrow, 3)
    seen = single.step(short, batch, row).statistics[..., -1]
    torch.testing.assert_close(seen, expected, rtol=1e-3, atol=0)


def test_two_minus_two_cos_would_fail_here() -> None:
    """The reason for the form: the textbook one has no digits left in fp32."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(64, 64, generator=generator)
    step = 2.0**-16 * torch.randn(64, 64, generator=generator)
    after = weight + step
    textbook = (2 - 2 * (weight * after).sum() / (weight.norm() * after.norm())).clamp_min(0).sqrt()
    exact = _definition(weight.double(), weight.double() + step.double())
    good = effective_lr((weight**2).sum(), (weight * step).sum(), (step**2).sum())
    assert abs(good / exact - 1) < 1e-5
    assert abs(textbook / exact - 1) > 0.1


def test_no_step_no_turn() -> None:
    zero = torch.zeros(3)
    assert effective_lr(torch.ones(3), zero, zero).tolist() == [0, 0, 0]
    assert effective_lr(torch.tensor(4.0), torch.tensor(2.0), torch.tensor(1.0)).item() == pytest.approx(0, abs=1e-9)


def test_running_mean_covers_every_step_and_the_plateau_alone() -> None:
    spec = toy(schedule={"warmup_steps": 3, "decay_steps": 4}, horizons=[12])
    engine = Engine(spec, device=torch.device("cpu"), micro_batch=10**6)
    state = engine.fresh_state()
    table = step_table(spec, start=0, stop=12, horizon=12, device=engine.device)
    seen = []
    for step in range(12):
        rows = CORPUS.batch(seed=0, step=step, sequences=4, length=16)
        seen.append(engine.step(state, torch.from_numpy(rows), table[step]).statistics)
    eff_lr = torch.stack(seen)[..., STATISTICS.index("eff_lr")].mean(2)  # (steps, K)
    mean, plateau = state.tally.means()
    torch.testing.assert_close(mean, eff_lr.mean(0), rtol=1e-12, atol=0)
    torch.testing.assert_close(plateau, eff_lr[3:8].mean(0), rtol=1e-12, atol=0)


def test_q_k_v_are_three_matrices() -> None:
    spec = toy()
    names = matrix_names(spec)
    assert len(names) == 6 * spec.model.layers
    assert len(set(names)) == len(names)
    state, _, engine = steps(spec, 1)
    batch = torch.from_numpy(CORPUS.batch(seed=0, step=1, sequences=4, length=16))
    before = {name: w.detach().clone() for name, w in state.params.items()}
    row = step_table(spec, start=1, stop=2, horizon=None, device=engine.device)[0]
    seen = engine.step(state, batch, row).statistics
    assert seen.shape == (3, len(names), len(STATISTICS))
    place = names.index("blocks.1.v")
    alone = _definition(before["qkv"][:, 1, 2], state.params["qkv"][:, 1, 2].detach())
    torch.testing.assert_close(seen[:, place, -1], alone, rtol=1e-4, atol=0)
    norm = before["down"][:, 1, 0].norm(dim=(-2, -1)).double()
    torch.testing.assert_close(seen[:, names.index("blocks.1.down"), 0], norm, rtol=1e-6, atol=0)


def test_a_frozen_models_tally_stands_still() -> None:
    tally = Tally.zeros(2, torch.device("cpu"))
    one = torch.tensor(1.0, dtype=torch.float64)
    tally.add(torch.full((2, 4), 0.5, dtype=torch.float64), alive=torch.tensor([True, True]), on_plateau=one)
    broken = torch.tensor([[0.25] * 4, [math.nan] * 4], dtype=torch.float64)
    tally.add(broken, alive=torch.tensor([True, False]), on_plateau=one)
    assert tally.means()[0].tolist() == [0.375, 0.5]
