"""Is the schedule a pure function that branches share with their trunk?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etastar.train.schedule import leaves_trunk_at, lr_factor, on_plateau
from etastar.train.spec import ScheduleSpec


def test_wsd_by_hand() -> None:
    schedule = ScheduleSpec(kind="wsd", warmup_steps=4, decay_steps=5)
    factors = [lr_factor(schedule, step, 12) for step in range(12)]
    assert factors == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2])
    assert [step for step in range(12) if on_plateau(schedule, step, 12)] == [4, 5, 6]
    assert leaves_trunk_at(schedule, 12) == 7


@given(
    warmup=st.integers(0, 20),
    decay=st.integers(0, 20),
    plateau=st.integers(0, 30),
    kind=st.sampled_from(["wsd", "constant"]),
)
def test_branch_and_trunk_agree_before_the_branch(warmup: int, decay: int, plateau: int, kind: str) -> None:
    schedule = ScheduleSpec(kind=kind, warmup_steps=warmup, decay_steps=decay)  # type: ignore[arg-type]
    horizon = warmup + decay + plateau + 1
    leaves = leaves_trunk_at(schedule, horizon)
    for step in range(horizon):
        factor = lr_factor(schedule, step, horizon)
        assert 0 < factor <= 1
        if step < leaves:
            assert factor == lr_factor(schedule, step, None)
            assert on_plateau(schedule, step, horizon) == on_plateau(schedule, step, None)
        else:
            assert not on_plateau(schedule, step, horizon) or kind == "constant"


def test_cosine_shares_nothing() -> None:
    schedule = ScheduleSpec(kind="cosine", warmup_steps=2)
    assert leaves_trunk_at(schedule, 10) == 0
    factors = [lr_factor(schedule, step, 10) for step in range(10)]
    assert factors[1] == factors[2] == 1
    assert factors[6] == pytest.approx(0.5)
    assert factors[2:] == sorted(factors[2:], reverse=True)
    with pytest.raises(ValueError, match="no trunk"):
        lr_factor(schedule, 5, None)


def test_decay_as_a_fraction_of_the_horizon() -> None:
    schedule = ScheduleSpec(warmup_steps=0, decay_fraction=0.2)
    assert schedule.decay_of(50) == 10
    assert leaves_trunk_at(schedule, 50) == 40
