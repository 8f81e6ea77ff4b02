"""Which learning rate should be typed, how sure is that, and what if it is wrong?

One strategy is chosen by its back-test. Around its answer: an interval, the learning rate with the
smallest expected ECR (the loss rises faster below the optimum, so it lies a little above), the range
whose expected ECR stays under 2 %, the price of the evidence, and every doubt as a flag.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from etastar.estimate.cells import EffColumn, Group, Quantity
from etastar.estimate.estimates import Options, estimate_group
from etastar.estimate.flags import Flag, merge_flags
from etastar.laws.loglinear import Axis
from etastar.predict.backtest import Backtest, backtest, widen
from etastar.predict.budget import SweepCost, sweep_cost
from etastar.predict.choice import choose, is_twin
from etastar.predict.cost import Curves, Price, price_at
from etastar.predict.points import same_params
from etastar.predict.settings import RunSettings
from etastar.predict.strategies import Evidence, Prediction, predict_strategy
from etastar.predict.trunks import Paths
from etastar.scale import Scale

SAFE_ECR = 0.02
STRATEGIES = (
    *((axis, quantity, False) for axis in Axis for quantity in Quantity),
    *((axis, Quantity.EFF_LR, True) for axis in Axis),
)
TOO_WIDE = 6.0  # octaves from end to end: such an interval is no answer


@dataclass(frozen=True)
class Recommendation:
    """One learning rate for one target."""

    log2_lr: float
    log2_interval: tuple[float, float]
    axis: Axis
    quantity: Quantity
    inverted: bool  # η from η_eff by the theory
    why: str
    expected_ecr: float | None
    log2_lr_min_ecr: float | None
    safe_range: tuple[float, float] | None  # log2 η
    conditions: dict[str, float | str | None]
    cost: SweepCost
    flags: tuple[Flag, ...]


@dataclass(frozen=True)
class Answer:
    """Everything that one group says about one target."""

    group: str
    target: Scale
    predictions: tuple[Prediction, ...]
    backtests: tuple[Backtest, ...]
    recommended: Recommendation | None
    abstained: str | None


def answer(
    group: Group,
    target: Scale,
    options: Options = Options(),
    *,
    eff_column: EffColumn = EffColumn.MEAN,
    paths: Paths | None = None,
    settings: RunSettings | None = None,
) -> Answer:
    """Predict the target by every strategy, back-test each, and recommend one or say why not.

    `paths` are trajectories for the inverted strategies, `settings` the target's own where they are not
    the sweep's.
    """
    evidence = Evidence(group, estimate_group(group, options), eff_column, paths or {}, settings)
    return answer_from(evidence, target, options.level)


def answer_from(evidence: Evidence, target: Scale, level: float) -> Answer:
    """The same from estimates that exist already."""
    raw, tests = [], []
    for axis, quantity, inverted in STRATEGIES:
        settings = evidence.settings if inverted else None
        said = predict_strategy(evidence, axis, quantity, target, inverted=inverted, settings=settings)
        raw.append(_with_settings(evidence, said))
        tests.append(backtest(evidence, axis, quantity, target, inverted=inverted))
    predictions = [widen(p, t) for p, t in zip(raw, tests, strict=True)]
    tied, reason = choose(predictions, tests)
    if not tied:
        return Answer(evidence.group.label, target, tuple(predictions), tuple(tests), None, reason)
    recommendation = _recommend(evidence, predictions, tests, tied, level)
    width = recommendation.log2_interval[1] - recommendation.log2_interval[0]
    if width > TOO_WIDE:
        said = f"the best strategy's interval spans {width:.1f} octaves: these runs do not say more than a guess would"
        return Answer(evidence.group.label, target, tuple(predictions), tuple(tests), None, said)
    return Answer(evidence.group.label, target, tuple(predictions), tuple(tests), recommendation, None)


def _with_settings(evidence: Evidence, said: Prediction) -> Prediction:
    """Flag what a target that is not trained as the sweep was does to a strategy."""
    if said.log2_lr is None:
        return said
    course = Flag.OTHER_SETTINGS if said.inverted else Flag.SWEEP_SETTINGS
    flags = [course] if evidence.other_settings else []
    flags += [Flag.OTHER_BATCH] if evidence.other_batch else []
    return replace(said, flags=merge_flags(said.flags, flags))


def _recommend(
    evidence: Evidence, predictions: list[Prediction], tests: list[Backtest], tied: list[int], level: float
) -> Recommendation:
    chosen = tied[0]
    redraws = [found for k in tied if (found := predictions[k].lr_redraws) is not None]
    prediction = replace(predictions[chosen], lr_redraws=np.concatenate(redraws))
    assert prediction.log2_lr is not None
    interval = prediction.interval(level, of_lr=True)
    assert interval is not None
    flags = [*prediction.flags, *_other_flags(evidence, predictions, tests, chosen, interval, level)]
    price = price_at(Curves(evidence.estimates[Quantity.LR]), prediction.target)
    ecr, best, safe = _weigh(price, prediction)
    if price is None:
        flags.append(Flag.NO_COST)
    elif not price.law.identified:
        flags.append(Flag.LOCAL_SLOPE)
    if price is not None and safe is None:
        flags.append(Flag.NO_SAFE_RANGE)
    return Recommendation(
        log2_lr=prediction.log2_lr,
        log2_interval=interval,
        axis=prediction.axis,
        quantity=prediction.quantity,
        inverted=prediction.inverted,
        why=_why(predictions, tests, chosen),
        expected_ecr=ecr,
        log2_lr_min_ecr=best,
        safe_range=safe,
        conditions=_conditions(evidence, prediction),
        cost=_cost(evidence, prediction),
        flags=merge_flags(flags),
    )


def _weigh(
    price: Price | None, prediction: Prediction
) -> tuple[float | None, float | None, tuple[float, float] | None]:
    """(expected ECR of the predicted η, log2 η with the smallest, log2 range below 2 %)."""
    if price is None or prediction.lr_redraws is None or prediction.log2_lr is None:
        return None, None, None
    redraws = prediction.lr_redraws
    spread = max(4 * float(np.std(redraws)), 1.5)
    grid = np.linspace(prediction.log2_lr - spread, prediction.log2_lr + spread, 241)
    expected = price.expected(grid, redraws)
    at_answer = float(price.expected(np.array([prediction.log2_lr]), redraws)[0])
    best = int(np.argmin(expected))
    safe = None
    if expected[best] <= SAFE_ECR:
        left = right = best
        while left > 0 and expected[left - 1] <= SAFE_ECR:
            left -= 1
        while right < len(grid) - 1 and expected[right + 1] <= SAFE_ECR:
            right += 1
        safe = (float(grid[left]), float(grid[right]))
    return at_answer, float(grid[best]), safe


def _other_flags(
    evidence: Evidence,
    predictions: list[Prediction],
    tests: list[Backtest],
    chosen: int,
    interval: tuple[float, float],
    level: float,
) -> list[Flag]:
    flags = []
    rivals = [p for k, p in enumerate(predictions) if k != chosen and tests[k].trials and p.log2_lr is not None]
    for rival in rivals:
        theirs = rival.interval(level, of_lr=True)
        if theirs is not None and (theirs[1] < interval[0] or theirs[0] > interval[1]):
            flags.append(Flag.STRATEGIES_DISAGREE)
    swept = [(b.log2_lr[0], b.log2_lr[-1]) for b in evidence.group.blocks]
    lr = predictions[chosen].log2_lr or 0.0
    if not any(low <= lr <= high for low, high in swept):
        flags.append(Flag.OUTSIDE_SWEPT_RANGE)
    # a warm-up or decay that scales with the horizon is a setting; a mixed batch or λ is not
    if set(evidence.group.varied) - {"warmup_steps", "decay_steps"}:
        flags.append(Flag.VARIED_CONDITIONS)
    return flags


def _why(predictions: list[Prediction], tests: list[Backtest], chosen: int) -> str:
    name, tested = predictions[chosen].name, tests[chosen]
    if not tested.trials:
        return f"{name}: the narrowest interval; too few cells to back-test any strategy"
    others = [
        f"{p.name} {t.rms_lr_error:.2f}"
        for k, (p, t) in enumerate(zip(predictions, tests, strict=True))
        if k != chosen and t.trials and p.log2_lr is not None and not is_twin(predictions, k)
    ]
    against = f", against {', '.join(others)}" if others else ""
    return (
        f"{name}: on {len(tested.trials)} held-out cells it missed by {tested.rms_lr_error:.2f} octaves"
        f"{against}; the smallest error expected at the target"
    )


def _conditions(evidence: Evidence, prediction: Prediction) -> dict[str, float | str | None]:
    """What the answer holds for: the sweep's settings, or the target's own where the theory carried it there."""
    known = dict(evidence.group.conditions)
    asked = evidence.settings
    if asked is None or not prediction.inverted:
        return known
    known.pop("decay_fraction", None)
    known |= {name: getattr(asked, name) for name in ("weight_decay", "batch_tokens", "warmup_steps", "schedule")}
    known["decay_steps"] = float(asked.decay_of(asked.steps(prediction.target.tokens)))
    return known


def _cost(evidence: Evidence, prediction: Prediction) -> SweepCost:
    estimates = evidence.estimates[prediction.quantity]
    usable = estimates.usable
    if prediction.axis is Axis.DATA:
        usable = usable & (estimates.params == same_params(estimates, prediction.target.params))
    elif prediction.axis is Axis.MODEL:
        usable = usable & (np.abs(np.log2(estimates.tokens / prediction.target.tokens)) < 1e-3)
    cells = [(float(estimates.params[k]), float(estimates.tokens[k])) for k in np.flatnonzero(usable)]
    return sweep_cost(evidence.group, cells, prediction.target)
