"""Laws: known slopes, known bends, and the verdict on straightness in worlds that differ."""

import numpy as np
import pytest

from etastar.estimate.cells import Quantity
from etastar.estimate.estimates import Options, estimate_group
from etastar.estimate.flags import Flag
from etastar.laws.loglinear import Axis, Line, all_laws, fit_law
from etastar.laws.loss import fit_loss_law
from etastar.scale import gpt_params
from etastar.simulate import Grid, Straight, World
from worlds import group_of, horizons, octaves


def laws_of(world, grid, seed=0):
    estimates = estimate_group(group_of(world, grid, seed), Options(replicates=200))
    return {q: all_laws(e) for q, e in estimates.items()}


def test_slopes_of_the_known_law_come_back():
    grid = Grid(widths=(256, 768, 2048), tokens=horizons(6), log2_lrs=octaves(-16, -6, 1))
    laws = laws_of(World(), grid)[Quantity.EFF_LR]
    for law in laws:
        if law.axis is Axis.DATA:
            assert law.slopes[0] == pytest.approx(-0.55, abs=1e-4)
            assert law.pearson_r == pytest.approx(-1.0, abs=1e-6)
            assert law.curved is False
        elif law.axis is Axis.MODEL:
            assert law.slopes[0] == pytest.approx(-0.15, abs=1e-4)
        else:
            assert law.slopes == pytest.approx((-0.55, -0.15), abs=1e-4)
    assert {law.axis for law in laws} == set(Axis)


@pytest.mark.parametrize("noise", [0.0, 0.0007])
def test_the_bent_law_is_flagged_and_the_straight_one_is_not(noise):
    # the paper's grid along D, one size
    grid = Grid(widths=(1024,))
    for straight in (Straight.EFF_LR, Straight.LR):
        world = World(straight=straight, trunk_noise=noise, branch_noise=noise)
        laws = laws_of(world, grid, seed=1)
        verdict = {q: next(law for law in found if law.axis is Axis.DATA) for q, found in laws.items()}
        bent = Quantity.LR if straight is Straight.EFF_LR else Quantity.EFF_LR
        straight_one = Quantity.EFF_LR if bent is Quantity.LR else Quantity.LR
        assert verdict[bent].curved, (straight, verdict[bent])
        assert not verdict[straight_one].curved, (straight, verdict[straight_one])
        assert Flag.CURVED in verdict[bent].flags


def test_two_cells_have_no_r_and_no_curvature_but_an_interval():
    grid = Grid(widths=(1024,), tokens=(5e9, 2e10), log2_lrs=octaves(-15, -7, 0.5))
    estimates = estimate_group(group_of(World(branch_noise=0.002), grid), Options(replicates=200))[Quantity.EFF_LR]
    law = fit_law(estimates, np.array([0, 1]), Axis.DATA, fixed=float(gpt_params(1024)))
    assert law.pearson_r is None
    assert law.curvature is None
    assert law.curved is None
    low, high = law.slope_intervals[0]
    assert low < law.slopes[0] < high
    assert Flag.TWO_CELLS in law.flags


def test_bend_leverage_is_the_miss_of_a_line_through_a_parabola():
    x = np.array([0.0, 1.0, 2.5, 3.0])
    line = Line.through(x[:, None], np.ones(4))
    target = np.array([5.0])
    missed = 25.0 - np.polyval(np.polyfit(x, x**2, 1), 5.0)
    assert line.bend_leverage(target) == pytest.approx(abs(missed))
    assert line.at(target) @ (2 * x + 1) == pytest.approx(11.0)


def test_loss_law_recovers_its_parameters_and_the_extra_tokens():
    tokens = 5e9 * 2.0 ** np.arange(0, 4.5, 0.5)
    loss = 2.1 + 410.7 * tokens**-0.28
    law = fit_loss_law(tokens, loss)
    assert law is not None
    assert law.identified
    assert law.gamma == pytest.approx(0.28, rel=0.02)
    assert law.floor == pytest.approx(2.1, abs=0.02)
    # a gap of what 30 % more data brings costs 30 % more data
    gap = float(2.1 + 410.7 * 5e10**-0.28 - (2.1 + 410.7 * 6.5e10**-0.28))
    assert float(law.extra_ratio(5e10, gap)) == pytest.approx(0.3, rel=0.03)
    assert float(law.extra_ratio(5e10, 0.0)) == 0.0
    assert np.isinf(law.extra_ratio(5e10, 10.0))


def test_loss_law_that_is_not_identified_uses_the_local_slope_and_says_so():
    tokens = np.array([1e10, 2e10, 4e10])
    law = fit_loss_law(tokens, 3 - 0.1 * np.log(tokens / 1e10))
    assert law is not None
    assert not law.identified
    assert float(law.extra_ratio(4e10, 0.01)) == pytest.approx(np.expm1(0.1), rel=1e-6)
    assert fit_loss_law([1e10], [3.0]) is None
    assert fit_loss_law([1e10, 2e10], [3.0, 3.1]) is None
