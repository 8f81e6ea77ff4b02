"""Is nothing of a table lost, however narrow the window is?"""

import io

import pytest
from rich.console import Console

from etastar.cli.looks import WIDE, make_console, make_table


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_cell_is_cut(width):
    table = make_table("Laws", "law", "slope", "flags", left=("law", "flags"))
    table.add_row("η_eff* along D, N = 1.835M", "-0.261 [-0.295, -0.238]", "far-extrapolation, backtest-widened")
    out = io.StringIO()
    Console(file=out, width=width).print(table)
    told = out.getvalue()
    assert "…" not in told
    letters = sorted("".join(told.split()))
    for cell in ("η_eff* along D, N = 1.835M", "-0.261 [-0.295, -0.238]", "far-extrapolation, backtest-widened"):
        assert all(letters.count(sign) >= cell.count(sign) for sign in set(cell) - {" "})
    assert width < 80 or "far-extrapolation," in told


def test_a_pipe_is_wide_and_columns_are_obeyed(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: False, raising=False)
    assert make_console().width == WIDE
    monkeypatch.setenv("COLUMNS", "70")
    assert make_console().width == 70
