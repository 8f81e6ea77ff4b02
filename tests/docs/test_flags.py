"""Does docs/reference/flags.md list the codes of the program, all of them and no other?"""

from __future__ import annotations

import re
from pathlib import Path

from etastar.estimate.flags import Flag
from etastar.estimate.optimum import Status

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "flags.md"


def listed(section: str) -> list[tuple[str, str]]:
    """(code, sentence) of every row under a heading, in order."""
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \| (.*) \|$", text, re.MULTILINE)


def test_flags_are_those_of_the_code() -> None:
    assert listed("Flags") == [(flag.value, flag.sentence) for flag in Flag]


def test_statuses_are_those_of_the_code() -> None:
    assert listed("Statuses") == [(status.value, status.sentence) for status in Status]
