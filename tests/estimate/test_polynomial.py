"""Minimisers in closed form: against numpy, and exact where the loss is a polynomial."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from etastar.estimate.polynomial import make_design, minimiser, polynomial


@settings(max_examples=200, deadline=None)
@given(st.floats(-3, 3), st.floats(0.01, 2), st.floats(-0.05, 0.05), st.floats(-5, 5), st.floats(0.01, 10))
def test_finds_the_minimum_of_a_cubic_anywhere(at, bend, skew, floor, scale):
    # floor + bend·(x − at)² + skew·(x − at)³: a minimum at `at`, the maximum 2·bend/(3·skew) away
    assume(abs(skew) < 1e-9 or abs(2 * bend / (3 * skew)) > 0.5)
    shifted = np.poly1d([skew, bend, 0, floor])(np.poly1d([1, -at / scale]) * scale)
    coefficients = np.zeros(4)
    coefficients[: len(shifted.coeffs)] = shifted.coeffs[::-1]
    u, curve = minimiser(coefficients)
    assert u * scale == pytest.approx(at, abs=1e-5)
    assert curve / scale**2 == pytest.approx(2 * bend, rel=1e-5)


def test_no_minimum_is_nan_not_a_guess():
    for coefficients in ([0.0, 1.0, 0.0, 1.0], [0.0, 0.0, -1.0, 0.0], [0.0, 1.0, 0.0, 0.0]):
        assert np.isnan(minimiser(np.array(coefficients))[0])


def test_quartic_follows_from_its_start():
    coefficients = np.array([0.0, 0.0, 0.5, 0.1, 0.05])
    u, _ = minimiser(coefficients, start=np.array(0.3))
    assert u == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("degree", [2, 3, 4])
def test_operator_equals_weighted_polyfit(degree):
    rng = np.random.default_rng(0)
    x, y = np.sort(rng.uniform(-15, -7, (5, 9)), axis=1), rng.normal(size=(5, 9))
    weight = rng.uniform(0.1, 2, (5, 9))
    design = make_design(x, weight, degree)
    for k in range(5):
        expected = np.polyval(np.polyfit(x[k], y[k], degree, w=np.sqrt(weight[k])), x[k])
        np.testing.assert_allclose(design.fitted(y)[k], expected, atol=1e-7)


def test_points_of_weight_zero_are_not_there():
    x = np.array([[-12.0, -11, -10, -9, 99.0]])
    y = np.array([[4.0, 1.0, 0.5, 2.0, -50.0]])
    design = make_design(x, np.array([[1.0, 1, 1, 1, 0]]), 2)
    expected = np.polyfit(x[0, :4], y[0, :4], 2)
    best, _ = design.minimiser(design.coefficients(y))
    assert best[0] == pytest.approx(-expected[1] / (2 * expected[0]))
    assert design.high[0] == -9


def test_sensitivity_is_the_derivative_of_the_minimiser():
    x = np.arange(-13.0, -7)[None]
    y = 0.03 * (x + 10.2) ** 2 - 0.002 * (x + 10.2) ** 3
    design = make_design(x, np.ones_like(x), 3)
    best, bend = design.minimiser(design.coefficients(y))
    jacobian = design.sensitivity(best, bend)[0]
    for k in range(x.shape[1]):
        moved = y.copy()
        moved[0, k] += 1e-7
        numeric = (design.minimiser(design.coefficients(moved))[0][0] - best[0]) / 1e-7
        assert jacobian[k] == pytest.approx(numeric, rel=1e-4, abs=1e-6)


def test_horner():
    assert polynomial(np.array(2.0), np.array([1.0, 2.0, 3.0])) == 17.0
