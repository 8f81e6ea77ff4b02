"""Calibration, held-out judgement, validation figures and the no-decay study, on walks with known truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from etastar.errors import InputError
from etastar.records import conform_trajectories
from etastar.theory.calibrate import calibrate_weight
from etastar.theory.heldout import judge_weight
from etastar.theory.invert import invert_eff_lr
from etastar.theory.network import calibrate
from etastar.theory.nodecay import collapse_lr, no_decay_study
from etastar.theory.planned import PlannedRun, mean_eff_lr
from etastar.theory.recursion import run_recursion
from etastar.theory.schedules import Schedule
from etastar.theory.trajectories import Trajectory, trajectories_of
from etastar.theory.validate import correlation_figure, eff_lr_spread, update_norm_figure, weight_norm_figure

STEPS, WARMUP = 1600, 100
TRUNK = PlannedRun(schedule=Schedule(kind="constant", steps=STEPS, warmup_steps=WARMUP), weight_decay=0.1)
LRS = (0.01, 0.02, 0.04)
TRUE_BETA = {"a": 0.8, "b": 0.9}  # the user believes 0.9; matrix a decorrelates faster


@pytest.fixture(scope="module")
def trunks(walk):
    found = []
    for lr in LRS:
        matrices = []
        for k, (name, beta) in enumerate(TRUE_BETA.items()):
            one = walk(
                TRUNK.factors(),
                lr=lr,
                weight_decay=0.1,
                beta1=beta,
                weight_norm0=2.0,
                update_norm=12.0,
                dimension=1500,
                seed=k,
            )
            matrices.append(
                Trajectory.from_arrays(
                    step=np.arange(STEPS),
                    weight_norm=one.weight_norm,
                    update_norm=one.update_norm,
                    update_dot_weight=one.update_dot_weight,
                    eff_lr=one.eff_lr,
                    weight=name,
                    run=f"lr{lr}",
                )
            )
        found.append((lr, tuple(matrices)))
    return found


def test_the_true_correlation_is_found_and_theory_s_is_beside_it(trunks):
    network = calibrate(trunks, run=TRUNK, beta1=0.9, fit_stop=STEPS, window=1.0, warmup_steps=WARMUP)
    factors = network.table("factor")
    assert np.all(np.abs(np.log(factors[:, 0] / 9.0)) < 0.12)  # (1+0.8)/(1−0.8)
    assert np.all(np.abs(np.log(factors[:, 1] / 19.0)) < 0.12)
    assert np.all(np.abs(np.log(network.table("factor_from_dot") / factors)) < 0.2)
    assert network.table("factor_theory") == pytest.approx(19.0)
    assert network.table("update_norm") == pytest.approx(12.0, rel=0.02)
    assert network.table("weight_norm0") == pytest.approx(2.0)
    assert np.all(network.table("fit_residual") < 0.04)


def test_the_last_quarter_is_predicted_from_the_first(trunks):
    network = calibrate(trunks, run=TRUNK, beta1=0.9, fit_stop=STEPS // 4, warmup_steps=WARMUP)
    for row, (_, matrices) in zip(network.fits, trunks, strict=True):
        for fit, trajectory in zip(row, matrices, strict=True):
            judged = judge_weight(fit, trajectory, run=TRUNK, start=3 * STEPS // 4, stop=STEPS)
            assert judged.eff_lr_error < 0.08
            assert abs(judged.eff_lr_bias) < 0.05
            assert judged.weight_norm_error < 0.08


def test_a_held_out_horizon_comes_back_as_its_lr(trunks):
    network = calibrate(trunks, run=TRUNK, beta1=0.9, fit_stop=STEPS // 2, warmup_steps=WARMUP)
    matrices, flags = network.matrices_for(TRUNK)
    assert flags == ()
    for lr, trajectories in trunks:
        measured = float(np.mean([one.eff_lr.mean() for one in trajectories]))
        assert float(mean_eff_lr(lr, run=TRUNK, matrices=matrices)) == pytest.approx(measured, rel=0.02)
        found = invert_eff_lr(measured, run=TRUNK, matrices=matrices)
        assert abs(np.log2(found.value / lr)) < 0.02 * found.slope + 0.02


def test_another_beginning_starts_from_the_first_norm(trunks):
    network = calibrate(trunks, run=TRUNK, beta1=0.9, fit_stop=STEPS // 2, warmup_steps=WARMUP)
    other = PlannedRun(schedule=Schedule(steps=STEPS, warmup_steps=WARMUP, decay_steps=200), weight_decay=0.3)
    matrices, flags = network.matrices_for(other)
    assert flags[0].startswith("other-beginning")
    some = matrices(np.array([0.015, 0.02]))
    assert some.start_step == 0
    assert some.weight_norm0 == pytest.approx(2.0)
    assert some.weight_norm0.shape == (2, 2)


def exact_trunk(lr: float) -> Trajectory:
    """A trunk that follows the recursion without noise."""
    rest = {"weight_decay": 0.1, "beta1": 0.9, "weight_norm0": 2.0, "update_norm": 12.0}
    one = run_recursion(TRUNK.factors(), lr=lr, **rest)
    return Trajectory.from_arrays(
        step=np.arange(STEPS), weight_norm=one.weight_norm[:-1], update_norm=np.full(STEPS, 12.0), eff_lr=one.eff_lr
    )


def test_an_lr_left_out_of_the_sweep_is_found_from_its_neighbours():
    """LRs an octave apart through the norm's bend: straight lines over the gap are up to 0.15 octaves off."""
    swept = [(float(lr), (exact_trunk(lr),)) for lr in 0.001 * 2.0 ** np.arange(6)]
    for k in (2, 3):
        lr, (held_out,) = swept[k]
        network = calibrate(swept[:k] + swept[k + 1 :], run=TRUNK, beta1=0.9, fit_stop=STEPS // 2, warmup_steps=WARMUP)
        matrices, _ = network.matrices_for(TRUNK)
        found = invert_eff_lr(float(held_out.eff_lr.mean()), run=TRUNK, matrices=matrices)
        assert abs(np.log2(found.value / lr)) < 0.03
        known = network.at(network.lrs)
        assert known.weight_norm0 == pytest.approx(network.table("stop_weight_norm"))
        assert known.update_norm == pytest.approx(network.table("update_norm"))


def test_an_impossible_norm_beyond_the_sweep_does_not_spoil_the_inversion():
    """W that shrinks with the LR, carried on three octaves, is too small for ⟨u, w⟩: the answer stays."""
    swept = [(lr, (exact_trunk(lr),)) for lr in LRS]
    network = calibrate(swept, run=TRUNK, beta1=0.9, fit_stop=STEPS // 2, warmup_steps=WARMUP)
    shrinking = [
        tuple(replace(fit, stop_weight_norm=fit.stop_weight_norm / 4.0**k) for fit in row)
        for k, row in enumerate(network.fits)
    ]
    network = replace(network, fits=tuple(shrinking))
    matrices, _ = network.matrices_for(TRUNK)
    grid = LRS[-1] * 2.0 ** np.arange(4)
    assert np.isfinite(mean_eff_lr(grid, run=TRUNK, matrices=matrices)).all()
    wanted = float(mean_eff_lr(0.02, run=TRUNK, matrices=matrices))
    assert invert_eff_lr(wanted, run=TRUNK, matrices=matrices).value == pytest.approx(0.02, rel=1e-2)


@pytest.mark.parametrize("cause", ["update norm", "correlation"])
def test_the_assumption_that_failed_is_named(walk, cause):
    """Two runs whose later half breaks one assumption: U grows, or the updates decorrelate."""
    rest = {"lr": 0.02, "weight_decay": 0.5, "weight_norm0": 2.0, "update_norm": 12.0, "dimension": 2000}
    run = TRUNK.model_copy(update={"weight_decay": 0.5})
    late = np.arange(STEPS) >= STEPS // 2
    profile = np.where(late, 2.0, 1.0) if cause == "update norm" else None
    one = walk(TRUNK.factors(), beta1=0.9, profile=profile, **rest)
    moved = Trajectory.from_arrays(
        step=np.arange(STEPS), weight_norm=one.weight_norm, update_norm=one.update_norm, eff_lr=one.eff_lr
    )
    fit = calibrate_weight(moved, lr=0.02, run=run, beta1=0.9, fit_stop=STEPS // 2, warmup_steps=WARMUP)
    if cause == "correlation":
        fit = replace(fit, factor=0.6 * fit.factor)
    stop = STEPS // 2 + 60 if cause == "update norm" else STEPS  # before W has followed U
    judged = judge_weight(fit, moved, run=run, start=STEPS // 2, stop=stop)
    assert abs(judged.eff_lr_bias) > 0.05
    assert judged.cause == cause


def test_sparse_logs_calibrate_the_same(trunks):
    _, (_, dense) = trunks[1]
    rows = slice(None, None, 10)
    sparse = Trajectory.from_arrays(
        step=dense.step[rows],
        weight_norm=dense.weight_norm[rows],
        update_norm=dense.update_norm[rows],
        eff_lr=dense.eff_lr[rows],
    )
    fits = [
        calibrate_weight(one, lr=0.02, run=TRUNK, beta1=0.9, fit_stop=STEPS, warmup_steps=WARMUP)
        for one in (dense, sparse)
    ]
    assert fits[1].factor == pytest.approx(fits[0].factor, rel=0.05)
    assert np.isnan(fits[1].factor_from_dot)


def test_validation_figures_hold_for_the_assumed_process(trunks):
    _, (fast, slow) = trunks[1]
    rest = {"lr": 0.02, "run": TRUNK, "warmup_steps": WARMUP}
    assert update_norm_figure(slow, warmup_steps=WARMUP).goodness < 0.02
    # ⟨u,w⟩ is a noisy quantity: a stretch of 75 steps holds few independent draws
    assert correlation_figure(slow, beta1=0.9, **rest).goodness < 0.2
    assert weight_norm_figure(slow, beta1=0.9, **rest).goodness < 0.06
    # the wrong correlation shows
    assert weight_norm_figure(fast, beta1=0.9, **rest).goodness > 0.3
    spread = eff_lr_spread((fast, slow), warmup_steps=WARMUP)
    assert spread.mean_eff_lr[0] > spread.mean_eff_lr[1]
    assert 0.2 < spread.widest_octaves < 0.8
    assert spread.goodness > 0.7


def test_a_trajectories_table_gives_the_same_arrays(trunks):
    (_, matrices), *_ = trunks
    rows = pa.concat_tables(
        pa.table(
            {
                "run": [one.run] * 50,
                "step": one.step[:50][::-1],
                "weight": [one.weight] * 50,
                "weight_norm": one.weight_norm[:50][::-1],
                "update_norm": one.update_norm[:50][::-1],
                "eff_lr": one.eff_lr[:50][::-1],
            }
        )
        for one in matrices
    )
    found = trajectories_of(conform_trajectories(rows).table)
    assert list(found) == ["lr0.01"]
    for read, one in zip(found["lr0.01"], matrices, strict=True):
        np.testing.assert_array_equal(read.weight_norm, one.weight_norm[:50])
        assert np.isnan(read.update_dot_weight).all()


def test_no_decay_collapses_and_says_so(walk):
    steps, lrs = 1000, (0.0003, 0.003, 0.03, 0.12)
    walks = [
        walk(
            np.ones(steps),
            lr=lr,
            weight_decay=0.0,
            beta1=0.9,
            weight_norm0=2.0,
            update_norm=12.0,
            dimension=500,
        )
        for lr in lrs
    ]
    losses = [3.5, 3.1, 3.0, 3.01]
    study = no_decay_study(
        lr=lrs,
        eff_lr=[one.eff_lr for one in walks],
        loss=losses,
        beta1=0.9,
        weight_norm0=2.0,
        update_norm=12.0,
    )
    assert study.collapsed.tolist() == [False, False, True, True]
    assert study.spread_octaves < 0.1
    assert study.free_spread_octaves == pytest.approx(2.0)
    assert study.law_error < 0.1
    assert study.loss_range == pytest.approx(0.01)
    assert study.loss_range_all == pytest.approx(0.5)
    assert study.words.startswith("collapsed")
    assert np.all(np.diff(study.accumulated) > 0)
    threshold = collapse_lr(1000, beta1=0.9, weight_norm0=2.0, update_norm=12.0, tolerance=0.05)
    ratio = 1 / np.sqrt(1 + 4.0 / (threshold * 12.0) ** 2 / (19.0 * 1000))
    assert ratio == pytest.approx(0.95)


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({"step": [0, 1], "weight_norm": [1.0, 1.0], "update_norm": [1.0, 1.0]}, "at least 8"),
        ({"step": range(9), "weight_norm": [1.0] * 9, "update_norm": [1.0] * 8}, "differ in length"),
        ({"step": [0] * 9, "weight_norm": [1.0] * 9, "update_norm": [1.0] * 9}, "logged twice"),
        ({"step": range(9), "weight_norm": [0.0] * 9, "update_norm": [1.0] * 9}, "not above zero"),
    ],
)
def test_bad_trajectories_are_named(columns, word):
    with pytest.raises(InputError, match=word):
        Trajectory.from_arrays(**{name: list(values) for name, values in columns.items()})


def test_missing_columns_and_empty_windows_are_named(trunks):
    with pytest.raises(InputError, match="weight_norm"):
        trajectories_of(pa.table({"run": ["a"], "step": [1], "weight": ["w"]}))
    with pytest.raises(InputError, match="no trunk"):
        calibrate([], run=TRUNK, beta1=0.9, fit_stop=10)
    with pytest.raises(InputError, match="at least 8"):
        calibrate(trunks, run=TRUNK, beta1=0.9, fit_stop=105, warmup_steps=WARMUP)
    _, (_, dense) = trunks[0]
    silent = Trajectory.from_arrays(step=dense.step, weight_norm=dense.weight_norm, update_norm=dense.update_norm)
    with pytest.raises(InputError, match="update_dot_weight"):
        correlation_figure(silent, lr=0.01, run=TRUNK, beta1=0.9)
