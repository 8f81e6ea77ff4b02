"""How do sections become one page that needs nothing but itself?

One HTML file: styles, scripts, plotly and the numbers are inside, and a policy forbids it to load or send anything.
Scripts are admitted by their hash. Whatever a user typed goes through jinja's escaping, or through `json_text`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from etastar import __version__
from etastar.errors import InputError
from etastar.report.section import Progress, Section
from etastar.report.tables import plain, spell
from etastar.report.words import lr_words, octave_words, percent_words, power_html, sentence_words, short_name
from etastar.scale import format_number
from etastar.store import write_atomically

__all__ = ["build_page", "checked_place", "main_html", "page_data", "write_report", "write_text"]


def write_report(sections: Sequence[Section], out: str | Path, *, headline: int = 0) -> Path:
    """Write the page, whole or not at all. `headline` is the section whose answer opens it."""
    path = checked_place(Path(out))
    text = build_page(sections, headline=headline)
    write_text(path, text)
    return path


def checked_place(path: Path) -> Path:
    """A place that a file can be written to; its folder is made. Refused in words before anything is computed."""
    if path.is_dir():
        raise InputError(f"--out: {str(path)[:120]!r} is a folder", hint="name a file, e.g. report.html")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"--out: {str(path)[:120]!r} cannot be written ({error.strerror})", hint="name a file in a folder of yours"
        ) from None
    return path


def write_text(path: Path, text: str) -> None:
    """A file, whole or not at all."""

    def fill(to: Path) -> None:
        to.write_text(text, encoding="utf-8")

    write_atomically(path, fill)


def build_page(sections: Sequence[Section], *, headline: int = 0, live: bool = False, version: str = "") -> str:
    """The whole page. A `live` one asks the server it came from for news."""
    return _environment().get_template("page.html.j2").render(
        main=main_html(sections, headline=headline),
        title=page_title(sections, headline),
        style=_asset("page.css"),
        script=_asset("page.js"),
        plotly=plotly_js(),
        policy=policy(live=live),
        theme=_asset("theme.js"),
        data=json_text(page_data(sections)),
        drawings=json_text(drawings(sections)),
        live=live,
        version=version,
        etastar=__version__,
    )  # fmt: skip


def main_html(sections: Sequence[Section], *, headline: int = 0) -> str:
    """The page's <main>: all that changes when a study does."""
    if not sections:
        raise InputError("a report needs at least one study", hint="name a study's folder or a runs file")
    keyed = _unique_keys(sections)
    return _environment().get_template("main.html.j2").render(
        sections=keyed,
        opening=keyed[headline][1],
        opening_key=keyed[headline][0],
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        etastar=__version__,
    )  # fmt: skip


def progress_html(progress: Progress) -> str:
    """Where a running study stands, as the page shows it."""
    module = _environment().get_template("parts.html.j2").module
    return str(module.progress_part(progress))  # type: ignore[attr-defined]


def page_data(sections: Sequence[Section]) -> dict[str, Any]:
    """The numbers of the page, as they are inside it and behind its download button."""
    return {
        "etastar": __version__,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "sections": [section.to_json() | {"key": key} for key, section in _unique_keys(sections)],
    }


def drawings(sections: Sequence[Section]) -> dict[str, Any]:
    """What plotly draws, by section and figure."""
    return {key: {p.key: p.spec() for p in section.plots if p.views} for key, section in _unique_keys(sections)}


def json_text(value: Any) -> str:
    """JSON that may stand inside a script element: no markup can end it."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _unique_keys(sections: Sequence[Section]) -> list[tuple[str, Section]]:
    seen: dict[str, int] = {}
    found = []
    for section in sections:
        seen[section.key] = seen.get(section.key, 0) + 1
        count = seen[section.key]
        found.append((section.key if count == 1 else f"{section.key}-{count}", section))
    return found


def page_title(sections: Sequence[Section], headline: int = 0) -> str:
    """What the browser's tab says."""
    head = sections[headline].headline
    if head is None:
        return f"{sections[headline].title} · etastar"
    return (
        f"η = {head.lr} for {head.target} · etastar"
        if head.log2_lr is not None
        else f"no answer yet for {head.target} · etastar"
    )


def policy(*, live: bool) -> str:
    """Nothing may be loaded; scripts run by hash. plotly sets style attributes, so styles cannot be hashed."""
    connect = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src {_hashes()}; style-src 'unsafe-inline'; img-src data: blob:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


@lru_cache(maxsize=1)
def _hashes() -> str:
    scripts = (_asset("theme.js"), _asset("page.js"), plotly_js())
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)


@lru_cache(maxsize=1)
def plotly_js() -> str:
    """plotly.js as the Python package ships it, fit to stand inside a script element."""
    from plotly.offline import get_plotlyjs

    text = get_plotlyjs()
    if "</script" in text.lower() or "<!--" in text:
        raise InputError("this plotly.js holds markup that ends a script", hint="install another version of plotly")
    return text


@lru_cache(maxsize=8)
def _asset(name: str) -> str:
    return resources.files("etastar.report").joinpath("templates", name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("etastar.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "scale": format_number, "lr": lr_words, "power": lambda x, digits=2: Markup(power_html(x, digits)), "sentence": sentence_words, "percent": percent_words, "octaves": octave_words,
        "spell": spell, "short": lambda name: short_name(name, 60),
    }  # fmt: skip
    return found
