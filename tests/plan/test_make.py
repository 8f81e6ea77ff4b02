"""From a target and a budget to runs: within the budget, valid, and refused with the smallest budget that works."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etastar.errors import SpecError
from etastar.plan.ladder import geometric, ladder, least_horizon, paper_cost
from etastar.plan.make import PlanRequest, lrs_that_fit, make_plan, octaves
from etastar.plan.price import price_plan
from etastar.plan.study_plan import Budget, Hardware, build_plan
from etastar.plan.training import read_training

LRS = octaves(-15, -7, 1)
TRAINING = read_training({"model": {"width": 2048}})
SMALLER = (256, 512, 768, 1024, 1536)


def request(ratio=0.2, counts="paper", axis="data", **more):
    kept = {"spec": {"model": {}}, "width": 2048, "tokens": 100e9, "lrs": LRS} | more
    if axis == "model":
        kept.setdefault("widths", SMALLER)
    return PlanRequest(budget=Budget(ratio=ratio, counts=counts, axis=axis), **kept)


@pytest.mark.parametrize("axis", ["data", "model", "both"])
@pytest.mark.parametrize("counts", ["paper", "true"])
@pytest.mark.parametrize("ratio", [0.2, 0.4, 0.6])
def test_a_plan_spends_its_budget_and_no_more(axis, counts, ratio):
    price = price_plan(make_plan(request(ratio, counts, axis)))
    spent = price.budget_ratio if counts == "paper" else price.true_ratio
    assert spent <= ratio * (1 + 1e-9)
    assert spent > (0.5 if axis == "model" else 0.9) * ratio


def test_each_axis_has_the_models_it_says():
    data, model, both = (make_plan(request(0.4, axis=axis)) for axis in ("data", "model", "both"))
    assert {s.width for s in data.stacks} == {2048}
    assert {s.width for s in model.stacks} == {512, 1024}  # the paper's 37.63 %
    assert {s.horizons for s in model.stacks} == {(190_735,)}
    assert {s.width for s in both.stacks} == {512, 1024, 2048}
    assert price_plan(model).budget_ratio == pytest.approx(0.3763, abs=1e-4)


@given(ratio=st.floats(0.11, 3.0), seeds=st.integers(1, 3), counts=st.sampled_from(["paper", "true"]))
def test_horizons_are_valid_whatever_the_budget(ratio, seeds, counts):
    try:
        plan = make_plan(request(ratio, counts, seeds=seeds))
    except SpecError as error:
        assert "--budget" in error.message  # three seeds of a small budget buy no two horizons
        assert counts == "true"
        return
    for stack in plan.stacks:
        assert list(stack.horizons) == sorted(set(stack.horizons))
        assert len(stack.horizons) >= 2
        assert stack.horizons[0] >= least_horizon(TRAINING) > TRAINING.warmup_steps + TRAINING.decay_steps
        assert stack.horizons[-1] <= 100e9 / 2**19
        steps = np.diff(np.log2(stack.horizons))
        assert np.ptp(steps) < 0.05  # geometric, to three digits
    price = price_plan(plan)
    assert (price.budget_ratio if counts == "paper" else price.true_ratio) <= ratio * (1 + 1e-9)
    assert len({(s.seed, lr) for s in plan.stacks for lr in s.lrs}) == seeds * len(LRS)


@pytest.mark.parametrize("axis", ["data", "model", "both"])
@pytest.mark.parametrize("counts", ["paper", "true"])
def test_a_budget_below_the_smallest_runs_names_one_that_works(axis, counts):
    with pytest.raises(SpecError) as caught:
        make_plan(request(0.01, counts, axis))
    assert "--budget" in caught.value.message
    enough = float(re.search(r"--budget ([\d.e-]+)", caught.value.hint)[1])
    assert 0.01 < enough < 0.25
    price_plan(make_plan(request(enough, counts, axis)))


def test_horizons_that_are_typed_are_kept_or_refused():
    plan = make_plan(request(0.4, horizons=(10_000, 20_000, 40_000)))
    assert {s.horizons for s in plan.stacks} == {(10_000, 20_000, 40_000)}
    with pytest.raises(SpecError, match="more than the budget") as caught:
        make_plan(request(0.2, horizons=(10_000, 20_000, 40_000)))
    make_plan(
        request(float(re.search(r"--budget ([\d.e-]+)", caught.value.hint)[1]), horizons=(10_000, 20_000, 40_000))
    )
    with pytest.raises(SpecError, match="warm-up"):
        make_plan(request(0.4, horizons=(3000,)))
    with pytest.raises(SpecError, match="no budget"):
        make_plan(PlanRequest(spec={"model": {}}, width=2048, tokens=100e9, lrs=LRS))


def test_a_target_shorter_than_its_schedule_is_refused():
    with pytest.raises(SpecError, match="warm-up"):
        make_plan(request(0.2, tokens=1e9))
    with pytest.raises(SpecError, match="head_dim"):
        make_plan(request(0.2, width=2000))


def test_a_grid_is_cut_into_stacks_that_fit():
    n = TRAINING.params
    assert lrs_that_fit(n, Hardware(gpu="H100")) == 3
    assert lrs_that_fit(n, Hardware(gpu="RTX4090")) == 1
    assert lrs_that_fit(n, Hardware(gpu="mine", peak_flops=1e12)) == 1
    plan = make_plan(request(0.2))
    assert [len(s.lrs) for s in plan.stacks] == [3, 3, 3]
    assert sorted(lr for s in plan.stacks for lr in s.lrs) == sorted(LRS)
    assert [len(s.lrs) for s in make_plan(request(0.2, lrs_a_stack=4)).stacks] == [3, 3, 3]
    assert [len(s.lrs) for s in make_plan(request(0.2, lrs_a_stack=8)).stacks] == [5, 4]
    spread = make_plan(request(0.2, hardware=Hardware(gpus=4), width=256))
    assert [len(s.lrs) for s in spread.stacks] == [3, 3, 3]  # nine fit one GPU, but four are there
    assert len(make_plan(request(0.2, width=256)).stacks) == 1
    assert len(make_plan(request(0.2, hardware=Hardware(gpus=100), width=256)).stacks) == 9
    fast = make_plan(request(0.2, tokens_per_second=1e5))
    assert set(fast.hardware.tokens_per_second) == {s.name for s in fast.stacks}
    assert build_plan(fast.model_dump()) == fast


def test_five_decays_are_preferred_where_the_budget_allows():
    steps = 100e9 / 2**19
    rich = ladder(10 * steps, TRAINING, paper_cost, longest=steps)
    assert rich.horizons[0] >= TRAINING.warmup_steps + 5 * TRAINING.decay_steps * 0.95
    poor = ladder(0.15 * steps, TRAINING, paper_cost, longest=steps)
    assert poor.horizons[0] < 5 * TRAINING.decay_steps
    assert ladder(0.05 * steps, TRAINING, paper_cost, longest=steps) is None


@given(allowance=st.floats(100, 1e7), count=st.integers(2, 6), span=st.floats(1.5, 20), longest=st.floats(100, 1e6))
def test_a_ladder_costs_what_is_allowed(allowance, count, span, longest):
    for cost in (paper_cost, TRAINING.steps):
        found = geometric(allowance, cost, count, span, longest=longest)
        if found:
            assert cost(found) <= allowance * (1 + 1e-9)
            assert found[-1] <= longest * (1 + 1e-9)
