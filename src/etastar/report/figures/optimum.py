"""Figures 2 and 3: does the optimum keep to the line that small scale draws, along D and along N?

One panel an axis: every optimum with its interval, the cells that the line was fitted to, the line beyond them, and
Pearson's r of the whole curve. A cell without an interior optimum stands at its lowest loss, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from etastar.estimate.cells import Group, Quantity
from etastar.estimate.estimates import Estimates
from etastar.estimate.optimum import Status
from etastar.estimate.weights import coordinate
from etastar.laws.loglinear import Axis, fit_law
from etastar.report.figures import style
from etastar.report.figures.missing import Missing, no_eff_lr
from etastar.report.view import StudyView, training_of
from etastar.scale import format_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WINDOW = (0.2, 0.4)  # of the longest D: the paper fits 20B to 40B of 100B
SMALLEST_SIZES = 2  # the paper fits its two smallest N
MOST_CURVES = 6


@dataclass(frozen=True)
class Curve:
    """The optima of one N along D, or of one D along N. `log2_value` is that of the lowest loss where not INTERIOR."""

    fixed: float
    label: str
    scale: list[float]
    log2_value: list[float | None]
    log2_low: list[float | None]
    log2_high: list[float | None]
    status: list[str]
    flags: list[list[str]]
    fitted: list[bool]  # inside the fit window
    line_scale: list[float]  # the window's ends and the last cell; empty where two cells are not there
    line_log2_value: list[float]
    slope: float | None  # of the line
    missed_octaves: float | None  # optimum − line at the last cell, where that lies beyond the window
    pearson_r: float | None  # of all interior cells
    curvature: float | None  # of all, octaves per octave²
    curvature_interval: list[float] | None
    curved: bool | None


@dataclass(frozen=True)
class Panel:
    """One axis of the figure."""

    axis: str
    window: str  # what the lines were fitted to, in words
    curves: list[Curve]


@dataclass(frozen=True)
class OptimumData:
    """Panels that can be drawn, and what the others would need."""

    quantity: str
    training: str
    panels: list[Panel]
    missing: list[Missing]


def data(
    view: StudyView, quantity: Quantity = Quantity.LR, *, group: Group | None = None, name: str | None = None
) -> OptimumData | Missing:
    """Optima of the main group (or of `group`) in one quantity."""
    group = group or view.main
    name = name or ("optimal-lr" if quantity is Quantity.LR else "optimal-eff-lr")
    found = view.estimates(group).get(quantity)
    if found is None:
        return no_eff_lr(name)
    panels, missing = [], []
    for along in (_along_data, _along_model):
        panel = along(view, group, found, name)
        if isinstance(panel, Missing):
            missing.append(panel)
        else:
            panels.append(panel)
    if not panels:
        return missing[0]
    return OptimumData(quantity.value, training_of(group), panels, missing)


def _along_data(view: StudyView, group: Group, found: Estimates, name: str) -> Panel | Missing:
    longest = float(found.tokens.max())
    low, high = (share * longest for share in WINDOW)
    curves = []
    for params in np.unique(found.params):
        cells = np.flatnonzero(found.params == params)
        usable = cells[found.usable[cells]]
        inside = usable[(found.tokens[usable] >= low * (1 - 1e-6)) & (found.tokens[usable] <= high * (1 + 1e-6))]
        if len(inside) < 2:  # a sparse ladder: its lower half, two horizons at least
            inside = usable[: max(2, len(usable) // 2)]
        curves.append(_curve(view, group, found, Axis.DATA, float(params), cells, inside))
    if max(len(curve.scale) for curve in curves) < 2:
        return Missing(name, "every N was trained to one D only", "runs of one N at several D (`horizons` of a stack)")
    return Panel(Axis.DATA.value, f"D from {format_number(low)} to {format_number(high)}", curves)


def _along_model(view: StudyView, group: Group, found: Estimates, name: str) -> Panel | Missing:
    tokens, sizes = np.unique(found.tokens), np.unique(found.params)
    if len(sizes) < 2:
        return Missing(
            name, f"the only model size is N = {format_number(sizes[0])}", "the same horizons at two smaller N or more"
        )
    shared = [d for d in tokens if (found.tokens == d).sum() >= 2]
    if not shared:
        return Missing(name, "no D was trained at two model sizes", "the same horizons at every N")
    most = max((found.tokens == d).sum() for d in shared)
    shared = spread([d for d in shared if (found.tokens == d).sum() == most], MOST_CURVES)
    curves = []
    for d in shared:
        cells = np.flatnonzero(found.tokens == d)
        cells = cells[np.argsort(found.params[cells])]
        curves.append(
            _curve(view, group, found, Axis.MODEL, float(d), cells, cells[found.usable[cells]][:SMALLEST_SIZES])
        )
    return Panel(Axis.MODEL.value, f"the {SMALLEST_SIZES} smallest N", curves)


def _curve(
    view: StudyView,
    group: Group,
    found: Estimates,
    axis: Axis,
    fixed: float,
    cells: NDArray[np.int64],
    inside: NDArray[np.int64],
) -> Curve:
    scale = found.tokens if axis is Axis.DATA else found.params
    ends: list[float] = []
    values: list[float] = []
    slope = missed = None
    usable = cells[found.usable[cells]]
    if len(inside) >= 2:
        law = fit_law(found, inside, axis, fixed=fixed, level=view.options.level)
        slope = law.slopes[0]
        last = int(usable[-1])
        ends = [float(scale[inside[0]]), float(scale[inside[-1]]), float(scale[cells].max())]
        values = [law.intercept + slope * float(np.log2(x)) for x in ends]
        if last not in inside:
            missed = float(found.log2_values[last]) - law.intercept - slope * float(np.log2(scale[last]))
    key = (axis, found.quantity, fixed)
    whole = next((law for law in view.laws(group) if (law.axis, law.quantity, law.fixed) == key), None)
    optima = [found.optima[k] for k in cells]
    interior = [o.status is Status.INTERIOR for o in optima]
    return Curve(
        fixed=fixed,
        label=f"{'N' if axis is Axis.DATA else 'D'} = {format_number(fixed)}",
        scale=[float(scale[k]) for k in cells],
        log2_value=[o.log2_value if good else _lowest(found, int(k)) for k, o, good in zip(cells, optima, interior, strict=True)],
        log2_low=[o.log2_interval[0] if good else None for o, good in zip(optima, interior, strict=True)],
        log2_high=[o.log2_interval[1] if good else None for o, good in zip(optima, interior, strict=True)],
        status=[o.status.value for o in optima],
        flags=[[flag.value for flag in o.flags] for o in optima],
        fitted=[bool(ends) and bool(k in inside) for k in cells],
        line_scale=ends,
        line_log2_value=values,
        slope=slope,
        missed_octaves=missed,
        pearson_r=whole.pearson_r if whole else None,
        curvature=whole.curvature if whole else None,
        curvature_interval=list(whole.curvature_interval) if whole and whole.curvature_interval else None,
        curved=whole.curved if whole else None,
    )  # fmt: skip


def _lowest(found: Estimates, index: int) -> float | None:
    """log2 of the quantity at the lowest loss that was measured in a cell; None where every run diverged."""
    block, row = found.locate(index)
    losses = block.loss[row]
    if not np.isfinite(losses).any():
        return None
    return float(coordinate(block, found.quantity)[row][int(np.nanargmin(losses))])


def spread(values: list[float], most: int) -> list[float]:
    """At most so many of a rising list, evenly spread in their logarithm, ends included."""
    if len(values) <= most:
        return values
    wanted = np.linspace(np.log2(values[0]), np.log2(values[-1]), most)
    picked = {int(np.argmin(np.abs(np.log2(values) - x))) for x in wanted}
    return [values[k] for k in sorted(picked)]


def draw(found: OptimumData) -> Figure:
    """Two panels side by side; where one has no data, the other alone at one column."""
    with style.paper():
        two = len(found.panels) > 1
        figure, axes = style.canvas(style.TWO_COLUMNS if two else style.ONE_COLUMN, 2.7, 1, len(found.panels))
        symbol = "$\\eta^*$" if found.quantity == Quantity.LR.value else "$\\eta_{\\mathrm{eff}}^*$"
        for panel, ax in zip(found.panels, axes, strict=True):
            draw_panel(ax, panel, symbol)
        style.heading(figure, found.training, *hollow(found), *(missing.sentence for missing in found.missing))
        return figure


def draw_panel(ax: Axes, panel: Panel, symbol: str) -> None:
    """One axis: cells, intervals, the fit window and the lines beyond it."""
    colours = style.sequence(len(panel.curves))
    for k, (curve, colour) in enumerate(zip(panel.curves, colours, strict=True)):
        _draw_curve(ax, curve, colour, style.MARKERS[k % len(style.MARKERS)])
    everything = [x for curve in panel.curves for x in curve.scale]
    along_data = panel.axis == Axis.DATA.value
    style.scale_axis(ax, everything, exact=not along_data)
    ax.margins(y=0.08)
    low, high = ax.get_ylim()
    ax.set_ylim(low, high)
    style.log2_axis(ax.yaxis, low, high)
    ax.set_xlabel("tokens D" if along_data else "parameters N")
    ax.set_ylabel(symbol)
    labels = []
    for curve, colour in zip(panel.curves, colours, strict=True):
        r = "" if curve.pearson_r is None else f" {curve.pearson_r:.4f}".replace("-", "−")
        last = next((v for v in reversed(curve.log2_value) if v is not None), None)
        if last is not None:
            labels.append((last, f"{style.short(curve.fixed)}{r}", colour))
    known = any(curve.pearson_r is not None for curve in panel.curves)
    style.end_labels(ax, labels, head=("N" if along_data else "D") + (", Pearson r" if known else ""))
    _shade(ax, panel)


def _draw_curve(ax: Axes, curve: Curve, colour: Any, marker: str) -> None:
    rows = list(zip(curve.scale, curve.log2_value, curve.log2_low, curve.log2_high, curve.status, strict=True))
    known = [(x, low, high) for x, _, low, high, _ in rows if low is not None and high is not None]
    places, lows, highs = ([row[j] for row in known] for j in range(3))
    ax.vlines(places, lows, highs, color=colour, lw=0.6, alpha=0.6, zorder=2)
    size = 2.0 if len(rows) > 20 else 3.2
    for interior in (True, False):
        some = [
            (x, y) for x, y, _, _, status in rows if y is not None and (status == Status.INTERIOR.value) is interior
        ]
        face, edge = (colour, 0.3) if interior else ("white", 0.8)
        ax.plot([x for x, _ in some], [y for _, y in some], marker, ms=size, mfc=face, mec=colour, mew=edge, zorder=3)
    if curve.line_scale:
        x, y = curve.line_scale, curve.line_log2_value
        ax.plot(x[:2], y[:2], color=style.VERMILION, lw=1.1, zorder=4)
        ax.plot(x[1:], y[1:], color=style.VERMILION, lw=1.1, ls=(0, (3, 1.5)), zorder=4)


def _shade(ax: Axes, panel: Panel) -> None:
    """The fit window, grey; lines beyond it are extrapolated."""
    inside = [x for curve in panel.curves for x, used in zip(curve.scale, curve.fitted, strict=True) if used]
    if inside:
        ax.axvspan(min(inside), max(inside), color=style.PALE, alpha=0.7, lw=0, zorder=0)
        ax.text(
            float(np.sqrt(min(inside) * max(inside))), 0.985, "fitted", transform=ax.get_xaxis_transform(),
            ha="center", va="top", fontsize=style.SMALL, color=style.GREY,
        )  # fmt: skip


def hollow(found: OptimumData) -> list[str]:
    """What hollow markers are, where there are any."""
    statuses = {status for panel in found.panels for curve in panel.curves for status in curve.status}
    names = sorted(statuses - {Status.INTERIOR.value})
    return [f"hollow: {', '.join(names)}, drawn at the lowest loss"] if names else []
