"""What does a plan cost? FLOP, GPU-hours, disk and wall time, and both ways to count a budget.

- The paper's β = Σα: the compute of every cell (N, D) over one run of the target. Each cell counts once, whatever the
  number of learning rates and seeds, and cells that share a trunk count it each.
- The true cost: every learning rate and seed, each trunk once, each decay. It is a fraction of a sweep of the same
  learning rates at target scale.

FLOP are 6·N·D (attention and evaluation are left out, as in the paper).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from etastar.plan.study_plan import StackPlan, StudyPlan
from etastar.plan.training import BYTES_A_PARAMETER
from etastar.scale import Scale

# The trainer keeps two checkpoints of a stack, and a third exists while it is written
CHECKPOINTS_KEPT = 2


@dataclass(frozen=True)
class StackPrice:
    """One stack: K learning rates of one model, trained in one program."""

    name: str
    width: int
    params: int
    seed: int
    lrs: int
    horizons: tuple[int, ...]
    steps: float  # a learning rate: its trunk and every decay
    tokens: float  # over all its learning rates
    flop: float
    seconds: float  # on one GPU
    checkpoint_bytes: float  # one checkpoint
    disk_bytes: float  # those that stay


@dataclass(frozen=True)
class PlanPrice:
    """A whole plan, and beside it a sweep of the same learning rates at target scale."""

    stacks: tuple[StackPrice, ...]
    runs: int  # branches: trained and evaluated cells
    flop: float
    gpu_seconds: float
    wall_seconds: float
    disk_bytes: float
    learning_rates: float  # a cell, mean
    budget_ratio: float | None  # the paper's β
    target_sweep_flop: float | None
    target_sweep_gpu_seconds: float | None

    @property
    def true_ratio(self) -> float | None:
        """The true cost over that of a sweep at target scale."""
        return None if self.target_sweep_flop is None else self.flop / self.target_sweep_flop


def price_plan(plan: StudyPlan) -> PlanPrice:
    """Price a plan from its stacks, as they stand in the file."""
    stacks = tuple(price_stack(plan, stack) for stack in plan.stacks)
    flop = sum(stack.flop for stack in stacks)
    gpu_seconds = sum(stack.seconds for stack in stacks)
    rates = learning_rates(plan)
    # while they run, the largest stacks write a third checkpoint
    writing = sum(sorted((s.checkpoint_bytes for s in stacks), reverse=True)[: plan.hardware.gpus])
    target = None if plan.target is None else Scale(plan.target.params, plan.target.tokens)
    sweep = None if target is None else rates * target.compute
    return PlanPrice(
        stacks=stacks,
        runs=sum(stack.lrs * len(stack.horizons) for stack in stacks),
        flop=flop,
        gpu_seconds=gpu_seconds,
        wall_seconds=longest_first((s.seconds for s in stacks), plan.hardware.gpus),
        disk_bytes=sum(s.disk_bytes for s in stacks) + writing,
        learning_rates=rates,
        budget_ratio=None if target is None else sum(6.0 * n * d for n, d in cells(plan)) / target.compute,
        target_sweep_flop=sweep,
        # at the speed that the plan's own FLOP run at
        target_sweep_gpu_seconds=None if sweep is None else sweep * gpu_seconds / flop,
    )


def price_stack(plan: StudyPlan, stack: StackPlan) -> StackPrice:
    """Price one stack."""
    training = plan.training_of(stack)
    steps = training.steps(stack.horizons)
    tokens = steps * training.batch_tokens * len(stack.lrs)
    flop = 6.0 * training.params * tokens
    measured = plan.hardware.tokens_per_second.get(stack.name)
    seconds = tokens / measured if measured is not None else flop / (plan.hardware.peak * plan.hardware.mfu)
    checkpoint = float(BYTES_A_PARAMETER * training.params * len(stack.lrs))
    kept = CHECKPOINTS_KEPT + (len(stack.horizons) if training.keep_branch_points else 0)
    return StackPrice(
        name=stack.name,
        width=stack.width,
        params=training.params,
        seed=stack.seed,
        lrs=len(stack.lrs),
        horizons=stack.horizons,
        steps=steps,
        tokens=tokens,
        flop=flop,
        seconds=seconds,
        checkpoint_bytes=checkpoint,
        disk_bytes=kept * checkpoint,
    )


def cells(plan: StudyPlan) -> list[tuple[int, float]]:
    """Every (N, D) of the plan once, ascending."""
    found = {
        (plan.params_of(stack), float(horizon * plan.batch_tokens_of(stack)))
        for stack in plan.stacks
        for horizon in stack.horizons
    }
    return sorted(found)


def learning_rates(plan: StudyPlan) -> float:
    """Learning rates a cell: the mean over the cells of each N, then over the N (seeds do not count)."""
    by_cell: dict[int, dict[float, set[float]]] = {}
    for stack in plan.stacks:
        own = by_cell.setdefault(plan.params_of(stack), {})
        for horizon in stack.horizons:
            own.setdefault(float(horizon * plan.batch_tokens_of(stack)), set()).update(stack.lrs)
    means = [sum(len(lrs) for lrs in own.values()) / len(own) for own in by_cell.values()]
    return sum(means) / len(means)


def longest_first(durations: Iterable[float], machines: int) -> float:
    """The wall time of jobs that cannot be split, the longest started first on the machine that is free first."""
    loads = [0.0] * machines
    for duration in sorted(durations, reverse=True):
        heapq.heapreplace(loads, loads[0] + duration)
    return max(loads)
