"""The surface: exact where its shape holds, less noisy than cells, and out of the way where it has no say."""

import numpy as np

from etastar.estimate.cells import Quantity
from etastar.estimate.estimates import Options, estimate_group
from etastar.estimate.surface import smooth, smoother
from etastar.simulate import Grid, Straight, World
from worlds import group_of, horizons, octaves

GRID = Grid(widths=(1024,), tokens=horizons(7), log2_lrs=octaves(-16, -6, 1))


def test_a_moving_cubic_is_recovered():
    world = World(straight=Straight.LR)
    found = estimate_group(group_of(world, GRID), Options(replicates=50, surface=True))[Quantity.LR]
    np.testing.assert_allclose(found.log2_values, world.log2_optimal_lr(found.params, found.tokens), atol=1e-6)


def test_it_averages_noise_over_horizons():
    world = World(straight=Straight.LR, branch_noise=0.004)
    error = {}
    for surface in (False, True):
        misses = []
        for seed in range(6):
            found = estimate_group(group_of(world, GRID, seed), Options(replicates=50, surface=surface))[Quantity.LR]
            misses.append(found.log2_values - world.log2_optimal_lr(found.params, found.tokens))
        error[surface] = np.sqrt(np.nanmean(np.square(misses)))
    assert error[True] < 0.8 * error[False]


def test_smoothing_is_a_projection_and_leaves_missing_points_alone():
    rng = np.random.default_rng(0)
    x = np.broadcast_to(np.arange(-14.0, -6), (5, 8))
    weight = rng.uniform(0.1, 1, x.shape)
    weight[2, 3] = 0
    matrix = smoother(x, weight, np.array(horizons(5)))
    y = rng.normal(size=x.shape)
    once = smooth(matrix, y)
    np.testing.assert_allclose(smooth(matrix, once), once, atol=1e-8)
    assert once[2, 3] == y[2, 3]


def test_too_few_horizons_means_no_surface():
    x = np.broadcast_to(np.arange(-14.0, -6), (2, 8))
    assert smoother(x, np.ones(x.shape), np.array([1e9, 2e9])) is None
    y = np.ones((3, 2, 8))
    assert smooth(None, y) is y
