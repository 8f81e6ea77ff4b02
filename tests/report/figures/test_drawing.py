"""Does every figure draw, with no empty panel, no clipped text, no type too small and no tick labels on each other?"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from etastar.report.figures import FIGURES, PaperFigure, style
from etastar.report.figures.missing import Missing
from etastar.report.view import StudyView

DRAWN = [figure for figure in FIGURES if figure.draw is not None]
TRAINED = ("optimal-lr", "r2-ood", "eff-lr-weight-norm", "correlation", "weight-norm-squared", "weight-spread")
BARE = ("extrapolation", "optimal-lr", "r2-ood", "ecr-r2", "loss-lr-quadratic")
LEAST_POINTS = 7.0


def picked(*names: str) -> list[PaperFigure]:
    return [figure for figure in DRAWN if figure.name in names]


def drawn(figure: Any, view: StudyView) -> Figure:
    found = figure.data(view)
    assert not isinstance(found, Missing), found.sentence
    with style.paper():
        picture = figure.draw(found)
        FigureCanvasAgg(picture).draw()
    return picture


def texts(picture: Figure) -> list[Text]:
    return [t for t in picture.findobj(Text) if isinstance(t, Text) and t.get_visible() and t.get_text().strip()]


def inspect(picture: Figure) -> None:
    assert picture.axes
    for ax in picture.axes:
        assert ax.lines or ax.collections or ax.patches, "an empty panel"
    box = picture.bbox
    for text in texts(picture):
        assert text.get_fontsize() >= LEAST_POINTS, f"{text.get_text()!r} is set in {text.get_fontsize()} pt"
        place = text.get_window_extent()
        if place.width and not text.get_clip_on() and _on_axis(text, picture):
            assert place.x0 >= box.x0 - 1, f"{text.get_text()!r} is cut at the left"
            assert place.x1 <= box.x1 + 1, f"{text.get_text()!r} is cut at the right"
            assert place.y0 >= box.y0 - 1, f"{text.get_text()!r} is cut at the bottom"
            assert place.y1 <= box.y1 + 1, f"{text.get_text()!r} is cut at the top"
    for ax in picture.axes:
        for labels, low, high in ((shown_ticks(ax.xaxis), "x0", "x1"), (shown_ticks(ax.yaxis), "y0", "y1")):
            ends = sorted((getattr(b, low), getattr(b, high)) for b in labels)
            for (_, end), (start, _) in pairwise(ends):
                assert end <= start + 1, f"tick labels overlap in {ax.get_xlabel()!r}, {ax.get_ylabel()!r}"


def _on_axis(text: Text, picture: Figure) -> bool:
    """Tick labels beyond the limits are there and not drawn."""
    for ax in picture.axes:
        for axis in (ax.xaxis, ax.yaxis):
            if any(text is tick.label1 or text is tick.label2 for tick in (*axis.majorTicks, *axis.minorTicks)):
                return False
    return True


def shown_ticks(axis: Any) -> list[Any]:
    low, high = sorted(axis.get_view_interval())
    ticks = [t for t in axis.get_major_ticks() if low <= t.get_loc() <= high and t.label1.get_visible()]
    return [t.label1.get_window_extent() for t in ticks if t.label1.get_text()]


@pytest.mark.parametrize("figure", DRAWN, ids=lambda figure: figure.name)
def test_synthetic_study(figure, synthetic: StudyView) -> None:
    inspect(drawn(figure, synthetic))


@pytest.mark.parametrize("figure", picked(*TRAINED), ids=lambda figure: figure.name)
def test_trained_study(figure, mini: StudyView) -> None:
    inspect(drawn(figure, mini))


@pytest.mark.parametrize("figure", picked(*BARE), ids=lambda figure: figure.name)
def test_table_of_losses_alone(figure, bare: StudyView) -> None:
    inspect(drawn(figure, bare))
