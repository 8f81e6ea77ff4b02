"""The recursion under schedules: against closed form, plain loop, simulated walk, and its coarse form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etastar.errors import SpecError
from etastar.theory.coarse import coarse_run
from etastar.theory.dynamics import update_dot_weight, weight_norm_squared_two_state
from etastar.theory.recursion import linear_scan, run_recursion
from etastar.theory.schedules import Schedule, factors_of

MATRIX = {"beta1": 0.9, "weight_norm0": 2.0, "update_norm": 12.0}
LRS = 2.0 ** -np.arange(5.0, 17.0)


def test_scan_is_the_loop():
    random = np.random.default_rng(0)
    for steps in (1, 2, 3, 17, 100, 101):
        factor, added = random.uniform(0.5, 1.0, (steps, 3)), random.standard_normal((steps, 3))
        x = start = random.standard_normal(3)
        loop = [x]
        for a, f in zip(factor, added, strict=True):
            x = a * x + f
            loop.append(x)
        np.testing.assert_allclose(linear_scan(factor, added, start), loop, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_constant_lr_is_the_closed_form(weight_decay):
    run = run_recursion(np.ones(20_000), lr=LRS, weight_decay=weight_decay, **MATRIX)
    t = np.arange(20_001)[:, None]
    closed = weight_norm_squared_two_state(t, lr=LRS, weight_decay=weight_decay, **MATRIX)
    np.testing.assert_allclose(run.weight_norm_squared, closed, rtol=1e-10)
    dots = update_dot_weight(t, lr=LRS, weight_decay=weight_decay, beta1=0.9, update_norm=12.0)
    np.testing.assert_allclose(run.update_dot_weight, dots, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("independent", [False, True])
def test_any_schedule_and_measured_update_norms_are_the_plain_loop(independent):
    factors = Schedule(steps=700, warmup_steps=50, decay_steps=200).factors()
    profile = 12.0 * (1.0 + 0.3 * np.sin(np.arange(700) / 40.0))
    decay = 0.01 if independent else 0.5
    run = run_recursion(
        factors,
        lr=0.02,
        weight_decay=decay,
        beta1=0.9,
        weight_norm0=2.0,
        update_norm=1.0,
        update_profile=profile,
        independent_decay=independent,
    )
    squared, dot = 4.0, 0.0
    for t, factor in enumerate(factors):
        rate, size = 0.02 * factor, profile[t]
        assert run.weight_norm_squared[t] == pytest.approx(squared, rel=1e-12)
        assert run.update_dot_weight[t] == pytest.approx(dot, rel=1e-12)
        alpha = 1.0 - decay * (factor if independent else rate)
        squared = alpha**2 * squared + (rate * size) ** 2 - 2 * alpha * rate * dot
        dot = 0.9 * (alpha * dot - rate * size**2) * (profile[min(t + 1, 699)] / size)


@pytest.mark.parametrize("kind", ["wsd", "cosine"])
def test_schedules_follow_a_simulated_walk(walk, kind):
    factors = Schedule(kind=kind, steps=500, warmup_steps=80, decay_steps=150 * (kind == "wsd")).factors()
    rest = {"lr": 0.02, "weight_decay": 0.4, **MATRIX}
    walks = [walk(factors, **rest, dimension=2000, seed=seed) for seed in range(5)]
    run = run_recursion(factors, **rest)
    norm = np.mean([one.weight_norm for one in walks], axis=0)
    assert np.max(np.abs(norm / run.weight_norm[:-1] - 1.0)) < 0.02
    mean = np.mean([one.eff_lr.mean() for one in walks])
    assert mean == pytest.approx(float(run.mean_eff_lr), rel=0.01)


def test_columns_do_not_depend_on_their_neighbours(monkeypatch):
    import etastar.theory.recursion as module

    factors = Schedule(steps=300, warmup_steps=20, decay_steps=100).factors()
    whole = run_recursion(
        factors,
        lr=LRS[:, None],
        weight_decay=0.1,
        beta1=np.array([0.9, 0.5]),
        weight_norm0=2.0,
        update_norm=12.0,
    )
    monkeypatch.setattr(module, "_CHUNK_CELLS", 300 * 5)
    cut = run_recursion(
        factors,
        lr=LRS[:, None],
        weight_decay=0.1,
        beta1=np.array([0.9, 0.5]),
        weight_norm0=2.0,
        update_norm=12.0,
    )
    assert whole.eff_lr.shape == (300, 12, 2)
    np.testing.assert_array_equal(whole.eff_lr, cut.eff_lr)


@pytest.mark.parametrize("kind", ["wsd", "cosine", "constant"])
@pytest.mark.parametrize(("steps", "warmup", "decay"), [(1000, 100, 200), (20_000, 1000, 5000)])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_coarse_mean_is_within_two_parts_in_a_thousand(kind, steps, warmup, decay, weight_decay):
    schedule = Schedule(kind=kind, steps=steps, warmup_steps=warmup, decay_steps=decay * (kind == "wsd"))
    for beta1 in (0.0, 0.95):
        for norm in (0.5, 5.0, 50.0):
            rest = {"lr": LRS, "weight_decay": weight_decay, "beta1": beta1, "weight_norm0": norm}
            exact = run_recursion(schedule, update_norm=40.0, **rest)
            coarse = coarse_run(schedule, update_norm=40.0, **rest)
            np.testing.assert_allclose(coarse.mean_eff_lr, exact.mean_eff_lr, rtol=2e-3)
            np.testing.assert_allclose(coarse.final_weight_norm, exact.weight_norm[-1], rtol=5e-3)


@settings(max_examples=25, deadline=None)
@given(
    log2_lr=st.floats(-16, -7),
    weight_decay=st.floats(0.0, 0.3),
    beta1=st.floats(-0.5, 0.97),
    log2_norm=st.floats(-3, 6),
    steps=st.integers(500, 4000),
)
def test_coarse_mean_anywhere(log2_lr, weight_decay, beta1, log2_norm, steps):
    schedule = Schedule(steps=steps, warmup_steps=steps // 10, decay_steps=steps // 5)
    rest = {"lr": 2.0**log2_lr, "weight_decay": weight_decay, "beta1": beta1}
    exact = run_recursion(schedule, weight_norm0=2.0**log2_norm, update_norm=40.0, **rest)
    coarse = coarse_run(schedule, weight_norm0=2.0**log2_norm, update_norm=40.0, **rest)
    assert coarse.mean_eff_lr == pytest.approx(float(exact.mean_eff_lr), rel=5e-3)


def test_coarse_mean_with_a_moving_update_norm():
    schedule = Schedule(steps=6000, warmup_steps=300, decay_steps=1000)
    rest = {"lr": LRS, "weight_decay": 0.1, "beta1": 0.9, "weight_norm0": 5.0, "update_norm": 40.0}
    profile = (1.0 + np.arange(6000) / 500.0) ** -0.2
    exact = run_recursion(schedule, update_profile=profile, **rest)
    coarse = coarse_run(schedule, update_profile=profile, **rest)
    np.testing.assert_allclose(coarse.mean_eff_lr, exact.mean_eff_lr, rtol=5e-3)
    flat = coarse_run(schedule, **rest)
    assert np.max(np.abs(flat.mean_eff_lr / exact.mean_eff_lr - 1.0)) > 0.05


def test_schedule_conventions():
    factors = Schedule(steps=10, warmup_steps=4, decay_steps=3).factors()
    np.testing.assert_allclose(factors, [0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 2 / 3, 1 / 3])
    assert (
        Schedule(steps=10, warmup_steps=4, decay_steps=3).plateau().tolist() == [False] * 4 + [True] * 3 + [False] * 3
    )
    cosine = Schedule(kind="cosine", steps=100).factors()
    assert cosine[0] == 1.0
    assert cosine[50] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"steps": 100, "warmup_steps": 200}, "warm-up"),
        ({"steps": 100, "warmup_steps": 60, "decay_steps": 60}, "decay"),
        ({"steps": 0}, "steps"),
        ({"steps": 10.5}, "whole number"),
        ({"steps": 10, "warmup_steps": -1}, "warmup_steps"),
    ],
)
def test_impossible_schedules_are_refused_in_words(given, word):
    with pytest.raises(SpecError, match=word):
        Schedule.model_validate(given)


@pytest.mark.parametrize("bad", [np.ones((2, 2)), np.array([]), np.zeros(3), np.array([1.0, np.nan])])
def test_bad_factor_arrays_are_refused(bad):
    with pytest.raises(SpecError, match="schedule"):
        factors_of(bad)


def test_a_profile_of_another_length_is_refused():
    with pytest.raises(SpecError, match="update_profile"):
        run_recursion(np.ones(5), lr=0.1, weight_decay=0.0, update_profile=np.ones(4), **MATRIX)
