"""What a forked process does to a study, under the layer. Every job returns what the test wants to know."""

from __future__ import annotations

import ctypes
import json
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
from tiny import CORPUS, differences, plan, spec

from etastar.errors import InputError
from etastar.launch.drive import launch
from etastar.launch.on_inline import InlineExecutor
from etastar.launch.study import prepare
from etastar.store import Journal, read_events, read_runs, write_runs
from etastar.store.verify import verify_files
from etastar.train.loop import train

_LAYER = ctypes.CDLL(None)


def mark(**what: Any) -> None:
    """Note in the layer's log that something was acknowledged."""
    _LAYER.layer_mark(json.dumps(what).encode())


class Acknowledges:
    """A reporter: what `evaluated` is called with is in the store, whatever happens next."""

    def message(self, text: str) -> None: ...

    def progress(self, progress: Any) -> None: ...

    def evaluated(self, horizon: int, cells: list[Any]) -> None:
        mark(horizon=horizon, losses={repr(cell.lr): repr(cell.loss) for cell in cells})


def one_stack(study: str, only: str | int | None = None, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """Train the tiny stack, or a piece of it."""
    result = train(spec(**changes or {}), study, corpus=CORPUS, reporter=Acknowledges(), only=only)  # type: ignore[arg-type]
    return {"finished": result.finished}


def in_pieces(study: str) -> dict[str, Any]:
    """The trunk, then each branch, as a split launch does."""
    for only in ("trunk", 9, 6):
        train(spec(), study, corpus=CORPUS, reporter=Acknowledges(), only=only)  # type: ignore[arg-type]
    return {"finished": True}


def sweep(study: str, seeds: int = 2) -> dict[str, Any]:
    """Plan, specifications, launcher, workers, journal: the whole way."""
    opened = prepare(plan(seeds), Path(study))
    outcome = launch(opened, InlineExecutor(opened.path), say=lambda _: None)
    return {"finished": outcome.finished, "failed": list(outcome.failed.values())}


def journal(study: str, events: int) -> dict[str, Any]:
    """So many lines, each marked once its write has returned."""
    writer = Journal(study, writer="w")
    for index in range(events):
        writer.write("tick", index=index)
        mark(tick=index)
    writer.close()
    return {}


def stubborn_journal(study: str, events: int) -> dict[str, Any]:
    """Lines one after another, whatever fails on the way; which of them were acknowledged."""
    writer, good = Journal(study, writer="w"), []
    for index in range(events):
        try:
            writer.write("tick", index=index)
        except InputError:
            continue
        good.append(index)
    writer.close()
    return {"acknowledged": good}


def rewrite(study: str, versions: int) -> dict[str, Any]:
    """One part written over and over; its loss is the version."""
    before = max(read_runs(study)["loss"].to_pylist(), default=0)  # a killed one goes on
    for version in range(int(before) + 1, int(before) + versions + 1):
        row = {"params": 1e6, "tokens": 1e7, "lr": 0.1, "loss": float(version), "run": "r"}
        write_runs(study, pa.Table.from_pylist([row]), "part")
        mark(version=version)
    return {}


def judge_version(study: str, acknowledged: list[dict[str, Any]]) -> dict[str, Any]:
    """Is the part there, whole, in the last acknowledged version or the one after it?"""
    newest = max((ack["version"] for ack in acknowledged), default=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = read_runs(study)["loss"].to_pylist()
    good = found in ([float(newest)], [float(newest + 1)]) or (not newest and not found)
    return {"wrong": [] if good else [f"version {newest} was acknowledged, there is {found}"]}


def judge(study: str, reference: str, acknowledged: list[dict[str, Any]], resume: str) -> dict[str, Any]:
    """Is every acknowledged row there and nothing else, and does the study end as the undisturbed one?"""
    folder, wrong = Path(study), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [(row["steps"], repr(row["lr"]), repr(row["loss"])) for row in read_runs(folder).to_pylist()]
        good = {(row["steps"], repr(row["lr"]), repr(row["loss"])) for row in read_runs(reference).to_pylist()}
        wrong += [f"row {row} is not the undisturbed study's" for row in set(found) - good]
        wrong += ["a row is there twice"] if len(set(found)) < len(found) else []
        ticks = {event.get("index") for event in read_events(folder)}
        for ack in acknowledged:
            if "tick" in ack and ack["tick"] not in ticks:
                wrong.append(f"acknowledged line {ack['tick']} is lost")
            for lr, loss in ack.get("losses", {}).items():
                if (ack["horizon"], lr, loss) not in found:
                    wrong.append(f"acknowledged row of horizon {ack['horizon']}, lr {lr} is lost")
        if resume:
            globals()[resume](study)
            wrong += differences(folder, Path(reference))
    if resume:
        wrong += [str(problem) for problem in verify_files(folder) if problem.wrong]
    return {"wrong": wrong}
