"""Is every file of a study whole, and do its rows agree with each other?

Reads all of it, changes nothing. What is wrong is a `Problem` that names the file; what is merely odd (a
leftover of a killed writer) is a note.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from etastar.errors import InputError
from etastar.records import conform_runs, conform_trajectories
from etastar.store.journal import FOLDER, BadLine, scan_lines
from etastar.store.parts import DamagedPartError, checked_part, parts
from etastar.store.tensor_digest import DamagedTensorsError, NoDigestError, check_tensors


@dataclass(frozen=True)
class Problem:
    """One finding: the file, and what is the matter with it."""

    file: str
    what: str
    wrong: bool = True  # else a note

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


def verify_files(study: str | Path) -> list[Problem]:
    """Everything that can be said of a study's files without knowing its plan."""
    folder = Path(study)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder", hint="give a study's folder")
    return [
        *_runs(folder),
        *_trajectories(folder),
        *_lines(folder),
        *_checkpoints(folder),
        *_leftovers(folder),
    ]


def _name(folder: Path, path: Path) -> str:
    return str(path.relative_to(folder))


def _runs(folder: Path) -> Iterator[Problem]:
    """Parts that read, keep the contract, and name no run twice."""
    owner: dict[str, tuple[str, dict[str, object]]] = {}
    for path in parts(folder, "runs"):
        name = _name(folder, path)
        try:
            table = checked_part(path)
            conform_runs(table)
        except DamagedPartError as error:
            yield Problem(name, f"damaged: {error.reason}")
            continue
        except InputError as error:
            yield Problem(name, f"not the runs contract: {error.message}")
            continue
        for row in table.to_pylist():
            run = row["run"]
            if run is None:
                continue
            if run in owner:
                other, before = owner[run]
                same = same_values(before, row)
                yield Problem(name, f"run {run} is in {other} too, {'equal' if same else 'with other values'}")
            else:
                owner[run] = (name, row)


def same_values(left: dict[str, object], right: dict[str, object]) -> bool:
    """Equal rows; NaN equals NaN, an absent column a null one."""
    return all(
        left.get(key) == right.get(key) or (left.get(key) != left.get(key) and right.get(key) != right.get(key))
        for key in left.keys() | right.keys()
    )


def _trajectories(folder: Path) -> Iterator[Problem]:
    spans: dict[str, list[tuple[str, np.ndarray]]] = defaultdict(list)
    for path in parts(folder, "trajectories"):
        name = _name(folder, path)
        try:
            table = checked_part(path)
            conform_trajectories(table)
        except DamagedPartError as error:
            yield Problem(name, f"damaged: {error.reason}")
            continue
        except InputError as error:
            yield Problem(name, f"not the trajectories contract: {error.message}")
            continue
        for run, keys in _keys(table).items():
            spans[run].append((name, keys))
    for run, held in spans.items():
        every = np.concatenate([keys for _, keys in held])
        twice = len(every) - len(np.unique(every))
        if twice:
            files = ", ".join(sorted({name for name, _ in held})[:4])
            yield Problem(files, f"{twice} rows of {run} are there twice")


def _keys(table: pa.Table) -> dict[str, np.ndarray]:
    """Per run, a key a row: step, matrix, and whether it is a validation loss."""
    steps = table["step"].to_numpy()
    weights = np.array([w or "" for w in table["weight"].to_pylist()], dtype=object)
    validation = ~np.asarray(table["val_loss"].is_null())
    runs = np.array(table["run"].to_pylist(), dtype=object)
    keys = np.array([f"{s}/{w}/{v}" for s, w, v in zip(steps, weights, validation, strict=True)], dtype=object)
    return {str(run): keys[runs == run].astype(str) for run in set(runs.tolist())}


def _lines(folder: Path) -> Iterator[Problem]:
    for kind in (FOLDER, "decisions"):
        for path in sorted((folder / kind).glob("*.jsonl")):
            for found in scan_lines(path):
                if isinstance(found, BadLine):
                    said = "the last line is torn (a writer was killed)" if found.torn else "is not an event"
                    yield Problem(_name(folder, path), f"line {found.number}: {said}", wrong=not found.torn)


def _checkpoints(folder: Path) -> Iterator[Problem]:
    for path in sorted((folder / "checkpoints").glob("*/*.safetensors")):
        if path.name.startswith("."):
            continue
        if (reason := _broken_safetensors(path)) is not None:
            yield Problem(_name(folder, path), f"damaged checkpoint: {reason}")
    for path in sorted((folder / "checkpoints").glob("*/*.damaged")):
        yield Problem(_name(folder, path), "was damaged and set aside; it can go", wrong=False)


def _broken_safetensors(path: Path) -> str | None:
    """Header, length and digest: eight bytes of header size, JSON, then as many bytes as the JSON says."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > size:
                return "shorter than its header"
            header = json.loads(file.read(length))
        ends = [int(entry["data_offsets"][1]) for name, entry in header.items() if name != "__metadata__"]
    except FileNotFoundError:
        return None  # a training has just dropped it
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError):
        return "its header cannot be read"
    if size != 8 + length + max(ends, default=0):
        return "its length is not what its header says"
    try:
        check_tensors(path)
    except NoDigestError:
        return None  # another program's: its length is all that can be said
    except (DamagedTensorsError, OSError) as error:
        return str(error)
    return None


def _leftovers(folder: Path) -> Iterator[Problem]:
    for path in sorted(folder.rglob(".*.tmp")):
        yield Problem(_name(folder, path), "left by a killed writer; a later launch removes it", wrong=False)
