"""`etastar flags`: what every doubt and every status means."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from etastar.estimate.flags import Flag
from etastar.estimate.optimum import Status


def flags_command() -> None:
    """List the codes that results carry: flags (doubts) and statuses (outcomes of a fit)."""
    table = Table(title="Flags and statuses", title_justify="left")
    table.add_column("code")
    table.add_column("meaning")
    for code in (*Status, *Flag):
        table.add_row(code.value, code.sentence)
    Console().print(table)
