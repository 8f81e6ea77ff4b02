"""Inversion: round trips, intervals, the identity of hyperball optimizers, and requests no LR can meet."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etastar.errors import SpecError
from etastar.theory.invert import invert_closed_form, invert_eff_lr, invert_weight_decay
from etastar.theory.planned import (
    Matrices,
    Optimizer,
    PlannedRun,
    constant_lr_mean_eff_lr,
    mean_eff_lr,
    noise_update_rms,
    typed_matrices,
)
from etastar.theory.schedules import Schedule

TYPED = typed_matrices(beta1=0.95)
WSD = Schedule(steps=2000, warmup_steps=200, decay_steps=400)


@settings(max_examples=10, deadline=None)
@given(
    log2_lr=st.floats(-15, -6),
    weight_decay=st.sampled_from([0.0, 0.05, 0.3]),
    init=st.floats(0.005, 0.3),
    kind=st.sampled_from(["wsd", "cosine", "constant"]),
)
def test_round_trip(log2_lr, weight_decay, init, kind):
    schedule = Schedule(kind=kind, steps=900, warmup_steps=100, decay_steps=300 * (kind == "wsd"))
    run = PlannedRun(schedule=schedule, weight_decay=weight_decay)
    matrices = Matrices(
        weight_norm0=np.array([init, 2 * init]),
        update_norm=np.array([0.2, 0.16]),
        beta1=np.array([0.9, 0.95]),
    )
    target = float(mean_eff_lr(2.0**log2_lr, run=run, matrices=matrices))
    found = invert_eff_lr(target, run=run, matrices=matrices)
    assert found.mean_eff_lr == pytest.approx(target, rel=1e-4)
    # a flat map (slope ≫ 1: η_eff hardly depends on η) is inverted as well as its flatness allows
    assert np.log2(found.value) == pytest.approx(log2_lr, abs=1e-4 * max(1.0, found.slope))


@settings(max_examples=40, deadline=None)
@given(
    log2_lr=st.floats(-16, -7),
    weight_decay=st.floats(0.0, 0.5),
    steps=st.integers(100, 500_000),
    independent=st.booleans(),
)
def test_closed_form_round_trip(log2_lr, weight_decay, steps, independent):
    decay = 0.001 * weight_decay if independent else weight_decay
    rest = {"weight_decay": decay, "beta1": 0.95, "weight_norm0": 0.02, "update_norm": 0.2}
    rest["independent_decay"] = independent
    target = float(constant_lr_mean_eff_lr(steps, lr=2.0**log2_lr, **rest))
    found = invert_closed_form(target, steps=steps, **rest)
    assert found.mean_eff_lr == pytest.approx(target, rel=1e-4)


@pytest.mark.parametrize("weight_decay", [0.0, 1e-9, 0.1, 1.0])
@pytest.mark.parametrize("norm", [0.02, 2.0])
def test_closed_form_mean_is_the_mean_of_the_recursion(weight_decay, norm):
    lrs = 2.0 ** -np.arange(9.0, 17.0, 2.0)
    closed = constant_lr_mean_eff_lr(
        20_000, lr=lrs, weight_decay=weight_decay, beta1=0.9, weight_norm0=norm, update_norm=0.2
    )
    run = PlannedRun(schedule=Schedule(kind="constant", steps=20_000), weight_decay=weight_decay)
    walked = mean_eff_lr(lrs, run=run, matrices=typed_matrices(beta1=0.9, init_std=norm, update_rms=0.2), exact=True)
    np.testing.assert_allclose(closed, walked, rtol=5e-3)


def test_mean_rises_with_lr_and_with_decay():
    lrs = 2.0 ** -np.arange(3.0, 18.0)[::-1]
    for decay in (0.0, 0.1, 1.0):
        means = mean_eff_lr(lrs, run=PlannedRun(schedule=WSD, weight_decay=decay), matrices=TYPED)
        assert np.all(np.diff(means) > 0)
    by_decay = [
        float(mean_eff_lr(0.01, run=PlannedRun(schedule=WSD, weight_decay=decay), matrices=TYPED))
        for decay in (0.0, 0.01, 0.1, 1.0)
    ]
    assert np.all(np.diff(by_decay) > 0)


def test_interval_is_mapped_end_to_end_and_widened_by_the_model():
    run = PlannedRun(schedule=WSD)
    target = float(mean_eff_lr(2.0**-9, run=run, matrices=TYPED))
    centre = np.log2(target)
    ends = (centre - 0.1, centre + 0.05)
    plain = invert_eff_lr(target, run=run, matrices=TYPED, log2_interval=ends)
    assert plain.log2_interval is not None
    for log2_lr, end in zip(plain.log2_interval, ends, strict=True):
        assert np.log2(mean_eff_lr(2.0**log2_lr, run=run, matrices=TYPED)) == pytest.approx(end, abs=1e-4)
    wider = invert_eff_lr(target, run=run, matrices=TYPED, log2_interval=ends, model_log2_error=0.05)
    assert wider.log2_interval is not None
    assert wider.log2_interval[0] < plain.log2_interval[0]
    assert wider.log2_interval[1] > plain.log2_interval[1]


@pytest.mark.parametrize("optimizer", [Optimizer.ADAMH, Optimizer.MUONH])
def test_hyperball_is_the_identity_times_the_schedule_s_mean(optimizer):
    run = PlannedRun(schedule=WSD, optimizer=optimizer)
    found = invert_eff_lr(0.003, run=run, log2_interval=(np.log2(0.002), np.log2(0.004)))
    assert found.value == pytest.approx(0.003 / WSD.mean())
    assert found.log2_interval == pytest.approx((np.log2(0.002 / WSD.mean()), np.log2(0.004 / WSD.mean())))
    assert float(mean_eff_lr(found.value, run=run, matrices=TYPED)) == pytest.approx(0.003)


def test_weight_decay_is_solved_for():
    run = PlannedRun(schedule=WSD, weight_decay=0.2)
    target = float(mean_eff_lr(2.0**-7, run=run, matrices=TYPED))
    found = invert_weight_decay(target, lr=2.0**-7, run=PlannedRun(schedule=WSD), matrices=TYPED)
    assert found.value == pytest.approx(0.2, rel=1e-3)


def test_another_batch_is_flagged():
    run = PlannedRun(schedule=WSD)
    same = invert_eff_lr(0.002, run=run, matrices=TYPED, sweep_batch_tokens=1e5, target_batch_tokens=1e5)
    other = invert_eff_lr(0.002, run=run, matrices=TYPED, sweep_batch_tokens=1e5, target_batch_tokens=4e5)
    assert same.flags == ()
    assert other.flags[0].startswith("other-batch")


def test_only_the_ratio_of_norm_and_update_matters():
    run = PlannedRun(schedule=WSD)
    double = typed_matrices(beta1=0.95, init_std=0.04, update_rms=2 * noise_update_rms(0.95))
    assert float(mean_eff_lr(0.01, run=run, matrices=double)) == pytest.approx(
        float(mean_eff_lr(0.01, run=run, matrices=TYPED)), rel=1e-12
    )


def test_an_open_end_is_said():
    run = PlannedRun(schedule=WSD, weight_decay=0.0)
    reachable = float(mean_eff_lr(2.0**-4, run=run, matrices=TYPED))
    found = invert_eff_lr(
        reachable, run=run, matrices=TYPED, log2_interval=(np.log2(reachable) - 0.1, np.log2(reachable) + 2.0)
    )
    assert found.log2_interval is not None
    assert np.isinf(found.log2_interval[1])
    assert any(flag.startswith("interval-open") for flag in found.flags)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: invert_eff_lr(0.9, run=PlannedRun(schedule=WSD), matrices=TYPED), "above the"),
        (
            lambda: invert_eff_lr(0.05, run=PlannedRun(schedule=WSD, optimizer=Optimizer.ADAM), matrices=TYPED),
            "without weight decay",
        ),
        (
            lambda: invert_eff_lr(
                1e-4,
                run=PlannedRun(schedule=WSD, weight_decay=0.01, independent_decay=True),
                matrices=TYPED,
            ),
            "below the",
        ),
        (lambda: invert_eff_lr(3.0, run=PlannedRun(schedule=WSD), matrices=TYPED), "between 0 and 2"),
        (
            lambda: invert_eff_lr(float("nan"), run=PlannedRun(schedule=WSD), matrices=TYPED),
            "between 0 and 2",
        ),
        (lambda: invert_eff_lr(0.001, run=PlannedRun(schedule=WSD)), "no weight norms"),
        (
            lambda: invert_eff_lr(0.001, run=PlannedRun(schedule=WSD), matrices=TYPED, log2_interval=(-3, -2)),
            "outside its interval",
        ),
        (
            lambda: invert_weight_decay(1e-5, lr=0.01, run=PlannedRun(schedule=WSD), matrices=TYPED),
            "decay only raises",
        ),
        (
            lambda: invert_weight_decay(
                0.01, lr=0.01, run=PlannedRun(schedule=WSD, optimizer=Optimizer.ADAM), matrices=TYPED
            ),
            "no weight decay",
        ),
    ],
)
def test_impossible_requests_are_answered_in_words(call, word):
    with pytest.raises(SpecError, match=word) as caught:
        call()
    assert caught.value.hint
