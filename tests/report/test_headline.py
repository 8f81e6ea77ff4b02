"""Does the first screen say what `predict` says, every doubt in words, and what would help?"""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from etastar.estimate.cells import Quantity
from etastar.report.headline import headline
from etastar.report.outcome import outcome_words
from etastar.report.suggest import runs_that_would_help
from etastar.scale import Scale
from reported import TARGET, runs, silent_section, small_section, view_of


def test_the_headline_is_the_recommendation() -> None:
    view = view_of(runs())
    best = view.answer(view.main, TARGET).recommended
    assert best is not None
    found = headline(view, TARGET)
    assert found.log2_lr == best.log2_lr
    assert found.lr == f"{2**best.log2_lr:.3g}"
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == best.log2_interval
    assert found.expected_ecr == best.expected_ecr
    assert [d.code for d in found.doubts] == [flag.value for flag in best.flags]
    assert [d.sentence for d in found.doubts] == [flag.sentence for flag in best.flags]
    facts = {fact.name: fact for fact in found.facts}
    assert facts["Runs"].value == "72"
    assert facts["Cells (N, D)"].value == "8"
    assert "held-out" in facts["Back-test error"].note


def test_the_ruler_keeps_the_order_of_its_numbers() -> None:
    head = small_section().headline
    assert head is not None
    ruler = head.ruler
    assert ruler is not None
    left, width = ruler.interval
    assert 0 <= left <= ruler.point <= left + width <= 100
    places = [at for at, _ in ruler.ticks]
    assert places == sorted(places)
    assert 1 <= len(places) <= 7


def test_an_abstention_names_its_reason_and_the_runs_that_would_change_it() -> None:
    head = silent_section().headline
    assert head is not None
    assert head.log2_lr is None
    assert head.ruler is None
    assert "cells enough" in (head.abstained or "")
    assert any("no run has N" in one.value for one in head.reasons)
    assert any(f"N = {TARGET.params / 1e6:.4g}M" in one for one in head.would_help)


def test_a_sweep_that_ends_too_soon_is_asked_to_go_on() -> None:
    frame = pl.from_arrow(runs())
    assert isinstance(frame, pl.DataFrame)
    view = view_of(frame.filter(pl.col("lr") < 2.0**-11.5).to_arrow())
    found = view.answer(view.main, TARGET)
    said = runs_that_would_help(view, view.main, found)
    assert any("learning rates above 2^-12" in one for one in said), said


def test_runs_without_eff_lr_are_asked_for_it() -> None:
    table = runs()
    empty = table.set_column(
        table.column_names.index("mean_eff_lr"), "mean_eff_lr", pl.Series([None] * table.num_rows, dtype=pl.Float64).to_arrow()
    )  # fmt: skip
    view = view_of(empty)
    said = runs_that_would_help(view, view.main, view.answer(view.main, TARGET))
    assert any("mean_eff_lr" in one for one in said)


def test_other_groups_are_named_and_not_mixed_in() -> None:
    first, second = pl.from_arrow(runs()), pl.from_arrow(runs(seed=2))
    assert isinstance(first, pl.DataFrame)
    assert isinstance(second, pl.DataFrame)
    other = second.with_columns(
        pl.lit(0.05).alias("weight_decay"), pl.concat_str(pl.lit("o"), pl.col("run")).alias("run")
    )
    view = view_of(pl.concat([first, other]).to_arrow())
    found = headline(view, TARGET)
    assert len(view.groups) == 2
    assert len(found.others) == 1
    assert "λ 0.05" in found.others[0].name or "λ 0.1" in found.others[0].name


def test_the_outcome_is_the_distance_to_the_hidden_optimum() -> None:
    whole = view_of(runs(horizons=5))
    small = view_of(runs(horizons=5).filter(np.asarray(runs(horizons=5)["tokens"]) < 50e9))
    target = Scale(TARGET.params, 80e9)
    best = small.answer(small.main, target).recommended
    assert best is not None
    lr = whole.estimates(whole.main)[Quantity.LR]
    truth = next(o for o in lr.optima if o.params == target.params and o.tokens == target.tokens)
    said = outcome_words(whole, target, best)
    assert f"{best.log2_lr - truth.log2_value:+.2f} octaves" in said
    assert "extra compute" in said
    assert outcome_words(whole, Scale(TARGET.params, 33e9), best) == ""


@pytest.mark.parametrize("octaves", [0.01, 0.3, 2.0, 5.0])
def test_ticks_are_round_and_few(octaves: float) -> None:
    from etastar.report.headline import _ticks

    found = _ticks(-12.34, -12.34 + octaves)
    assert len(found) <= 7
    for value, digits in found:
        assert math.isclose(value, round(value, digits), abs_tol=1e-9)
