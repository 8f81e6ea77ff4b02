"""Figure 4, left: how well does each strategy predict cells it has not seen, as its budget grows?

R²_OOD(β) of the four strategies, in the strategy's own quantity as the paper has it and in η, smoothed in a sliding
window of β; bands are half a standard deviation of the points in the window.
"""

from __future__ import annotations

from dataclasses import dataclass

from etastar.estimate.cells import Quantity
from etastar.laws.loglinear import Axis
from etastar.predict.evaluate import STRATEGIES, Evaluation
from etastar.report.figures.missing import Missing
from etastar.report.figures.sliding import sliding
from etastar.report.view import StudyView, training_of

NAME = "r2-ood"
HALF_WIDTH = 0.1  # of the window, in β
BAND = 0.5  # standard deviations


@dataclass(frozen=True)
class StrategyCurve:
    """R²_OOD of one strategy by budget."""

    axis: str
    quantity: str
    label: str  # "D, η_eff"
    budget_ratio: list[float]
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
    found = view.evaluation(view.main)
    if isinstance(found, str):
        return Missing(NAME, found, "a sweep at the largest N whose optimum lies inside it, at three D or more")
    if len(found.test_tokens) < 2:
        return Missing(NAME, "R² needs two test cells, and there is one", "more horizons of the largest N")
    curves = [_curve(found, axis, quantity, half_width) for axis, quantity in STRATEGIES]
    if not any(curve.budget_ratio for curve in curves):
        return Missing(NAME, curves[0].reason or "no strategy has a score", "shorter horizons of the largest N")
    return R2Data(found.params, list(found.test_tokens), training_of(view.main), curves)


def _curve(found: Evaluation, axis: Axis, quantity: Quantity, half_width: float) -> StrategyCurve:
    own = [score for score in found.scores if (score.axis, score.quantity) == (axis, quantity)]
    known = [(score, score.r2_ood) for score in own if score.r2_ood is not None]
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


def strategy_label(axis: Axis, quantity: Quantity) -> str:
    """ "D, η_eff": how figures and tables call a strategy."""
    return f"{'D' if axis is Axis.DATA else 'N'}, {'η_eff' if quantity is Quantity.EFF_LR else 'η'}"


def why_empty(found: Evaluation, axis: Axis, quantity: Quantity) -> str:
    """Why a strategy has no score at any budget."""
    said = [s.reason for s in found.scores if (s.axis, s.quantity) == (axis, quantity) and s.reason]
    if said:
        return said[0]
    return f"no budget buys {'two horizons of this N' if axis is Axis.DATA else 'two smaller model sizes'}"
