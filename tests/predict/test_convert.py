"""From η_eff back to η: the transient's two unknowns are found, and the polynomial stands in without them."""

import numpy as np
import pytest

from etastar.estimate.cells import EffColumn
from etastar.estimate.flags import Flag
from etastar.predict.convert import Conditions, MixedMap, PolynomialMap, TransientMap, fit_map, map_for
from etastar.scale import gpt_params
from etastar.simulate import Grid, World
from worlds import group_of, horizons, octaves

GRID = Grid(widths=(512, 1024), tokens=horizons(5), log2_lrs=octaves(-15, -7, 0.5))


@pytest.mark.parametrize("ratio", [0.05, 0.15, 0.4])
def test_the_transient_is_calibrated_from_the_runs_and_extrapolates(ratio):
    world = World(norm_ratio=ratio)
    group = group_of(world, GRID)
    found = fit_map(group.blocks[1], Conditions.of(group, EffColumn.MEAN), np.ones(5, bool))
    assert isinstance(found, TransientMap)
    assert 2**found.log2_norm_ratio == pytest.approx(ratio, rel=1e-3)
    assert 2**found.log2_correlation == pytest.approx(39, rel=1e-3)
    wanted = world.log2_optimal_eff_lr(gpt_params(1024), 1e11) + np.array([-0.5, 0.0, 0.5])
    np.testing.assert_allclose(found.log2_lr(wanted, 1e11), world.log2_lr_of(wanted, 1e11), atol=1e-3)


def test_two_horizons_are_enough_for_the_transient():
    world = World()
    group = group_of(world, GRID)
    found = fit_map(group.blocks[1], Conditions.of(group, EffColumn.MEAN), np.array([1, 1, 0, 0, 0], bool))
    wanted = world.log2_optimal_eff_lr(gpt_params(1024), np.array([1e11]))
    assert found is not None
    np.testing.assert_allclose(found.log2_lr(wanted, 1e11), world.log2_lr_of(wanted, 1e11), atol=2e-3)


def test_without_conditions_the_polynomial_is_near_inside_and_flagged():
    world = World()
    group = group_of(world, GRID)
    found = fit_map(group.blocks[0], None, np.ones(5, bool))
    assert isinstance(found, PolynomialMap)
    inside = world.log2_optimal_eff_lr(gpt_params(512), np.array([1e10]))
    np.testing.assert_allclose(found.log2_lr(inside, 1e10), world.log2_lr_of(inside, 1e10), atol=0.1)
    assert found.flags == (Flag.MEASURED_MAP,)


def test_a_size_without_runs_borrows_from_the_others_and_says_so():
    world = World()
    group = group_of(world, GRID)
    allowed = {b.params: np.ones(5, bool) for b in group.blocks}
    found = map_for(group, float(gpt_params(2048)), Conditions.of(group, EffColumn.MEAN), allowed)
    assert isinstance(found, MixedMap)
    assert Flag.MAP_ACROSS_PARAMS in found.flags
    wanted = world.log2_optimal_eff_lr(gpt_params(2048), np.array([2e10]))
    np.testing.assert_allclose(found.log2_lr(wanted, 2e10), world.log2_lr_of(wanted, 2e10), atol=2e-3)


def test_adamh_has_no_transient():
    group = group_of(World(), GRID)
    group.conditions["optimizer"] = "adamh"
    assert Conditions.of(group, EffColumn.MEAN) is None
