"""Figure 4, left: how well does each strategy predict cells it has not seen, as its budget grows?

R²_OOD(β) of the four strategies, in the strategy's own quantity as the paper has it and in η, smoothed in a sliding
window of β; bands are half a standard deviation of the points in the window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from etastar.estimate.cells import Quantity
from etastar.laws.loglinear import Axis
from etastar.predict.evaluate import STRATEGIES, Evaluation
from etastar.report.figures import style
from etastar.report.figures.judged import judged, strategy_label, why_empty
from etastar.report.figures.missing import Missing
from etastar.report.figures.sliding import sliding
from etastar.report.view import StudyView, training_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "r2-ood"
HALF_WIDTH = 0.1  # of the window, in β
BAND = 0.5  # standard deviations
FEWEST = 4  # budgets that make a line
LOWEST = -3.0  # below it the axis is one of 1 − R²: R²_OOD has no lower bound
_TICKS = (0.99, 0.9, 0.5, 0, -1, -3, -9, -30, -99, -300, -999)
EFF = "$\\eta_{\\mathrm{eff}}$"


@dataclass(frozen=True)
class StrategyCurve:
    """R²_OOD of one strategy by budget."""

    axis: str
    quantity: str
    label: str  # "D, η_eff"
    budget_ratio: list[float]  # at which every test cell has a training set
    r2_ood: list[float]
    smoothed: list[float]
    band_low: list[float]
    band_high: list[float]
    r2_ood_lr: list[float | None]  # the same in η, which compares across quantities
    reason: str | None  # why the curve is empty


@dataclass(frozen=True)
class R2Data:
    """All strategies on the test cells of one N."""

    params: float
    test_tokens: list[float]
    training: str
    curves: list[StrategyCurve]


def data(view: StudyView, half_width: float = HALF_WIDTH) -> R2Data | Missing:
    """Scores of the main group's test cells."""
    found = judged(view, NAME, tests=2)
    if isinstance(found, Missing):
        return found
    curves = [_curve(found, axis, quantity, half_width) for axis, quantity in STRATEGIES]
    if not any(curve.budget_ratio for curve in curves):
        return Missing(NAME, curves[0].reason or "no strategy has a score", "shorter horizons of the largest N")
    return R2Data(found.params, list(found.test_tokens), training_of(view.main), curves)


def _curve(found: Evaluation, axis: Axis, quantity: Quantity, half_width: float) -> StrategyCurve:
    own = [score for score in found.scores if (score.axis, score.quantity) == (axis, quantity)]
    # with fewer test cells R² has another denominator, and jumps
    whole = [score for score in own if score.tests == len(found.test_tokens)]
    known = [(score, score.r2_ood) for score in whole if score.r2_ood is not None]
    beta, values = [score.budget_ratio for score, _ in known], [value for _, value in known]
    middle, spread = sliding(beta, values, half_width)
    return StrategyCurve(
        axis=axis.value,
        quantity=quantity.value,
        label=strategy_label(axis, quantity),
        budget_ratio=beta,
        r2_ood=values,
        smoothed=middle.tolist(),
        band_low=(middle - BAND * spread).tolist(),
        band_high=(middle + BAND * spread).tolist(),
        r2_ood_lr=[score.r2_ood_lr for score, _ in known],
        reason=None if known else why_empty(found, axis, quantity),
    )


def draw(found: R2Data) -> Figure:
    """One column: a band and a line for each strategy; D blue, N vermilion, η_eff solid, η dashed."""
    with style.paper():
        figure, (ax,) = style.canvas(style.ONE_COLUMN, 2.8)
        low = min(min(curve.r2_ood) for curve in found.curves if curve.r2_ood)
        far = low < LOWEST
        for curve in found.curves:
            if not curve.budget_ratio:
                continue
            colour, dashes = strategy_style(curve.axis, curve.quantity)
            beta = [100 * b for b in curve.budget_ratio]
            place = _octaves if far else np.asarray
            ax.fill_between(beta, place(curve.band_low), place(curve.band_high), color=colour, alpha=0.13, lw=0)
            label = curve.label.replace("η_eff", EFF)
            if len(beta) < FEWEST:  # too few for a line
                face = colour if dashes == "-" else "white"
                ax.plot(beta, place(curve.r2_ood), "s", mfc=face, mec=colour, ms=4, label=label)
                continue
            ax.plot(beta, place(curve.smoothed), color=colour, ls=dashes, label=label)
            ax.plot(beta, place(curve.r2_ood), ".", color=colour, ms=2, alpha=0.6)
        if far:
            high = max(max(curve.band_high) for curve in found.curves if curve.band_high)
            ticks = [t for t in _TICKS if 0.3 * (1 - high) <= 1 - t <= 2 * (1 - low)]
            ax.set_yticks(_octaves(ticks), labels=[f"{t:g}".replace("-", "−") for t in ticks])
        else:
            ax.set_ylim(top=1.05)
            ax.axhline(1, color=style.GREY, lw=0.5)
        ax.set_xlabel("compute budget β (% of one run at the target)")
        ax.set_ylabel("$R^2_{\\mathrm{OOD}}$")
        figure.legend(loc="outside lower center", ncols=4, columnspacing=1.0, handletextpad=0.4)
        span = f"D {style.short(min(found.test_tokens))} to {style.short(max(found.test_tokens))}"
        style.heading(
            figure,
            f"tested at N = {style.short(found.params)}, {span} ({len(found.test_tokens)} cells)",
            *(f"{c.label}: {c.reason}" for c in found.curves if c.reason and not c.budget_ratio),
        )
        return figure


def _octaves(r2: ArrayLike) -> NDArray[np.float64]:
    """−log2(1 − R²): room for scores far below zero, where a linear axis has none."""
    return -np.log2(np.maximum(1 - np.asarray(r2, float), 1e-3))


def strategy_style(axis: str, quantity: str) -> tuple[str, str]:
    """(colour, line style) of a strategy, the same in every figure."""
    return (
        style.BLUE if axis == Axis.DATA.value else style.VERMILION,
        "-" if quantity == Quantity.EFF_LR.value else "--",
    )
