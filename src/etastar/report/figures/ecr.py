"""Figure 4, right: what does a missed optimum cost? ECR against 1 − R²_OOD, one point a strategy and budget."""

from __future__ import annotations

from dataclasses import dataclass

from etastar.predict.evaluate import STRATEGIES
from etastar.predict.proportion import Proportion, ecr_proportion
from etastar.report.figures.missing import Missing
from etastar.report.figures.r2_ood import strategy_label
from etastar.report.view import StudyView, training_of

NAME = "ecr-r2"


@dataclass(frozen=True)
class StrategyPoints:
    """One strategy at every budget that has both numbers."""

    axis: str
    quantity: str
    label: str
    budget_ratio: list[float]
    unexplained: list[float]  # 1 − R²_OOD in the strategy's own quantity
    unexplained_lr: list[float | None]  # the same in η
    ecr: list[float]
    log2_lr_error: list[float | None]


@dataclass(frozen=True)
class EcrData:
    """Every strategy's points, and the proportion through all of them."""

    params: float
    test_tokens: list[float]
    training: str
    strategies: list[StrategyPoints]
    proportion: Proportion | None
    proportion_lr: Proportion | None  # with 1 − R²_OOD in η
    unpriced: int  # scores without an ECR


def data(view: StudyView) -> EcrData | Missing:
    """Scores of the main group's test cells."""
    found = view.evaluation(view.main)
    if isinstance(found, str):
        return Missing(NAME, found, "a sweep at the largest N whose optimum lies inside it, at three D or more")
    if len(found.test_tokens) < 2:
        return Missing(NAME, "R² needs two test cells, and there is one", "more horizons of the largest N")
    strategies = []
    for axis, quantity in STRATEGIES:
        own = [s for s in found.scores if (s.axis, s.quantity) == (axis, quantity)]
        both = [(s, s.r2_ood, s.ecr) for s in own if s.r2_ood is not None and s.ecr is not None]
        strategies.append(
            StrategyPoints(
                axis=axis.value,
                quantity=quantity.value,
                label=strategy_label(axis, quantity),
                budget_ratio=[s.budget_ratio for s, _, _ in both],
                unexplained=[1 - r2 for _, r2, _ in both],
                unexplained_lr=[None if s.r2_ood_lr is None else 1 - s.r2_ood_lr for s, _, _ in both],
                ecr=[ecr for _, _, ecr in both],
                log2_lr_error=[s.log2_lr_error for s, _, _ in both],
            )
        )
    points = [(x, z, y) for s in strategies for x, z, y in zip(s.unexplained, s.unexplained_lr, s.ecr, strict=True)]
    if not points:
        return Missing(
            NAME,
            "no budget has both R²_OOD and an ECR: predictions lie outside the swept learning rates",
            "a wider sweep at the largest N",
        )
    return EcrData(
        params=found.params,
        test_tokens=list(found.test_tokens),
        training=training_of(view.main),
        strategies=strategies,
        proportion=ecr_proportion([x for x, _, _ in points], [y for _, _, y in points]),
        proportion_lr=ecr_proportion([z for _, z, _ in points if z is not None], [y for _, z, y in points if z is not None]),
        unpriced=sum(s.ecr is None for s in found.scores),
    )  # fmt: skip
