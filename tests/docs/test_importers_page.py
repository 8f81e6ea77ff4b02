"""Does docs/reference/importers.md list the names that the importers know, all of them and in their order?"""

from __future__ import annotations

import re
from pathlib import Path

from etastar.importers import names
from etastar.importers.sources import _KINDS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "importers.md").read_text(encoding="utf-8")


def test_names_are_those_of_the_code() -> None:
    listed = dict(re.findall(r"^\| `(\w+)` \| `(.*)` \|$", PAGE, re.MULTILINE))
    assert {column: tuple(text.split(", ")) for column, text in listed.items()} == names.NUMBERS | names.WORDS


def test_losses_and_kinds_are_those_of_the_code() -> None:
    assert f"`{', '.join(names.VALIDATION)}`" in PAGE
    assert f"`{', '.join(names.SEQUENCE)}`" in PAGE
    assert f"`{', '.join(_KINDS)}`" in PAGE
