"""Regimes, slopes and the predicted bend."""

from __future__ import annotations

import numpy as np
import pytest

from etastar.errors import InputError, SpecError
from etastar.theory.bend import bend, log_linear
from etastar.theory.dynamics import approx_eff_lr
from etastar.theory.planned import Optimizer, PlannedRun, mean_eff_lr, typed_matrices
from etastar.theory.regime import Regime, closed_form_slope, diagnose, local_slope, trust_in_words
from etastar.theory.schedules import Schedule

TYPED = typed_matrices(beta1=0.95)


def constant(steps: int, **rest) -> PlannedRun:
    return PlannedRun(schedule=Schedule(kind="constant", steps=steps), **rest)


def test_slopes_are_one_before_and_two_in_equilibrium():
    heavy = typed_matrices(beta1=0.95, init_std=1.0)
    assert local_slope(2.0**-14, run=constant(100), matrices=heavy) == pytest.approx(1.0, abs=0.01)
    assert local_slope(2.0**-6, run=constant(100_000), matrices=TYPED) == pytest.approx(2.0, abs=0.02)


def test_slope_exceeds_two_where_the_norm_has_outgrown_its_start():
    light = typed_matrices(beta1=0.95, init_std=1e-4)
    assert local_slope(2.0**-10, run=constant(500), matrices=light) > 5.0


@pytest.mark.parametrize("independent", [False, True])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_closed_form_slope_is_the_derivative(weight_decay, independent):
    decay = 0.001 * weight_decay if independent else weight_decay
    rest = {"weight_decay": decay, "beta1": 0.9, "weight_norm0": 2.0, "update_norm": 10.0}
    rest["independent_decay"] = independent
    lrs, t = 2.0 ** -np.arange(6.0, 14.0), np.array([[10.0], [1000.0], [100_000.0]])
    step = 1e-4
    rise = np.log(approx_eff_lr(t, lr=lrs * np.exp(step), **rest) / approx_eff_lr(t, lr=lrs * np.exp(-step), **rest))
    slope = closed_form_slope(t, lr=lrs, **rest)
    finite = rise > 1e-9
    np.testing.assert_allclose(slope[finite], (2 * step / rise)[finite], rtol=1e-4)


def test_diagnosis_names_each_regime():
    found = diagnose([2.0**-6, 2.0**-10, 2.0**-16], run=constant(20_000), matrices=TYPED)
    assert [one.regime for one in found] == [Regime.EQUILIBRIUM, Regime.EQUILIBRIUM, Regime.PRE_EQUILIBRIUM]
    assert found[2].decay_time == pytest.approx(327_680)
    assert found[2].relaxations == pytest.approx(20_000 / 327_680)
    assert found[0].timescale == pytest.approx(1.0 / (2.0**-6 * 0.1 * 20_000))
    (grown,) = diagnose(2.0**-6, run=constant(5000, weight_decay=0.0), matrices=TYPED)
    assert grown.regime is Regime.GROWTH
    assert np.isinf(grown.decay_time)
    (fixed,) = diagnose(0.01, run=constant(10, optimizer=Optimizer.ADAMH), matrices=None)
    assert fixed.regime is Regime.FIXED_NORM
    assert fixed.slope == 1.0
    with pytest.raises(SpecError, match="no weight norms"):
        diagnose(0.01, run=constant(10), matrices=None)


def test_trust_follows_the_slopes():
    run = constant(60_000, weight_decay=1.0)
    swept = diagnose([2.0**-5, 2.0**-6], run=run, matrices=TYPED)
    (near,) = diagnose(2.0**-7, run=run, matrices=TYPED)
    (far,) = diagnose(2.0**-20, run=run, matrices=TYPED)
    assert trust_in_words(swept, near).startswith("yes")
    assert trust_in_words(swept, far).startswith("no")


def bent(init: float, slope: float, start_lr: float, steps: list[int], weight_decay: float = 0.1):
    matrices = typed_matrices(beta1=0.95, init_std=init)
    run = constant(steps[0], weight_decay=weight_decay)
    level = np.log2(mean_eff_lr(start_lr, run=run, matrices=matrices)) - slope * np.log2(steps[0])
    return bend(
        swept_steps=steps[:-1],
        target_steps=steps[-1],
        log2_eff_lr_of=log_linear(slope, float(level)),
        run_of=lambda t: constant(t, weight_decay=weight_decay),
        matrices_of=lambda _: matrices,
    )


def test_a_law_that_stays_in_equilibrium_does_not_bend():
    found = bent(0.02, -0.1, 2.0**-5, [20_000, 40_000, 80_000, 160_000], weight_decay=1.0)
    assert abs(found.octaves_at_target) < 0.02
    assert found.line_slope == pytest.approx(-0.2, abs=0.02)
    assert "can be trusted" in found.words


def test_leaving_equilibrium_bends_up_and_entering_it_down():
    # η_eff ∝ T^-0.9 makes η·T shrink: from slope 2 (equilibrium) to slope 1: η* falls less steeply
    up = bent(0.05, -0.9, 2.0**-8, [2000, 4000, 8000, 64_000], weight_decay=1.0)
    assert up.relaxations[-1] < up.relaxations[0]
    assert up.octaves_at_target > 0.3
    assert up.curvature > 0
    assert "bends up" in up.words
    assert "cannot be trusted" in up.words
    # η_eff ∝ T^-0.2 makes η·T grow: from slope 1 to slope 2: η* falls more steeply
    down = bent(0.05, -0.2, 2.0**-11, [400, 800, 1600, 40_000], weight_decay=1.0)
    assert down.relaxations[-1] > down.relaxations[0]
    assert down.octaves_at_target < -0.1
    assert "bends down" in down.words


def test_one_horizon_makes_no_line():
    with pytest.raises(InputError, match="no line"):
        bent(0.02, -0.3, 2.0**-8, [1000, 2000])
