"""Are the laws along D straight, which way do they bend, and does the theory say so?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from etastar.estimate.cells import EffColumn, Group, Quantity
from etastar.estimate.estimates import Estimates
from etastar.laws.loglinear import Axis, Law
from etastar.predict.diagnosis import diagnose_study
from etastar.report.results.claim import Claim, Verdict, by_interval, signed, untested
from etastar.report.view import StudyView
from etastar.scale import Scale, format_number

Array = NDArray[np.float64]


def data_laws(view: StudyView, group: Group, quantity: Quantity) -> dict[float, Law]:
    """The laws along D of one quantity that have a curvature, by N."""
    return {
        law.fixed: law
        for law in view.laws(group)
        if law.axis is Axis.DATA and law.quantity is quantity and law.fixed is not None and law.curvature is not None
    }


def bend(view: StudyView) -> Claim:
    """The sign of the curvature of log η* in log D."""
    title = "η* bends upward along D"
    paper = "at large D the optimal learning rate is higher than a straight extrapolation from small D says"
    laws = data_laws(view, view.main, Quantity.LR)
    if not laws:
        return untested(title, paper, "no N has three optima along D")
    lines = [f"N = {format_number(n)}: curvature {_curvature(law)} octave/octave²" for n, law in laws.items()]
    ends = [law.curvature_interval for law in laws.values() if law.curvature_interval is not None]
    up, down = any(low > 0 for low, _ in ends), any(high < 0 for _, high in ends)
    verdict = Verdict.INDISTINCT if up == down else Verdict.SUPPORTED if up else Verdict.CONTRADICTED
    rule = "supported if an interval lies above zero and none below, contradicted the other way round"
    return Claim(title, paper, tuple(lines), rule, verdict)


def straighter(view: StudyView) -> Claim:
    """|r| of the η_eff* law against that of the η* law, redraw by redraw."""
    title = "η_eff* is straighter in log D than η*"
    paper = "η_eff* keeps to a line in log D where η* does not; its Pearson r is closer to −1"
    found = view.estimates(view.main)
    laws, eff = data_laws(view, view.main, Quantity.LR), data_laws(view, view.main, Quantity.EFF_LR)
    both = [n for n in laws if n in eff]
    if not both:
        return untested(title, paper, "no N has three optima of both quantities along D")
    gains = np.stack([_gain(found[Quantity.LR], found[Quantity.EFF_LR], n, view.options.level) for n in both])
    lines = [
        f"N = {format_number(n)}: r {_r(laws[n])} for η*, {_r(eff[n])} for η_eff*; curvature over slope "
        f"{signed(_bend_over_slope(laws[n]), digits=2)} and {signed(_bend_over_slope(eff[n]), digits=2)}; |r| gained "
        f"{signed(gain[0], (gain[1], gain[2]), 4)}"
        for n, gain in zip(both, gains, strict=True)
    ]
    lines += _on_plateau(view, both)
    verdicts = {by_interval(low, high, claimed_sign=1) for _, low, high in gains}
    decided = verdicts - {Verdict.INDISTINCT}
    rule = "decided where the interval of the gain in |r| leaves zero at an N, and no other N says the opposite"
    return Claim(title, paper, tuple(lines), rule, decided.pop() if len(decided) == 1 else Verdict.INDISTINCT)


def _on_plateau(view: StudyView, sizes: list[float]) -> list[str]:
    """The same with η_eff between warm-up and decay: a decay of fixed length pulls the other mean down at small D."""
    column = EffColumn.PLATEAU
    if view.eff_column is column or column.value not in view.table.column_names:
        return []
    other = view.with_eff_lr(column)
    laws, found = data_laws(other, other.main, Quantity.EFF_LR), other.estimates(other.main)
    gains = {n: _gain(found[Quantity.LR], found[Quantity.EFF_LR], n, view.options.level) for n in sizes if n in laws}
    return [
        f"N = {format_number(n)}, η_eff between warm-up and decay: r {_r(laws[n])}, curvature over slope "
        f"{signed(_bend_over_slope(laws[n]), digits=2)}; |r| gained {signed(gain[0], (gain[1], gain[2]), 4)}"
        for n, gain in gains.items()
    ]


def foreseen(view: StudyView) -> Claim:
    """The bend of η* that the theory derives from a straight η_eff* law, beside the measured one."""
    title = "the theory foresees the bend of η*"
    paper = "as D grows the optimum moves from equilibrium to the transient regime, which bends η* upward"
    params, (_, longest) = view.test_cells(view.main)
    found = diagnose_study(view.evidence(view.main), Scale(params, longest), None, view.options.level)
    told = found.bend
    if told is None or told.curvature is None or told.measured_curvature is None or told.measured_interval is None:
        return untested(title, paper, found.reason or "fewer than three horizons")
    low, high = told.measured_interval
    lines = (
        f"N = {format_number(params)}: curvature of log2 η*, from a straight η_eff* law by the theory "
        f"{signed(told.curvature, told.curvature_interval)}, measured {signed(told.measured_curvature, (low, high))}",
        f"the premise, a straight η_eff* law: its own curvature is measured as "
        f"{signed(told.eff_curvature or 0.0, told.eff_interval)}",
    )
    interval = told.curvature_interval or (told.curvature, told.curvature)
    apart = interval[1] < low or interval[0] > high
    rule = "contradicted if the predicted and the measured interval do not meet; supported if they meet away from zero"
    verdict = Verdict.CONTRADICTED if apart else Verdict.INDISTINCT if low <= 0 <= high else Verdict.SUPPORTED
    return Claim(title, paper, lines, rule, verdict)


def adamh(view: StudyView) -> Claim:
    """AdamH's law along D: straight, or at least straighter than AdamW's at the same N."""
    title = "with AdamH, which fixes the norm, the law along D is linear"
    paper = "where η_eff is set by hand its optimum follows a log-linear law in D"
    if view.adamh is None:
        return untested(title, paper, "no run was trained by AdamH")
    laws = data_laws(view, view.adamh, Quantity.EFF_LR)
    if not laws:
        return untested(title, paper, "fewer than three optima along D")
    others = data_laws(view, view.main, Quantity.EFF_LR)
    lines, verdicts = [], set()
    for n, law in laws.items():
        assert law.curvature_interval is not None
        low, high = law.curvature_interval
        beside = others.get(n)
        lines.append(
            f"N = {format_number(n)}: η_eff* slope {signed(law.slopes[0], law.slope_intervals[0])}, r {_r(law)}, curvature "
            f"{_curvature(law)}" + (f"; AdamW's {_curvature(beside)}" if beside is not None else "")
        )
        tells = beside is not None and beside.curvature is not None and not low <= beside.curvature <= high
        verdicts.add(Verdict.CONTRADICTED if law.curved else Verdict.SUPPORTED if tells else Verdict.INDISTINCT)
    verdict = next(v for v in (Verdict.CONTRADICTED, Verdict.INDISTINCT, Verdict.SUPPORTED) if v in verdicts)
    rule = "supported if the interval holds zero and excludes AdamW's curvature; contradicted if it excludes zero"
    return Claim(title, paper, tuple(lines), rule, verdict)


def _gain(lr: Estimates, eff: Estimates, params: float, level: float) -> Array:
    """(value, low, high) of |r| of η_eff* − |r| of η*, the interval laid around the value."""
    members = np.flatnonzero((lr.params == params) & lr.usable & eff.usable)
    x = np.log2(lr.tokens[members])
    value = float(_abs_r(x, eff.log2_values[members]) - _abs_r(x, lr.log2_values[members]))
    drawn = _abs_r(x, eff.replicates[:, members]) - _abs_r(x, lr.replicates[:, members])
    low, high = np.quantile(drawn, [0.5 * (1 - level), 0.5 * (1 + level)])
    shift = value - float(np.mean(drawn))
    return np.array([value, low + shift, high + shift])


def _abs_r(x: Array, y: Array) -> Array:
    x, y = x - x.mean(), y - y.mean(axis=-1, keepdims=True)
    return np.abs((y @ x) / np.sqrt((x @ x) * (y * y).sum(axis=-1)))


def _curvature(law: Law) -> str:
    assert law.curvature is not None
    return signed(law.curvature, law.curvature_interval)


def _r(law: Law) -> str:
    return "–" if law.pearson_r is None else signed(law.pearson_r, digits=4)


def _bend_over_slope(law: Law) -> float:
    assert law.curvature is not None
    return law.curvature / abs(law.slopes[0])
