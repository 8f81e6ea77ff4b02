"""Prices against hand-computed ones, the paper's budgets, and the analysis room's own count."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etastar.design.draw import simulate_plan
from etastar.estimate.cells import build_groups
from etastar.plan.price import longest_first, price_plan
from etastar.plan.study_plan import StudyPlan, build_plan
from etastar.predict.budget import sweep_cost
from etastar.scale import Scale, gpt_params
from etastar.simulate import World

TINY = {
    "model": {"layers": 2, "head_dim": 64, "vocab": 256, "context": 32},
    "batch_sequences": 4,
    "schedule": {"kind": "wsd", "warmup_steps": 10, "decay_steps": 20},
}
N64 = 12 * 2 * 64**2 + 256 * 64  # 114,688
BATCH = 4 * 32


def tiny(*stacks: dict, spec: dict = TINY, **more) -> StudyPlan:
    named = [
        {"name": f"s{k}", "width": 64, "lrs": [0.1, 0.2, 0.4], "horizons": [100], **s} for k, s in enumerate(stacks)
    ]
    return build_plan({"spec": spec, "stacks": named, **more})


def paper_plan(widths, **more) -> StudyPlan:
    lrs = [2.0**x for x in range(-15, -6)]
    stacks = [{"name": f"w{w}", "width": w, "lrs": lrs, "horizons": [190_735]} for w in widths]
    target = {"params": gpt_params(2048), "tokens": 190_735 * 2**19, "width": 2048}
    return build_plan({"spec": {"model": {}}, "stacks": stacks, "target": target, **more})


def test_one_trunk_with_three_branches_by_hand():
    plan = tiny({"horizons": [50, 100, 200]}, target={"params": N64, "tokens": 1000 * BATCH})
    price = price_plan(plan)
    # trunk to 180, then decays of 20 to 50, 100 and 200
    assert price.stacks[0].steps == 180 + 3 * 20
    assert price.flop == 6 * N64 * 240 * BATCH * 3
    assert price.budget_ratio == pytest.approx((50 + 100 + 200) / 1000)
    assert price.target_sweep_flop == 3 * 6 * N64 * 1000 * BATCH
    assert price.true_ratio == pytest.approx(240 / 1000)
    assert price.runs == 9


def test_seeds_cost_but_are_not_in_the_papers_count():
    target = {"params": N64, "tokens": 1000 * BATCH}
    one = price_plan(tiny({}, target=target))
    two = price_plan(tiny({}, {"seed": 1}, target=target))
    assert two.flop == 2 * one.flop
    assert two.budget_ratio == one.budget_ratio
    assert two.target_sweep_flop == one.target_sweep_flop
    assert two.true_ratio == 2 * one.true_ratio


def test_a_grid_cut_into_stacks_costs_the_same():
    target = {"params": N64, "tokens": 1000 * BATCH}
    whole = price_plan(tiny({"lrs": [0.1, 0.2, 0.4, 0.8]}, target=target))
    cut = price_plan(tiny({"lrs": [0.1, 0.2]}, {"lrs": [0.4, 0.8]}, target=target))
    assert (whole.flop, whole.budget_ratio, whole.true_ratio) == (cut.flop, cut.budget_ratio, cut.true_ratio)
    assert cut.learning_rates == 4


def test_a_cosine_shares_no_trunk_and_a_fraction_decays_with_its_horizon():
    cosine = TINY | {"schedule": {"kind": "cosine", "warmup_steps": 10}}
    assert price_plan(tiny({"horizons": [50, 100]}, spec=cosine)).stacks[0].steps == 150
    part = TINY | {"schedule": {"kind": "wsd", "warmup_steps": 10, "decay_fraction": 0.2}}
    assert price_plan(tiny({"horizons": [50, 100]}, spec=part)).stacks[0].steps == 80 + 10 + 20


@pytest.mark.parametrize(("widths", "ratio"), [((256, 768), 0.2064), ((512, 1024), 0.3763), ((512, 768, 1024), 0.5510)])
def test_the_papers_budgets(widths, ratio):
    price = price_plan(paper_plan(widths))
    assert price.budget_ratio == pytest.approx(ratio, abs=1e-4)
    # one horizon, one seed: nothing is shared, and both counts agree
    assert price.true_ratio == pytest.approx(price.budget_ratio)


def test_the_count_is_that_of_the_analysis():
    lrs = [2.0**x for x in range(-14, -8)]
    stacks = [
        {"name": f"w{w}-s{s}", "width": w, "seed": s, "lrs": lrs, "horizons": [10_000, 20_000, 40_000]}
        for w in (256, 2048)
        for s in (0, 1)
    ]
    target = Scale(float(gpt_params(2048)), 100e9)
    plan = build_plan({"spec": {}, "stacks": stacks, "target": {"params": target.params, "tokens": target.tokens}})
    (group,) = build_groups(simulate_plan(World(), plan))
    cells = [(block.params, float(d)) for block in group.blocks for d in block.tokens]
    theirs, ours = sweep_cost(group, cells, target), price_plan(plan)
    assert ours.flop == pytest.approx(theirs.flop)
    assert ours.budget_ratio == pytest.approx(theirs.budget_ratio)
    assert ours.true_ratio == pytest.approx(theirs.true_ratio)


def test_gpu_hours_disk_and_wall_time():
    hardware = {"gpu": "A100", "mfu": 0.5, "gpus": 2}
    plan = tiny({}, {"seed": 1}, {"seed": 2}, hardware=hardware)
    price = price_plan(plan)
    seconds = 6 * N64 * 100 * BATCH * 3 / (312e12 * 0.5)
    assert price.gpu_seconds == pytest.approx(3 * seconds)
    assert price.wall_seconds == pytest.approx(2 * seconds)  # three equal jobs on two GPUs
    state = 12 * N64 * 3
    assert price.disk_bytes == 3 * 2 * state + 2 * state
    kept = tiny({"horizons": [50, 100]}, spec=TINY | {"execution": {"keep_branch_points": True}})
    assert price_plan(kept).disk_bytes == (2 + 2) * state + state
    measured = tiny({}, hardware=hardware | {"tokens_per_second": {"s0": 1000}})
    assert price_plan(measured).gpu_seconds == pytest.approx(100 * BATCH * 3 / 1000)


def test_the_longest_jobs_start_first():
    assert longest_first([5, 4, 3, 3, 3], 2) == 10  # 5+3 | 4+3+3: not the optimum (9), but the rule's
    assert longest_first([7.0], 8) == 7
    assert longest_first([2, 2, 2], 1) == 6


@given(
    horizons=st.lists(st.integers(30, 5000), min_size=1, max_size=6, unique=True),
    extra=st.integers(30, 5000),
    lrs=st.integers(1, 8),
    seeds=st.integers(1, 3),
)
def test_more_runs_never_cost_less(horizons, extra, lrs, seeds):
    target = {"params": N64, "tokens": 10_000 * BATCH}

    def price(h, k, s):
        grid = [2.0**-j for j in range(k)]
        return price_plan(tiny(*({"seed": i, "horizons": h, "lrs": grid} for i in range(s)), target=target))

    base = price(horizons, lrs, seeds)
    longer = price(sorted({*horizons, extra}), lrs, seeds)
    assert longer.flop >= base.flop
    assert longer.budget_ratio >= base.budget_ratio
    assert price(horizons, lrs + 1, seeds).flop > base.flop
    more = price(horizons, lrs, seeds + 1)
    assert more.flop > base.flop
    assert more.budget_ratio == base.budget_ratio
    # a shared trunk never costs more than runs of their own
    assert base.flop <= 6 * N64 * BATCH * lrs * seeds * sum(horizons)
    assert math.isfinite(base.wall_seconds)
    assert base.wall_seconds <= base.gpu_seconds * (1 + 1e-12)
