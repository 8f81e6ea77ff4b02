"""The synthetic worlds do what their dials say: everything else is tested on them."""

import numpy as np
import pytest

from etastar.errors import SpecError
from etastar.scale import gpt_params
from etastar.simulate import Grid, Shape, Straight, World, excess, simulate, simulate_trajectories
from etastar.theory.dynamics import approx_eff_lr

N = gpt_params(1024)
D = 5e9 * 2.0 ** np.arange(0, 4.4, 0.4)


def bend(y):
    return np.polyfit(np.log2(D), y, 2)[0]


def test_the_straight_quantity_is_straight_and_the_other_bends():
    paper, plain = World(), World(straight=Straight.LR)
    assert abs(bend(paper.log2_optimal_eff_lr(N, D))) < 1e-9
    assert bend(paper.log2_optimal_lr(N, D)) > 0.03  # upwards, as in the paper
    assert abs(bend(plain.log2_optimal_lr(N, D))) < 1e-9
    assert abs(bend(plain.log2_optimal_eff_lr(N, D))) > 0.005
    neither = World(straight=Straight.NEITHER, bend_tokens=0.05)
    assert bend(neither.log2_optimal_eff_lr(N, D)) == pytest.approx(0.05)


@pytest.mark.parametrize("shape", list(Shape))
@pytest.mark.parametrize("straight", list(Straight))
def test_the_optimum_is_where_the_loss_is_lowest(shape, straight):
    world = World(shape=shape, straight=straight, bend_tokens=0.02)
    best = float(world.log2_optimal_lr(N, 2e10))
    around = world.loss(2.0 ** (best + np.linspace(-2, 2, 4001)), N, 2e10)
    assert np.argmin(around) == pytest.approx(2000, abs=1)
    assert around.min() == pytest.approx(float(world.floor(N, 2e10)), abs=1e-9)


@pytest.mark.parametrize("shape", [Shape.CUBIC, Shape.LINEX, Shape.TWO_SIDED])
def test_the_loss_rises_faster_below_the_optimum(shape):
    z = np.linspace(0.25, 3, 12)
    assert (excess(-z, shape, 0.03, 0.5) > excess(z, shape, 0.03, 0.5)).all()


def test_the_map_is_the_papers_transient_and_inverts():
    world = World(warmup_steps=0, decay_steps=0)
    lr, steps = 2.0**-12, 50_000
    t = np.arange(steps) + 0.5
    integral = approx_eff_lr(
        t, lr=lr, weight_decay=0.1, beta1=0.95, weight_norm0=world.norm_ratio, update_norm=1.0
    ).mean()
    assert float(world.eff_lr(lr, steps * world.batch_tokens)[0]) == pytest.approx(integral, rel=1e-6)
    log2_lr = np.linspace(-16, -7, 19)
    back = world.log2_lr_of(np.log2(world.eff_lr(2.0**log2_lr, 5e10)[0]), 5e10)
    np.testing.assert_allclose(back, log2_lr, atol=1e-9)


def test_trunk_noise_is_shared_along_d_and_seed_noise_along_lr():
    grid = Grid(widths=(1024,), tokens=tuple(D), log2_lrs=tuple(range(-14, -8)), seeds=2)
    quiet = simulate(World(), grid)["loss"].to_numpy().reshape(2, 6, len(D))
    trunk = simulate(World(trunk_noise=0.1), grid)["loss"].to_numpy().reshape(2, 6, len(D)) - quiet
    np.testing.assert_allclose(trunk - trunk[..., :1], 0, atol=1e-9)
    assert np.std(trunk[:, :, 0]) > 0.03
    common = simulate(World(seed_noise=0.1), grid)["loss"].to_numpy().reshape(2, 6, len(D)) - quiet
    np.testing.assert_allclose(common - common[:, :1], 0, atol=1e-9)


def test_gaps_and_divergence_are_dials():
    grid = Grid(widths=(1024,), tokens=tuple(D), missing=0.3)
    table = simulate(World(diverges_above=2.0), grid)
    assert 0.55 < table.num_rows / (len(D) * 10) < 0.85
    above = np.log2(table["lr"].to_numpy()) - World().log2_optimal_lr(N, table["tokens"].to_numpy())
    diverged = np.array(table["status"].to_pylist()) == "diverged"
    np.testing.assert_array_equal(diverged, above > 2.0)


def test_a_horizon_shorter_than_its_schedule_is_refused():
    with pytest.raises(SpecError, match="warm-up"):
        simulate(World(), Grid(tokens=(1e9,)))


def test_same_seed_same_runs():
    assert simulate(World(branch_noise=0.01), Grid(), seed=3).equals(simulate(World(branch_noise=0.01), Grid(), seed=3))


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "adamh"])
def test_trajectories_are_those_of_the_runs(optimizer):
    # one horizon, so that the trunk's mean is the run's plateau
    world = World(optimizer=optimizer, batch_tokens=2**22, warmup_steps=20, decay_steps=100)
    grid = Grid(widths=(256,), tokens=(50e9,), log2_lrs=(-14.0, -10.0, -7.0))
    runs, logged = simulate(world, grid), simulate_trajectories(world, grid)
    for run in runs.to_pylist():
        own = logged.filter((np.array(logged["run"].to_pylist()) == run["trunk"]) & _rows(logged, "blocks.0.q"))
        step, eff = own["step"].to_numpy(), own["eff_lr"].to_numpy()
        order = np.argsort(step)
        every = np.interp(np.arange(20, step.max()), step[order], eff[order])
        assert every.mean() == pytest.approx(run["plateau_eff_lr"], rel=0.03)
        norm = own["weight_norm"].to_numpy()[order]
        assert norm[0] == pytest.approx(0.15 * own["update_norm"][0].as_py(), rel=1e-6)
        assert bool(np.ptp(norm) == 0) is (optimizer == "adamh")


def _rows(table, weight):
    return np.array(table["weight"].to_pylist()) == weight


def test_adamh_moves_by_its_own_rate():
    mean, plateau = World(optimizer="adamh").eff_lr(0.01, 20e9)
    steps = 20e9 / 2**19
    assert plateau == pytest.approx(0.01)
    assert mean == pytest.approx(0.01 * (steps - 3000) / steps)
