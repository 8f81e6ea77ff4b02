"""Small simulated studies and their sections, made once for many tests."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from etastar.estimate.cells import build_groups
from etastar.estimate.estimates import Options
from etastar.report.section import Section, study_section
from etastar.report.view import StudyView
from etastar.scale import Scale, gpt_params
from etastar.simulate import Grid, World, simulate

TARGET = Scale(float(gpt_params(512)), 80e9)
HOSTILE = (
    "<script>window.harmed = 1</script>",
    "</script><script>window.harmed = 2</script>",
    '"><img src=x onerror="window.harmed = 3">',
    "{{ 7 * 7 }}{% raw %}%{x} <b>bold</b> &lt;i&gt; <a href='javascript:harmed()'>a</a>",
    "\u202eabc \u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \U0001f9ea \u0000\u001b[31m",
    "|`*_# [x](javascript:alert(1)) \\",
    "x" * 10_000,
)


def runs(widths: tuple[int, ...] = (256, 512), horizons: int = 4, seed: int = 1) -> pa.Table:
    """A study whose laws the simulator knows."""
    grid = Grid(
        widths=widths, tokens=tuple(5e9 * 2**k for k in range(horizons)), log2_lrs=tuple(-15.0 + k for k in range(9))
    )
    return simulate(World(), grid, seed=seed)


def view_of(table: pa.Table, name: str = "small", **more: object) -> StudyView:
    """A view with few redraws: tests look at words and structure."""
    groups = tuple(g for g in build_groups(table) if g.blocks)
    return StudyView(name=name, table=table, groups=groups, options=Options(replicates=100), **more)  # type: ignore[arg-type]


def renamed(table: pa.Table, names: tuple[str, ...]) -> pa.Table:
    """The same runs under hostile names, told apart by a number at their end."""
    given = [f"{names[k % len(names)]}{k}" for k in range(table.num_rows)]
    return table.set_column(table.column_names.index("run"), "run", pa.array(given, pa.string()))


@lru_cache(maxsize=1)
def small_section() -> Section:
    """The plain study."""
    return study_section(view_of(runs()), TARGET)


@lru_cache(maxsize=1)
def hostile_section() -> Section:
    """The same with hostile names, and a hostile study name."""
    return study_section(view_of(renamed(runs(), HOSTILE), name=HOSTILE[1]), TARGET)


@lru_cache(maxsize=1)
def silent_section() -> Section:
    """One N that is not the target's, one D: nothing can be said."""
    return study_section(view_of(runs((256,), 1)), TARGET)
