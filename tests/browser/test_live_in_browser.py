"""Does the served page follow a running study by itself, and keep what its reader has set?"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from etastar.report.section import Progress, Section, study_section, waiting_section
from etastar.report.serve import Live, make_server
from etastar.report.tables import Column, table
from reported import TARGET, runs, small_section, view_of


class Running:
    """A study that grows when it is told to."""

    def __init__(self) -> None:
        self.stamp, self.done = 0, 0
        self.section: Section = waiting_section("running", "No run has finished yet.", progress=self.progress())

    def progress(self) -> Progress:
        stacks = table(
            "Stacks of the study",
            (Column("name", "stack", "text"), Column("done", "done", "int")),
            [("w32", self.done)],
        )
        return Progress(f"{self.done} of 9 runs done", self.done, 9, self.done == 9, stacks)

    def grow(self, section: Section, done: int) -> None:
        self.section, self.done = replace(section, key="study-running", progress=None), done
        self.section = replace(self.section, progress=self.progress())
        self.stamp += 1


@pytest.fixture
def served() -> Iterator[tuple[Running, str, Any]]:
    study = Running()
    live = Live(stamp=lambda: study.stamp, sections=lambda: [study.section], progress=study.progress, every=0.1)
    server = make_server("127.0.0.1", 0)
    server.live = live
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield study, f"http://127.0.0.1:{server.server_address[1]}/", server
    server.shutdown()
    server.server_close()
    live.close()


def test_it_fills_itself_and_keeps_what_was_set(open_page: Any, served: tuple[Running, str, Any]) -> None:
    study, address, _ = served
    found = open_page(address, width=1440)
    page = found.page
    assert page.locator("h1").text_content() == "No learning rate yet"
    assert "0 of 9 runs done" in page.locator("[data-progress]").text_content()
    study.done = 3
    found.until("document.querySelector('[data-progress]').textContent.includes('3 of 9')")
    assert "3 of 9" in page.locator("#live").text_content()

    study.grow(small_section(), 5)
    head = small_section().headline
    assert head is not None
    found.until(f"(document.querySelector('[data-lr]') || {{}}).textContent === '{head.lr}'")
    found.draw_all()
    page.locator("[data-strategy='data-lr']").uncheck()
    page.locator("[data-plot='optimal-lr'] select").select_option("1")
    page.evaluate("window.scrollTo({top: 1200, behavior: 'instant'})")
    page.evaluate(
        "document.querySelector('#main').dataset.old = 'yes'; document.querySelector('h1').dataset.old = 'yes'"
    )

    again = study_section(view_of(runs(horizons=5), name="running"), TARGET)
    study.grow(again, 9)
    found.until("!document.querySelector('h1').dataset.old")  # replaced, not reloaded:
    assert page.evaluate("document.querySelector('#main').dataset.old") == "yes"
    found.until("document.querySelector('#live').textContent === 'all runs done'")
    assert not page.locator("[data-strategy='data-lr']").is_checked()
    assert page.locator("[data-plot='optimal-lr'] select").input_value() == "1"
    assert abs(page.evaluate("window.scrollY") - 1200) < 5
    found.draw_all()
    shown = "[...document.querySelector('[data-plot=strategies] .canvas').data].filter(t => t.visible === false).length"
    assert page.evaluate(shown) == 1
    assert again.headline is not None
    assert page.title().startswith(f"η = {again.headline.lr}")
    found.quiet()


def test_a_phone_watches_too(open_page: Any, served: tuple[Running, str, Any]) -> None:
    study, address, _ = served
    study.grow(small_section(), 9)
    found = open_page(address, width=390, theme="dark")
    found.until("document.querySelector('[data-lr]') !== null")
    found.draw_all()
    assert found.overflow() <= 0
    found.quiet()


def test_a_server_that_went_away_is_told(open_page: Any, served: tuple[Running, str, Any]) -> None:
    _, address, server = served
    found = open_page(address)
    found.quiet()
    server.shutdown()
    server.server_close()
    found.until("document.querySelector('#live').textContent === 'the server does not answer'")
