"""What is an interactive figure? Plotly traces and axes as plain values, a caption, and its data as a table.

Colours are names of the page's CSS (`var(--s1)`): the page resolves them for its light and its dark side. Text goes
through `plot_text`, because plotly reads tags in labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from etastar.report.tables import Table, plain
from etastar.scale import format_number

RAMP = 8  # steps of the page's sequential scale, var(--r0) … var(--r7)

Trace = dict[str, Any]


@dataclass(frozen=True)
class View:
    """One side of a figure that can be chosen: its traces and layout."""

    label: str
    traces: tuple[Trace, ...]
    layout: dict[str, Any]


@dataclass(frozen=True)
class Plot:
    """A figure of the page; `missing` says which run would supply it where it cannot be drawn."""

    key: str
    title: str
    caption: str
    views: tuple[View, ...] = ()
    table: Table | None = None
    missing: str = ""
    switches: bool = False  # do the strategy switches act on it?
    choose: str = "view"  # what the views are, for the label of their choice

    def spec(self) -> list[dict[str, Any]]:
        """What the page hands to plotly."""
        return [
            {"label": v.label, "data": _rounded(plain(list(v.traces))), "layout": plain(v.layout)} for v in self.views
        ]


def _rounded(value: Any) -> Any:
    """Six digits are more than a screen shows, and half the bytes."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, list):
        return [_rounded(v) for v in value]
    return {k: _rounded(v) for k, v in value.items()} if isinstance(value, dict) else value


def ramp(k: int, count: int) -> str:
    """The k-th of so many colours that rise with a quantity."""
    return f"var(--r{round(k * (RAMP - 1) / (count - 1)) if count > 1 else RAMP // 2})"


def log2_axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis in log2 units whose ticks read as powers of two."""
    return {"title": {"text": title}, "tickprefix": "2<sup>", "ticksuffix": "</sup>", "zeroline": False, **more}


def scale_axis(title: str, values: Sequence[float], **more: Any) -> dict[str, Any]:
    """A log axis of sizes, ticked 5B, 10B, 20B."""
    ticks = _round_values(min(values), max(values))
    low, high = math.log10(min(values)), math.log10(max(values))
    margin = max(0.06 * (high - low), 0.02)
    return {
        "title": {"text": title},
        "type": "log",
        "tickvals": ticks,
        "ticktext": [format_number(x) for x in ticks],
        "range": [low - margin, high + margin],
        "zeroline": False,
        **more,
    }


def log_axis(title: str, values: Sequence[float], *, percent: bool = False, **more: Any) -> dict[str, Any]:
    """A log axis of positive numbers with round ticks."""
    found = scale_axis(title, values, **more)
    words = [f"{100 * x:g} %" if percent else f"{x:g}" for x in found["tickvals"]]
    return found | {"ticktext": words}


def axis(title: str, **more: Any) -> dict[str, Any]:
    """A plain axis."""
    return {"title": {"text": title}, "zeroline": False, **more}


def layout(x: dict[str, Any], y: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Both axes."""
    return {"xaxis": x, "yaxis": y, **more}


def _round_values(low: float, high: float) -> list[float]:
    """1, 2, 5 times powers of ten inside a range; of a long range the powers alone, of a short one more."""
    octaves = math.log2(high / low) if high > low else 0.0
    steps = (
        (1.0,) if octaves > 16 else (1.0, 2.0, 5.0) if octaves > 2.5 else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
    )
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    found = [m * 10.0**e for e in range(first, last + 1) for m in steps]
    return [x for x in found if low * 0.95 <= x <= high * 1.05] or [low]
