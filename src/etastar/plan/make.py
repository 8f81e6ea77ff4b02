"""Which runs does "N, D, 20 %" mean? From a target and a budget to stacks of runs.

Along data: the target's own model at short horizons. Along model: smaller models at the target's D. Both: the
target's model with half of the budget, smaller ones, trained longer, with the rest.
The budget is the paper's β = Σα by default (`counts: paper`), or the true cost over that of a sweep of the same
learning rates at target scale (`counts: true`); `price` shows both for every plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Literal

from pydantic import Field

from etastar.errors import SpecError
from etastar.plan.gpus import GPUS, gpu_named
from etastar.plan.ladder import Cost, Ladder, ladder, paper_cost, smallest_cost
from etastar.plan.study_plan import (
    Budget,
    Count,
    Hardware,
    Positive,
    StackPlan,
    StudyPlan,
    Target,
    merged,
)
from etastar.plan.training import Training, read_training
from etastar.scale import format_number
from etastar.settings import Settings

# Weights, moments and gradients in fp32, and a bf16 copy, may take half of a GPU: the rest is activations
BYTES_IN_TRAINING = 18
STATE_SHARE = 0.5
MOST_SEEDS = 1000


class PlanRequest(Settings):
    """What a user says; everything else of a plan follows from it."""

    name: str = "study"
    spec: dict[str, Any]  # a training specification without width, seed, learning rates and horizons
    width: Count  # of the target
    tokens: Positive  # of the target
    lrs: tuple[Positive, ...] = Field(min_length=1)
    budget: Budget | None = None
    seeds: Count = Field(default=1, le=MOST_SEEDS)
    widths: tuple[Count, ...] = ()  # smaller models to choose from
    horizons: tuple[Count, ...] = ()  # steps, in place of what the budget buys
    count: Count | None = None  # horizons a model
    lrs_a_stack: Count | None = None  # null: what half of a GPU holds, and keeps all GPUs busy
    hardware: Hardware = Hardware()
    tokens_per_second: Positive | None = None  # measured, of every stack
    adaptive: bool = False


def make_plan(request: PlanRequest) -> StudyPlan:
    """The plan that a request asks for; what cannot be is one line with a hint."""
    target = _training(request, request.width)
    steps = request.tokens / target.batch_tokens
    if steps < target.shortest():
        raise SpecError(
            f"--tokens: {format_number(request.tokens)} are {steps:.0f} steps, fewer than warm-up + decay",
            hint=f"at least {format_number(target.shortest() * target.batch_tokens)} tokens, or a shorter schedule",
        )
    chosen = _chosen(request, target, steps)
    # no larger stacks than leave work for every GPU
    share = math.ceil(len(chosen) * request.seeds * len(request.lrs) / request.hardware.gpus)
    stacks = [
        stack
        for width, horizons in chosen
        for seed in range(request.seeds)
        for stack in _stacks(request, width, seed, horizons, most=share)
    ]
    hardware = request.hardware
    if request.tokens_per_second is not None:
        speeds = dict.fromkeys((stack.name for stack in stacks), request.tokens_per_second)
        hardware = Hardware.model_validate(hardware.model_dump() | {"tokens_per_second": speeds})
    return StudyPlan(
        name=request.name,
        spec=request.spec,
        stacks=tuple(stacks),
        target=Target(params=float(target.params), tokens=request.tokens, width=request.width),
        hardware=hardware,
        budget=request.budget,
        adaptive=request.adaptive,
    )


def _training(request: PlanRequest, width: int) -> Training:
    return read_training(merged(request.spec, {"model": {"width": width}}))


def _chosen(request: PlanRequest, target: Training, steps: float) -> list[tuple[int, tuple[int, ...]]]:
    """(width, horizons) of every model in the plan."""
    axis: Literal["data", "model", "both"] = request.budget.axis if request.budget else "data"
    if request.horizons:
        widths = request.widths if axis == "model" else (*request.widths, request.width)
        return _within_budget(request, target, steps, [(w, request.horizons) for w in dict.fromkeys(widths)])
    if request.budget is None:
        raise SpecError("no budget and no horizons are given", hint="--budget 0.2, or --horizons 10000,20000,40000")
    if axis == "data":
        return [(request.width, _ladder(request, target, target, steps, 1.0).horizons)]
    if axis == "model":
        return [(width, (round(steps),)) for width in _smaller_models(request, target)]
    # the largest first: where a budget is too small, it is too small for that one, and its hint serves all
    shares = sorted(_shares(request, target, steps), reverse=True)
    ladders = [
        (width, _ladder(request, _training(request, width), target, steps, share).horizons) for width, share in shares
    ]
    return sorted(ladders)


def _shares(request: PlanRequest, target: Training, steps: float) -> list[tuple[int, float]]:
    """(width, share of the budget): half for the target's model, or what its smallest ladder needs.

    Where that would leave the smaller models too little, the plan goes without the target's model.
    """
    assert request.budget is not None
    smaller = tuple(w for w in request.widths if w != request.width) or halves(request.width, target.head_dim)
    if not smaller:
        raise SpecError(f"--width: there is no model smaller than {request.width}", hint="--axis data")
    own = max(0.5, 1.001 * _smallest(request, target, target, steps) / request.budget.ratio)
    rest = (1 - own) / len(smaller)
    models = [_training(request, width) for width in smaller]
    if any(_smallest(request, model, target, steps) > rest * request.budget.ratio for model in models):
        return [(width, 1 / len(smaller)) for width in smaller]
    return [(request.width, own), *((width, rest) for width in smaller)]


def _smallest(request: PlanRequest, model: Training, target: Training, steps: float) -> float:
    """The budget that the smallest ladder of a model needs."""
    return smallest_cost(model, _cost(request, model)) * model.params / (steps * target.params)


def _within_budget(
    request: PlanRequest, target: Training, steps: float, chosen: list[tuple[int, tuple[int, ...]]]
) -> list[tuple[int, tuple[int, ...]]]:
    """Horizons that were typed are taken as they are, if the budget pays for them."""
    for width, horizons in chosen:
        for horizon in horizons:
            _training(request, width).check_horizon(horizon, where="--horizons")
    if request.budget is None:
        return chosen
    spent = sum(
        _cost(request, model)(horizons) * model.params / (steps * target.params)
        for width, horizons in chosen
        for model in (_training(request, width),)
    )
    if spent > request.budget.ratio * (1 + 1e-9):
        raise SpecError(
            f"--horizons: they cost {spent:.4g} of the {_unit(request)}, more than the budget {request.budget.ratio:g}",
            hint=f"--budget {_rounded_up(spent):g}, or shorter horizons",
        )
    return chosen


def _cost(request: PlanRequest, model: Training) -> Cost:
    """Steps that horizons count as under the request's way of counting."""
    if request.budget is None or request.budget.counts == "paper":
        return paper_cost
    return lambda horizons: request.seeds * model.steps(horizons)


def _ladder(request: PlanRequest, model: Training, target: Training, steps: float, share: float) -> Ladder:
    """The horizons that a share of the budget buys for one model; they end at the target's own length."""
    assert request.budget is not None
    cost = _cost(request, model)
    size = target.params / model.params
    allowance = request.budget.ratio * share * steps * size
    found = ladder(allowance, model, cost, longest=steps, count=request.count)
    if found is None:
        needed = _smallest(request, model, target, steps) / share
        which = f"{request.count} horizons" if request.count else "two horizons"
        raise SpecError(
            f"--budget: {request.budget.ratio:g} of the {_unit(request)} buys {allowance:.0f} steps at width "
            f"{model.width}, too few for {which}",
            hint=f"--budget {_rounded_up(needed):g} buys the smallest two, or shorten the schedule"
            if needed > request.budget.ratio
            else "fewer horizons, or a larger budget",
        )
    return found


def _smaller_models(request: PlanRequest, target: Training) -> tuple[int, ...]:
    """The set of smaller widths that spends most of the budget, of at least two."""
    assert request.budget is not None
    sizes = {width: _training(request, width).params for width in sorted(set(request.widths)) if width < request.width}
    if len(sizes) < 2:
        raise SpecError(
            f"--widths: {len(sizes)} of them are below the target's {request.width}; two are needed",
            hint="name smaller widths, e.g. --widths 256,512",
        )
    weight = request.seeds if request.budget.counts == "true" else 1
    sets = [
        (weight * sum(sizes[w] for w in chosen) / target.params, chosen)
        for number in range(2, min(len(sizes), 6) + 1)
        for chosen in combinations(sizes, number)
    ]
    bought = [found for found in sets if found[0] <= request.budget.ratio * (1 + 1e-9)]
    if not bought:
        cheapest, chosen = min(sets)
        raise SpecError(
            f"--budget: {request.budget.ratio:g} of the {_unit(request)} is below the two smallest models "
            f"(widths {', '.join(map(str, chosen))}: {cheapest:.4g})",
            hint=f"--budget {_rounded_up(cheapest):g}, or smaller --widths",
        )
    return max(bought, key=lambda found: (found[0], len(found[1])))[1]


def _unit(request: PlanRequest) -> str:
    paper = request.budget is None or request.budget.counts == "paper"
    return "target run" if paper else "sweep at target scale"


def _stacks(request: PlanRequest, width: int, seed: int, horizons: Sequence[int], *, most: int) -> list[StackPlan]:
    """The grid of one model and seed, cut into stacks that a GPU holds."""
    fits = request.lrs_a_stack or min(lrs_that_fit(_training(request, width).params, request.hardware), most)
    lrs = tuple(sorted(request.lrs))
    number = math.ceil(len(lrs) / fits)
    size = math.ceil(len(lrs) / number)  # of equal size, as far as that goes
    return [
        StackPlan(
            name=f"w{width}-s{seed}" + (f"-{part + 1}of{number}" if number > 1 else ""),
            width=width,
            seed=seed,
            lrs=lrs[part * size : (part + 1) * size],
            horizons=tuple(horizons),
        )
        for part in range(number)
        if lrs[part * size : (part + 1) * size]
    ]


def lrs_that_fit(params: float, hardware: Hardware) -> int:
    """Models of this size whose state takes half of the GPU's memory, at least one."""
    try:
        memory = gpu_named(hardware.gpu).memory
    except SpecError:
        memory = min(gpu.memory for gpu in GPUS.values())  # a GPU of the user's own: be careful
    return max(int(STATE_SHARE * memory / (BYTES_IN_TRAINING * params)), 1)


def halves(width: int, head_dim: int) -> tuple[int, ...]:
    """Half and a quarter of a width, in whole heads."""
    found = {max(round(width / part / head_dim), 1) * head_dim for part in (2, 4)}
    return tuple(sorted(found - {width}))


def octaves(low: float, high: float, step: float) -> tuple[float, ...]:
    """Learning rates from 2^low to 2^high in steps of octaves, both ends included."""
    return tuple(2.0 ** (low + step * k) for k in range(int(round((high - low) / step, 6)) + 1))


def _rounded_up(value: float) -> float:
    """To three digits, never below."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.3g}")


def spec_without_choices(content: Mapping[str, Any]) -> dict[str, Any]:
    """A whole training specification without what the stacks say: width, seed, learning rates, horizons, name."""
    kept = {key: value for key, value in content.items() if key not in ("name", "seed", "lrs", "horizons")}
    return kept | {"model": {key: value for key, value in content["model"].items() if key != "width"}}
