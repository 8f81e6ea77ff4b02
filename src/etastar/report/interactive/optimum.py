"""Does the optimum keep to a line along D and along N? Figures 2 and 3 of the paper, and the target beside them."""

from __future__ import annotations

from etastar.estimate.cells import Quantity
from etastar.laws.loglinear import Axis
from etastar.predict.recommend import Answer
from etastar.report.figures import optimum
from etastar.report.figures.missing import Missing
from etastar.report.figures.optimum import Curve, OptimumData, Panel
from etastar.report.interactive.base import (
    Plot,
    Trace,
    View,
    layout,
    log2_axis,
    ramp,
    scale_axis,
)
from etastar.report.interactive.strategies import look
from etastar.report.tables import Column, Table, table
from etastar.report.view import StudyView
from etastar.report.words import lr_words, power_html, prediction_key, prediction_words
from etastar.scale import format_number


def optimum_plot(view: StudyView, quantity: Quantity, found: Answer) -> Plot:
    """Optima with intervals, the small-scale line and what it misses; along D also the target's predictions."""
    sign = "η*" if quantity is Quantity.LR else "η_eff*"
    key = "optimal-lr" if quantity is Quantity.LR else "optimal-eff-lr"
    title = f"Optimal {'learning rate' if quantity is Quantity.LR else 'effective learning rate'} {sign}"
    known = optimum.data(view, quantity)
    caption = (
        f"Every cell's {sign} with its {view.options.level:.0%} interval. Filled marks carry the dashed line, which is drawn on "
        "to the largest cell: what lies off it there bends. Hollow circles are "
        "cells beyond it, crosses cells without a minimum inside the sweep, at their lowest loss. Colours go from small to large."
    )
    if isinstance(known, Missing):
        return Plot(key, title, caption, missing=known.sentence)
    views = tuple(
        panel_view(panel, sign, _targets(found, quantity) if panel.axis == Axis.DATA.value else None)
        for panel in known.panels
    )
    said = " ".join(f"Not drawn: {one.sentence}." for one in known.missing)
    return Plot(key, title, f"{caption} {said}".strip(), views, _table(known, sign), switches=True, choose="axis")


def panel_view(panel: Panel, sign: str, targets: list[Trace] | None = None) -> View:
    """One axis of the figure; `targets` are marks beyond the cells."""
    along = "D" if panel.axis == Axis.DATA.value else "N"
    traces: list[Trace] = []
    for k, curve in enumerate(panel.curves):
        traces += _curve(curve, ramp(k, len(panel.curves)), along)
    beyond = targets or []
    scales = [x for curve in panel.curves for x in curve.scale] + [x for trace in beyond for x in trace["x"]]
    title = "D, tokens" if along == "D" else "N, parameters"
    return View(f"along {along}", (*traces, *beyond), layout(scale_axis(title, scales), log2_axis(sign)))


def _curve(curve: Curve, colour: str, along: str) -> list[Trace]:
    group = curve.label
    shown = [
        ("circle" if inside else "circle-open") if status == "INTERIOR" else "x-thin-open"
        for inside, status in zip(curve.fitted, curve.status, strict=True)
    ]
    marks = [
        (x, y, y if low is None else low, y if high is None else high, status, flags, symbol)
        for x, y, low, high, status, flags, symbol in zip(
            curve.scale,
            curve.log2_value,
            curve.log2_low,
            curve.log2_high,
            curve.status,
            curve.flags,
            shown,
            strict=True,
        )
        if y is not None  # a cell whose every run diverged has no place
    ]
    texts = [
        f"<b>{curve.label}, {along} = {format_number(x)}</b><br>{power_html(y)} = {lr_words(2.0**y)}"
        + (f"<br>{power_html(low)} … {power_html(high)}" if low != high else "")
        + f"<br>{status}{''.join(f'<br>{flag}' for flag in flags)}"
        for x, y, low, high, status, flags, _ in marks
    ]
    traces: list[Trace] = [{
        "type": "scatter", "mode": "markers", "x": [m[0] for m in marks], "y": [m[1] for m in marks], "name": curve.label,
        "legendgroup": group, "marker": {"color": colour, "symbol": [m[6] for m in marks], "size": 8, "line": {"color": colour, "width": 1.5}},
        "error_y": {"type": "data", "symmetric": False, "array": [m[3] - m[1] for m in marks], "arrayminus": [m[1] - m[2] for m in marks], "color": colour, "thickness": 1, "width": 0},
        "text": texts, "hovertemplate": "%{text}<extra></extra>",
    }]  # fmt: skip
    if curve.line_scale:
        traces.append({
            "type": "scatter", "mode": "lines", "x": curve.line_scale, "y": curve.line_log2_value, "legendgroup": group,
            "line": {"color": colour, "width": 1.5, "dash": "dash"}, "showlegend": False, "hoverinfo": "skip",
        })  # fmt: skip
    return traces


def _targets(found: Answer, quantity: Quantity) -> list[Trace]:
    """What strategies say at the target's D, where they speak of this quantity."""
    traces: list[Trace] = []
    given = [p for p in found.predictions if p.log2_lr is not None]
    for k, p in enumerate(given):
        beside = 2.0 ** (0.07 * (k - 0.5 * (len(given) - 1)))  # side by side, or they hide each other
        value = p.log2_lr if quantity is Quantity.LR else p.log2_value
        if value is None or (quantity is Quantity.EFF_LR and (p.quantity is not quantity or p.inverted)):
            continue
        low, high = p.interval(0.9, of_lr=quantity is Quantity.LR) or (value, value)
        colour, symbol = look(prediction_key(p))
        traces.append({
            "type": "scatter", "mode": "markers", "x": [found.target.tokens * beside], "y": [value], "showlegend": False,
            "name": f"target: {prediction_words(p)}",
            "marker": {"color": colour, "symbol": symbol, "size": 9, "line": {"color": "var(--card)", "width": 1}},
            "error_y": {"type": "data", "symmetric": False, "array": [high - value], "arrayminus": [value - low],
                        "color": colour, "thickness": 2, "width": 4},
            "text": [f"<b>target, {prediction_words(p)}</b><br>{power_html(value)} = {lr_words(2.0**value)}"],
            "hovertemplate": "%{text}<extra></extra>", "meta": {"strategy": prediction_key(p)},
        })  # fmt: skip
    return traces


def _table(known: OptimumData, sign: str) -> Table:
    columns = (
        Column("axis", "along", "text"), Column("at", "at", "text"), Column("scale", "scale", "scale"),
        Column("log2", f"log₂ {sign}", "log2"), Column("low", "low", "log2"), Column("high", "high", "log2"),
        Column("status", "status", "text"), Column("fitted", "carries the line", "text"), Column("flags", "flags", "text"),
    )  # fmt: skip
    rows = [
        ("D" if panel.axis == Axis.DATA.value else "N", curve.label, x, y, low, high, status, "yes" if inside else "", ", ".join(flags))
        for panel in known.panels
        for curve in panel.curves
        for x, y, low, high, status, inside, flags in zip(
            curve.scale, curve.log2_value, curve.log2_low, curve.log2_high, curve.status, curve.fitted, curve.flags, strict=True
        )
    ]  # fmt: skip
    return table(f"{sign} of every cell", columns, rows)
