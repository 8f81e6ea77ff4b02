"""Plans in simulated worlds: the draws are the plan's, the answers repeat, and more money means less error."""

import numpy as np
import pytest

from etastar.design.draw import RoughWorld, simulate_plan
from etastar.design.expect import Expectation, Trial, expect, true_ecr, try_plan
from etastar.design.priors import anchored, centre_of, conditions, prior_worlds
from etastar.design.search import candidates, optimize
from etastar.design.study import worlds_from
from etastar.errors import EtastarError
from etastar.estimate.cells import build_groups
from etastar.plan.price import price_plan
from etastar.plan.study_plan import StudyPlan, build_plan
from etastar.simulate import Grid, Shape, Straight, World, simulate

LRS = [2.0**x for x in range(-15, -6)]


def plan_of(*horizons: int, widths=(768,), seeds=1, target=(124e6, 100e9), spec=None, **more) -> StudyPlan:
    stacks = [
        {"name": f"w{w}-s{s}", "width": w, "seed": s, "lrs": LRS, "horizons": horizons}
        for w in widths
        for s in range(seeds)
    ]
    named = {"params": target[0], "tokens": target[1], "width": widths[-1]}
    return build_plan({"spec": spec or {}, "stacks": stacks, "target": named, **more})


PLAN = plan_of(10_000, 20_000, 40_000)


def test_the_draw_is_that_of_the_simulator():
    world = World(shape=Shape.LINEX)
    ours = simulate_plan(world, PLAN).to_pydict()
    tokens = tuple(h * 2.0**19 for h in (10_000, 20_000, 40_000))
    theirs = simulate(world, Grid(widths=(768,), tokens=tokens, log2_lrs=tuple(float(x) for x in range(-15, -6))))
    order = {(n, d, round(float(np.log2(lr)), 6)): k for k, (n, d, lr) in enumerate(
        zip(*(theirs[c].to_pylist() for c in ("params", "tokens", "lr")), strict=True))}  # fmt: skip
    for k, cell in enumerate(zip(ours["params"], ours["tokens"], np.log2(ours["lr"]), strict=True)):
        there = order[cell[0], cell[1], round(float(cell[2]), 6)]
        for column in ("loss", "mean_eff_lr", "plateau_eff_lr", "steps", "decay_steps", "weight_decay"):
            assert ours[column][k] == pytest.approx(theirs[column][there].as_py()), column


def test_a_trunk_shares_its_noise_and_seeds_do_not():
    plan = plan_of(10_000, 20_000, seeds=2)
    rows = simulate_plan(World(trunk_noise=0.1), plan, seed=3).to_pylist()
    quiet = simulate_plan(World(), plan).to_pylist()
    off = {(r["seed"], r["lr"], r["steps"]): r["loss"] - q["loss"] for r, q in zip(rows, quiet, strict=True)}
    for lr in LRS:
        assert off[0, lr, 10_000] == pytest.approx(off[0, lr, 20_000])
        assert off[0, lr, 10_000] != pytest.approx(off[1, lr, 10_000])


def test_roughness_is_a_share_of_the_gap_alike_at_all_horizons_and_seeds():
    plan = plan_of(10_000, 20_000, seeds=2)
    dials = {"straight": Straight.LR, "shape": Shape.QUADRATIC, "slope_tokens": -0.5}
    world, smooth = RoughWorld(roughness=0.2, **dials), World(**dials)
    rough = simulate_plan(world, plan, seed=1).to_pylist()
    plain = simulate_plan(smooth, plan, seed=1).to_pylist()
    shares: dict[float, set[float]] = {}
    for r, p in zip(rough, plain, strict=True):
        gap = p["loss"] - float(smooth.floor(p["params"], p["tokens"]))
        shares.setdefault(r["lr"], set()).add(round((r["loss"] - p["loss"]) / gap, 6))
    assert all(len(found) == 1 for found in shares.values())
    assert 0.05 < np.std([found.pop() for found in shares.values()]) < 0.5
    assert simulate_plan(RoughWorld(**dials), plan, seed=1).to_pylist() == plain


@pytest.mark.parametrize("straight", list(Straight))
def test_an_anchored_world_has_its_optimum_where_it_was_put(straight):
    where = centre_of(PLAN, 0.3)
    dials = conditions(PLAN) | {"straight": straight}
    world = anchored(dials, PLAN.training_of(PLAN.stacks[0]), where, slope=-0.4, bend=0.02)
    assert float(world.log2_optimal_lr(where.params, where.tokens)) == pytest.approx(-11 + 0.3, abs=1e-6)
    law = world.log2_optimal_lr if straight is Straight.LR else world.log2_optimal_eff_lr
    around = [float(law(where.params, where.tokens * 2.0**k)) for k in (-1, 0, 1)]
    assert around[2] - around[0] == pytest.approx(-0.8, abs=1e-6)  # the slope about the centre
    assert around[2] + around[0] - 2 * around[1] == pytest.approx(0.04, abs=1e-6)  # the bend


def test_the_price_of_an_error_is_the_worlds_own():
    world = World(curvature=0.05, shape=Shape.QUADRATIC, straight=Straight.LR)
    n, d = 124e6, 50e9
    best = float(world.log2_optimal_lr(n, d))
    assert true_ecr(world, best, n, d) == pytest.approx(0.0, abs=1e-9)
    ratio = true_ecr(world, best + 0.5, n, d)
    # that many more tokens bring the floor down by exactly the gap
    gap = float(world.floor(n, d) - world.floor(n, d * (1 + ratio)))
    assert gap == pytest.approx(0.05 * 0.25)
    assert true_ecr(world, best + 1.0, n, d) > ratio


def test_without_noise_the_answer_is_right_and_repeats():
    world = World(straight=Straight.LR, shape=Shape.QUADRATIC, slope_tokens=-0.5)
    first, second = (try_plan(PLAN, world, seed=1) for _ in range(2))
    assert first == second
    assert abs(first.log2_error) < 0.01
    assert first.ecr < 1e-4


def test_abstentions_count_as_worse_than_any_answer():
    answered = [Trial(0.1 * k, 0.01 * k, True) for k in range(1, 9)]
    found = Expectation.of([*answered, Trial(None, 0.5, False), Trial(None, 0.6, False)])
    assert found.abstained == 2
    assert found.median_error == pytest.approx(0.5)
    assert found.high_error == np.inf
    assert found.mean_ecr == pytest.approx((0.36 + 1.1) / 10)
    assert found.high_ecr == 0.5
    assert Expectation.of(answered).high_error == pytest.approx(0.8)


def test_without_an_answer_the_longest_runs_optimum_is_typed():
    # one horizon carries no law
    world = World(straight=Straight.LR, shape=Shape.QUADRATIC, slope_tokens=-0.5)
    single = plan_of(40_000)
    trial = try_plan(single, world, seed=1)
    assert trial.log2_error is None
    n, d = single.target.params, single.target.tokens
    there = float(world.log2_optimal_lr(float(single.params_of(single.stacks[0])), 40_000 * 2**19))
    assert trial.ecr == pytest.approx(true_ecr(world, there, n, d), rel=0.05)
    # and where no run has an optimum, a whole run is lost
    high = world.model_copy(update={"log2_lr": 3.0})
    assert try_plan(single, high, seed=1).ecr == 1.0


def test_priors_repeat_and_are_about_the_grid():
    worlds = prior_worlds(PLAN, 40, seed=5)
    assert worlds == prior_worlds(PLAN, 40, seed=5)
    assert worlds != prior_worlds(PLAN, 40, seed=6)
    where = centre_of(PLAN)
    off = [float(w.log2_optimal_lr(where.params, where.tokens)) - where.log2_lr for w in worlds]
    assert abs(np.mean(off)) < 0.5
    assert 0.4 < np.std(off) < 1.2
    assert {w.straight for w in worlds} == {Straight.EFF_LR, Straight.LR}
    adamh = plan_of(10_000, 20_000, spec={"optimizer": {"kind": "adamh"}})
    assert {w.straight for w in prior_worlds(adamh, 10)} == {Straight.LR}


def test_a_longer_plan_is_expected_to_err_less():
    worlds = prior_worlds(PLAN, 6, seed=2)
    short = expect(plan_of(7000, 10_000, 14_000), worlds, seed=1)
    long = expect(plan_of(25_000, 50_000, 100_000), worlds, seed=1)
    assert long.mean_ecr < short.mean_ecr
    assert long.median_error < short.median_error


def test_a_fractional_decay_and_a_planless_target():
    part = plan_of(10_000, 20_000, 40_000, spec={"schedule": {"warmup_steps": 1000, "decay_fraction": 0.2}})
    rows = simulate_plan(World(), part).to_pylist()
    assert {(r["steps"], r["decay_steps"]) for r in rows} == {(10_000, 2000), (20_000, 4000), (40_000, 8000)}
    assert expect(part, prior_worlds(part, 2)).worlds == 2
    aimless = PLAN.model_copy(update={"target": None})
    with pytest.raises(EtastarError, match="target"):
        expect(aimless, prior_worlds(PLAN, 1))


def test_worlds_from_a_study_are_like_the_study():
    world = World(straight=Straight.LR, slope_tokens=-0.45, slope_params=-0.2, branch_noise=0.002, curvature=0.04)
    grid = Grid(
        widths=(512, 768),
        tokens=tuple(5e9 * 2.0 ** (0.75 * k) for k in range(5)),
        log2_lrs=tuple(np.arange(-15, -6.9, 0.5)),
        seeds=2,
    )
    (group,) = build_groups(simulate(world, grid, seed=4))
    drawn = worlds_from(group, PLAN, 40, seed=1)
    assert drawn == worlds_from(group, PLAN, 40, seed=1)
    n, d = 124e6, 20e9
    truth = float(world.log2_optimal_lr(n, d))
    optima = [float(w.log2_optimal_lr(n, d)) for w in drawn]
    assert np.median(optima) == pytest.approx(truth, abs=0.1)
    assert np.std(optima) < 0.3
    noise = [np.hypot(w.trunk_noise, w.branch_noise) for w in drawn]
    assert np.median(noise) == pytest.approx(0.002, rel=0.4)
    falls = [float(w.floor(n, 20e9) - w.floor(n, 40e9)) for w in drawn]
    assert np.median(falls) == pytest.approx(float(world.floor(n, 20e9) - world.floor(n, 40e9)), rel=0.3)


def test_a_study_without_optima_is_refused():
    high = Grid(widths=(768,), tokens=(5e9, 10e9), log2_lrs=(-6.0, -5.0, -4.0, -3.0, -2.0))
    (group,) = build_groups(simulate(World(), high))
    with pytest.raises(EtastarError, match="optimum"):
        worlds_from(group, PLAN, 4)


def test_candidates_cost_no_more_and_are_valid():
    plan = plan_of(10_000, 20_000, 40_000, target=(124e6, 200e9))
    found = list(candidates(plan, seed=1))
    assert [c.what for c in found] == [c.what for c in candidates(plan, seed=1)]
    assert len(found) > 10
    assert found[0].plan is plan
    for candidate in found[1:]:
        assert price_plan(candidate.plan).flop <= found[0].flop * (1 + 1e-9)
        assert price_plan(candidate.plan).flop > 0.9 * found[0].flop
        assert build_plan(candidate.plan.model_dump()) == candidate.plan  # what a file would hold
    assert {len({s.seed for s in c.plan.stacks}) for c in found} == {1, 2}
    assert len({len({lr for s in c.plan.stacks for lr in s.lrs}) for c in found}) > 2


@pytest.mark.slow
def test_the_search_repeats_and_beats_a_bad_plan():
    bad = plan_of(6700, 7000, 40_000, target=(124e6, 200e9))
    worlds = prior_worlds(bad, 12, seed=1)
    told = []
    found = optimize(bad, worlds[:6], worlds[6:], seed=2, progress=lambda *said: told.append(said))
    again = optimize(bad, worlds[:6], worlds[6:], seed=2)
    assert [c.what for c in found.candidates] == [c.what for c in again.candidates]
    assert found.fresh == again.fresh
    assert found.candidates[0].merit <= found.candidates[1].merit
    assert len(found.best.trials) == len(found.start.trials) == 6
    assert found.best is (found.candidates[0] if found.improved else found.start)
    assert told
