"""What did Trackio keep? A SQLite file a project (or the Parquet files it syncs), read without trackio.

Trackio does not record how a run ended: a run that stops short of its planned steps counts as crashed later on.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from etastar.importers.raw import LONGEST_TEXT, Gathered, RawRun, flatten, log_row, relative
from etastar.importers.sqlite import Database
from etastar.store import read_parquet

KIND = "a Trackio project"
_OWN = ("id", "run_id", "run_name", "timestamp", "step", "log_id", "space_id", "created_at")


def read_trackio_database(path: Path, root: Path) -> Gathered:
    """All runs of a project's database."""
    shown = relative(path, root)
    database = Database(path, shown)
    database.require("metrics")
    runs: dict[str, RawRun] = {}
    bad = 0
    for identity, name, text in database.rows("configs", ("run_id", "run_name", "config")):
        content = _json(text)
        bad += content is None
        _run(runs, identity, name, shown).config.update(_settings(content or {}))
    for identity, name, step, time, text in database.rows(
        "metrics", ("run_id", "run_name", "step", "timestamp", "metrics")
    ):
        content = _json(text)
        if content is None or not isinstance(step, int):
            bad += 1
            continue
        log_row(_run(runs, identity, name, shown), flatten(content), step, _seconds(time))
    database.close()
    problems = [*database.problems, *([f"{shown}: {bad} rows hold no JSON and are left out"] if bad else [])]
    return Gathered(KIND, tuple(runs.values()), tuple(problems))


def read_trackio_parquet(path: Path, root: Path) -> Gathered:
    """The same from the Parquet files that Trackio syncs: PROJECT.parquet and PROJECT_configs.parquet."""
    shown = relative(path, root)
    runs: dict[str, RawRun] = {}
    problems: list[str] = []
    for row in _rows(path.with_name(f"{path.stem}_configs.parquet"), root, problems):
        content = {name: value for name, value in row.items() if name not in _OWN}
        _run(runs, row.get("run_id"), row.get("run_name"), shown).config.update(_settings(content))
    for row in _rows(path, root, problems):
        step = row.get("step")
        if isinstance(step, int):
            content = {name: value for name, value in row.items() if name not in _OWN}
            log_row(
                _run(runs, row.get("run_id"), row.get("run_name"), shown), content, step, _seconds(row["timestamp"])
            )
    return Gathered(KIND, tuple(runs.values()), tuple(problems))


def is_trackio_parquet(path: Path) -> bool:
    """Are these the columns of a synced project?"""
    try:
        names = set(pq.read_schema(path).names)
    except (OSError, ValueError, pa.ArrowException):
        return False
    return {"run_name", "step", "timestamp"} <= names


def _rows(path: Path, root: Path, problems: list[str]) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    try:
        return read_parquet(path).to_pylist()
    except (OSError, ValueError, pa.ArrowException) as error:
        said = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        problems.append(f"{relative(path, root)}: cannot be read as Parquet ({said})")
        return []


def _run(runs: dict[str, RawRun], identity: Any, name: Any, shown: str) -> RawRun:
    key = str(identity or name)
    return runs.setdefault(key, RawRun(id=key, name=str(name or key), source=shown))


def _settings(content: dict[str, Any]) -> dict[str, Any]:
    """Without Trackio's own entries (_Username, _Created, _Group)."""
    return {name: value for name, value in flatten(content).items() if not name.startswith("_")}


def _json(text: Any) -> dict[str, Any] | None:
    if not isinstance(text, (bytes, str)) or len(text) > LONGEST_TEXT:
        return None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _seconds(time: Any) -> float:
    try:
        return datetime.fromisoformat(str(time)).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0
