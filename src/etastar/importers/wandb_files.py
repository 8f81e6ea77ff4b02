"""What is in a `.wandb` file? Runs that W&B wrote to disk, online or offline, read without wandb and without network.

A record is a protobuf message; those that matter are the run (name, configuration), its history, its summary and
its exit. A run without an exit record did not finish. A resumed run has several files with one id.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etastar.importers.framing import wandb_records
from etastar.importers.raw import LONGEST_TEXT, Gathered, RawRun, combine, flatten, log_row, number, relative, whole
from etastar.importers.wire import Field, WireError, fields
from etastar.records import RunStatus

KIND = "W&B run files"
# numbers of the fields of a record, and of an item of a configuration, summary or history
_HISTORY, _SUMMARY, _CONFIG, _RUN, _EXIT = 2, 3, 5, 17, 18
_DIGITS = (*(bytes([c]) for c in b"0123456789-"),)
_MOST_SUMMARIES = 1000  # there is one for every row of the history: the first and the last are looked at
_KEY, _NESTED_KEY, _INTEGER, _NUMBER, _TEXT, _JSON, _VALUE_JSON = 1, 2, 5, 6, 7, 8, 16


def read_wandb_files(paths: list[Path], root: Path) -> Gathered:
    """All runs of some `.wandb` files; files of one run id are one run."""
    found: dict[str, list[RawRun]] = {}
    problems = []
    for path in paths:
        run = _read(path, relative(path, root))
        if run.id:
            found.setdefault(run.id, []).append(run)
        else:
            problems += run.problems or [f"{run.source}: holds no run"]
    runs = []
    for parts in found.values():
        parts.sort(key=lambda run: run.config.pop("_started", 0.0))
        for run in parts:
            run.config.pop("_started", None)
        if len(parts) > 1:
            parts[0].notes.append(f"{len(parts)} files of one resumed run: the later write wins")
        runs.append(combine(parts))
    return Gathered(KIND, tuple(runs), tuple(problems))


def _read(path: Path, shown: str) -> RawRun:
    run = RawRun(id="", name="", source=shown)
    summaries: tuple[list[bytes], deque[bytes]] = ([], deque(maxlen=_MOST_SUMMARIES))
    ended = False
    try:
        for record in wandb_records(path):
            if isinstance(record, str):
                run.problems.append(f"{shown}: {record}")
                continue
            try:
                ended |= _record(run, summaries, record)
            except WireError as error:
                run.problems.append(f"{shown}: a record cannot be understood ({error})")
    except OSError as error:
        run.problems.append(f"{shown}: cannot be read ({error.strerror})")
    if not ended:
        run.status = RunStatus.CRASHED
    else:  # a summary runs ahead of the history, which may be cut off
        _summarize(run, [*summaries[0], *summaries[1]])
    return run


def _summarize(run: RawRun, messages: list[bytes]) -> None:
    """What was set on the summary alone has no step of its own: the last one."""
    summary: dict[str, Any] = {}
    for message in messages:
        try:
            summary.update(_items(message))
        except WireError as error:
            run.problems.append(f"{run.source}: a summary cannot be understood ({error})")
    for name, value in flatten(summary).items():
        if not name.startswith("_") and name not in run.metrics and (found := number(value)) is not None:
            run.add(name, run.last_step, 0.0, found)


def _record(run: RawRun, summaries: tuple[list[bytes], deque[bytes]], record: bytes) -> bool:
    """Take what a record says; True where it is the exit."""
    ended = False
    for field in fields(record):
        if field.number == _RUN:
            _begin(run, field.data)
        elif field.number == _CONFIG:
            _configure(run, field.data)
        elif field.number == _HISTORY:
            _history(run, field.data)
        elif field.number == _SUMMARY:
            (summaries[0] if len(summaries[0]) < _MOST_SUMMARIES else summaries[1]).append(field.data)
        elif field.number == _EXIT:
            code = next((f.signed for f in fields(field.data) if f.number == 1), 0)
            run.status = RunStatus.CRASHED if code else RunStatus.FINISHED
            ended = True
    return ended


def _begin(run: RawRun, message: bytes) -> None:
    for field in fields(message):
        if field.number == 1:
            run.id = field.text
        elif field.number == 8:
            run.name = field.text
        elif field.number == 4:
            _configure(run, field.data)
        elif field.number == 6:
            run.config.setdefault("run_group", field.text)
        elif field.number == 17:
            run.config["_started"] = next((float(f.signed) for f in fields(field.data) if f.number == 1), 0.0)
    run.name = run.name or run.id


def _configure(run: RawRun, message: bytes) -> None:
    content = {name: value for name, value in _items(message).items() if name.split(".")[0] != "_wandb"}
    run.config.update(flatten(content))


def _history(run: RawRun, message: bytes) -> None:
    row = flatten(_items(message))
    step = next((f.signed for part in fields(message) if part.number == 2 for f in fields(part.data)), 0)
    step = whole(row.pop("_step", None), step)
    time = number(row.pop("_timestamp", None)) or 0.0
    log_row(run, {name: value for name, value in row.items() if not name.startswith("_")}, step, time)


def _items(message: bytes) -> dict[str, Any]:
    """Keys and values of a configuration, a summary or a history."""
    found: dict[str, Any] = {}
    for field in fields(message):
        if field.number != 1:
            continue
        keys: list[str] = []
        value: Any = None
        for part in fields(field.data):
            if part.number in (_KEY, _NESTED_KEY):
                keys.append(part.text)
            else:
                value = _value(part, value)
        if keys:
            found[".".join(keys)] = value
    return found


def _value(part: Field, before: Any) -> Any:
    if part.number == _NUMBER:
        return part.real
    if part.number == _INTEGER:
        return part.zigzag
    if part.number == _TEXT:
        return part.text
    if part.number in (_JSON, _VALUE_JSON) and len(part.data) <= LONGEST_TEXT:
        try:
            return float(part.data) if part.data[:1] in _DIGITS and b"." in part.data else json.loads(part.data)
        except (ValueError, RecursionError):
            return None
    return before


def wandb_paths(folder: Path) -> Iterator[Path]:
    """The `.wandb` files below a folder, each once (`latest-run` is a link to one of them)."""
    seen = set()
    for path in sorted(folder.rglob("*.wandb")):
        if path.is_file() and (real := path.resolve()) not in seen:
            seen.add(real)
            yield path
