"""Does any text of a study run as a script in the report, opened in a real browser?"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from counts import SEED, Table, counted

from browser.conftest import chromium, open_page  # noqa: F401 (fixtures)
from etastar.report.page import write_report
from etastar.report.section import study_section
from reported import TARGET, runs, view_of

CALL = "window.harmed=(window.harmed||0)+1"
SHAPES = [
    "<script>{}</script>", "</script><script>{}</script>", "<img src=x onerror={}>", "<svg onload={}>", "<svg/onload={}>",
    '"><script>{}</script>', "'><img src=x onerror='{}'>", "<iframe srcdoc='<script>parent.{}</script>'>",
    "<a href='javascript:{}'>x</a>", "<body onload={}>", "<details open ontoggle={}>", "<math><mi//xlink:href='data:x,{}'>",
    "javascript:{}", "${{{}}}", "{{{{constructor.constructor('{}')()}}}}", "]]><script>{}</script>", "--><script>{}</script>",
    "\u2028{}\u2029", "\\u003cscript\\u003e{}\\u003c/script\\u003e", "&lt;script&gt;{}&lt;/script&gt;", "<style>@import'{}'</style>",
    "</title><script>{}</script>", "</textarea><script>{}</script>", "<!--<script>{}</script>", "<input autofocus onfocus={}>",
    "<base href='javascript:{}//'>", "<meta http-equiv=refresh content='0;url=javascript:{}'>", "<object data='javascript:{}'>",
    "<form><button formaction='javascript:{}'>", "<video><source onerror={}></video>",
]  # fmt: skip
TEXT = ("run", "optimizer", "schedule", "group", "trunk")


def payloads(count: int, rng: random.Random) -> list[str]:
    """Every shape in many disguises: letters' case, blanks, NUL, nesting."""
    found = []
    for k in range(count):
        text = SHAPES[k % len(SHAPES)].format(CALL)
        how = rng.randrange(5)
        if how == 1:
            text = "".join(c.upper() if rng.random() < 0.5 else c for c in text.replace(CALL, "\0")).replace("\0", CALL)
        elif how == 2:
            text = text.replace("<", rng.choice(["<\t", "<\n", "< ", "<<", "\x0b<"]), 1)
        elif how == 3:
            text = rng.choice(['"', "'", "`", "\\", "&quot;", "%22", "\x1b"]) + text
        elif how == 4:
            text = text + rng.choice(SHAPES).format(CALL)
        found.append(text)
    return found


@pytest.mark.faults
@pytest.mark.parametrize("part", range(4))
def test_no_payload_runs(open_page: Any, tmp_path: Path, part: int) -> None:  # noqa: F811
    count = counted("payloads", full=500, quick=0, is_full=True)
    mine = payloads(count, random.Random(SEED))[part::4]
    goal = "500 payloads in every text field: none runs"
    with Table(9, f"Pages, part {part + 1} of 4", goal=goal, is_full=True) as table:
        study, rows, shown = runs(), 0, 0
        size = study.num_rows
        for start in range(0, len(mine), size):
            chosen = [mine[(start + k) % len(mine)] for k in range(size)]
            hostile = study
            for column in TEXT:
                unique = column in ("run", "trunk")  # the others name a training: one value, or there is no law to show
                values = [f"{text}{k}" for k, text in enumerate(chosen)] if unique else [chosen[0]] * size
                if column in hostile.column_names:
                    hostile = hostile.set_column(
                        hostile.column_names.index(column), column, pa.array(values, pa.string())
                    )
            path = write_report([study_section(view_of(hostile, name=chosen[1]), TARGET)], tmp_path / f"{start}.html")
            found = open_page(path)
            found.draw_all()
            names = found.runs().locator("tbody tr th").all_text_contents()
            found.page.wait_for_timeout(200)
            assert found.page.evaluate("window.harmed") is None
            assert (
                found.page.locator(
                    "main img, main script, main iframe, main object, main a[href^='javascript' i]"
                ).count()
                == 0
            )
            assert found.requests == []
            assert any(CALL in name for name in names)  # as text
            # the policy holds: a script that is put into the page does not run
            found.complaints.clear()
            found.page.evaluate(
                f"() => {{ const s = document.createElement('script'); s.textContent = '{CALL}'; document.body.append(s); }}"
            )
            assert found.page.evaluate("window.harmed") is None
            rows += min(size, len(mine) - start)
            shown += 1
        table.add(payloads=rows, fields=len(TEXT) + 1, pages=shown, ran=0)
