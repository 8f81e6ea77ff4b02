"""Does a figure without data say so, and which run would supply it?"""

from __future__ import annotations

import pytest

from etastar.estimate.cells import Quantity
from etastar.report.figures import FIGURES, Missing, optimum
from etastar.report.view import StudyView

BY_NAME = {figure.name: figure for figure in FIGURES}
LOGGED = (
    "no trajectories of these runs; the runs at N = 63.5M, η 2^-15 to 2^-6, trained by `etastar train` or watched by "
    "the monitor, with weight_norm, update_norm, update_dot_weight and eff_lr of each matrix would supply it"
)
SENTENCES = {
    "optimal-eff-lr": "η_eff was not measured in every run; the same sweeps with mean_eff_lr, from `etastar train` or "
    "the monitor, would supply it",
    "adam-no-decay": "no run was trained by Adam without weight decay; the sweep at N = 63.5M with "
    "`optimizer.kind: adam` and `schedule.kind: constant` would supply it",
    "adamh": "no run was trained by AdamH; the sweep at N = 63.5M with `optimizer.kind: adamh` would supply it",
    "eff-lr-weight-norm": LOGGED,
    "update-norm": LOGGED,
    "correlation": LOGGED,
    "weight-norm-squared": LOGGED,
    "weight-spread": LOGGED,
}


@pytest.mark.parametrize(("name", "sentence"), SENTENCES.items())
def test_a_table_of_losses_names_the_runs_it_lacks(name: str, sentence: str, bare: StudyView) -> None:
    found = BY_NAME[name].data(bare)
    assert isinstance(found, Missing)
    assert (found.figure, found.sentence) == (name, sentence)


def test_the_other_figures_are_there(bare: StudyView) -> None:
    missing = {figure.name for figure in FIGURES if isinstance(figure.data(bare), Missing)}
    assert missing == {*SENTENCES, "loss-eff-lr-cubic", "loss-eff-lr-quadratic"}


def test_one_model_size_leaves_one_panel(bare: StudyView) -> None:
    found = optimum.data(bare, Quantity.LR)
    assert not isinstance(found, Missing)
    assert [panel.axis for panel in found.panels] == ["data"]
    assert found.missing[0].sentence == (
        "the only model size is N = 63.5M; the same horizons at two smaller N or more would supply it"
    )
