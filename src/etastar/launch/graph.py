"""Which pieces of work are missing, and which of them can begin?

A task is a stack (its trunk and all its branches in one process), or, with `split`, a trunk or one branch.
Tasks follow from the plan and from what is in the store, never from what was launched before: launching
again gives only what is missing. Learning rates of a stack that miss the same horizons train together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from etastar.errors import InputError
from etastar.launch.study import StackRecord, Study
from etastar.train.checkpoint import CheckpointFolder, branch_points, branch_segment
from etastar.train.schedule import leaves_trunk_at


@dataclass(frozen=True)
class Task:
    """One piece of work for one worker; `id` is what the worker's command line names."""

    id: str  # STACK, STACK@trunk or STACK@HORIZON
    stack: str
    name: str  # for people
    kind: Literal["stack", "trunk", "branch"]
    horizon: int | None = None
    needs: tuple[str, ...] = ()  # tasks that must have left something for it
    ready: bool = True  # it is there


@dataclass(frozen=True)
class Wanted:
    """Learning rates of one stack that miss the same horizons."""

    record: StackRecord
    missing: tuple[int, ...]


def packs(record: StackRecord, wanted: Mapping[float, Sequence[int]], there: set[str]) -> list[Wanted]:
    """What is missing of a stack, packed: learning rates that miss the same horizons train together.

    `wanted` maps learning rates (the stack's own and others) to the horizons asked of them.
    """
    by_missing: dict[tuple[int, ...], list[float]] = {}
    for lr, horizons in wanted.items():
        missing = tuple(h for h in sorted(horizons) if record.run_id(lr, h) not in there)
        if missing:
            by_missing.setdefault(missing, []).append(lr)
    found = []
    for missing, lrs in by_missing.items():
        whole = tuple(lrs) == record.spec.lrs
        asked = tuple(sorted({h for lr in lrs for h in wanted[lr]})) if whole else missing
        found.append(Wanted(record.part(lrs, asked), missing))
    return found


def tasks_of(study: Study, pack: Wanted, *, split: bool) -> list[Task]:
    """The tasks of one pack that are not done."""
    record = pack.record
    name = record.name if record.id in {r.id for r in study.stacks} else f"{record.name}+{record.id[:4]}"
    if not split:
        return [Task(id=record.id, stack=record.id, name=name, kind="stack")]
    marks = CheckpointFolder(study.path / "checkpoints" / record.id, stack_id=record.id).marks()
    points = branch_points(record.spec, marks, pack.missing)
    begun = {mark.segment for mark in marks}
    schedule = record.spec.schedule
    trunk = f"{record.id}@trunk"
    tasks = [Task(id=trunk, stack=record.id, name=f"{name} trunk", kind="trunk")] if points else []
    for horizon in pack.missing:
        leaves = leaves_trunk_at(schedule, horizon)
        own = branch_segment(horizon, schedule.decay_of(horizon)) in begun
        tasks.append(
            Task(
                id=f"{record.id}@{horizon}",
                stack=record.id,
                name=f"{name} branch {horizon}",
                kind="branch",
                horizon=horizon,
                needs=(trunk,) if leaves else (),
                ready=own or leaves not in points,
            )
        )
    return tasks


def parse_task(text: str) -> tuple[str, Literal["trunk"] | int | None]:
    """A task's id → its stack, and which piece of it (None: all)."""
    stack, at, piece = text.partition("@")
    if at and piece != "trunk" and not piece.isdecimal():
        raise InputError(f"task {text[:60]!r} is not known", hint="write STACK, STACK@trunk or STACK@HORIZON")
    return stack, None if not at else ("trunk" if piece == "trunk" else int(piece))


def command_of(study: Path, task: Task, *, python: str = "python") -> list[str]:
    """The command line that carries out a task on any machine that sees the study's folder."""
    return [python, "-m", "etastar.launch.worker", str(study), task.id]
