"""Figure 4, right: what does a missed optimum cost? ECR against 1 − R²_OOD, one point a strategy and budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from etastar.estimate.cells import Quantity
from etastar.laws.loglinear import Axis
from etastar.predict.evaluate import STRATEGIES
from etastar.predict.proportion import Proportion, ecr_proportion
from etastar.report.figures import style
from etastar.report.figures.judged import judged, strategy_label
from etastar.report.figures.missing import Missing
from etastar.report.figures.r2_ood import EFF, strategy_style
from etastar.report.view import StudyView, training_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    found = judged(view, NAME, tests=2)
    if isinstance(found, Missing):
        return found
    strategies = []
    for axis, quantity in STRATEGIES:
        own = [
            s for s in found.scores if (s.axis, s.quantity) == (axis, quantity) and s.tests == len(found.test_tokens)
        ]
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


def draw(found: EcrData) -> Figure:
    """One column, both axes logarithmic: a proportion is a line of slope one."""
    with style.paper():
        figure, (ax,) = style.canvas(style.ONE_COLUMN, 2.7)
        for points in found.strategies:
            pairs = _positive(points)
            if pairs:
                colour, _ = strategy_style(points.axis, points.quantity)
                solid = points.quantity == Quantity.EFF_LR.value
                ax.plot(
                    *zip(*pairs, strict=True), "o" if points.axis == Axis.DATA.value else "s", ms=3,
                    mec=colour, mew=0.7, mfc=colour if solid else "white", alpha=0.8,
                    label=points.label.replace("η_eff", EFF),
                )  # fmt: skip
        ax.set_xscale("log")
        ax.set_yscale("log")
        if found.proportion is not None:
            ends = np.array([x for points in found.strategies for x in points.unexplained if x > 0])
            ends = np.array([ends.min(), ends.max()])
            ax.plot(ends, 100 * found.proportion.factor * ends, color=style.INK, lw=0.9, zorder=1)
        ax.set_xlabel("$1 - R^2_{\\mathrm{OOD}}$")
        ax.set_ylabel("extra compute ratio (%)")
        for axis, k in ((ax.xaxis, 0), (ax.yaxis, 1)):
            style.plain_log(axis, [pair[k] for points in found.strategies for pair in _positive(points)])
        ax.legend(loc="upper left", title="fit along, of", title_fontsize=style.SMALL)
        style.heading(
            figure, f"tested at N = {style.short(found.params)} ({len(found.test_tokens)} cells)", *_said(found)
        )
        return figure


def _positive(points: StrategyPoints) -> list[tuple[float, float]]:
    """(1 − R², ECR in %) that a logarithmic plot can hold."""
    return [(x, 100 * y) for x, y in zip(points.unexplained, points.ecr, strict=True) if x > 0 and y > 0]


def _said(found: EcrData) -> list[str]:
    if found.proportion is None:
        return []
    fit = found.proportion
    free = "" if fit.exponent is None else f", free power {fit.exponent:.2f}"
    return [f"line: ECR = {100 * fit.factor:.2g} % · (1 − R²){free}"]
