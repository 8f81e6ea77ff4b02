"""Do the concept pages state the constants that the code has?"""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

CONCEPTS = Path(__file__).parents[2] / "docs" / "concepts"
PAGES = ("estimation.md", "intervals.md", "laws-and-budgets.md")
_ROW = re.compile(r"^\| `(etastar\.[\w.]+)\.([A-Z_]+)` \| ([^|]+) \|", re.MULTILINE)


def stated() -> list[tuple[str, str, str]]:
    return [match for page in PAGES for match in _ROW.findall((CONCEPTS / page).read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("module", "name", "value"), stated())
def test_constant_is_as_stated(module: str, name: str, value: str) -> None:
    assert getattr(importlib.import_module(module), name) == ast.literal_eval(value.strip())


@pytest.mark.parametrize("page", PAGES)
def test_constants_in_the_text_are_in_the_table(page: str) -> None:
    text = (CONCEPTS / page).read_text(encoding="utf-8")
    used = set(re.findall(r"`([A-Z][A-Z_]{4,})`", text)) - {"INTERIOR", "AT_BOUNDARY", "NO_MINIMUM", "TOO_FEW_POINTS"}
    used |= {"PRIOR_BEND"} if page == "intervals.md" else set()
    assert used <= {name for _, name, _ in _ROW.findall(text)}
