"""How does the loss follow the learning rate, cell by cell, and does the fit follow the loss? Figures 11 and 12.

One view a model size and quantity; every point is a cell's loss and names its runs.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from etastar.estimate.cells import Block, Quantity
from etastar.estimate.weights import coordinate
from etastar.report.figures import loss_curves
from etastar.report.figures.loss_curves import LossCurvesData, LossPanel
from etastar.report.figures.missing import Missing
from etastar.report.interactive.base import Plot, Trace, View, axis, layout, log2_axis, ramp
from etastar.report.tables import Column, Table, table
from etastar.report.view import StudyView, block_of
from etastar.report.words import lr_words, plot_text, power_html, short_name
from etastar.scale import format_number

DEGREE = 3  # the paper's
MOST_NAMES = 3  # of runs behind one point
LONGEST_NAME = 48
Names = dict[tuple[float, float, float], list[str]]


def loss_plot(view: StudyView) -> Plot:
    """A view for every N, in η and where it is measured in η_eff."""
    title = "Loss against the learning rate"
    caption = (
        "Measured losses (marks), the paper's cubic through them (lines), its minimum (diamond) and the lowest measured loss "
        "(ring). Diverged learning rates stand at the lower edge as crosses. Colours go from short to long horizons."
    )
    names = _names(view)
    views, rows = [], []
    reasons: list[str] = []
    for quantity in (Quantity.LR, Quantity.EFF_LR):
        for block in view.main.blocks:
            found = loss_curves.data(view, quantity, DEGREE, block.params)
            if isinstance(found, Missing):
                reasons.append(found.sentence)
                continue
            views.append(_view(found, block_of(view.main, found.params), quantity, names))
            rows += _rows(found)
    if not views:
        return Plot("losses", title, caption, missing=reasons[0])
    return Plot("losses", title, caption, tuple(views), _table(rows), choose="sweep")


def _names(view: StudyView) -> Names:
    """Run names by (N, D, log2 η)."""
    found: Names = defaultdict(list)
    columns = [view.table[name].to_pylist() for name in ("params", "tokens", "lr", "run", "seed")]
    for params, tokens, lr, run, seed in zip(*columns, strict=True):
        said = short_name(str(run), LONGEST_NAME) if run is not None else ("" if seed is None else f"seed {seed}")
        if said:
            found[params, tokens, round(float(np.log2(lr)), 6)].append(plot_text(said))
    return found


def _view(found: LossCurvesData, block: Block, quantity: Quantity, names: Names) -> View:
    traces: list[Trace] = []
    lowest = min(min(panel.loss) for panel in found.panels)
    highest = max(min(panel.loss) for panel in found.panels)
    floor = lowest - 0.08 * (highest - lowest + 0.05)
    for k, panel in enumerate(found.panels):
        traces += _panel(panel, block, quantity, ramp(k, len(found.panels)), names, floor)
    sign = "η" if quantity is Quantity.LR else "mean η_eff"
    # losses far up the walls would flatten the valley: show a little more than twice the best cell's depth
    top = highest + max(0.6 * (highest - lowest), 0.25)
    peak = max(max(panel.loss) for panel in found.panels)
    y = axis("loss", range=[floor - 0.02 * (top - floor), min(top, peak + 0.05 * (peak - lowest))])
    return View(f"N = {format_number(found.params)}, in {sign}", tuple(traces), layout(log2_axis(sign), y))


def _panel(panel: LossPanel, block: Block, quantity: Quantity, colour: str, names: Names, floor: float) -> list[Trace]:
    row = int(np.argmin(np.abs(block.tokens - panel.tokens)))
    places = coordinate(block, quantity)[row]
    group = f"D = {format_number(panel.tokens)}"
    texts = []
    for x, loss, count in zip(panel.log2_x, panel.loss, panel.replicates, strict=True):
        at = int(np.nanargmin(np.abs(places - x)))
        log2_lr = float(block.log2_lr[at])
        runs = names.get((block.params, panel.tokens, round(log2_lr, 6)), [])
        more = f"<br>and {len(runs) - MOST_NAMES} more" if len(runs) > MOST_NAMES else ""
        texts.append(
            f"<b>{group}, η = {lr_words(2.0**log2_lr)}</b> ({power_html(log2_lr)})<br>loss {loss:.4f}"
            + (f", mean of {count}" if count > 1 else "")
            + (f"<br>η_eff {lr_words(2.0**x)}" if quantity is Quantity.EFF_LR else "")
            + "".join(f"<br>{run}" for run in runs[:MOST_NAMES])
            + more
        )
    mark = {"color": colour, "size": 7}
    traces: list[Trace] = [
        {"type": "scatter", "mode": "markers", "x": panel.log2_x, "y": panel.loss, "name": group, "legendgroup": group,
         "marker": mark, "text": texts, "hovertemplate": "%{text}<extra></extra>"},
        {"type": "scatter", "mode": "lines", "x": panel.curve_log2_x, "y": panel.curve_loss, "legendgroup": group,
         "line": {"color": colour, "width": 1.5}, "showlegend": False, "hoverinfo": "skip"},
        {"type": "scatter", "mode": "markers", "x": [panel.raw_minimum[0]], "y": [panel.raw_minimum[1]], "legendgroup": group,
         "marker": {"color": colour, "symbol": "circle-open", "size": 14}, "showlegend": False, "hoverinfo": "skip"},
    ]  # fmt: skip
    if panel.fitted_minimum is not None:
        x, loss = panel.fitted_minimum
        said = f"<b>{group}</b><br>minimum of the fit: {power_html(x)} = {lr_words(2.0**x)}, loss {loss:.4f}"
        traces.append(
            {"type": "scatter", "mode": "markers", "x": [x], "y": [loss], "legendgroup": group, "showlegend": False,
             "marker": {"color": colour, "symbol": "diamond", "size": 11, "line": {"color": "var(--ink)", "width": 1}},
             "text": [said], "hovertemplate": "%{text}<extra></extra>"}
        )  # fmt: skip
    if panel.diverged_log2_lr and quantity is Quantity.LR:
        traces.append(
            {"type": "scatter", "mode": "markers", "x": panel.diverged_log2_lr, "y": [floor] * len(panel.diverged_log2_lr),
             "legendgroup": group, "showlegend": False, "marker": {"color": colour, "symbol": "x-thin-open", "size": 9},
             "text": [f"<b>{group}</b><br>η = {power_html(x)} diverged" for x in panel.diverged_log2_lr],
             "hovertemplate": "%{text}<extra></extra>"}
        )  # fmt: skip
    return traces


def _rows(found: LossCurvesData) -> list[tuple[object, ...]]:
    sign = "η" if found.quantity == Quantity.LR.value else "η_eff"
    rows = []
    for panel in found.panels:
        fitted = panel.fitted_minimum or [None, None]
        rows.append((found.params, panel.tokens, sign, *panel.raw_minimum, *fitted, panel.r2, panel.status))
    return rows


def _table(rows: list[tuple[object, ...]]) -> Table:
    columns = (
        Column("params", "N", "scale"), Column("tokens", "D", "scale"), Column("quantity", "in", "text"),
        Column("raw_log2", "lowest measured at (log₂)", "log2"), Column("raw_loss", "its loss", "loss"),
        Column("fit_log2", "minimum of the fit (log₂)", "log2"), Column("fit_loss", "its loss", "loss"),
        Column("r2", "R² of the fit"), Column("status", "status", "text"),
    )  # fmt: skip
    return table("Minima of the cells shown", columns, rows)
