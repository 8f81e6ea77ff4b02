"""How good is each strategy as its budget grows, and what does a miss cost? Figure 4 of the paper, both panels."""

from __future__ import annotations

from etastar.report.figures import ecr, r2_ood
from etastar.report.figures.ecr import EcrData
from etastar.report.figures.missing import Missing
from etastar.report.figures.r2_ood import R2Data, StrategyCurve
from etastar.report.interactive.base import Plot, Trace, View, axis, layout, log_axis
from etastar.report.interactive.strategies import look
from etastar.report.tables import Column, table
from etastar.report.view import StudyView
from etastar.report.words import percent_words
from etastar.scale import format_number

_PERCENT = {"tickformat": ".0%"}
LOWEST_R2 = -2.0  # what lies below has failed; the axis can be dragged


def r2_plot(view: StudyView) -> Plot:
    """R²_OOD(β): in each strategy's own quantity as the paper has it, and in η."""
    title = "How well unseen cells are predicted, by budget"
    caption = "R²_OOD over budget ratio β: 1 is exact, 0 as good as their mean. Lines are means in a sliding window of β, bands ± ½ σ."
    found = r2_ood.data(view)
    if isinstance(found, Missing):
        return Plot("r2-ood", title, caption, missing=found.sentence)
    tests = f"Test cells: N = {format_number(found.params)}, {len(found.test_tokens)} horizons up to D = {format_number(max(found.test_tokens))}."
    empty = [f"{c.label}: {c.reason}" for c in found.curves if c.reason]
    views = (_r2_view(found, own=True), _r2_view(found, own=False))
    rows = [
        (curve.label, beta, value, other)
        for curve in found.curves
        for beta, value, other in zip(curve.budget_ratio, curve.r2_ood, curve.r2_ood_lr, strict=True)
    ]
    columns = (
        Column("strategy", "strategy", "text"), Column("beta", "β", "percent"),
        Column("r2", "R²_OOD, own quantity"), Column("r2_lr", "R²_OOD in η"),
    )  # fmt: skip
    said = " ".join([caption, tests, *(["Without a score: " + "; ".join(empty) + "."] if empty else [])])
    return Plot(
        "r2-ood",
        title,
        said,
        views,
        table("R²_OOD by strategy and budget", columns, rows),
        switches=True,
        choose="quantity",
    )


def _r2_view(found: R2Data, *, own: bool) -> View:
    traces: list[Trace] = []
    lowest = 1.0
    for curve in found.curves:
        if not curve.budget_ratio:
            continue
        if own:
            traces += _smoothed(curve)
            lowest = min([lowest, *curve.smoothed])
            continue
        known = [(b, v) for b, v in zip(curve.budget_ratio, curve.r2_ood_lr, strict=True) if v is not None]
        lowest = min([lowest, *(v for _, v in known)])
        traces.append(_line(curve, [b for b, _ in known], [v for _, v in known]))
    # where every strategy fails, the axis follows the best of them down
    best = max(
        (max(curve.smoothed if own else _known(curve.r2_ood_lr)) for curve in found.curves if curve.budget_ratio),
        default=0.0,
    )
    few = sum(len(curve.budget_ratio) for curve in found.curves) <= 8
    floor = lowest - 0.2 if few else max(lowest - 0.1, min(LOWEST_R2, 3 * best))
    y = axis("R²_OOD", range=[floor, 1.05])
    return View("own quantity" if own else "in η", tuple(traces), layout(axis("budget ratio β", **_PERCENT), y))


def _smoothed(curve: StrategyCurve) -> list[Trace]:
    key = f"{curve.axis}-{curve.quantity}"
    colour, _ = look(key)
    edge = {"type": "scatter", "mode": "lines", "x": curve.budget_ratio, "line": {"width": 0, "color": colour},
            "legendgroup": key, "showlegend": False, "hoverinfo": "skip", "meta": {"strategy": key}}  # fmt: skip
    return [
        edge | {"y": _shown(curve, curve.band_low)},
        edge
        | {
            "y": _shown(curve, curve.band_high),
            "fill": "tonexty",
            "fillcolor": colour,
            "meta": {"strategy": key, "fade": 0.15},
        },
        _line(curve, curve.budget_ratio, curve.smoothed),
    ]


def _known(values: list[float | None]) -> list[float]:
    return [v for v in values if v is not None] or [0.0]


def _shown(curve: StrategyCurve, edge: list[float]) -> list[float | None]:
    """A band's edge, without the stretch where its own line is off the figure: there it would fill all of it."""
    return [value if middle >= LOWEST_R2 else None for value, middle in zip(edge, curve.smoothed, strict=True)]


def _line(curve: StrategyCurve, x: list[float], y: list[float]) -> Trace:
    key = f"{curve.axis}-{curve.quantity}"
    colour, symbol = look(key)
    mode = "markers" if len(x) == 1 else "lines+markers" if len(x) <= 12 else "lines"
    return {
        "type": "scatter", "mode": mode, "x": x, "y": y, "name": curve.label, "legendgroup": key,
        "line": {"color": colour, "width": 2, "dash": "solid" if curve.quantity == "eff_lr" else "dash"},
        "marker": {"color": colour, "symbol": symbol, "size": 7}, "meta": {"strategy": key},
        "text": [f"<b>{curve.label}</b><br>β = {percent_words(b)}<br>R²_OOD = {v:.3f}" for b, v in zip(x, y, strict=True)],
        "hovertemplate": "%{text}<extra></extra>",
    }  # fmt: skip


def ecr_plot(view: StudyView) -> Plot:
    """ECR against 1 − R²_OOD, both logarithmic."""
    title = "What a miss costs"
    caption = "Extra compute ratio against 1 − R²_OOD, one point a strategy and budget; the line is their proportion."
    found = ecr.data(view)
    if isinstance(found, Missing):
        return Plot("ecr-r2", title, caption, missing=found.sentence)
    rows = [
        (s.label, b, x, y, e)
        for s in found.strategies
        for b, x, y, e in zip(s.budget_ratio, s.unexplained, s.ecr, s.log2_lr_error, strict=True)
    ]
    columns = (
        Column("strategy", "strategy", "text"), Column("beta", "β", "percent"), Column("unexplained", "1 − R²_OOD"),
        Column("ecr", "ECR", "percent"), Column("error", "error in η (octaves)", "log2"),
    )  # fmt: skip
    points = _points(found)
    if not points:
        return Plot("ecr-r2", title, caption, missing="no budget has an ECR above zero")
    xs, ys = ([v for t in points[: len(found.strategies)] for v in t[k]] for k in ("x", "y"))
    shown = layout(log_axis("1 − R²_OOD", xs), log_axis("extra compute ratio", ys, percent=True))
    view_ = View("own quantity", tuple(points), shown)
    unpriced = (
        f" {found.unpriced} scores have no price: their learning rate lies outside the sweep." if found.unpriced else ""
    )
    return Plot(
        "ecr-r2", title, caption + unpriced, (view_,), table("ECR by strategy and budget", columns, rows), switches=True
    )


def _points(found: EcrData) -> list[Trace]:
    traces: list[Trace] = []
    for s in found.strategies:
        key = f"{s.axis}-{s.quantity}"
        colour, symbol = look(key)
        known = [(b, x, y) for b, x, y in zip(s.budget_ratio, s.unexplained, s.ecr, strict=True) if x > 0 and y > 0]
        if not known:
            continue
        traces.append({
            "type": "scatter", "mode": "markers", "x": [x for _, x, _ in known], "y": [y for _, _, y in known], "name": s.label,
            "marker": {"color": colour, "symbol": symbol, "size": 8}, "meta": {"strategy": key},
            "text": [f"<b>{s.label}</b><br>β = {percent_words(b)}<br>1 − R² = {x:.3g}<br>ECR = {percent_words(y)}" for b, x, y in known],
            "hovertemplate": "%{text}<extra></extra>",
        })  # fmt: skip
    if found.proportion is not None and traces:
        xs = [x for t in traces for x in t["x"]]
        ends = [min(xs), max(xs)]
        traces.append({
            "type": "scatter", "mode": "lines", "x": ends, "y": [found.proportion.factor * x for x in ends],
            "name": f"ECR = {found.proportion.factor:.3g} · (1 − R²)", "line": {"color": "var(--muted)", "width": 1.5, "dash": "dot"},
            "hoverinfo": "skip",
        })  # fmt: skip
    return traces
