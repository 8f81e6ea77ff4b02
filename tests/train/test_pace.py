"""Is progress told at a pace that the first step, which compiles, does not spoil?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from toys import toy

from etastar.train.engine import StepResult
from etastar.train.pace import Pace


@dataclass
class Clock:
    """Seconds."""

    now: float = 100.0


@dataclass
class Heard:
    """What a reporter was told; a message takes as long as a terminal that does not scroll."""

    clock: Clock
    slow: float = 0.0
    said: list[str] = field(default_factory=list)
    seen: list[Any] = field(default_factory=list)

    def message(self, text: str) -> None:
        self.clock.now += self.slow
        self.said.append(text)

    def progress(self, progress: Any) -> None:
        self.seen.append(progress)

    def evaluated(self, horizon: int, cells: Any) -> None: ...


class OnCuda:
    """Losses that say they are on a GPU."""

    is_cuda = True

    def tolist(self) -> list[float]:
        return [2.0, 3.0]


def _result(loss: Any) -> StepResult:
    return StepResult(loss=loss, statistics=torch.zeros(2, 1, 6), alive=torch.tensor([True, True]))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that goes by hand."""
    found = Clock()
    monkeypatch.setattr("etastar.train.pace.time.monotonic", lambda: found.now)
    return found


def test_the_first_step_is_said_and_left_out_of_the_pace(clock: Clock) -> None:
    heard = Heard(clock, slow=5.0)
    pace = Pace(toy(), heard)
    pace.plan(3)
    clock.now += 30  # compiling
    pace.took_step("trunk", 1, 3, _result(OnCuda()))
    assert heard.said == ["first step after 30.0 s, compiling included"]
    assert heard.seen == []
    clock.now += 2
    pace.took_step("trunk", 2, 3, _result(OnCuda()))
    (seen,) = heard.seen
    assert seen.done == 2
    assert seen.seconds_left == 2.0


def test_a_cpu_compiles_nothing_and_says_nothing(clock: Clock) -> None:
    heard = Heard(clock)
    pace = Pace(toy(), heard)
    pace.plan(2)
    clock.now += 2
    pace.took_step("trunk", 1, 2, _result(torch.tensor([2.0, 3.0])))
    assert heard.said == []
    assert len(heard.seen) == 1
