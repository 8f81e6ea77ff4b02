"""How does a figure look in print? Sizes, fonts, colours, ticks and labels that every figure shares.

Matplotlib is imported when something is drawn, so that pages which need the data alone do not wait for it.
Colours are Okabe and Ito's and viridis' darker part: told apart by colour-blind readers, and in grey by marker.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from etastar.scale import format_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ONE_COLUMN, TWO_COLUMNS = 3.3, 6.8  # inches
BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
INK, GREY, PALE = "#222222", "#666666", "#E9E9E9"
MARKERS = "osD^vPX*"
SMALL = 7.0

_RC: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": PALE,
    "grid.linewidth": 0.5,
    "pdf.fonttype": 42,
    "savefig.dpi": 300,
}


@contextmanager
def paper() -> Iterator[None]:
    """Draw inside this: the settings hold here and nowhere else."""
    import matplotlib as mpl

    with mpl.rc_context(_RC):
        yield


def canvas(width: float, height: float, rows: int = 1, columns: int = 1, **shared: Any) -> tuple[Figure, list[Axes]]:
    """An empty figure without pyplot's global state, and its panels row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **shared)
    return figure, list(axes.flat)


def heading(figure: Figure, *parts: str) -> None:
    """What the figure shows of which study, small and grey above it; wrapped where it would not fit."""
    room = int(figure.get_figwidth() * 16.5)
    lines: list[str] = []
    for text in (line for part in parts if part for line in textwrap.wrap(part, room)):
        if lines and len(lines[-1]) + len(text) + 3 <= room:
            lines[-1] += f" · {text}"
        else:
            lines.append(text)
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=SMALL, color=GREY)


def sequence(count: int) -> list[Any]:
    """Colours of an ordered quantity, dark to light, none too pale for paper."""
    import matplotlib as mpl

    return [mpl.colormaps["viridis"](x) for x in np.linspace(0.0, 0.82, max(count, 1))]


def power_of_two(value: float) -> str:
    """-10 → 2⁻¹⁰, -9.5 → 2⁻⁹·⁵."""
    return f"$2^{{{value:g}}}$"


def log2_axis(axis: Any, low: float, high: float, *, most: int = 8) -> None:
    """Ticks at powers of two on an axis that holds logarithms."""
    from matplotlib.ticker import FixedLocator, FuncFormatter

    span = max(high - low, 1e-9)
    step = next((s for s in (0.1, 0.25, 0.5, 1, 2, 4, 8, 16) if span / s <= most), 32)
    ticks = np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1) * step
    axis.set_major_locator(FixedLocator(ticks.tolist()))
    axis.set_major_formatter(FuncFormatter(lambda value, _: power_of_two(round(value, 4))))


def scale_axis(axes: Axes, values: Sequence[float], *, exact: bool = False) -> None:
    """A logarithmic x axis in tokens or parameters: 5B, 10B, 20B …; `exact` ticks the values themselves."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = min(values), max(values)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(_apart(sorted(set(values))) if exact else _nice(low, high)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    room = (high / low) ** 0.05 if high > low else 1.2
    axes.set_xlim(low / room, high * room)


def _nice(low: float, high: float) -> list[float]:
    """1, 2, 5, 10 … inside a range; fewer where they crowd."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        inside = [m * 10.0**k for k in decades for m in digits if low * 0.97 <= m * 10.0**k <= high * 1.03]
        if len(inside) <= 6:
            return inside if len(inside) > 1 else [low, high]
    return inside[:: math.ceil(len(inside) / 6)]


def _apart(values: list[float], share: float = 0.16) -> list[float]:
    """Those of a rising list that leave room for their names on a logarithmic axis, the ends first."""
    room = share * math.log(values[-1] / values[0])
    kept = values[:1]
    for value in values[1:-1]:
        if math.log(value / kept[-1]) >= room and math.log(values[-1] / value) >= room:
            kept.append(value)
    return [*kept, values[-1]] if len(values) > 1 else kept


def plain_log(axis: Any, values: Sequence[float]) -> None:
    """A logarithmic axis with plain numbers: 0.1, 0.2, 0.5 …"""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axis.set_major_locator(FixedLocator(_nice(min(values), max(values))))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))


def short(value: float) -> str:
    """5B, 63.5M, 122M: a size in three digits."""
    return format_number(float(f"{value:.3g}"))


def end_labels(
    axes: Axes, labels: Sequence[tuple[float, str, Any]], *, head: str | None = None, gap: float = 0.075
) -> None:
    """Name curves at the right edge, (y, text, colour) each; names that would overlap are moved apart."""
    low, high = axes.get_ylim()
    ordered = sorted(labels, key=lambda label: label[0])
    places = [(y - low) / (high - low) for y, _, _ in ordered]
    for _ in range(200):
        moved = False
        for k in range(1, len(places)):
            lack = gap - (places[k] - places[k - 1])
            if lack > 1e-6:
                places[k - 1] -= lack / 2
                places[k] += lack / 2
                moved = True
        if not moved:
            break
    shift = min(0.0, 1.02 - max(places)) or max(0.0, -0.02 - min(places))
    for place, (_, text, colour) in zip(places, ordered, strict=True):
        axes.annotate(text, (1.015, place + shift), xycoords="axes fraction", fontsize=SMALL, color=colour, va="center")
    if head is not None:
        axes.annotate(
            head, (1.015, max(places) + shift + gap), xycoords="axes fraction", fontsize=SMALL, color=GREY, va="center"
        )


def lr_bar(figure: Figure, axes: Any, log2_lrs: Sequence[float]) -> list[Any]:
    """A colour for each learning rate, and a bar that says which is which."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm, ListedColormap

    colours = sequence(len(log2_lrs))
    edges = _edges(log2_lrs)
    mapped = ScalarMappable(BoundaryNorm(edges, len(colours)), ListedColormap(colours))
    bar = figure.colorbar(mapped, ax=axes, pad=0.01, aspect=28, fraction=0.05, spacing="proportional")
    every = max(1, math.ceil(len(log2_lrs) / 6))
    shown = list(log2_lrs)[::every]
    bar.set_ticks(shown, labels=[power_of_two(round(x, 2)) for x in shown])
    bar.ax.minorticks_off()
    bar.ax.tick_params(length=2)
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.ax.set_title("η", fontsize=8, pad=4)
    return colours


def _edges(values: Sequence[float]) -> list[float]:
    if len(values) == 1:
        return [values[0] - 0.5, values[0] + 0.5]
    middles = [(a + b) / 2 for a, b in pairwise(values)]
    return [2 * values[0] - middles[0], *middles, 2 * values[-1] - middles[-1]]


def steps_axis(axes: Axes, steps: Sequence[int]) -> None:
    """Steps of training, logarithmic."""
    scale_axis(axes, steps)
    axes.set_xlabel("step t")
