"""Optima: exact where the loss is a polynomial, honest where it is not, and an outcome in every case."""

import math

import numpy as np
import pytest

from etastar.errors import InputError
from etastar.estimate.cells import Quantity, build_groups
from etastar.estimate.curve import curve_of
from etastar.estimate.definitions import eff_lr_at_optimal_lr, flag_disagreements
from etastar.estimate.estimates import Options, estimate_group
from etastar.estimate.flags import Flag
from etastar.estimate.optimum import Status
from etastar.estimate.weights import FitChoice, settle
from etastar.records import runs_table
from etastar.simulate import Grid, Shape, Straight, World
from worlds import group_of, horizons, octaves

PAPER = Options(choice=FitChoice(degree=3, window="all", own_coordinate=True), replicates=60)
SMALL = Grid(widths=(512, 1024, 2048), tokens=horizons(6), log2_lrs=octaves(-16, -6, 1))


def truths(world, estimates):
    law = world.log2_optimal_lr if estimates.quantity is Quantity.LR else world.log2_optimal_eff_lr
    return law(estimates.params, estimates.tokens)


@pytest.mark.parametrize("choice", [FitChoice(), PAPER.choice, FitChoice(window=2.5, degree=3, own_coordinate=True)])
def test_a_loss_cubic_in_the_fitted_variable_is_recovered_exactly(choice):
    in_eff, in_lr = World(), World(straight=Straight.LR)
    options = Options(choice=choice, replicates=50)
    eff = estimate_group(group_of(in_eff, SMALL), options)[Quantity.EFF_LR]
    np.testing.assert_allclose(eff.log2_values, truths(in_eff, eff), atol=1e-6)
    lr = estimate_group(group_of(in_lr, SMALL), options)[Quantity.LR]
    np.testing.assert_allclose(lr.log2_values, truths(in_lr, lr), atol=1e-6)


def test_the_default_beats_the_full_window_cubic_where_no_cubic_is_right():
    for shape in (Shape.LINEX, Shape.TWO_SIDED):
        world = World(shape=shape, asymmetry=0.6, branch_noise=0.001)
        group = group_of(world, SMALL, seed=5)
        errors = {}
        for name, options in (("default", Options(replicates=50)), ("paper", PAPER)):
            found = estimate_group(group, options)[Quantity.LR]
            errors[name] = np.sqrt(np.nanmean((found.log2_values - truths(world, found)) ** 2))
        assert errors["default"] < 0.5 * errors["paper"]
        assert errors["default"] < 0.12


def test_the_coordinate_follows_the_world_not_a_belief():
    for straight, home in ((Straight.EFF_LR, Quantity.EFF_LR), (Straight.LR, Quantity.LR)):
        group = group_of(World(straight=straight, branch_noise=0.002), SMALL)
        settled = settle(list(group.blocks), FitChoice())
        assert {h.coordinate for h in settled.homes.values()} == {home}


@pytest.mark.parametrize("sigma", [0.001, 0.004])
def test_noise_is_found_from_residuals_and_from_replicates(sigma):
    world = World(branch_noise=sigma * 0.8, trunk_noise=sigma * 0.6, seed_noise=0.02)
    grid = SMALL.model_copy(update={"log2_lrs": octaves(-15, -7, 0.5)})
    for seeds, source in ((1, "residuals"), (4, "replicates")):
        group = group_of(world, grid.model_copy(update={"seeds": seeds}), seed=2)
        noise = settle(list(group.blocks), FitChoice()).noise
        assert noise is not None
        assert noise.source == source
        assert noise.total == pytest.approx(sigma, rel=0.35)
        assert noise.trunk > 0


def test_intervals_widen_with_noise_and_narrow_with_seeds():
    def width(noise, seeds):
        group = group_of(World(branch_noise=noise), SMALL.model_copy(update={"seeds": seeds}))
        found = estimate_group(group, Options(replicates=200))[Quantity.EFF_LR]
        return np.median([b - a for a, b in (o.log2_interval for o in found.optima)])

    assert width(0.001, 1) < width(0.004, 1)
    assert width(0.004, 4) < 0.75 * width(0.004, 1)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    inside = total = 0
    for seed in range(8):
        world = World(branch_noise=0.002, shape=Shape.LINEX)
        group = group_of(world, SMALL.model_copy(update={"log2_lrs": octaves(-15, -7, 0.5)}), seed=seed)
        for found in estimate_group(group, Options(replicates=200)).values():
            bounds = np.array([o.log2_interval for o in found.optima])
            truth = truths(world, found)
            inside += int(((bounds[:, 0] <= truth) & (truth <= bounds[:, 1])).sum())
            total += len(truth)
    assert 0.8 < inside / total < 0.995


def sweep(losses, log2_lrs=None, **extra):
    lrs = log2_lrs or [-12.0 + k for k in range(len(losses))]
    rows = [{"params": 1e8, "tokens": 1e10, "lr": 2.0**x, "loss": y, **extra} for x, y in zip(lrs, losses, strict=True)]
    (group,) = build_groups(runs_table(rows))
    return estimate_group(group, Options(replicates=60))[Quantity.LR].optima[0]


def test_every_outcome_is_a_value():
    assert sweep([3.0]).status is Status.TOO_FEW_POINTS
    assert sweep([3.0, 2.9]).status is Status.TOO_FEW_POINTS
    assert sweep([3.3, 3.2, 3.1, 3.0, 2.95, 2.92]).status is Status.AT_BOUNDARY
    assert sweep([3.0, 3.1, 3.3, 3.6, 4.0]).status is Status.AT_BOUNDARY
    inside = sweep([3.3, 3.1, 3.0, 3.05, 3.2, 3.5])
    assert inside.status is Status.INTERIOR
    assert inside.log2_interval[0] < inside.log2_value < inside.log2_interval[1]
    three = sweep([3.1, 3.0, 3.1])
    assert three.status is Status.INTERIOR
    assert three.log2_value == pytest.approx(-11.0)
    assert Flag.QUADRATIC_FALLBACK in three.flags
    assert Flag.NO_RESIDUAL_FREEDOM in three.flags
    for lost in (sweep([3.0]), sweep([3.3, 3.2, 3.1, 3.0, 2.95, 2.92])):
        assert lost.value is None
        assert math.isnan(lost.log2_value)


def test_equal_losses_have_no_minimum_to_report():
    assert sweep([3.0] * 6).status is not Status.INTERIOR


def test_diverged_rows_are_kept_and_not_fitted():
    clean = sweep([3.3, 3.1, 3.0, 3.05, 3.2])
    blown = sweep([3.3, 3.1, 3.0, 3.05, 3.2, math.nan, math.inf])
    assert blown.log2_value == pytest.approx(clean.log2_value)
    assert Flag.DIVERGED_ROWS in blown.flags
    edge = sweep([3.3, 3.1, 3.0, math.nan])
    assert edge.status is Status.AT_BOUNDARY
    assert Flag.BOUNDED_BY_DIVERGENCE in edge.flags


def test_a_seed_that_ran_only_some_rates_does_not_bend_the_curve():
    rows, curve = [], [3.30, 3.12, 3.02, 3.00, 3.06, 3.20]
    for seed, shift, ran in ((0, 0.0, range(6)), (1, 0.5, range(3))):
        rows += [
            {"params": 1e8, "tokens": 1e10, "lr": 2.0 ** (-12 + k), "loss": curve[k] + shift, "seed": seed} for k in ran
        ]
    (group,) = build_groups(runs_table(rows))
    found = estimate_group(group, Options(replicates=60))[Quantity.LR].optima[0]
    assert found.log2_value == pytest.approx(sweep(curve).log2_value, abs=0.05)


def test_both_definitions_of_the_optimal_eff_lr_agree_in_a_clean_world():
    estimates = estimate_group(group_of(World(branch_noise=0.0005), SMALL), Options(replicates=60))
    for index, optimum in enumerate(estimates[Quantity.EFF_LR].optima):
        assert eff_lr_at_optimal_lr(estimates, index) == pytest.approx(optimum.log2_value, abs=0.05)
    flagged = flag_disagreements(estimates)[Quantity.EFF_LR].optima
    assert not any(Flag.DEFINITIONS_DISAGREE in o.flags for o in flagged)


def test_the_full_window_cubic_makes_the_definitions_disagree():
    # in log η the loss is far from cubic on this grid, so its argmin is not where η_eff's is
    estimates = flag_disagreements(estimate_group(group_of(World(), SMALL), PAPER))
    assert any(Flag.DEFINITIONS_DISAGREE in o.flags for o in estimates[Quantity.EFF_LR].optima)


def test_a_curve_never_dips_below_its_minimum_and_follows_the_world():
    world = World(shape=Shape.LINEX)
    found = estimate_group(group_of(world, SMALL), Options(replicates=50))[Quantity.LR]
    for index in range(0, len(found.optima), 4):
        curve = curve_of(found, index)
        assert curve is not None
        assert (curve.losses >= curve.optimal_loss).all()
        x = curve.log2_optimal_lr + np.array([-1.5, -0.5, 0.0, 0.5, 1.5])
        expected = world.loss(2.0**x, found.params[index], found.tokens[index])
        np.testing.assert_allclose(curve.loss(x), expected, atol=0.006)
        assert np.isnan(curve.loss(0.0))


@pytest.mark.parametrize("bad", [{"degree": 5}, {"window": "narrow"}, {"window": -1.0}])
def test_bad_choices_are_refused(bad):
    with pytest.raises(InputError):
        FitChoice(**bad)


def test_same_seed_same_answer():
    group = group_of(World(branch_noise=0.002), SMALL)
    first, second = (estimate_group(group, Options(replicates=60, seed=4))[Quantity.LR] for _ in range(2))
    np.testing.assert_array_equal(first.replicates, second.replicates)


@pytest.mark.parametrize("sigma", [1e-4, 1e-3])
def test_quiet_replicates_still_tell_the_noise(sigma):
    rng = np.random.default_rng(0)
    rows = [
        {"params": 1e8, "tokens": d, "lr": 2.0**k, "seed": s, "loss": 3 + 0.02 * (k + 10) ** 2 + sigma * rng.normal()}
        for d in (1e9, 2e9, 4e9)
        for k in range(-14, -6)
        for s in range(3)
    ]
    noise = settle(list(build_groups(runs_table(rows))[0].blocks), FitChoice()).noise
    assert noise is not None
    assert noise.source == "replicates"
    assert noise.total == pytest.approx(sigma, rel=0.4)
