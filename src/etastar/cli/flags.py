"""`etastar flags`: what every doubt and every status means."""

from __future__ import annotations

from etastar.cli.looks import make_console, make_table
from etastar.estimate.flags import Flag
from etastar.estimate.optimum import Status


def flags_command() -> None:
    """List the codes that results carry: flags (doubts) and statuses (outcomes of a fit)."""
    table = make_table("Flags and statuses", "code", "meaning", left=("code", "meaning"))
    for code in (*Status, *Flag):
        table.add_row(code.value, code.sentence)
    make_console().print(table)
