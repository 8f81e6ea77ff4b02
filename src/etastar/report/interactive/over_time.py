"""What do η_eff and the weight norm do over training, learning rate by learning rate? Figure 6 of the paper."""

from __future__ import annotations

import math

from etastar.report.figures import norms
from etastar.report.figures.missing import Missing
from etastar.report.figures.over_time import LrCurve
from etastar.report.interactive.base import Plot, Trace, View, axis, layout, log2_axis, ramp
from etastar.report.tables import Column, table
from etastar.report.view import StudyView
from etastar.report.words import power_html, short_name
from etastar.scale import format_number

MOST_POINTS = 160  # a curve


def norms_plot(view: StudyView) -> Plot:
    """η_eff(t) and ‖w_t‖ of one matrix."""
    title = "η_eff and the weight norm over training"
    caption = (
        "In equilibrium neighbouring learning rates (an octave apart) lie half an octave of η_eff apart, before it a whole "
        "one. Colours go from small to large learning rates."
    )
    found = norms.data(view)
    if isinstance(found, Missing):
        return Plot("norms", title, caption, missing=found.sentence)

    def logs(curve: LrCurve) -> list[float]:
        return [math.log2(v) for v in curve.value]

    count = len(found.eff_lr)
    first = tuple(_line(c, logs(c), k, count, "η_eff") for k, c in enumerate(found.eff_lr))
    second = tuple(_line(c, c.value, k, count, "‖w‖") for k, c in enumerate(found.weight_norm))
    t = axis("step")
    views = (
        View("η_eff(t)", first, layout(t, log2_axis("η_eff"))),
        View("‖w_t‖", second, layout(t, axis("‖w‖₂", type="log"))),
    )
    rows = [
        (c.lr, c.value[0], c.value[-1], w.value[0], w.value[-1])
        for c, w in zip(found.eff_lr, found.weight_norm, strict=True)
    ]
    columns = (
        Column("lr", "η", "lr"), Column("eff_first", "η_eff, first", "lr"), Column("eff_last", "η_eff, last", "lr"),
        Column("norm_first", "‖w‖, first"), Column("norm_last", "‖w‖, last"),
    )  # fmt: skip
    said = f"The matrix {short_name(found.weight)} at N = {format_number(found.params)}. {caption}"
    return Plot("norms", title, said, views, table("Ends of the curves", columns, rows), choose="quantity")


def _line(curve: LrCurve, values: list[float], k: int, count: int, sign: str) -> Trace:
    every = max(1, len(curve.step) // MOST_POINTS)
    name = f"η = {power_html(curve.log2_lr, 1)}"
    return {
        "type": "scatter", "mode": "lines", "x": curve.step[::every], "y": values[::every], "name": name,
        "line": {"color": ramp(k, count), "width": 1.6},
        "text": [f"<b>{name}</b><br>step {s:,}<br>{sign} {v:.3g}" for s, v in zip(curve.step[::every], curve.value[::every], strict=True)],
        "hovertemplate": "%{text}<extra></extra>",
    }  # fmt: skip
