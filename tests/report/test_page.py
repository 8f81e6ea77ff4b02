"""Is the page one file that holds everything, loads nothing, and lets nothing that a user typed act?"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import math
import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etastar.errors import InputError
from etastar.report.page import build_page, json_text, page_data, plotly_js, write_report
from etastar.report.runs_table import runs_table
from etastar.report.section import waiting_section
from reported import HOSTILE, TARGET, hostile_section, runs, silent_section, small_section

_SCRIPT = re.compile(r"<script([^>]*)>(.*?)</script>", re.DOTALL)


class Elements(HTMLParser):
    """Every element with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def page() -> str:
    return build_page([small_section()])


@pytest.fixture(scope="module")
def hostile() -> str:
    return build_page([hostile_section()])


def test_it_is_small_enough_and_says_the_number(page: str) -> None:
    assert len(page.encode()) < 8_000_000
    head = small_section().headline
    assert head is not None
    assert f"data-lr>{head.lr}<" in page
    for doubt in head.doubts:
        assert doubt.code in page


def test_nothing_in_it_points_outside(page: str) -> None:
    for tag, attributes in Elements(page.replace(plotly_js(), "")).found:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form"), tag
        assert not {name for name in attributes if name.startswith("on")}
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")


def test_every_script_that_runs_is_admitted_by_its_hash(page: str) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    said = policy[1].replace("&#39;", "'")
    assert said.startswith("default-src 'none'")
    assert "unsafe-eval" not in said
    assert "unsafe-inline" not in said.split("style-src")[0]
    assert "connect-src 'none'" in said
    bodies = [body for attributes, body in _SCRIPT.findall(page) if "application/json" not in attributes]
    assert len(bodies) == 3
    for body in bodies:
        assert base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() in said


def test_the_numbers_are_inside_as_json(page: str) -> None:
    (text,) = (body for attributes, body in _SCRIPT.findall(page) if "etastar-data" in attributes)
    (section,) = json.loads(text)["sections"]
    head = small_section().headline
    assert head is not None
    assert section["predict"]["recommended"]["lr"] == 2**head.log2_lr
    assert len(section["runs"]["rows"]) == 72
    assert [c["name"] for c in section["runs"]["columns"]][:5] == ["run", "params", "tokens", "lr", "loss"]
    assert set(section["figures"]) >= {"strategies", "optimal-lr", "losses", "r2-ood", "ecr-r2"}


def test_hostile_names_stay_text(hostile: str) -> None:
    rest = hostile.replace(plotly_js(), "")
    assert len(_SCRIPT.findall(hostile)) == 5
    assert "<script>window.harmed" not in rest
    assert "<img" not in rest
    assert "49%}" not in rest
    (text,) = (body for attributes, body in _SCRIPT.findall(hostile) if "etastar-data" in attributes)
    names = [row[0] for row in json.loads(text)["sections"][0]["runs"]["rows"]]
    assert names[0] == HOSTILE[0] + "0"
    assert names[6].endswith("characters)")
    assert max(len(name) for name in names) < 300
    assert len(hostile.encode()) < 8_000_000


@settings(max_examples=40, deadline=None)
@given(
    st.recursive(st.text() | st.floats() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
)
def test_embedded_json_never_ends_its_element_and_reads_back(value: object) -> None:
    text = json_text(value)
    assert not re.search(r"[<>&\u2028\u2029]", text)
    again = json.loads(text)
    if isinstance(value, str):
        assert again == value


def test_several_studies_share_a_page_under_one_headline() -> None:
    other = replace(silent_section(), title="small")
    text = build_page([small_section(), other])
    assert text.count("<h1") == 1
    assert 'id="study-small"' in text
    assert 'id="study-small-2"' in text
    assert [s["key"] for s in page_data([small_section(), other])["sections"]] == ["study-small", "study-small-2"]
    opened = build_page([small_section(), other], headline=1)
    assert re.search(r"<h1[^>]*>No recommendation", opened)


def test_a_study_without_runs_says_so() -> None:
    text = build_page([waiting_section("early", "No run has finished yet.")])
    assert "No learning rate yet" in text
    assert "No run has finished yet." in text


def test_it_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = write_report([small_section()], tmp_path / "deep" / "report.html")
    assert path.read_text(encoding="utf-8").endswith("</html>")
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]
    with pytest.raises(InputError, match="is a folder"):
        write_report([small_section()], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_report([small_section()], tmp_path / "file" / "report.html")
    with pytest.raises(InputError, match="at least one study"):
        build_page([])


def test_headings_descend_and_ids_are_there_once() -> None:
    page = build_page([small_section(), silent_section()])
    elements = Elements(page.replace(plotly_js(), "")).found
    ids = [a["id"] for _, a in elements if "id" in a]
    assert len(ids) == len(set(ids))
    labelled = [a["aria-labelledby"] for _, a in elements if "aria-labelledby" in a]
    assert set(labelled) <= set(ids)
    assert [tag for tag, _ in elements].count("h1") == 1
    levels = [int(tag[1]) for tag, _ in elements if re.fullmatch(r"h[1-6]", tag)]
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    for landmark in ("main", "header", "nav", "footer"):
        assert landmark in [tag for tag, _ in elements]
    assert all(a.get("scope") in ("col", "row") for tag, a in elements if tag == "th")


def test_the_target_is_said_where_there_is_no_answer() -> None:
    text = build_page([silent_section()])
    assert "No recommendation" in text
    assert "Runs that would change it" in text
    assert f"{TARGET.params / 1e6:.4g}M" in text


def test_any_columns_of_a_foreign_table_come_along() -> None:
    table = runs()
    rows = table.num_rows
    table = table.append_column("lucky", pa.array([k % 2 == 0 for k in range(rows)]))
    table = table.append_column("when", pa.array([datetime(2026, 1, 1 + k % 20, tzinfo=UTC) for k in range(rows)]))
    table = table.append_column("tags", pa.array([["<b>", str(k)] for k in range(rows)]))
    for k in range(40):
        table = table.append_column(
            f"extra <i>{k}</i>", pa.array([float(j * k) if j else math.nan for j in range(rows)])
        )
    found = runs_table(table)
    kinds = {c.name: c.kind for c in found.table.columns}
    assert kinds["lucky"] == kinds["when"] == kinds["tags"] == "text"
    assert [row[list(kinds).index("lucky")] for row in found.table.rows[:2]] == ["yes", "no"]
    assert len(kinds) == 24
    assert "extra <i>39</i>" in found.columns_left_out
    text = build_page([replace(small_section(), runs=found)])
    assert "<i>39" not in text
