"""A real Chromium, pages to open in it, and a watch over what they try to load or complain about."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from etastar.report.page import write_report
from etastar.report.section import study_section
from etastar.scale import Scale
from etastar.simulate import Grid, World, simulate
from reported import TARGET, hostile_section, runs, silent_section, small_section, view_of

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run", "--disable-dev-shm-usage", "--force-color-profile=srgb",
]  # fmt: skip
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs a browser."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A headless browser; where there is none, every test here is skipped, and says so."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no browser test ran")
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium on this machine: no browser test ran")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Opened:
    """A page, and what it did that it should not."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def quiet(self) -> None:
        """No error on the console, no exception, nothing loaded but the page itself."""
        assert self.complaints == []
        assert self.requests == []

    def overflow(self) -> int:
        """Pixels that the page is wider than its window."""
        return self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")

    def until(self, expression: str, seconds: float = 20) -> None:
        """Wait for an expression to be true. Asked from outside: the page's policy lets nothing be evaluated inside."""
        end = time.monotonic() + seconds
        while not self.page.evaluate(expression):
            assert time.monotonic() < end, expression
            self.page.wait_for_timeout(50)

    def runs(self) -> Any:
        """The table of runs, brought near."""
        self.page.locator("[data-part='Runs']").first.scroll_into_view_if_needed()
        found = self.page.locator("[data-table='runs']").first
        found.locator("tbody tr").first.wait_for(state="attached")
        return found

    def hover_points(self, plot: str, most: int = 1) -> list[str]:
        """Point at marks of a figure that lie inside its axes; what its labels said."""
        marks = f"[data-plot='{plot}'] .scatterlayer .trace .point"
        self.page.locator(f"[data-plot='{plot}']").first.scroll_into_view_if_needed()
        self.page.wait_for_timeout(300)
        places = self.page.evaluate(INSIDE, [f"[data-plot='{plot}'] .nsewdrag", marks])
        said = []
        for x, y in places[:: max(1, len(places) // most)][:most]:
            self.page.mouse.move(x, y + 1)
            self.page.mouse.move(x, y)
            label = self.page.wait_for_selector(f"[data-plot='{plot}'] .hoverlayer .hovertext", timeout=10_000)
            said.append(label.text_content())
        return said

    def draw_all(self) -> int:
        """Scroll through the page until every figure is drawn; how many there are."""
        self.page.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
        count = self.page.locator(".plot").count()
        for k in range(count):
            self.page.locator(".plot").nth(k).scroll_into_view_if_needed()
            self.page.wait_for_selector(f".plot >> nth={k} >> .main-svg", state="attached", timeout=30_000)
        return count


INSIDE = """([frame, marks]) => {
  const box = document.querySelector(frame).getBoundingClientRect();
  return [...document.querySelectorAll(marks)].map((m) => m.getBoundingClientRect())
    .map((r) => [r.x + r.width / 2, r.y + r.height / 2])
    .filter(([x, y]) => x > box.left + 4 && x < box.right - 4 && y > box.top + 4 && y < box.bottom - 4)
    .filter(([x, y]) => y > 80 && y < innerHeight - 5);
}"""
Open = Callable[..., Opened]


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Open]:
    """Open a file or an address in a window of its own."""
    contexts = []

    def opened(where: Path | str, *, width: int = 1440, theme: str = "light", **more: Any) -> Opened:
        address = where if isinstance(where, str) else where.as_uri()
        own = re.match(r"(file:///.*|https?://[^/]*)", address)
        assert own is not None
        context = chromium.new_context(
            viewport={"width": width, "height": 900 if width > 600 else 844}, color_scheme=theme, accept_downloads=True, **more
        )  # fmt: skip
        contexts.append(context)
        found = Opened(context.new_page())
        found.page.on("console", lambda m: found.complaints.append(m.text) if m.type in ("error", "warning") else None)
        found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
        found.page.on("dialog", lambda dialog: (found.complaints.append("a dialog"), dialog.dismiss()))

        def watch(route: Any) -> None:
            url = route.request.url
            if url.startswith((own[1], "blob:", "data:")):
                route.continue_()
            else:
                found.requests.append(url)
                route.abort()

        context.route("**/*", watch)
        found.page.goto(address)
        if more.get("java_script_enabled", True):
            found.page.wait_for_selector("html[data-ready]")
        return found

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="session")
def small(folder: Path) -> Path:
    return write_report([small_section()], folder / "small.html")


@pytest.fixture(scope="session")
def hostile(folder: Path) -> Path:
    return write_report([hostile_section()], folder / "hostile.html")


@pytest.fixture(scope="session")
def silent(folder: Path) -> Path:
    return write_report([silent_section()], folder / "silent.html")


@pytest.fixture(scope="session")
def several(folder: Path) -> Path:
    """Two studies under one headline, as the demo has them."""
    second = study_section(view_of(runs(seed=3), name="a second study"), TARGET, intro="Trained just now.")
    return write_report([small_section(), second], folder / "several.html")


@pytest.fixture(scope="session")
def large(folder: Path) -> Path:
    """The paper's grid: 2340 runs."""
    view = view_of(simulate(World(), Grid(), seed=1), name="the paper's grid")
    return write_report([study_section(view, Scale.parse("707M", "200B"))], folder / "large.html")
