"""Evaluation: the paper's protocol on a known world."""

import numpy as np
import pytest

from etastar.errors import InputError
from etastar.estimate.cells import Quantity
from etastar.estimate.estimates import Options, estimate_group
from etastar.laws.loglinear import Axis
from etastar.predict.evaluate import evaluate
from etastar.predict.strategies import Evidence
from etastar.scale import gpt_params
from etastar.simulate import Grid, World
from worlds import group_of, octaves

N = float(gpt_params(2048))


@pytest.fixture(scope="module")
def evidence():
    grid = Grid(tokens=tuple(5e9 * k for k in range(1, 21)), log2_lrs=octaves(-16, -6, 1))
    group = group_of(World(), grid)
    return Evidence(group, estimate_group(group, Options(replicates=50)))


@pytest.fixture(scope="module")
def found(evidence):
    return evaluate(evidence, params=707e6, tokens=(50e9, 100e9), budgets=(0.1, 0.6))


def test_eff_lr_is_exact_and_lr_undershoots_less_with_more_budget(found):
    by = {(s.axis, s.quantity, round(s.budget_ratio, 4)): s for s in found.scores}
    errors = []
    for beta in (0.2, 0.3, 0.4, 0.5):
        eff, lr = by[Axis.DATA, Quantity.EFF_LR, beta], by[Axis.DATA, Quantity.LR, beta]
        assert eff.log2_lr_error == pytest.approx(0, abs=0.01)
        assert eff.ecr == pytest.approx(0, abs=1e-3)
        assert eff.r2_ood == pytest.approx(1, abs=1e-3)
        assert lr.r2_ood < eff.r2_ood
        errors.append(lr.log2_lr_error)
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0.3


def test_the_papers_model_budgets_are_among_the_rows(found):
    betas = {100 * s.budget_ratio for s in found.scores if s.axis is Axis.MODEL}
    for wanted in (20.64, 37.63, 55.10):
        assert min(abs(b - wanted) for b in betas) <= 0.01
    both = {round(s.budget_ratio, 6) for s in found.scores if s.axis is Axis.DATA}
    assert {round(s.budget_ratio, 6) for s in found.scores if s.axis is Axis.MODEL} <= both


def test_no_test_cell_enters_its_own_prediction(found):
    for row in found.rows:
        assert all((n, d) != (row.target.params, row.target.tokens) for n, d in row.training)
        spent = sum(n * d for n, d in row.training) / (row.target.params * row.target.tokens)
        assert spent == pytest.approx(row.budget_ratio, rel=1e-6)


def test_signs_follow_the_paper(found):
    row = next(r for r in found.rows if r.axis is Axis.DATA and r.quantity is Quantity.LR and r.target.tokens == 100e9)
    assert row.log2_lr_error < 0
    assert row.loss_gap > 0
    assert row.ecr > 0


def test_one_test_cell_has_no_r2(evidence):
    found = evaluate(evidence, params=N, tokens=(100e9, 100e9), budgets=(0.2, 0.3))
    assert {s.r2_ood for s in found.scores} == {None}


def test_every_pair_of_the_grid(evidence):
    found = evaluate(evidence, params=N, tokens=(100e9, 100e9), budgets=(0.1, 0.6), every_pair=True)
    pairs = {row.training for row in found.rows if row.axis is Axis.DATA}
    grid = np.arange(5, 100, 5) * 1e9
    wanted = sum(0.1 <= (a + b) / 100e9 <= 0.6 + 1e-9 for i, a in enumerate(grid) for b in grid[i + 1 :])
    assert len(pairs) == wanted


@pytest.mark.parametrize("bad", [{"params": 1e6}, {"tokens": (1e6, 2e6)}])
def test_a_target_that_was_not_swept_is_refused(evidence, bad):
    asked = {"params": N, "tokens": (50e9, 100e9), "budgets": (0.1, 0.2)} | bad
    with pytest.raises(InputError):
        evaluate(evidence, **asked)
