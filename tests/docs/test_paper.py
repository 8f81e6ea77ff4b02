"""Does docs/paper.md name every numbered thing of the paper, and only functions that exist?"""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

PAPER = Path(__file__).parents[2] / "docs" / "paper.md"
EQUATIONS, FIGURES = 33, 15


def rows() -> list[list[str]]:
    """Cells of every table row that is neither a header nor a rule."""
    lines = [line for line in PAPER.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]
    return [row for row in cells if row[0] not in ("no.", "where")]


def function_cell(row: list[str]) -> str:
    """The column before the last, in the four-column table as in the others."""
    return row[-2]


def named_functions() -> list[str]:
    return sorted({name for row in rows() for cell in row[-2:] for name in re.findall(r"`(etastar\.[\w.]+)`", cell)})


def resolve(name: str) -> Any:
    """The object behind a dotted name: the longest prefix that is a module, then attributes."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError as error:
            # torch that is not installed is no misspelt name
            if error.name is not None and not error.name.startswith("etastar"):
                pytest.skip(f"{error.name} is not installed")
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise AttributeError(name)


@pytest.mark.parametrize("name", named_functions())
def test_every_function_named_exists(name: str) -> None:
    found = resolve(name)
    assert callable(found) or isinstance(found, property), f"{name} is not a function"


def test_every_numbered_equation_has_one_row() -> None:
    numbers = [int(match[1]) for row in rows() if (match := re.fullmatch(r"\((\d+)\)", row[0]))]
    assert numbers == list(range(1, EQUATIONS + 1))


def test_every_figure_table_and_algorithm_has_a_row() -> None:
    first = [row[0] for row in rows()]
    figures = {int(match[1]) for cell in first if (match := re.match(r"Figure (\d+)", cell))}
    assert figures == set(range(1, FIGURES + 1))
    assert first.count("Table 1") == first.count("Algorithm 1") == 1


def test_every_row_names_a_function() -> None:
    for row in rows():
        assert re.match(r"`etastar\.[\w.]+`", function_cell(row)), row


def test_every_figure_module_has_a_row() -> None:
    from etastar.report import figures

    modules = [importlib.import_module(f"{figures.__name__}.{m.name}") for m in pkgutil.iter_modules(figures.__path__)]
    drawn = {f"{module.__name__}.data" for module in modules if hasattr(module, "data") and hasattr(module, "draw")}
    assert len(drawn) > 8
    assert drawn <= set(named_functions())
