"""The adaptive rule: never stops below the optimum, never all, widens at an edge; and its replay counts honestly."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etastar.design.adaptive import AdaptiveRule, decide, spacing_of
from etastar.design.replay import replay
from etastar.errors import InputError
from etastar.estimate.optimum import Status
from etastar.records import runs_table
from etastar.scale import gpt_params
from etastar.simulate import Grid, Shape, Straight, World, simulate

TOKENS = tuple(5e9 * 2**k for k in range(4))
STEPS = tuple(round(d / 2**19) for d in TOKENS)
QUIET = AdaptiveRule(replicates=60)
N = float(gpt_params(1024))


def sweep(world: World, log2_lrs, seed=0, **grid) -> pa.Table:
    return simulate(world, Grid(widths=(1024,), tokens=TOKENS, log2_lrs=tuple(log2_lrs), **grid), seed=seed)


def octaves(low, high, step):
    return [float(x) for x in np.arange(low, high + 1e-9, step)]


@settings(max_examples=10, deadline=None)
@given(
    straight=st.sampled_from([Straight.EFF_LR, Straight.LR]),
    shape=st.sampled_from(list(Shape)),
    noise=st.sampled_from([0.0005, 0.002, 0.01]),
    low=st.floats(-17, -11),
    width=st.floats(2.5, 9),
    step=st.sampled_from([0.5, 1.0]),
    at=st.integers(0, 3),
    seed=st.integers(0, 10**6),
)
def test_what_stops_lies_above_the_interval_and_never_below_the_optimum(
    straight, shape, noise, low, width, step, at, seed
):
    world = World(straight=straight, shape=shape, trunk_noise=noise, branch_noise=noise)
    logs = octaves(low, low + width, step)
    lrs = [2.0**x for x in logs]
    said = decide(sweep(world, logs, seed), lrs=lrs, horizon=STEPS[at], next_horizons=STEPS[at + 1 :], rule=QUIET)
    assert set(said.stop) < set(lrs)  # never all
    assert not set(said.add) & set(lrs)
    assert not (said.stop and said.add)
    assert said.reasons
    assert all(said.reasons)
    if said.stop:
        assert at < 3
        assert said.status is Status.INTERIOR
        assert min(said.stop) > 2.0 ** (said.log2_interval[1] + QUIET.keep_above)
        assert len(lrs) - len(said.stop) >= QUIET.least_lrs
        # an upper end of the grid: what stays is below what stops
        assert max(set(lrs) - set(said.stop)) < min(said.stop)
    for lr in said.add:
        assert not min(lrs) <= lr <= max(lrs)


def test_a_grid_about_the_optimum_loses_its_upper_end():
    world = World(trunk_noise=0.001, branch_noise=0.001)
    logs = octaves(-16, -6, 0.5)
    said = decide(sweep(world, logs), lrs=[2.0**x for x in logs], horizon=STEPS[0], next_horizons=STEPS[1:])
    truth = float(world.log2_optimal_lr(N, TOKENS[0]))
    assert said.stop
    assert min(said.stop) > 2.0 ** (truth + 1)
    assert 2.0**-6 in said.stop
    assert "stop" in said.reasons[0]


@pytest.mark.parametrize(("logs", "side"), [(octaves(-10, -6, 0.5), -1), (octaves(-18, -13.5, 0.5), 1)])
def test_a_grid_beside_the_optimum_widens_towards_it(logs, side):
    lrs = [2.0**x for x in logs]
    said = decide(sweep(World(branch_noise=0.0005), logs), lrs=lrs, horizon=STEPS[1], next_horizons=STEPS[2:])
    assert said.status is Status.AT_BOUNDARY
    assert said.stop == ()
    wanted = [logs[-1] + 0.5, logs[-1] + 1.0] if side > 0 else [logs[0] - 1.0, logs[0] - 0.5]
    assert [round(float(np.log2(lr)), 6) for lr in said.add] == wanted
    # no further than the rule allows
    tied = AdaptiveRule(widest=0.0)
    assert decide(sweep(World(), logs), lrs=lrs, horizon=STEPS[1], rule=tied).add == ()


def test_later_horizons_are_not_looked_at():
    world, logs = World(trunk_noise=0.002, branch_noise=0.002), octaves(-15, -7, 0.5)
    runs = sweep(world, logs)
    lrs = [2.0**x for x in logs]
    now = runs.filter(pa.compute.less_equal(runs["steps"], STEPS[1]))
    asked = {"lrs": lrs, "horizon": STEPS[1], "next_horizons": STEPS[2:]}
    assert decide(runs, **asked) == decide(now, **asked) == decide(now.to_pylist(), **asked)


def test_what_diverged_above_stops_and_is_not_widened_into():
    world = World(trunk_noise=0.001, branch_noise=0.001, diverges_above=1.2)
    logs = octaves(-15, -7, 0.5)
    lrs = [2.0**x for x in logs]
    runs = sweep(world, logs)
    said = decide(runs, lrs=lrs, horizon=STEPS[0], next_horizons=STEPS[1:])
    blown = {row["lr"] for row in runs.to_pylist() if row["steps"] == STEPS[0] and row["status"] == "diverged"}
    assert blown
    assert blown <= set(said.stop)
    # the minimum at the upper end, right below what diverged
    cut = world.model_copy(update={"diverges_above": -1.0})
    edge = decide(sweep(cut, logs), lrs=lrs, horizon=STEPS[0], next_horizons=STEPS[1:])
    assert edge.add == ()
    assert "diverged" in edge.reasons[0]


def test_the_callers_own_numbers_come_back():
    logs = octaves(-15.0123, -7, 0.5)
    lrs = [round(2.0**x, 9) for x in logs]
    runs = sweep(World(branch_noise=0.0005), [float(np.log2(lr)) for lr in lrs])
    said = decide(runs, lrs=lrs, horizon=STEPS[0], next_horizons=STEPS[1:])
    assert said.stop
    assert set(said.stop) <= set(lrs)


def test_too_little_to_decide_on_changes_nothing():
    rows = [{"params": N, "tokens": 5e9, "steps": 9537, "lr": 2.0**-k, "loss": 3.0} for k in (9, 10)]
    for said in (
        decide(rows, lrs=[2**-9, 2**-10], horizon=9537, next_horizons=[20_000]),
        decide(rows, lrs=[2**-9, 2**-10], horizon=20_000),
    ):
        assert said.status is Status.TOO_FEW_POINTS
        assert not said.changes
    wsd = simulate(World(), Grid(widths=(256, 512), tokens=TOKENS, log2_lrs=tuple(octaves(-13, -8, 1))))
    with pytest.raises(InputError, match="about one"):
        decide(wsd, lrs=[2**-9], horizon=STEPS[0])
    picked = decide(wsd, lrs=[2.0**x for x in octaves(-13, -8, 1)], horizon=STEPS[0], params=float(gpt_params(512)))
    assert picked.status is Status.INTERIOR
    assert decide(runs_table(rows), lrs=[2**-9], horizon=9537).reasons
    assert spacing_of(np.array([-10.0])) == 0.5


def test_a_replay_counts_by_hand():
    logs = octaves(-16, -6, 0.5)
    played = replay(sweep(World(trunk_noise=0.001, branch_noise=0.001), logs))
    leaves = [s - 5000 for s in STEPS]
    segments = [leaves[0] + 5000, *(b - a + 5000 for a, b in pairwise(leaves))]
    assert played.grid_cost == len(logs) * (leaves[-1] + 4 * 5000)
    # no learning rate is added here, so every round costs its segment times the learning rates in the stack
    assert all(not r.added for r in played.rounds)
    assert played.cost == sum(r.trained * s for r, s in zip(played.rounds, segments, strict=True))
    counts = [r.trained for r in played.rounds]
    assert counts[0] == len(logs)
    assert [a - len(r.stopped) for a, r in zip(counts, played.rounds, strict=True)][:-1] == counts[1:]
    assert played.fraction < 0.85
    assert played.agrees
    assert played.kept.num_rows == sum(counts)


def test_what_is_added_pays_from_the_start():
    everything = octaves(-18, -6, 0.5)
    runs = sweep(World(trunk_noise=0.001, branch_noise=0.001), everything)
    planned = [2.0**x for x in everything if -18 <= x <= -13]
    played = replay(runs, planned=planned)
    added = played.rounds[0].added
    assert added
    assert min(added) > -13
    leaves = [s - 5000 for s in STEPS]
    segments = [leaves[0] + 5000, *(b - a + 5000 for a, b in pairwise(leaves))]
    paid = sum(r.trained * s for r, s in zip(played.rounds, segments, strict=True))
    paid += sum(len(r.added) * sum(segments[: k + 1]) for k, r in enumerate(played.rounds))
    assert played.cost == pytest.approx(paid)
    assert played.adaptive.status is Status.INTERIOR
    assert played.agrees
    # its runs at earlier horizons are there too
    rates = set(played.kept.filter(pa.compute.equal(played.kept["steps"], STEPS[0]))["lr"].to_pylist())
    assert {2.0**x for x in added} <= rates


def test_a_replay_without_horizons_is_refused():
    one = simulate(World(), Grid(widths=(256,), tokens=TOKENS[:1], log2_lrs=tuple(octaves(-13, -8, 1))))
    with pytest.raises(InputError, match="several horizons"):
        replay(one)
