"""Do rounds stop, add and repack as decided, and does a later launch repeat them?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from studies import SIX, plan_of, tables

from etastar.design.adaptive import Decision
from etastar.estimate.optimum import Status
from etastar.launch import adaptive
from etastar.launch.check import verify_plan
from etastar.launch.drive import LaunchOptions, launch
from etastar.launch.on_inline import InlineExecutor
from etastar.launch.status import status_of
from etastar.launch.study import Study, prepare
from etastar.store import read_runs

PLAN = plan_of(
    [{"name": f"s{s}", "width": 32, "seed": s, "lrs": SIX[1:5], "horizons": [12, 18, 24]} for s in (0, 1)],
    adaptive=True,
)


def run(study: Study, *, adaptive: bool = True) -> None:
    options = LaunchOptions(adaptive=adaptive)
    assert launch(study, InlineExecutor(study.path), options, say=lambda _: None).finished


class Script:
    """A rule that says what the test wants, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, tuple[float, ...], int]] = []

    def __call__(self, runs: Any, *, lrs: Sequence[float], horizon: int, **_: Any) -> Decision:
        self.asked.append((horizon, tuple(lrs), runs.num_rows))
        if horizon == 12 and SIX[4] in lrs:
            return Decision((SIX[4],), (), ("far above",), Status.INTERIOR)
        if horizon == 18 and SIX[0] not in lrs:
            return Decision((), (SIX[0],), ("at the lower end",), Status.AT_BOUNDARY)
        return Decision((), (), ("fine",), Status.INTERIOR)


def test_rounds_follow_the_rule_and_repeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script()
    monkeypatch.setattr(adaptive, "decide", script)
    study = prepare(PLAN, tmp_path / "adaptive")
    run(study)
    four, three = tuple(SIX[1:5]), tuple(SIX[1:4])
    assert script.asked == [
        (12, four, 8),
        (18, three, 14),  # two seeds together: 8 rows, and 3 learning rates more
        (18, (*three, SIX[0]), 18),  # the new one has 12 and 18 too
        (24, (*three, SIX[0]), 26),
    ]
    cells = {(row["seed"], row["lr"], row["steps"]) for row in read_runs(study.path).to_pylist()}
    expected = {(s, lr, h) for s in (0, 1) for lr in (*three, SIX[0]) for h in (12, 18, 24)}
    assert cells == expected | {(s, SIX[4], 12) for s in (0, 1)}
    # the rows are those of the plain grid
    plain = prepare(plan_of([s.model_dump() | {"lrs": SIX[:5]} for s in PLAN.stacks]), tmp_path / "plain")
    run(plain, adaptive=False)
    mine = tables(study.path)[0].drop_columns(["stack"])
    whole = {row["run"]: row for row in tables(plain.path)[0].drop_columns(["stack"]).to_pylist()}
    assert all(row == whole[row["run"]] for row in mine.to_pylist())
    # again: nothing is asked, nothing trained
    run(prepare(PLAN, study.path))
    assert len(script.asked) == 4
    assert [problem for problem in verify_plan(study.path) if problem.wrong] == []
    told = status_of(study)
    assert told.finished
    assert [(stack.done, stack.cells) for stack in told.stacks] == [(13, 13), (13, 13)]


@pytest.mark.slow
def test_the_rule_itself_is_asked(tmp_path: Path) -> None:
    """With the real rule on a tiny sweep: whatever it decides is written down with its reasons, for both seeds."""
    study = prepare(PLAN, tmp_path)
    run(study)
    made = adaptive.decisions(tmp_path)
    assert made[0]["horizon"] == 12
    assert {d["horizon"] for d in made} == {12, 18, 24}
    assert all(d["reasons"] for d in made)
