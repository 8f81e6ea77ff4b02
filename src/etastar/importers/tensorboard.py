"""What is in TensorBoard's event files? Scalars, hyperparameters and training arguments, read without tensorboard.

A run is a folder with event files: a run that was resumed or has several writers has several files, read in the
order of their names, which begin with their time. Scalars are a simple value or a tensor of one float. Settings
come from the hparams plugin, from `hparams.yaml` beside the events (Lightning) and from the training arguments
that Hugging Face's Trainer writes as text.
"""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

from etastar.importers.framing import tf_records
from etastar.importers.hparams import read_hparams
from etastar.importers.raw import LONGEST_TEXT, Gathered, RawRun, combine, flatten, relative
from etastar.importers.wire import Field, WireError, fields, packed
from etastar.records import RunStatus

KIND = "TensorBoard event files"
PATTERN = "*tfevents*"
_TEXTS = ("args/text_summary", "model_config/text_summary")
_FLOAT, _DOUBLE = 1, 2  # dtypes of a tensor
_STATES = {1: RunStatus.FINISHED, 2: RunStatus.CRASHED, 3: RunStatus.CRASHED}
_TIMESTAMP = re.compile(r"\d{9,11}(\.\d+)?$")  # what add_hparams calls the folder that it makes


def read_tensorboard(paths: list[Path], root: Path) -> Gathered:
    """All runs of some event files, one for each folder."""
    folders: dict[Path, list[Path]] = {}
    for path in sorted(paths, key=_written):
        parent = path.parent
        # add_hparams makes a folder of its own, named by the time, inside the run's
        home = parent.parent if _TIMESTAMP.match(parent.name) and parent != root else parent
        folders.setdefault(home, []).append(path)
    runs = []
    for folder, files in sorted(folders.items()):
        parts = [_read(path, relative(path, root), relative(folder, root)) for path in files]
        settings, problems = read_hparams(folder / "hparams.yaml", root)
        run = combine(parts)
        run.config = settings | run.config
        run.problems += problems
        # a finish mark of one writer holds for the run
        run.status = next((part.status for part in reversed(parts) if part.status is not None), None)
        runs.append(run)
    return Gathered(KIND, tuple(runs))


def _written(path: Path) -> tuple[Path, int, int, str]:
    """In the order of writing: events.out.tfevents.SECONDS.HOST.PROCESS.COUNT."""
    _, _, rest = path.name.partition("tfevents.")
    numbers = [int(part) for part in rest.split(".") if part.isdigit() and len(part) < 19]
    return path.parent, numbers[0] if numbers else 0, numbers[-1] if len(numbers) > 1 else 0, path.name


def _read(path: Path, shown: str, name: str) -> RawRun:
    run = RawRun(id=name, name=name, source=shown)
    try:
        for record in tf_records(path):
            if isinstance(record, str):
                run.problems.append(f"{shown}: {record}")
                continue
            try:
                _event(run, record)
            except (WireError, struct.error) as error:
                run.problems.append(f"{shown}: an event cannot be understood ({error})")
    except OSError as error:
        run.problems.append(f"{shown}: cannot be read ({error.strerror})")
    return run


def _event(run: RawRun, event: bytes) -> None:
    time, step = 0.0, 0
    summaries = []
    for field in fields(event):
        if field.number == 1:
            time = field.real
        elif field.number == 2:
            step = field.signed
        elif field.number == 5:
            summaries.append(field.data)
    for summary in summaries:
        for field in fields(summary):
            if field.number == 1:
                _value(run, field.data, step, time)


def _value(run: RawRun, message: bytes, step: int, time: float) -> None:
    tag, scalar, plugin, content = "", None, "", b""
    tensor: list[Field] = []
    for field in fields(message):
        if field.number == 1:
            tag = field.text
        elif field.number == 2:
            scalar = field.real
        elif field.number == 8:
            tensor = list(fields(field.data))
        elif field.number == 9:
            plugin, content = _plugin(field.data)
    if plugin == "hparams":
        _hparams(run, content)
    elif tag in _TEXTS:
        _text(run, tensor)
    elif plugin in ("", "scalars") and (value := _one(tensor) if scalar is None else scalar) is not None:
        run.add(tag, step, time, value)


def _one(tensor: list[Field]) -> float | None:
    """The value of a tensor that holds one float or double."""
    kind = next((f.signed for f in tensor if f.number == 1), 0)
    if kind not in (_FLOAT, _DOUBLE):
        return None
    wire, listed = (5, 5) if kind == _FLOAT else (1, 6)
    for field in tensor:
        if field.number in (4, listed):  # the raw content, or a list of values
            values = packed(field, wire)
            return values[0] if len(values) == 1 else None
    return None


def _plugin(metadata: bytes) -> tuple[str, bytes]:
    name, content = "", b""
    for outer in fields(metadata):
        if outer.number == 1:
            for field in fields(outer.data):
                if field.number == 1:
                    name = field.text
                elif field.number == 2:
                    content = field.data
    return name, content


def _hparams(run: RawRun, content: bytes) -> None:
    """The hparams plugin: values at a session's start, its status at the end."""
    for field in fields(content):
        if field.number == 3:
            for entry in fields(field.data):
                if entry.number == 1:
                    pair = {part.number: part for part in fields(entry.data)}
                    if 1 in pair and 2 in pair:
                        run.config[pair[1].text] = _setting(pair[2].data)
        elif field.number == 4:
            state = next((f.signed for f in fields(field.data) if f.number == 1), 0)
            # add_hparams says "success" whenever it is called: only a failure is news
            run.status = _STATES.get(state) if state != 1 else run.status


def _setting(message: bytes) -> Any:
    for field in fields(message):
        if field.number == 2:
            return field.real
        if field.number == 3:
            return field.text
        if field.number == 4:
            return bool(field.signed)
    return None


def _text(run: RawRun, tensor: list[Field]) -> None:
    """The Trainer's arguments and the model's configuration, written as JSON."""
    for field in tensor:
        if field.number == 8 and len(field.data) <= LONGEST_TEXT:
            try:
                content = json.loads(field.text)
            except (ValueError, RecursionError):
                continue
            run.config = flatten(content) | run.config if isinstance(content, dict) else run.config
