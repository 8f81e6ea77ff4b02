"""Where does a study stand? From its folder alone: the store, the journal and the claims.

Nothing is asked of a launcher or a cluster, so it works beside a running launch, after one that died, and
on another machine that sees the folder.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any, Literal

from etastar.launch.adaptive import decisions, expected_cells
from etastar.launch.study import RunIndex, StackRecord, Study, all_records
from etastar.store import holder, read_events
from etastar.train.checkpoint import CheckpointFolder, branch_segment

State = Literal["done", "running", "failed", "interrupted", "waiting"]


@dataclass(frozen=True)
class StackStatus:
    """One stack of the plan."""

    name: str
    params: int
    lrs: int
    cells: int
    done: int
    state: State
    segment: str = ""
    fraction: float | None = None  # of what the running call will take
    tokens_per_second: float | None = None
    seconds_left: float | None = None
    where: str = ""
    reason: str = ""
    seen: float | None = None  # seconds since its last sign of life


@dataclass(frozen=True)
class StudyStatus:
    """A study at a glance."""

    name: str
    stacks: tuple[StackStatus, ...]
    launcher: str  # where it runs, or ""
    decisions: tuple[dict[str, Any], ...]

    @property
    def finished(self) -> bool:
        """Is every row there?"""
        return all(stack.state == "done" for stack in self.stacks)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"finished": self.finished}


def status_of(study: Study) -> StudyStatus:
    """Read a study's folder."""
    there = RunIndex(study.path).there()
    events = read_events(study.path)
    packed = all_records(study.path)
    launcher = holder(study.path, "launcher")
    stacks = [
        _stack(study, record, [p for p in packed if p.name == record.name], events, there) for record in study.stacks
    ]
    made = [{k: d[k] for k in ("stack", "horizon", "stop", "add", "reasons")} for d in decisions(study.path)]
    where = f"process {launcher['pid']} on {launcher['host']}" if launcher else ""
    return StudyStatus(study.plan.name, tuple(stacks), where, tuple(made))


def _stack(
    study: Study, record: StackRecord, packed: list[StackRecord], events: list[dict[str, Any]], there: set[str]
) -> StackStatus:
    wanted = expected_cells(study, record, there)
    runs = {record.run_id(lr, h) for lr, horizons in wanted.items() for h in horizons}
    done = len(runs & there)
    ids = {one.id for one in [*packed, record]}
    mine = [e for e in events if str(e.get("task", "")).partition("@")[0] in ids]
    base: dict[str, Any] = {
        "name": record.name,
        "params": record.spec.model.params,
        "lrs": len(wanted),
        "cells": len(runs),
        "done": done,
    }
    holders = [h for one in {r.id: r for r in [*packed, record]}.values() for h in _holders(study, one)]
    seen = time.time() - mine[-1]["time"] if mine else None
    if done == len(runs) and not holders:
        return StackStatus(**base, state="done", seen=seen)
    if holders:
        last = next((e for e in reversed(mine) if e["event"] == "progress"), {})
        return StackStatus(
            **base,
            state="running",
            segment=str(last.get("segment", "")),
            fraction=last.get("fraction"),
            tokens_per_second=last.get("tokens_per_second"),
            seconds_left=last.get("seconds_left"),
            where=", ".join(sorted({str(h["host"]) for h in holders})),
            seen=seen,
        )
    final = next((e for e in reversed(mine) if e["event"] in ("failed", "started", "stopped", "finished")), {})
    if final.get("event") == "failed":
        return StackStatus(**base, state="failed", reason=str(final.get("reason", "")), seen=seen)
    state: State = "interrupted" if final else "waiting"
    return StackStatus(**base, state=state, seen=seen)


def _holders(study: Study, record: StackRecord) -> list[dict[str, Any]]:
    folder = CheckpointFolder(study.path / "checkpoints" / record.id, stack_id=record.id).folder
    schedule = record.spec.schedule
    segments = ["trunk", *(branch_segment(h, schedule.decay_of(h)) for h in record.spec.horizons)]
    if not folder.is_dir():
        return []
    found = [holder(folder, segment) for segment in segments]
    return [one for one in found if one is not None]
