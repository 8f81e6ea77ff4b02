"""How do results look in a terminal? Tables without rules, in which nothing is cut off."""

from __future__ import annotations

import os
import sys

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

WIDE = 120  # columns of a file or a pipe, where nobody's window is at stake


def make_console() -> Console:
    """As wide as the terminal; wide enough for every table where there is none."""
    there = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if there else WIDE)


def make_table(title: str, *columns: str, left: tuple[str, ...] = ()) -> Table:
    """Numbers to the right, the columns in `left` to the left; where it is narrow, cells fold rather than lose an end."""
    table = Table(
        title=escape(title) or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_edge=False,
        pad_edge=False,
    )  # fmt: skip
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right", overflow="fold")
    return table
