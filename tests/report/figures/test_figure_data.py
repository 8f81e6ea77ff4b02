"""Do the figures show what the study holds? Known laws, closed forms, and agreement with the rooms they draw on."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etastar.estimate.cells import Quantity, build_groups
from etastar.estimate.estimates import Options
from etastar.predict.proportion import ecr_proportion
from etastar.report.figures import (
    FIGURES,
    Missing,
    adamh,
    against_theory,
    ecr,
    extrapolation,
    loss_curves,
    no_decay,
    norms,
    optimum,
    r2_ood,
    table_one,
    weight_spread,
)
from etastar.report.figures.over_time import query_of
from etastar.report.figures.sliding import sliding
from etastar.report.view import StudyView, block_of
from etastar.scale import gpt_params
from etastar.simulate import Grid, Straight, World, simulate


def have(found):
    assert not isinstance(found, Missing), found.sentence
    return found


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_data_is_plain_json(figure, synthetic: StudyView) -> None:
    text = json.dumps(asdict(have(figure.data(synthetic))), allow_nan=False)
    assert len(text) < 400_000


def test_figures_are_the_papers_in_its_order() -> None:
    numbers = [figure.number for figure in FIGURES]
    assert numbers[:7] == ["Figure 1", "Figure 2", "Figure 3", "Figure 4a", "Figure 4b", "Table 1", "Figure 5"]
    assert numbers[7:] == [f"Figure {k}" for k in range(6, 16)]
    assert len({figure.name for figure in FIGURES}) == len(FIGURES)
    assert all((figure.draw is None) != (figure.write is None) for figure in FIGURES)


def test_in_a_world_without_noise_the_straight_law_is_met_and_the_other_missed() -> None:
    # straight in η, and measured finely enough that the estimate is the optimum
    world = World(straight=Straight.LR)
    grid = Grid(widths=(256, 512), log2_lrs=tuple(-14 + 0.5 * k for k in range(16)))
    runs = simulate(world, grid)
    view = StudyView("exact", runs, tuple(build_groups(runs)), Options(replicates=50))
    for curve in have(optimum.data(view, Quantity.LR)).panels[0].curves:
        assert curve.pearson_r == pytest.approx(-1, abs=1e-3)
        assert curve.slope == pytest.approx(-1.0, abs=0.05)
        assert abs(curve.missed_octaves) < 0.06
        truth = world.log2_optimal_lr(curve.fixed, np.array(curve.scale))
        assert np.abs(np.array(curve.log2_value) - truth).max() < 0.08


def test_the_line_is_fitted_to_the_window_alone(synthetic: StudyView) -> None:
    panel = have(optimum.data(synthetic, Quantity.LR)).panels[0]
    for curve in panel.curves:
        inside = [x for x, used in zip(curve.scale, curve.fitted, strict=True) if used]
        assert inside == [20e9, 25e9, 30e9, 40e9]
        x, y = np.log2(curve.line_scale), curve.line_log2_value
        assert (y[2] - y[0]) / (x[2] - x[0]) == pytest.approx(curve.slope)
        assert curve.missed_octaves == pytest.approx(curve.log2_value[-1] - y[2])


def test_along_n_two_sizes_carry_the_line(synthetic: StudyView) -> None:
    panel = have(optimum.data(synthetic, Quantity.EFF_LR)).panels[1]
    sizes = [float(gpt_params(width)) for width in (256, 512, 1024)]
    assert all(curve.scale == sizes and curve.fitted == [True, True, False] for curve in panel.curves)
    assert {curve.fixed for curve in panel.curves} >= {5e9, 100e9}


def test_cells_without_a_minimum_stand_at_their_lowest_loss() -> None:
    # a sweep that ends below the optimum of short horizons
    grid = Grid(widths=(256,), tokens=(5e9, 10e9, 20e9, 40e9, 80e9), log2_lrs=tuple(range(-16, -9)))
    runs = simulate(World(), grid)
    view = StudyView("edge", runs, tuple(build_groups(runs)), Options(replicates=50))
    curve = have(optimum.data(view, Quantity.LR)).panels[0].curves[0]
    assert curve.status[0] == "AT_BOUNDARY"
    assert (curve.log2_value[0], curve.log2_low[0], curve.fitted[0]) == (-10.0, None, False)
    assert curve.status[-1] == "INTERIOR"


def test_scores_are_those_of_the_evaluation(synthetic: StudyView) -> None:
    found = synthetic.evaluation(synthetic.main)
    assert not isinstance(found, str)
    shown = have(r2_ood.data(synthetic))
    points = {
        (curve.axis, curve.quantity, beta): value
        for curve in shown.curves
        for beta, value in zip(curve.budget_ratio, curve.r2_ood, strict=True)
    }
    whole = [s for s in found.scores if s.tests == len(found.test_tokens) and s.r2_ood is not None]
    assert points == {(s.axis.value, s.quantity.value, s.budget_ratio): s.r2_ood for s in whole}
    paired = have(ecr.data(synthetic))
    assert sum(len(s.ecr) for s in paired.strategies) == sum(s.ecr is not None for s in whole)


def test_training_sets_cost_their_budget(synthetic: StudyView) -> None:
    found = have(extrapolation.data(synthetic))
    compute = found.target[0] * found.target[1]
    for cells in (found.along_data, found.along_model):
        assert sum(n * d for n, d in cells) / compute == pytest.approx(found.budget_ratio, rel=1e-6)
    assert {n for n, _ in found.along_data} == {found.target[0]}
    assert {d for _, d in found.along_model} == {found.target[1]}


def test_table_one_has_its_formats_and_one_best_a_budget(synthetic: StudyView) -> None:
    found = have(table_one.data(synthetic))
    for beta in {row.budget_ratio for row in found.rows}:
        block = [row for row in found.rows if row.budget_ratio == beta]
        best = [row for row in block if row.best]
        assert len(best) >= 1
        assert all(row.ecr == min(r.ecr for r in block if r.ecr is not None) for row in best)
    texts = table_one.write(found)
    rows = len(found.rows)
    assert texts["md"].count("\n| ") == rows + 1
    assert texts["csv"].count("\n") == rows + 1
    assert texts["tex"].count(r"\\") == rows + 1
    assert texts["md"].count("**") // 2 == texts["tex"].count(r"\mathbf") == sum(row.best for row in found.rows)


def test_paper_fits_pass_through_a_cubic_world(synthetic: StudyView) -> None:
    found = have(loss_curves.data(synthetic, Quantity.EFF_LR, 3))
    assert found.median_r2 > 0.9995
    rough = have(loss_curves.data(synthetic, Quantity.EFF_LR, 2))
    assert rough.median_r2 < found.median_r2  # the loss is steeper below its minimum
    for panel in found.panels:
        lowest = min(range(len(panel.loss)), key=panel.loss.__getitem__)
        assert panel.raw_minimum == [panel.log2_x[lowest], panel.loss[lowest]]
        low, high = min(panel.curve_loss), panel.fitted_minimum[1]
        assert high <= low + 1e-9  # the marked minimum is that of the drawn curve


def test_theory_is_met_where_it_is_exact(synthetic: StudyView) -> None:
    for kind in against_theory.Kind:
        found = have(against_theory.data(synthetic, kind))
        assert max(curve.error for curve in found.curves) < 0.02
        assert not found.left_out


def test_regimes_show_in_the_spacing_of_curves(synthetic: StudyView) -> None:
    found = have(norms.data(synthetic))
    assert found.octaves_per_octave[-1] == pytest.approx(0.5, abs=0.02)  # equilibrium: η_eff ∝ √η
    assert found.octaves_per_octave[0] > 0.95  # not yet: η_eff ∝ η
    assert all(curve.step[0] >= 125 for curve in found.eff_lr)  # from the end of the warm-up
    # a wider model of the same world has larger norms
    assert (
        have(norms.data(synthetic, params=float(gpt_params(256)))).weight_norm[0].value[0]
        < found.weight_norm[0].value[0]
    )


def test_without_decay_large_rates_coincide(synthetic: StudyView) -> None:
    found = have(no_decay.data(synthetic))
    ends = [curve.value[-1] for curve in found.eff_lr]
    assert ends[-1] / ends[-2] == pytest.approx(1, abs=0.02)
    assert ends[1] / ends[0] > 1.6
    assert ends[-1] == pytest.approx(found.common_eff_lr[-1], rel=0.03)
    assert found.words is not None
    assert "collapsed" in found.words


def test_adamh_stands_beside_adamw_at_the_same_size(synthetic: StudyView) -> None:
    found = have(adamh.data(synthetic))
    assert found.params == gpt_params(512)
    assert [curve.label for curve in found.ecr] == ["AdamH, η_eff", "AdamW, η_eff", "AdamW, η"]
    assert found.law.panels[0].curves[0].pearson_r < -0.99


def test_the_band_over_matrices_holds_their_mean(synthetic: StudyView) -> None:
    found = have(weight_spread.data(synthetic))
    assert found.matrices == 4
    for curve in found.curves:
        assert all(a <= b <= c for a, b, c in zip(curve.low, curve.mean, curve.high, strict=True))
    # equilibrium forgets W₀, so that large η have narrow bands
    width = [math.log2(curve.high[-1] / curve.low[-1]) for curve in found.curves]
    assert width[-1] < 0.01 < width[0]


def test_main_group_is_the_one_with_decay(synthetic: StudyView) -> None:
    assert synthetic.main.conditions["optimizer"] == "adamw"
    assert synthetic.no_decay is not None
    assert synthetic.no_decay.conditions["optimizer"] == "adam"
    assert synthetic.adamh is not None
    params, (low, high) = synthetic.test_cells(synthetic.main)
    assert (params, low, high) == (gpt_params(1024), 50e9, 100e9)
    assert block_of(synthetic.main, params).params == params
    assert synthetic.estimates(synthetic.main) is synthetic.estimates(synthetic.main)  # asked twice, computed once


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=40), st.floats(0.01, 50))
def test_sliding_mean_stays_within_its_window(values: list[float], half: float) -> None:
    x = np.arange(len(values), dtype=float)
    mean, spread = sliding(x, values, half)
    for k in range(len(values)):
        near = [v for j, v in enumerate(values) if abs(j - k) <= half * (1 + 1e-9)]
        assert min(near) - 1e-9 <= mean[k] <= max(near) + 1e-9
        assert spread[k] <= (max(near) - min(near)) / 2 + 1e-9
    whole, _ = sliding(x, values, len(values))
    assert np.allclose(whole, np.mean(values))


@given(st.floats(1e-3, 10), st.lists(st.floats(1e-3, 1e2), min_size=3, max_size=30, unique=True))
def test_a_proportion_is_found_again(factor: float, unexplained: list[float]) -> None:
    found = ecr_proportion([*unexplained, 0.0, -1.0], [*(factor * x for x in unexplained), 1.0, 1.0])
    assert found is not None
    assert found.points == len(unexplained)
    assert found.factor == pytest.approx(factor)
    assert found.scatter < 1e-6
    if max(unexplained) > 1.1 * min(unexplained):
        assert found.exponent == pytest.approx(1)


def test_no_proportion_of_one_point() -> None:
    assert ecr_proportion([0.5], [0.1]) is None


@pytest.mark.parametrize(
    ("names", "query"),
    [
        (["blocks.0.down", "blocks.1.q", "blocks.0.q"], "blocks.0.q"),
        (["model.layers.10.self_attn.q_proj.weight", "model.layers.2.self_attn.q_proj.weight"],
         "model.layers.2.self_attn.q_proj.weight"),
        (["transformer.h.1.attn.c_attn.weight", "transformer.h.0.attn.c_attn.weight"],
         "transformer.h.0.attn.c_attn.weight"),
        (["w1", "w2"], "w1"),
    ],
)  # fmt: skip
def test_the_first_query_matrix_is_found_by_name(names: list[str], query: str) -> None:
    assert query_of(names) == query
