"""Do the page's figures draw what the printed ones hold, and does plotly accept them?"""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

from etastar.estimate.cells import Quantity
from etastar.report.figures import loss_curves, optimum, r2_ood
from etastar.report.figures.missing import Missing
from etastar.report.interactive.base import Plot, _round_values, scale_axis
from etastar.report.interactive.evaluation import r2_plot
from etastar.report.interactive.losses import loss_plot
from etastar.report.interactive.optimum import optimum_plot
from reported import TARGET, hostile_section, runs, silent_section, small_section, view_of


def plots() -> list[Plot]:
    return [p for s in (small_section(), hostile_section(), silent_section()) for p in s.plots]


def test_plotly_accepts_every_figure() -> None:
    drawn = 0
    for plot in plots():
        assert bool(plot.views) != bool(plot.missing)
        for view in plot.spec():
            layout = {k: v for k, v in view["layout"].items() if k != "shapes"}
            for shape in view["layout"].get("shapes", ()):
                go.layout.Shape(**{k: v for k, v in shape.items() if k != "fillcolor"})
            traces = [{k: v for k, v in t.items() if k != "fillcolor"} for t in view["data"]]
            go.Figure(data=traces, layout=layout)
            drawn += 1
    assert drawn > 20


def test_the_optima_are_those_of_the_printed_figure() -> None:
    view = view_of(runs())
    found = optimum.data(view, Quantity.EFF_LR)
    assert not isinstance(found, Missing)
    plot = optimum_plot(view, Quantity.EFF_LR, view.answer(view.main, TARGET))
    assert [v.label for v in plot.views] == ["along D", "along N"]
    for panel, shown in zip(found.panels, plot.views, strict=True):
        by_name = {t["name"]: t for t in shown.traces if t["mode"] == "markers" and not t.get("meta")}
        for curve in panel.curves:
            assert by_name[curve.label]["x"] == curve.scale
            assert by_name[curve.label]["y"] == curve.log2_value
    axes = [v.layout["xaxis"]["type"] for v in plot.views]
    assert axes == ["log", "log"]
    assert plot.views[0].layout["yaxis"]["tickprefix"] == "2<sup>"


def test_a_point_of_a_loss_curve_names_its_run() -> None:
    view = view_of(runs())
    plot = loss_plot(view)
    found = loss_curves.data(view, Quantity.LR, 3, view.main.blocks[0].params)
    assert not isinstance(found, Missing)
    first = plot.views[0].traces[0]
    assert first["x"] == found.panels[0].log2_x
    assert first["y"] == found.panels[0].loss
    names = set(view.table["run"].to_pylist())
    assert all(any(name in text for name in names) for text in first["text"])
    assert len(plot.views) == 4  # two N, in η and in η_eff


def test_budget_curves_are_those_of_the_printed_figure() -> None:
    view = view_of(runs(horizons=5))
    found, plot = r2_ood.data(view), r2_plot(view)
    assert not isinstance(found, Missing)
    lines = {t["name"]: t for t in plot.views[0].traces if t.get("showlegend", True)}
    for curve in found.curves:
        if curve.budget_ratio:
            assert lines[curve.label]["y"] == curve.smoothed


def test_no_name_reaches_plotly_as_markup() -> None:
    for plot in hostile_section().plots:
        for view in plot.views:
            for trace in view.traces:
                for text in trace.get("text", ()):
                    assert "<script" not in text
                    assert "<img" not in text
                    assert "<a " not in text
                    assert len(text) < 1500


@pytest.mark.parametrize(("low", "high"), [(5e9, 100e9), (5e9, 8e9), (1e6, 1e12), (7e8, 7e8)])
def test_sizes_have_ticks_inside_their_axis(low: float, high: float) -> None:
    ticks = _round_values(low, high)
    assert 1 <= len(ticks) <= 30
    assert all(low * 0.94 <= t <= high * 1.06 for t in ticks)
    shown = scale_axis("D", [low, high])
    assert len(shown["ticktext"]) == len(shown["tickvals"])
