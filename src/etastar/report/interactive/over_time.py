"""What do η_eff, the weight norm and the update do over training, learning rate by learning rate?

Figures 5, 6, 8, 9, 10 and 15 of the paper. Colours go from small to large learning rates.
"""

from __future__ import annotations

import math
from typing import TypeVar

from etastar.report.figures import against_theory, no_decay, norms, weight_spread
from etastar.report.figures.against_theory import Kind
from etastar.report.figures.missing import Missing
from etastar.report.figures.over_time import LrCurve
from etastar.report.interactive.base import Plot, Trace, View, axis, layout, log2_axis, ramp
from etastar.report.tables import Column, table
from etastar.report.view import StudyView
from etastar.report.words import power_html, sentence_words, short_name
from etastar.scale import format_number

Value = TypeVar("Value")

MOST_POINTS = 140  # a curve
MOST_NAMED = 6  # curves in a legend
SETTLED = 0.05  # of the steps: the warm-up's climb would flatten all that follows


def norms_plot(view: StudyView) -> Plot:
    """η_eff(t) and ‖w_t‖ of one matrix."""
    title = "η_eff and the weight norm over training"
    found = norms.data(view)
    if isinstance(found, Missing):
        return Plot("norms", title, "", missing=found.sentence)
    views = (_logs("η_eff(t)", found.eff_lr, "η_eff"), _logs("‖w_t‖", found.weight_norm, "‖w‖"))
    rows = [
        (c.lr, c.value[0], c.value[-1], w.value[0], w.value[-1])
        for c, w in zip(found.eff_lr, found.weight_norm, strict=True)
    ]
    columns = (
        Column("lr", "η", "lr"), Column("eff_first", "η_eff, first", "lr"), Column("eff_last", "η_eff, last", "lr"),
        Column("norm_first", "‖w‖, first"), Column("norm_last", "‖w‖, last"),
    )  # fmt: skip
    caption = (
        f"The matrix {short_name(found.weight)} at N = {format_number(found.params)}. In equilibrium learning rates an octave "
        "apart lie half an octave of η_eff apart, before it a whole one. Colours go from small to large learning rates."
    )
    return Plot("norms", title, caption, views, table("Ends of the curves", columns, rows), choose="quantity")


_SIGN = {Kind.UPDATE_NORM: "‖u_t‖", Kind.CORRELATION: "−⟨u_t, w_t⟩/‖u_t‖", Kind.WEIGHT_NORM: "‖w_t‖²"}
_AGAINST = {
    Kind.UPDATE_NORM: "a constant",
    Kind.CORRELATION: "the equation with the measured ‖u_t‖",
    Kind.WEIGHT_NORM: "the recursion with the measured ‖u_t‖",
}


def theory_plot(view: StudyView) -> Plot:
    """‖u_t‖, the correlation and ‖w_t‖² with what the theory makes of them."""
    title = "Measured, and by the theory"
    views, rows, reasons, whose = [], [], [], ""
    for kind in Kind:
        found = against_theory.data(view, kind)
        if isinstance(found, Missing):
            reasons.append(found.sentence)
            continue
        whose = f"The matrix {short_name(found.weight)} at N = {format_number(found.params)}."
        traces: list[Trace] = []
        for k, c in enumerate(found.curves):
            name, colour = f"η = {power_html(c.log2_lr, 1)}", ramp(k, len(found.curves))
            measured = _trace(c.step, [math.log2(v) for v in c.measured], name, colour, _SIGN[kind])
            told = _trace(c.predicted_step, [math.log2(v) for v in c.predicted], name, colour, f"theory, {_SIGN[kind]}")
            told |= {"line": {"color": colour, "width": 1.2, "dash": "dash"}, "showlegend": False}
            shown = _named(k, len(found.curves))
            traces += [measured | {"legendgroup": name, "showlegend": shown}, told | {"legendgroup": name}]
            rows.append((_SIGN[kind], c.lr, c.error, c.worst))
        views.append(
            View(f"{_SIGN[kind]} against {_AGAINST[kind]}", tuple(traces), layout(axis("step"), log2_axis(_SIGN[kind])))
        )
    if not views:
        return Plot("theory", title, "", missing=reasons[0])
    columns = (
        Column("quantity", "quantity", "text"), Column("lr", "η", "lr"), Column("error", "median error", "percent"),
        Column("worst", "worst stretch", "percent"),
    )  # fmt: skip
    caption = f"{whose} Solid: measured, smoothed. Dashed: the theory."
    return Plot(
        "theory", title, caption, tuple(views), table("How far off the theory is", columns, rows), choose="quantity"
    )


def spread_plot(view: StudyView) -> Plot:
    """η_eff over matrices: mean and half a standard deviation."""
    title = "η_eff across matrices"
    found = weight_spread.data(view)
    if isinstance(found, Missing):
        return Plot("spread", title, "", missing=found.sentence)
    traces: list[Trace] = []
    for k, c in enumerate(found.curves):
        name, colour = f"η = {power_html(c.log2_lr, 1)}", ramp(k, len(found.curves))
        edge: Trace = {"type": "scatter", "mode": "lines", "legendgroup": name, "showlegend": False, "hoverinfo": "skip",
                       "line": {"width": 0, "color": colour}, "x": _thin(c.step)}  # fmt: skip
        traces += [
            edge | {"y": _thin([math.log2(v) for v in c.low])},
            edge | {"y": _thin([math.log2(v) for v in c.high]), "fill": "tonexty", "fillcolor": colour, "meta": {"fade": 0.14}},
            _trace(c.step, [math.log2(v) for v in c.mean], name, colour, "mean η_eff")
            | {"legendgroup": name, "showlegend": _named(k, len(found.curves))},
        ]  # fmt: skip
    curves = [LrCurve(c.lr, c.log2_lr, c.step, c.low) for c in found.curves] + [
        LrCurve(c.lr, c.log2_lr, c.step, c.high) for c in found.curves
    ]
    shown = layout(axis("step"), log2_axis("η_eff(t)", range=_settled(curves)))
    rows = [(c.lr, c.low[-1], c.mean[-1], c.high[-1]) for c in found.curves]
    columns = (
        Column("lr", "η", "lr"), Column("low", "mean − σ/2, last", "lr"), Column("mean", "mean, last", "lr"),
        Column("high", "mean + σ/2, last", "lr"),
    )  # fmt: skip
    caption = f"Mean ± σ/2 over {found.matrices} matrices at N = {format_number(found.params)}."
    return Plot(
        "spread", title, caption, (View("η_eff(t)", tuple(traces), shown),), table("Ends of the bands", columns, rows)
    )


def no_decay_plot(view: StudyView) -> Plot:
    """Adam without weight decay: η_eff(t) that collapses, and the loss that becomes flat."""
    title = "Adam without weight decay"
    found = no_decay.data(view)
    if isinstance(found, Missing):
        return Plot("no-decay", title, "", missing=found.sentence)
    views = []
    if found.eff_lr:
        first = _logs("η_eff(t)", found.eff_lr, "η_eff")
        common = _trace(
            found.common_step, [math.log2(v) for v in found.common_eff_lr], "large η, by theory", "var(--s2)", "η_eff"
        )
        views.append(
            View(
                first.label,
                (*first.traces, common | {"line": {"color": "var(--s2)", "dash": "dash", "width": 2}}),
                first.layout,
            )
        )
    lines: list[Trace] = []
    for k, one in enumerate(found.losses):
        name = f"D = {format_number(one.tokens)}"
        lines.append({
            "type": "scatter", "mode": "lines+markers", "x": one.log2_lr, "y": one.loss, "name": name,
            "line": {"color": ramp(k, len(found.losses)), "width": 1.6},
            "text": [f"<b>{name}</b><br>η = {power_html(x, 1)}<br>loss {'diverged' if y is None else f'{y:.4f}'}" for x, y in zip(one.log2_lr, one.loss, strict=True)],
            "hovertemplate": "%{text}<extra></extra>",
        })  # fmt: skip
    views.append(View("loss", tuple(lines), layout(log2_axis("η"), axis("loss"))))
    rows = [(one.tokens, x, y) for one in found.losses for x, y in zip(one.log2_lr, one.loss, strict=True)]
    columns = (Column("tokens", "D", "scale"), Column("log2_lr", "log₂ η", "log2"), Column("loss", "loss", "loss"))
    caption = f"N = {format_number(found.params)}, {found.training}. {sentence_words(found.words) if found.words else ''}".strip()
    return Plot("no-decay", title, caption, tuple(views), table("Loss by learning rate", columns, rows), choose="panel")


def _logs(label: str, curves: list[LrCurve], sign: str) -> View:
    traces = tuple(
        _trace(c.step, [math.log2(v) for v in c.value], f"η = {power_html(c.log2_lr, 1)}", ramp(k, len(curves)), sign)
        | {"showlegend": _named(k, len(curves))}
        for k, c in enumerate(curves)
    )
    return View(label, traces, layout(axis("step"), log2_axis(sign, range=_settled(curves))))


def _settled(curves: list[LrCurve]) -> list[float]:
    """The range of log2 values after the first steps."""
    seen = [
        math.log2(v) for c in curves if c.step for s, v in zip(c.step, c.value, strict=True) if s >= SETTLED * c.step[-1] and v > 1e-11
    ]  # fmt: skip
    low, high = (min(seen), max(seen)) if seen else (-1.0, 0.0)
    margin = max(0.06 * (high - low), 0.05)
    return [low - margin, high + margin]


def _named(k: int, count: int) -> bool:
    """Is a curve in the legend? Of many, some: their colours rise with η."""
    return k % (-(-count // MOST_NAMED)) == 0 or k == count - 1


def _trace(steps: list[int], log2_values: list[float], name: str, colour: str, sign: str) -> Trace:
    return {
        "type": "scatter", "mode": "lines", "x": _thin(steps), "y": _thin(log2_values), "name": name,
        "line": {"color": colour, "width": 1.6},
        "hovertemplate": f"<b>{name}</b><br>step %{{x:,}}<br>{sign} = 2<sup>%{{y:.2f}}</sup><extra></extra>",
    }  # fmt: skip


def _thin(values: list[Value]) -> list[Value]:
    """Every so many of a long curve; the last stays."""
    every = max(1, len(values) // MOST_POINTS)
    return values[::every] if (len(values) - 1) % every == 0 else [*values[::every], values[-1]]
