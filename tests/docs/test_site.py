"""Is the site whole, and does it load nothing from elsewhere?

`make docs` builds it and names its folder in ETASTAR_SITE; without that it is built here, which takes a while.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
_ASSET = re.compile(r"url\(\s*['\"]?(?!data:)([^'\")]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if named := os.environ.get("ETASTAR_SITE"):
        return ROOT / named
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    source = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": source}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


class _Loads(HTMLParser):
    """Addresses that a browser fetches by itself; links to click on are none of them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        fetched = [known.get("src"), known.get("poster"), known.get("data") if tag == "object" else None]
        if tag == "link" and known.get("rel") not in ("canonical", "prev", "next"):
            fetched.append(known.get("href"))
        self.found += [address for address in fetched if address]


def navigation(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for below in entry.values():
            yield from [below] if isinstance(below, str) else navigation(below)


@pytest.mark.slow
def test_every_page_of_the_navigation_is_there(site: Path) -> None:
    written = [page for page in navigation(_settings()["nav"]) if (ROOT / "docs" / page).exists()]
    missing = [page for page in written if not (site / page).with_suffix(".html").exists()]
    assert written
    assert missing == []


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        loads = _Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        assert [x for x in loads.found if re.match(r"(https?:)?//", x)] == [], page.name
        for address in loads.found:
            if page.name != "404.html" and not address.startswith("data:"):
                assert (page.parent / re.split(r"[?#]", address)[0]).resolve().exists(), (page.name, address)
    for style in site.rglob("*.css"):
        outside = [x for x in _ASSET.findall(style.read_text(encoding="utf-8")) if re.match(r"(https?:)?//", x)]
        assert outside == [], style.name


@pytest.mark.slow
def test_verbs_and_functions_are_on_their_pages(site: Path) -> None:
    cli = (site / "reference/cli.html").read_text(encoding="utf-8")
    for verb in ("import", "fit", "predict", "report", "train", "launch", "data prepare"):
        assert f"etastar {verb}" in cli
    api = (site / "reference/api.html").read_text(encoding="utf-8")
    for name in ("scale.Scale", "predict.recommend.answer", "monitor.step_monitor.StepMonitor", "train.loop.train"):
        assert f'id="etastar.{name}"' in api


def _settings() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def test_every_page_is_in_the_navigation() -> None:
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= set(navigation(_settings()["nav"]))


def test_pictures_are_small_and_shown() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    text += (ROOT / "mkdocs.yml").read_text(encoding="utf-8") + (ROOT / "README.md").read_text(encoding="utf-8")
    for picture in (ROOT / "docs/images").iterdir():
        assert picture.stat().st_size < 150_000, picture.name
        assert f"images/{picture.name}" in text, f"{picture.name} is shown nowhere"
