"""How were the strategies judged, and why can they not be? What the figures of R²_OOD and ECR share."""

from __future__ import annotations

from etastar.estimate.cells import Quantity
from etastar.laws.loglinear import Axis
from etastar.predict.evaluate import Evaluation
from etastar.report.figures.missing import JUDGED, Missing
from etastar.report.view import StudyView


def judged(view: StudyView, figure: str, *, tests: int = 1) -> Evaluation | Missing:
    """The main group's evaluation on its test cells, `tests` of them at least."""
    found = view.evaluation(view.main)
    if isinstance(found, str):
        return Missing(figure, found, JUDGED)
    if len(found.test_tokens) < tests:
        return Missing(figure, "R² needs two test cells, and there is one", "more horizons of the largest N")
    if not found.rows:
        return Missing(figure, "no budget buys two cells to extrapolate from", "shorter horizons of the largest N")
    return found


def strategy_label(axis: Axis, quantity: Quantity) -> str:
    """ "D, η_eff": how figures and tables call a strategy."""
    return f"{'D' if axis is Axis.DATA else 'N'}, {'η_eff' if quantity is Quantity.EFF_LR else 'η'}"


def why_empty(found: Evaluation, axis: Axis, quantity: Quantity) -> str:
    """Why a strategy has no score at any budget."""
    said = [s.reason for s in found.scores if (s.axis, s.quantity) == (axis, quantity) and s.reason]
    if said:
        return said[0]
    return f"no budget buys {'two horizons of this N' if axis is Axis.DATA else 'two smaller model sizes'}"
