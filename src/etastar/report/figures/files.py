"""How does a figure become files? PNG, PDF or SVG of a drawing, JSON of its data, the text of a table."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from etastar.errors import InputError
from etastar.report.figures import PaperFigure, style
from etastar.report.figures.missing import Missing
from etastar.report.view import StudyView

DRAWN = ("png", "pdf", "svg")
FORMATS = (*DRAWN, "json")


@dataclass(frozen=True)
class Outcome:
    """What became of one figure: its files, or what is missing; `partly` names panels that are."""

    name: str
    number: str
    title: str
    files: list[str]
    missing: str | None
    partly: list[str]


def write_figure(figure: PaperFigure, view: StudyView, out: Path, formats: tuple[str, ...]) -> Outcome:
    """Write one figure into a folder, whole files only."""
    found = figure.data(view)
    if isinstance(found, Missing):
        return Outcome(figure.name, figure.number, figure.title, [], found.sentence, [])
    texts = figure.write(found) if figure.write is not None else {}
    if "json" in formats:
        texts["json"] = json.dumps(asdict(found), ensure_ascii=False, allow_nan=False)
    written = [_whole(out / f"{figure.name}.{ending}", partial(_write_text, text)) for ending, text in texts.items()]
    drawn = [one for one in formats if one in DRAWN]
    if figure.draw is not None and drawn:
        with style.paper():
            picture = figure.draw(found)
            picture.draw_without_rendering()  # lay it out once, for all formats
            picture.set_layout_engine("none")
            written += [
                _whole(out / f"{figure.name}.{ending}", partial(picture.savefig, format=ending)) for ending in drawn
            ]
    partly = [missing.sentence for missing in getattr(found, "missing", [])]
    return Outcome(figure.name, figure.number, figure.title, written, None, partly)


def _write_text(text: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8")


def _whole(path: Path, write: Callable[[Path], object]) -> str:
    """Write beside the place and rename: a broken write leaves the old file whole."""
    beside = path.with_name(f".{path.name}.partial")
    try:
        write(beside)
        beside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise InputError(f"--out: cannot write {path.name!r}: {error.strerror}", hint="choose another place") from None
    return path.name
