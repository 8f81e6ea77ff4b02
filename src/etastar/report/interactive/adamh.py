"""Where η_eff is set by hand (AdamH), is its law straight, and cheaper to follow? Figure 7 of the paper."""

from __future__ import annotations

from etastar.report.figures import adamh
from etastar.report.figures.adamh import LEAST
from etastar.report.figures.missing import Missing
from etastar.report.interactive.base import Plot, Trace, View, axis, layout, log_axis
from etastar.report.interactive.optimum import panel_view
from etastar.report.tables import Column, table
from etastar.report.view import StudyView
from etastar.report.words import percent_words
from etastar.scale import format_number

_LOOK = {"adamh": ("var(--s3)", "diamond", "solid")}


def adamh_plot(view: StudyView) -> Plot:
    """The law along D, and ECR by budget beside AdamW's."""
    title = "AdamH, which sets η_eff itself"
    found = adamh.data(view)
    if isinstance(found, Missing):
        return Plot("adamh", title, "", missing=found.sentence)
    views = [panel_view(panel, "η_eff*") for panel in found.law.panels]
    if found.ecr:
        values = [max(e, LEAST) for c in found.ecr for e in c.ecr]
        shown = layout(axis("budget ratio β", tickformat=".0%"), log_axis("extra compute ratio", values, percent=True))
        views.append(View("extra compute by budget", tuple(_lines(found.ecr)), shown))
    rows = [
        (c.label, b, e, error)
        for c in found.ecr
        for b, e, error in zip(c.budget_ratio, c.ecr, c.log2_lr_error, strict=True)
    ]
    columns = (
        Column("law", "law", "text"), Column("beta", "β", "percent"), Column("ecr", "ECR", "percent"),
        Column("error", "error in η (octaves)", "log2"),
    )  # fmt: skip
    caption = f"{found.training}. ECR at N = {format_number(found.params)}, D = {format_number(found.tokens)}."
    said = " ".join([caption, *(f"Not drawn: {one.sentence}." for one in found.missing)])
    return Plot("adamh", title, said, tuple(views), table("ECR by budget", columns, rows), choose="panel")


def _lines(curves: list[adamh.EcrCurve]) -> list[Trace]:
    traces: list[Trace] = []
    for c in curves:
        dash = "solid" if c.quantity == "eff_lr" else "dash"
        colour, symbol, dash = _LOOK.get(c.optimizer.lower(), ("var(--s1)", "circle", dash))
        traces.append({
            "type": "scatter", "mode": "lines+markers", "x": c.budget_ratio, "y": [max(e, LEAST) for e in c.ecr], "name": c.label,
            "line": {"color": colour, "width": 1.8, "dash": dash}, "marker": {"color": colour, "symbol": symbol, "size": 6},
            "text": [f"<b>{c.label}</b><br>β = {percent_words(b)}<br>ECR = {percent_words(e)}" for b, e in zip(c.budget_ratio, c.ecr, strict=True)],
            "hovertemplate": "%{text}<extra></extra>",
        })  # fmt: skip
    return traces
