"""What is a table of the report? Plain values by row, and how each column is written.

The page, the Markdown and the JSON all show the same values; only the kinds below know how to spell them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from etastar.report.words import lr_words, percent_words, short_name
from etastar.scale import format_number

Kind = Literal["text", "int", "lr", "log2", "scale", "loss", "percent", "number"]


@dataclass(frozen=True)
class Column:
    """A column: its name in JSON, its heading, its spelling; `title` explains it."""

    name: str
    label: str
    kind: Kind = "number"
    title: str = ""

    @property
    def numeric(self) -> bool:
        """Is it set flush right and sorted by value?"""
        return self.kind != "text"


@dataclass(frozen=True)
class Table:
    """Rows of plain values. `left_out` counts rows that were not carried along."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    left_out: int = 0

    def spelled(self) -> list[list[str]]:
        """The rows in words."""
        return [[spell(v, c.kind) for v, c in zip(row, self.columns, strict=True)] for row in self.rows]

    def to_json(self) -> dict[str, Any]:
        """Columns with their kinds, rows of plain values."""
        return {
            "caption": self.caption,
            "columns": [{"name": c.name, "label": c.label, "kind": c.kind, "title": c.title} for c in self.columns],
            "rows": plain(self.rows),
            "left_out": self.left_out,
        }


def table(caption: str, columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> Table:
    """A table of plain values: numpy's numbers become Python's, what is not finite becomes None."""
    return Table(caption, tuple(columns), tuple(tuple(plain(v) for v in row) for row in rows))


def spell(value: Any, kind: Kind) -> str:
    """One value in words; a dash where there is none."""
    if value is None or value == "":
        return "–"
    if kind == "text" or isinstance(value, str):
        return short_name(str(value))
    if not math.isfinite(value):
        return "–"
    spelling = {
        "int": f"{value:,.0f}",
        "lr": lr_words(value),
        "log2": f"{value:.2f}",
        "scale": format_number(value),
        "loss": f"{value:.4f}",
        "percent": percent_words(value),
        "number": f"{value:.4g}",
    }
    return spelling[kind]


def plain(value: Any) -> Any:
    """A JSON-ready copy: numpy as Python, non-finite as None, tuples as lists."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, str) else value
