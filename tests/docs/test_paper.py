"""Does docs/paper.md name every numbered thing of the paper, and only functions that exist?"""

from __future__ import annotations

import importlib
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
    found = {name for row in rows() for cell in row[-2:] for name in re.findall(r"`(etastar\.[\w.]+)`", cell)}
    return sorted(name for name in found if not any(f"open: `{name}`" in function_cell(row) for row in rows()))


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


def test_every_row_names_a_function_or_says_open() -> None:
    for row in rows():
        cell = function_cell(row)
        assert re.match(r"`etastar\.[\w.]+`", cell) or re.fullmatch(r"open: `etastar\.\w+`", cell), row
