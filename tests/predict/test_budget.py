"""Budgets: the paper's β, and what the runs really cost."""

import pyarrow as pa
import pytest

from etastar.estimate.cells import build_groups
from etastar.predict.budget import all_data_pairs, data_pairs, model_sets, sweep_cost
from etastar.scale import Scale, gpt_params
from etastar.simulate import Grid, World, simulate
from worlds import group_of, octaves

GRID = Grid(widths=(256, 2048), tokens=(10e9, 20e9, 40e9), log2_lrs=octaves(-14, -9, 1))


def test_the_papers_pair_spends_the_budget():
    assert data_pairs([5e9, 8e9, 100e9], 100e9, 0.13, first=5e9) == (5e9, pytest.approx(8e9))
    assert data_pairs([5e9, 100e9], 100e9, 0.09, first=5e9) is None  # nothing left for a second point
    assert data_pairs([5e9, 8e9], 100e9, 0.2, first=5e9) is None  # 15B was never run


def test_every_pair_and_every_set():
    pairs = all_data_pairs([10.0, 20.0, 40.0], 40.0)
    assert pairs == [(0.75, 10.0, 20.0)]
    sets = model_sets([1.0, 2.0, 4.0, 10.0], 10.0)
    assert [beta for beta, _ in sets] == pytest.approx([0.3, 0.5, 0.6, 0.7])
    assert sets[-1][1] == (1.0, 2.0, 4.0)


def test_shared_trunks_are_paid_once():
    group = group_of(World(), GRID)
    n = float(gpt_params(2048))
    target = Scale(n, 100e9)
    cells = [(n, d) for d in GRID.tokens]
    cost = sweep_cost(group, cells, target)
    decay = 5000 * 512 * 1024
    assert group.shared_trunks
    assert cost.budget_ratio == pytest.approx(0.7)
    assert cost.flop == pytest.approx(6 * 6 * n * (40e9 + 2 * decay))
    assert cost.target_sweep_flop == pytest.approx(6 * target.compute)
    assert cost.true_ratio < cost.budget_ratio


def test_without_trunks_every_run_is_paid():

    runs = simulate(World(), GRID)
    runs = runs.set_column(runs.column_names.index("trunk"), "trunk", pa.nulls(runs.num_rows, pa.string()))
    (group,) = build_groups(runs)
    n = float(gpt_params(256))
    cost = sweep_cost(group, [(n, d) for d in GRID.tokens], Scale(n, 100e9))
    assert cost.flop == pytest.approx(6 * 6 * n * 70e9)
