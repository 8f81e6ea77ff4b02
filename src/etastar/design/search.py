"""Which plan of the same true cost has the smallest expected ECR?

Candidates differ in the number and the placement of horizons, in the learning rates' spacing and range, and in
seeds; all cost the same FLOP as the plan they start from, or as little less as whole steps allow. They are tried in the
same worlds, the worse two thirds are dropped twice, and the winner is judged once more in worlds that it was not
chosen in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from etastar.design.expect import Expectation, Trial, try_plan
from etastar.plan.ladder import geometric, least_horizon
from etastar.plan.price import price_plan, price_stack
from etastar.plan.study_plan import StackPlan, StudyPlan
from etastar.simulate import World

COUNTS = (2, 3, 4, 5)
SPANS = (2.0, 3.0, 4.0, 8.0)
SPACINGS = (0.5, 1.0)
RANGES = (1.0, 0.75, 0.5)  # of the plan's own range of learning rates, about its middle
SEEDS = (1, 2)
LEAST_LRS = 5
MOST_CANDIDATES = 48
ROUNDS = (1 / 6, 1 / 3, 1.0)  # of the worlds, tried by all, the better third and the best


@dataclass(frozen=True)
class Candidate:
    """One way to spend the cost, and how it fared in the worlds that it was tried in."""

    plan: StudyPlan
    what: str
    flop: float
    trials: tuple[Trial, ...] = ()

    @property
    def expectation(self) -> Expectation:
        """Over the worlds so far."""
        return Expectation.of(self.trials)

    @property
    def merit(self) -> tuple[float, float]:
        """Smaller is better: mean ECR, then the median error."""
        found = self.expectation
        return found.mean_ecr, found.median_error


@dataclass(frozen=True)
class Found:
    """The candidates, best first; the first of them and the plan at the start were tried again in fresh worlds."""

    candidates: tuple[Candidate, ...]
    start: Candidate
    fresh: Expectation
    fresh_start: Expectation

    @property
    def improved(self) -> bool:
        """Is the winner better than the start in worlds that it was not chosen in, too?"""
        return self.fresh.mean_ecr < self.fresh_start.mean_ecr

    @property
    def best(self) -> Candidate:
        """The winner, or the plan at the start where fresh worlds do not confirm it."""
        return self.candidates[0] if self.improved else self.start


def optimize(
    plan: StudyPlan,
    worlds: Sequence[World],
    fresh: Sequence[World],
    *,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Found:
    """Search the plans of equal true cost; the same seed gives the same answer. `progress`: (what, done, of)."""
    tell = progress or (lambda *_: None)
    alive = list(candidates(plan, seed=seed))
    done = 0
    kept: list[Candidate] = []
    for share in ROUNDS:
        until = max(int(np.ceil(share * len(worlds))), 1)
        tried = []
        for index, candidate in enumerate(alive):
            new = [try_plan(candidate.plan, worlds[k], seed=seed + k) for k in range(done, until)]
            tried.append(Candidate(candidate.plan, candidate.what, candidate.flop, (*candidate.trials, *new)))
            tell(f"{len(alive)} plans in {until} worlds", index + 1, len(alive))
        tried.sort(key=lambda c: c.merit)
        keep = len(tried) if share == ROUNDS[-1] else max(len(tried) // 3, 2)
        # the plan at the start stays to the end, to be compared with
        alive = [c for index, c in enumerate(tried) if index < keep or c.plan is plan]
        kept = [c for c in tried if c not in alive] + kept
        done = until
    again = _afresh(alive[0].plan, fresh, seed, tell, "the best plan in fresh worlds")
    first = _afresh(plan, fresh, seed, tell, "the first plan in fresh worlds")
    start = next(c for c in alive if c.plan is plan)
    return Found((*alive, *sorted(kept, key=lambda c: (-len(c.trials), c.merit))), start, again, first)


def _afresh(
    plan: StudyPlan, worlds: Sequence[World], seed: int, tell: Callable[[str, int, int], None], what: str
) -> Expectation:
    trials = []
    for index, world in enumerate(worlds):
        trials.append(try_plan(plan, world, seed=seed + 100_000 + index))
        tell(what, index + 1, len(worlds))
    return Expectation.of(trials)


def candidates(plan: StudyPlan, *, seed: int = 0) -> Iterator[Candidate]:
    """The plan itself, and others of at most its FLOP; of very many, some chosen by the seed."""
    flop = price_plan(plan).flop
    yield Candidate(plan, "as given: " + _describe(plan), flop)
    found: dict[str, Candidate] = {}
    for count, span, spacing, part, seeds in product(COUNTS, SPANS, SPACINGS, RANGES, SEEDS):
        other = _variant(plan, count, span, spacing, part, seeds)
        if other is not None and (what := _describe(other)) not in found:
            found[what] = Candidate(other, what, price_plan(other).flop)
    listed = list(found.values())
    if len(listed) > MOST_CANDIDATES - 1:
        picked = np.random.default_rng([seed, 3]).choice(len(listed), MOST_CANDIDATES - 1, replace=False)
        listed = [listed[k] for k in sorted(picked)]
    yield from listed


def _variant(plan: StudyPlan, count: int, span: float, spacing: float, part: float, seeds: int) -> StudyPlan | None:
    """The plan with other horizons, learning rates and seeds at the same FLOP; None where that cannot be."""
    lrs = _grid(plan, spacing, part)
    if len(lrs) < LEAST_LRS:
        return None
    stacks: list[StackPlan] = []
    for width in dict.fromkeys(stack.width for stack in plan.stacks):
        own = [stack for stack in plan.stacks if stack.width == width]
        training = plan.training_of(own[0])
        flop = sum(price_stack(plan, stack).flop for stack in own)
        allowance = flop / (6.0 * training.params * training.batch_tokens * len(lrs) * seeds)
        horizons = _horizons(plan, own[0], allowance, count, span)
        if horizons is None:
            return None
        size = max(len(stack.lrs) for stack in own)
        stacks += [
            own[0].model_copy(
                update={
                    "name": f"w{width}-s{seed}-{first // size + 1}",
                    "seed": seed,
                    "lrs": lrs[first : first + size],
                    "horizons": horizons,
                }
            )
            for seed in range(seeds)
            for first in range(0, len(lrs), size)
        ]
    speeds = {"hardware": plan.hardware.model_copy(update={"tokens_per_second": {}})}
    return plan.model_copy(update={"stacks": tuple(stacks), **speeds})


def _grid(plan: StudyPlan, spacing: float, part: float) -> tuple[float, ...]:
    logs = np.log2([lr for stack in plan.stacks for lr in stack.lrs])
    middle, reach = 0.5 * (logs.min() + logs.max()), 0.5 * part * (logs.max() - logs.min())
    number = int(np.floor(2 * reach / spacing + 1e-9)) + 1
    start = middle - 0.5 * spacing * (number - 1)
    return tuple(float(2.0 ** (start + spacing * k)) for k in range(number))


def _horizons(plan: StudyPlan, stack: StackPlan, allowance: float, count: int, span: float) -> tuple[int, ...] | None:
    training = plan.training_of(stack)
    longest = max(plan.target.tokens / training.batch_tokens if plan.target else 0.0, max(stack.horizons))
    if plan.budget is not None and plan.budget.axis == "model":
        # along N every model must reach the target's D: what is left can only buy learning rates and seeds
        return stack.horizons if count == 2 and training.steps(stack.horizons) <= allowance * (1 + 1e-9) else None
    found = geometric(allowance, training.steps, count, span, longest=longest)
    good = len(set(found)) == count and found[0] >= least_horizon(training)
    # the target's own length is the sweep that a plan wants to avoid
    return found if (good and found[-1] < longest * 0.999) or (good and stack.width != _target_width(plan)) else None


def _target_width(plan: StudyPlan) -> int | None:
    return plan.target.width if plan.target is not None else None


def _describe(plan: StudyPlan) -> str:
    """Horizons, learning rates and seeds in a few words."""
    lrs = np.unique(np.round(np.log2([lr for stack in plan.stacks for lr in stack.lrs]), 4))
    spacing = float(np.median(np.diff(lrs))) if len(lrs) > 1 else 0.0
    seeds = len({stack.seed for stack in plan.stacks})
    by_width = {stack.width: stack.horizons for stack in plan.stacks}
    shown = "; ".join(
        f"{' '.join(f'{h:g}' for h in horizons)}" + (f" (w{width})" if len(by_width) > 1 else "")
        for width, horizons in by_width.items()
    )
    return f"{len(lrs)} LRs every {spacing:g} octave, {seeds} seed{'s' if seeds > 1 else ''}, horizons {shown}"
