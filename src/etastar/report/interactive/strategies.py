"""What does every strategy say about the target, and how far off was it on cells it had not seen?"""

from __future__ import annotations

from etastar.predict.recommend import Answer
from etastar.report.headline import Headline
from etastar.report.interactive.base import Plot, Trace, View, layout, log2_axis
from etastar.report.tables import Column, Table, table
from etastar.report.words import lr_words, octave_words, power_html, prediction_key, prediction_words

# one colour and symbol a strategy, the same in every figure
_LOOK = {
    "data-lr": ("var(--s1)", "circle"), "data-eff_lr": ("var(--s2)", "square"), "data-inverted": ("var(--s3)", "diamond"),
    "model-lr": ("var(--s4)", "triangle-up"), "model-eff_lr": ("var(--s5)", "cross"), "model-inverted": ("var(--s6)", "x"),
    "joint-lr": ("var(--s7)", "star"), "joint-eff_lr": ("var(--s8)", "hexagon"), "joint-inverted": ("var(--s9)", "pentagon"),
}  # fmt: skip


def look(key: str) -> tuple[str, str]:
    """Colour and symbol of a strategy."""
    return _LOOK.get(key, ("var(--s1)", "circle"))


def strategy_table(found: Answer, level: float) -> Table:
    """A row a strategy, as `etastar predict` prints it."""
    columns = (
        Column("strategy", "strategy", "text"), Column("lr", "η", "lr"), Column("log2_lr", "log₂ η", "log2"),
        Column("low", f"{level:.0%} low", "log2", "log₂ η"), Column("high", f"{level:.0%} high", "log2", "log₂ η"),
        Column("cells", "cells", "int", "optima behind it"),
        Column("backtest", "back-test", "log2", "root mean square error in octaves of η on held-out cells"),
        Column("trials", "held out", "int"), Column("r", "r", "number", "Pearson's r of the law"),
        Column("doubts", "doubts, or why there is no answer", "text"),
    )  # fmt: skip
    rows = []
    for p, tested in zip(found.predictions, found.backtests, strict=True):
        ends = p.interval(level, of_lr=True) or (None, None)
        known = p.log2_lr is not None
        said = ", ".join(flag.value for flag in p.flags) if known else (p.reason or "")
        rows.append((
            prediction_words(p), 2.0**p.log2_lr if p.log2_lr is not None else None, p.log2_lr, *(ends if known else (None, None)),
            p.cells, tested.rms_lr_error, len(tested.trials), p.pearson_r, said,
        ))  # fmt: skip
    return table(f"Every strategy's answer for {found.target}", columns, rows)


def strategy_plot(found: Answer, head: Headline) -> Plot:
    """Answers with their intervals, one above another; the recommended one stands on a band."""
    given = [(p, t) for p, t in zip(found.predictions, found.backtests, strict=True) if p.log2_lr is not None]
    title, caption = (
        "What each strategy says",
        f"The answer of every strategy for {found.target}, with its {head.level:.0%} ",
    )
    caption += (
        "interval. The shaded band is the recommended interval; wide bars are strategies that their back-test refutes."
    )
    if not given:
        return Plot("strategies", title, caption, missing=head.abstained or "no strategy has an answer")
    traces: list[Trace] = []
    for row, (p, tested) in enumerate(reversed(given)):
        low, high = p.interval(head.level, of_lr=True) or (p.log2_lr, p.log2_lr)
        missed = (
            f"{octave_words(tested.rms_lr_error)} on {len(tested.trials)} held-out cells" if tested.trials else "none"
        )
        colour, symbol = look(prediction_key(p))
        assert p.log2_lr is not None
        assert low is not None
        assert high is not None
        said = (
            f"<b>{prediction_words(p)}</b><br>η = {lr_words(2.0**p.log2_lr)} ({power_html(p.log2_lr)})<br>"
            f"{lr_words(2.0**low)} … {lr_words(2.0**high)}<br>back-test: {missed}<br>{p.cells} cells"
        )
        traces.append({
            "type": "scatter", "mode": "markers", "x": [p.log2_lr], "y": [row], "name": prediction_words(p),
            "error_x": {"type": "data", "symmetric": False, "array": [high - p.log2_lr], "arrayminus": [p.log2_lr - low],
                        "color": colour, "thickness": 2, "width": 5},
            "marker": {"color": colour, "symbol": symbol, "size": 11}, "text": [said],
            "hovertemplate": "%{text}<extra></extra>", "meta": {"strategy": prediction_key(p)}, "showlegend": False,
        })  # fmt: skip
    names = [prediction_words(p) for p, _ in reversed(given)]
    shapes = []
    if head.interval is not None:
        shapes.append({
            "type": "rect", "xref": "x", "yref": "paper", "x0": head.interval.low, "x1": head.interval.high, "y0": 0, "y1": 1,
            "fillcolor": "var(--band)", "line": {"width": 0}, "layer": "below",
        })  # fmt: skip
    # names above their bars: beside them they would take half of a narrow screen
    notes = [
        {"xref": "paper", "x": 0, "xanchor": "left", "yref": "y", "y": row + 0.36, "text": name, "showarrow": False,
         "font": {"size": 12, "color": "var(--muted)"}}
        for row, name in enumerate(names)
    ]  # fmt: skip
    y = {"range": [-0.6, len(names) - 0.3], "zeroline": False, "showgrid": False, "showticklabels": False}
    shown = layout(log2_axis("η"), y, shapes=shapes, annotations=notes, height=90 + 48 * len(names))
    return Plot(
        "strategies",
        title,
        caption,
        (View("η", tuple(traces), shown),),
        strategy_table(found, head.level),
        switches=True,
    )
