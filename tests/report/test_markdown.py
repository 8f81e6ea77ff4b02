"""Does the Markdown carry the same numbers, and stay Markdown whatever a run is called?"""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from etastar.report.markdown import build_markdown, text
from etastar.report.section import waiting_section
from reported import hostile_section, silent_section, small_section


def test_the_same_numbers() -> None:
    section = small_section()
    found = build_markdown([section])
    head = section.headline
    assert head is not None
    assert head.interval is not None
    assert found.startswith(f"# Learning rate {head.lr} ")
    assert head.interval.words in found
    assert all(doubt.code in found for doubt in head.doubts)
    assert section.runs is not None
    assert found.count("\n| sim") + found.count("\n| ") >= len(section.runs.table.rows)
    for row in section.strategies.spelled() if section.strategies else ():
        assert row[1] in found


def test_an_abstention_and_an_early_study() -> None:
    assert build_markdown([silent_section()]).startswith("# No recommendation for N = ")
    assert build_markdown([waiting_section("early", "No run yet.")]).startswith("# No learning rate yet")


def test_tables_keep_their_columns_under_hostile_names() -> None:
    found = build_markdown([hostile_section()])
    assert "<script" not in found
    assert "](javascript" not in found.replace("\\]", "")
    widths = None
    for line in found.splitlines():
        if not line.startswith("|"):
            widths = None
            continue
        cells = len(re.findall(r"(?<!\\)(?:\\\\)*\|", line))
        widths = widths or cells
        assert cells == widths, line[:200]


@given(st.text())
def test_escaped_text_has_no_markup(value: str) -> None:
    found = text(value)
    assert "<" not in found
    assert "\n" not in found
    assert not re.search(r"(?<!\\)(?:\\\\)*[|`*]", found)
