"""How far off would this plan's answer be, and what would that cost? Tried in simulated worlds.

Every world goes the whole way: the plan's runs are drawn, optima estimated, laws fitted, a learning rate
recommended, by the same code that real runs go through. Then the world's own optimum is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from etastar.design.draw import at_horizon, simulate_plan
from etastar.design.priors import measures_eff_lr, target_of
from etastar.errors import SpecError
from etastar.estimate.cells import Quantity, build_groups
from etastar.estimate.estimates import Estimates, Options, estimate_group
from etastar.laws.loss import LossLaw
from etastar.plan.study_plan import StudyPlan
from etastar.predict.recommend import answer_from
from etastar.predict.strategies import Evidence
from etastar.scale import Scale
from etastar.simulate import World

REPLICATES = 100
MOST_ECR = 1.0  # a learning rate that wastes more than a whole run is as good as none


@dataclass(frozen=True)
class Trial:
    """One world: what was answered and what it would have cost.

    Where the pipeline abstains there is no error, and the ECR is that of typing the optimum of the longest run.
    """

    log2_error: float | None
    ecr: float
    inside: bool  # does the 90 % interval hold the world's optimum?


@dataclass(frozen=True)
class Expectation:
    """A plan over many worlds. An abstention counts as a larger error than any answer's."""

    worlds: int
    abstained: int
    median_error: float  # |log2 η̂ − log2 η*|
    high_error: float  # 90th percentile
    mean_ecr: float
    median_ecr: float
    high_ecr: float
    inside: float  # share of the answers whose 90 % interval held the truth

    @classmethod
    def of(cls, trials: Sequence[Trial]) -> Expectation:
        """Summarise trials."""
        answered = [t for t in trials if t.log2_error is not None]
        errors = [abs(t.log2_error) if t.log2_error is not None else np.inf for t in trials]
        ecrs = [t.ecr for t in trials]
        return cls(
            worlds=len(trials),
            abstained=len(trials) - len(answered),
            median_error=_quantile(errors, 0.5),
            high_error=_quantile(errors, 0.9),
            mean_ecr=float(np.mean(ecrs)),
            median_ecr=_quantile(ecrs, 0.5),
            high_ecr=_quantile(ecrs, 0.9),
            inside=float(np.mean([t.inside for t in answered])) if answered else float("nan"),
        )


def _quantile(values: Sequence[float], share: float) -> float:
    """The value that `share` of them do not exceed; infinite values are allowed."""
    ordered = np.sort(values)
    return float(ordered[min(int(np.ceil(share * len(ordered))) - 1, len(ordered) - 1)])


def try_plan(plan: StudyPlan, world: World, *, seed: int) -> Trial:
    """Carry the plan out in one world and look up how good its answer is."""
    params, tokens = target_of(plan)
    runs = simulate_plan(world, plan, seed=seed, with_eff_lr=measures_eff_lr(plan))
    groups = build_groups(runs)
    if len(groups) > 1:
        raise SpecError(
            f"the plan's stacks make {len(groups)} groups ({groups[0].label} …), which no law may mix",
            hint="train all stacks with one batch, optimizer and schedule, or make a plan of each",
        )
    (group,) = groups
    training = plan.training_of(plan.stacks[0])
    there = at_horizon(world, training, tokens / training.batch_tokens)
    estimates = estimate_group(group, Options(replicates=REPLICATES, seed=seed))
    said = answer_from(Evidence(group, estimates), Scale(params, tokens), 0.9).recommended
    if said is None:
        return Trial(None, _without_answer(estimates[Quantity.LR], there, params, tokens), False)
    truth = float(there.log2_optimal_lr(params, tokens))
    low, high = said.log2_interval
    return Trial(said.log2_lr - truth, true_ecr(there, said.log2_lr, params, tokens), low <= truth <= high)


def _without_answer(estimates: Estimates, world: World, params: float, tokens: float) -> float:
    """ECR of the learning rate that was best in the longest run of the largest model; the most where none was."""
    usable = np.flatnonzero(estimates.usable)
    if len(usable) == 0:
        return MOST_ECR
    last = usable[np.lexsort((estimates.tokens[usable], estimates.params[usable]))[-1]]
    return true_ecr(world, float(estimates.log2_values[last]), params, tokens)


def true_ecr(world: World, log2_lr: float, params: float, tokens: float) -> float:
    """Extra tokens over the run's own that make up for this learning rate, by the world's own loss."""
    gap = float(world.loss(2.0**log2_lr, params, tokens) - world.floor(params, tokens))
    law = LossLaw(world.base_loss, world.data_loss, world.data_power, 1.0, True, float("nan"))
    if gap < 0:
        return MOST_ECR  # far beyond the turning point of a cubic: nobody would call that a minimum
    return float(min(law.extra_ratio(tokens, gap), MOST_ECR))


def expect(
    plan: StudyPlan, worlds: Sequence[World], *, seed: int = 0, each: Callable[[int], None] | None = None
) -> Expectation:
    """Try a plan in every world; `each` is told how many are done."""
    trials = []
    for index, world in enumerate(worlds):
        trials.append(try_plan(plan, world, seed=seed + index))
        if each is not None:
            each(index + 1)
    return Expectation.of(trials)
