"""Closed forms against the process they describe, against each other, and against the paper's numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etastar.errors import SpecError
from etastar.theory.dynamics import (
    approx_eff_lr,
    approx_weight_norm_squared,
    decay_time,
    eff_lr_of_step,
    equilibrium_eff_lr,
    equilibrium_weight_norm,
    exact_eff_lr,
    next_weight_norm_squared,
    no_decay_asymptote,
    pre_equilibrium_eff_lr,
    update_dot_weight,
    weight_norm_squared,
    weight_norm_squared_two_state,
)
from etastar.theory.letters import beta1_of_factor, correlation_factor, decay_per_step

MATRIX = {"beta1": 0.9, "weight_norm0": 2.0, "update_norm": 12.0}


def test_the_paper_s_decay_time():
    assert decay_time(2.0**-16, 0.1) == pytest.approx(327_680, rel=1e-12)
    assert np.isinf(decay_time(2.0**-16, 0.0))
    assert decay_time(2.0**-16, 0.001, independent_decay=True) == 500


@pytest.mark.parametrize(("weight_decay", "independent"), [(0.3, False), (0.0, False), (0.004, True)])
def test_closed_forms_follow_a_simulated_walk(walk, weight_decay, independent):
    lr, steps, seeds = 0.02, 400, range(6)
    common = {"lr": lr, "weight_decay": weight_decay, "independent_decay": independent}
    walks = [walk(np.ones(steps), **common, **MATRIX, dimension=2000, seed=seed) for seed in seeds]
    t = np.arange(steps)
    squared = np.mean([one.weight_norm**2 for one in walks], axis=0)
    predicted = weight_norm_squared_two_state(t, **common, **MATRIX)
    assert np.max(np.abs(squared / predicted - 1.0)) < 0.03
    late = t > 60
    # the closed recursion has its full correlation from the first step on: too high by at most
    # 2β₁/(1−β₁)² steps' worth of independent growth, i.e. a share of that over κt
    missing = 2 * 0.9 / (1 - 0.9) ** 2 / (19.0 * t[late])
    closed = weight_norm_squared(t, **common, **MATRIX)[late] / squared[late] - 1.0
    assert np.all(closed > -0.03)
    assert np.all(closed < missing / (1 - missing) + 0.03)
    dots = np.mean([one.update_dot_weight for one in walks], axis=0)
    expected = update_dot_weight(t, beta1=0.9, update_norm=12.0, **common)
    error = np.std([one.update_dot_weight for one in walks], axis=0) / np.sqrt(len(walks))
    assert np.mean(np.abs(dots - expected)) < 3 * np.mean(error)
    assert abs(np.mean((dots - expected)[late]) / expected[-1]) < 0.05
    rates = np.mean([one.eff_lr for one in walks], axis=0)
    two_state = eff_lr_of_step(
        predicted,
        expected,
        lr=lr,
        delta=decay_per_step(lr, weight_decay, independent_decay=independent),
        update_norm=12.0,
    )
    assert np.max(np.abs(rates / two_state - 1.0)) < 0.06
    assert abs(np.mean(rates / two_state) - 1.0) < 0.01


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_the_solution_is_the_recursion_unrolled(weight_decay):
    squared = MATRIX["weight_norm0"] ** 2
    rest = {"lr": 0.01, "weight_decay": weight_decay, "beta1": 0.9, "update_norm": 12.0}
    for _ in range(300):
        squared = next_weight_norm_squared(squared, **rest)
    assert weight_norm_squared(300, weight_norm0=2.0, **rest) == pytest.approx(float(squared), rel=1e-12)


@given(
    log2_lr=st.floats(-16, -5),
    weight_decay=st.floats(0.0, 1.0),
    beta1=st.floats(-0.9, 0.99),
    steps=st.integers(0, 60),
)
def test_two_state_solution_is_the_pair_unrolled(log2_lr, weight_decay, beta1, steps):
    lr = 2.0**log2_lr
    alpha, squared, dot = 1.0 - lr * weight_decay, 4.0, 0.0
    for _ in range(steps):
        squared, dot = (
            alpha**2 * squared + (12.0 * lr) ** 2 - 2 * alpha * lr * dot,
            beta1 * (alpha * dot - lr * 144.0),
        )
    rest = {"lr": lr, "weight_decay": weight_decay, "beta1": beta1, "update_norm": 12.0}
    assert weight_norm_squared_two_state(steps, weight_norm0=2.0, **rest) == pytest.approx(squared, rel=1e-9)
    assert update_dot_weight(steps, **rest) == pytest.approx(dot, rel=1e-9, abs=1e-12)


def test_two_state_solution_where_alpha_equals_beta1():
    rest = {"weight_decay": 1.0, "weight_norm0": 2.0, "update_norm": 3.0}
    at = weight_norm_squared_two_state(37, lr=0.125, beta1=0.875, **rest)
    near = weight_norm_squared_two_state(37, lr=0.125, beta1=0.875 + 1e-7, **rest)
    assert at == pytest.approx(float(near), rel=1e-5)


def test_no_digits_are_lost_at_tiny_lrs():
    """Against exact rational arithmetic at η = 2⁻¹⁶, where the paper's 2 − 2cos has lost its digits."""
    lr, decay, beta, w0, u, steps = (Fraction(x) for x in (2.0**-16, 0.125, 0.9375, 16.0, 4.0, 3))
    alpha, squared = 1 - lr * decay, w0**2
    for _ in range(int(steps)):
        squared = alpha**2 * squared + lr**2 * u**2 * (1 + alpha * beta) / (1 - alpha * beta)
    dot = -lr * beta * u**2 / (1 - alpha * beta)
    across = lr**2 * (u**2 - dot**2 / squared)  # ‖Δ⊥‖²
    along = alpha * squared - lr * dot
    tangent_squared = across / (along**2 / squared)
    exact = 2.0 * np.sin(0.5 * np.arctan(np.sqrt(float(tangent_squared))))
    given = {"lr": 2.0**-16, "weight_decay": 0.125, "beta1": 0.9375, "weight_norm0": 16.0, "update_norm": 4.0}
    assert exact_eff_lr(3, **given) == pytest.approx(exact, rel=1e-13)


def test_exact_form_equals_the_paper_s_cosine_form():
    rest = {"lr": 0.05, "weight_decay": 0.2, "beta1": 0.9, "weight_norm0": 20.0, "update_norm": 12.0}
    t = np.arange(5, 200)
    now, after = (np.sqrt(weight_norm_squared(s, **rest)) for s in (t, t + 1))
    alpha = 1 - 0.05 * 0.2
    pull = 0.05**2 * 0.9 / (1 - alpha * 0.9) * 144.0
    paper = np.sqrt(2 * (1 - alpha * now / after - pull / (now * after)))
    np.testing.assert_allclose(exact_eff_lr(t, **rest), paper, rtol=1e-9)


def test_exact_form_is_nan_where_no_vectors_have_such_a_product():
    assert np.isnan(exact_eff_lr(0, lr=0.1, weight_decay=0.1, beta1=0.95, weight_norm0=0.01, update_norm=1.0))


def test_both_asymptotes_and_their_slopes():
    lrs = np.array([2.0**-12, 2.0**-11])
    early = approx_eff_lr(1, lr=lrs, weight_decay=0.1, beta1=0.9, weight_norm0=50.0, update_norm=1.0)
    np.testing.assert_allclose(early, pre_equilibrium_eff_lr(lr=lrs, weight_norm0=50.0, update_norm=1.0), rtol=1e-3)
    assert np.log2(early[1] / early[0]) == pytest.approx(1.0, abs=1e-3)
    late = approx_eff_lr(10**7, lr=lrs, weight_decay=0.1, beta1=0.9, weight_norm0=50.0, update_norm=1.0)
    np.testing.assert_allclose(late, equilibrium_eff_lr(lr=lrs, weight_decay=0.1, beta1=0.9), rtol=1e-9)
    assert 1.0 / np.log2(late[1] / late[0]) == pytest.approx(2.0, abs=1e-9)


def test_equilibrium_norm_is_where_the_norm_goes():
    rest = {"lr": 0.01, "weight_decay": 0.1, "beta1": 0.9, "update_norm": 12.0}
    end = np.sqrt(weight_norm_squared(10**6, weight_norm0=2.0, **rest))
    assert equilibrium_weight_norm(exact=True, **rest) == pytest.approx(float(end), rel=1e-9)
    assert equilibrium_weight_norm(**rest) == pytest.approx(float(end), rel=0.01)
    assert equilibrium_weight_norm(**rest) == pytest.approx(12.0 * np.sqrt(0.01 / 0.2 * 19.0))


@given(log2_lr=st.floats(-16, -6), weight_decay=st.floats(0.0, 0.5), t=st.integers(0, 10**6))
def test_approximation_is_close_for_small_decay(log2_lr, weight_decay, t):
    rest = {"lr": 2.0**log2_lr, "weight_decay": weight_decay, **MATRIX}
    exact, approx = weight_norm_squared(t, **rest), approx_weight_norm_squared(t, **rest)
    assert approx == pytest.approx(float(exact), rel=25 * 2.0**log2_lr * weight_decay + 1e-9)


def test_no_decay_law_and_its_asymptote():
    t = 10.0**8
    rate = approx_eff_lr(t, lr=0.1, weight_decay=0.0, beta1=0.95, weight_norm0=1.0, update_norm=1.0)
    assert rate == pytest.approx(float(no_decay_asymptote(t, beta1=0.95)), rel=1e-6)
    assert approx_eff_lr(100, lr=0.1, weight_decay=1e-14, beta1=0.95, weight_norm0=1.0, update_norm=1.0) == (
        pytest.approx(1.0 / np.sqrt(39.0 * 100 + 100.0), rel=1e-9)
    )


@given(st.floats(-0.99, 0.99))
def test_factor_and_beta_are_inverse(beta1):
    assert beta1_of_factor(correlation_factor(beta1)) == pytest.approx(beta1, abs=1e-12)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (
            lambda: equilibrium_weight_norm(lr=0.1, weight_decay=0.0, beta1=0.9, update_norm=1.0),
            "no equilibrium",
        ),
        (lambda: equilibrium_eff_lr(lr=0.1, weight_decay=0.0, beta1=0.9), "no equilibrium"),
        (lambda: decay_time(0.0, 0.1), "lr"),
        (lambda: decay_time(float("nan"), 0.1), "lr"),
        (lambda: decay_time(2.0, 0.6), "below 1"),
        (lambda: decay_time(0.1, -0.1), "weight_decay"),
        (lambda: correlation_factor(1.0), "beta1"),
        (lambda: no_decay_asymptote(-1, beta1=0.9), "t"),
    ],
)
def test_impossible_values_are_named(call, word):
    with pytest.raises(SpecError, match=word) as caught:
        call()
    assert caught.value.hint
