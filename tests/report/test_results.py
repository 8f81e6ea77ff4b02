"""Claims are decided by their rules: in worlds where the answer is known, and where runs are missing."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import etastar
from etastar.estimate.estimates import Options
from etastar.report.results import dynamics, headline, laws, transfer
from etastar.report.results.claim import Verdict, by_interval, signed
from etastar.report.results.page import markdown, parts_of
from etastar.report.results.seeds import one_seed, seeds_of, truth_of
from etastar.report.view import StudyView, read_study
from etastar.simulate import Grid, Straight, World, simulate
from worlds import horizons, octaves

GRID = Grid(widths=(512, 1024, 2048), tokens=horizons(9), log2_lrs=octaves(-16, -6, 1), seeds=2)
QUIET = {"trunk_noise": 0.0004, "branch_noise": 0.0004}


def view_of(tmp_path: Path, world: World) -> StudyView:
    pq.write_table(simulate(world, GRID, seed=3), tmp_path / "runs.parquet")
    return read_study(tmp_path / "runs.parquet", options=Options(replicates=150))


def test_the_papers_world_supports_the_papers_claims(tmp_path: Path) -> None:
    view = view_of(tmp_path, World(**QUIET))
    assert laws.bend(view).verdict is Verdict.SUPPORTED
    assert laws.straighter(view).verdict is Verdict.SUPPORTED
    assert transfer.quantities(view).verdict is Verdict.SUPPORTED
    assert transfer.proportion(view).verdict is Verdict.SUPPORTED
    assert dynamics.regimes(view).verdict is Verdict.SUPPORTED


def test_a_world_straight_in_lr_does_not(tmp_path: Path) -> None:
    view = view_of(tmp_path, World(straight=Straight.LR, **QUIET))
    assert laws.bend(view).verdict is Verdict.INDISTINCT
    assert laws.straighter(view).verdict is not Verdict.SUPPORTED


def test_what_was_not_run_is_not_judged(tmp_path: Path) -> None:
    view = view_of(tmp_path, World(**QUIET))
    for claim in (laws.adamh(view), dynamics.no_decay(view), dynamics.theory_fit(view)):
        assert claim.verdict is Verdict.UNTESTED
        assert claim.ours[0]


@pytest.mark.parametrize(
    ("low", "high", "sign", "verdict"),
    [
        (0.1, 0.2, 1, Verdict.SUPPORTED),
        (-0.2, -0.1, 1, Verdict.CONTRADICTED),
        (-0.2, -0.1, -1, Verdict.SUPPORTED),
        (-0.1, 0.1, 1, Verdict.INDISTINCT),
    ],
)
def test_an_interval_decides(low: float, high: float, sign: int, verdict: Verdict) -> None:
    assert by_interval(low, high, claimed_sign=sign) is verdict


def test_numbers_carry_a_true_minus() -> None:
    assert signed(-0.1234, (-0.5, 0.25), 2) == "−0.12 [−0.50, +0.25]"


def test_one_seed_sees_no_other_and_nothing_later() -> None:
    study = etastar.load_study("mini")
    truth = truth_of(study)
    assert truth is not None
    assert seeds_of(study, truth.target.params) == [0, 1, 2]
    one = one_seed(study, 1, steps=5000)
    widest = [row for row in one.table.to_pylist() if row["params"] == truth.target.params]
    assert {row["seed"] for row in widest} == {1}
    assert {row["optimizer"] for row in one.table.to_pylist()} == {"adamw"}
    assert one.trajectories is not None
    paths = one.trajectories.of(one.trajectories.names)
    assert max(paths["step"].to_pylist()) < 5000
    # a size that was not trained with this seed stands in with its first
    assert {row["seed"] for row in one.table.to_pylist() if row["params"] < 4e6} == {0, 1}


def test_a_cut_is_good_only_if_all_longer_ones_are() -> None:
    def cut(share: float, *errors: float) -> headline.Cut:
        return headline.Cut(share, 3, share, tuple(headline.Said(e, abs(e) / 10, True, "") for e in errors))

    found = (cut(0.2, 0.1, 0.1), cut(0.4, 0.3, 0.0), cut(0.6, 0.1, -0.1), cut(0.8, 0.0, 0.0))
    assert "within 0.15 octave for every seed from 60% on" in headline._sentence(found)


@pytest.mark.slow
def test_the_page_is_the_same_twice(tmp_path: Path) -> None:
    view = view_of(tmp_path, World(**QUIET))
    first, second = (markdown(view, "a command", parts_of(view)) for _ in range(2))
    assert first == second
    assert "## Headline" in first
