"""What did MLflow keep? Its SQLite database, or the `mlruns` folder of plain files, read without mlflow."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from etastar.importers.hparams import read_yaml
from etastar.importers.raw import Gathered, RawRun, relative
from etastar.importers.settings_text import plain_value
from etastar.importers.sqlite import Database
from etastar.records import RunStatus
from etastar.store.disk import only_inside

KIND_DATABASE = "an MLflow database"
KIND_FOLDER = "an mlruns folder of MLflow"
_STATES = {
    "FINISHED": RunStatus.FINISHED, "FAILED": RunStatus.CRASHED, "KILLED": RunStatus.CRASHED,
    "RUNNING": RunStatus.CRASHED, "SCHEDULED": RunStatus.CRASHED,
}  # fmt: skip
_NUMBERED = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}
_INFINITE = 1.7976931348623157e308  # how the database writes infinity


def read_mlflow_database(path: Path, root: Path) -> Gathered:
    """All runs of an MLflow database that are not deleted."""
    shown = relative(path, root)
    database = Database(path, shown)
    database.require("metrics")
    runs: dict[str, RawRun] = {}
    deleted = 0
    experiments = dict(database.rows("experiments", ("experiment_id", "name")))
    wanted = ("run_uuid", "name", "status", "lifecycle_stage", "experiment_id")
    for identity, name, state, stage, experiment in database.rows("runs", wanted):
        if stage == "deleted":
            deleted += 1
            continue
        run = RawRun(id=str(identity), name=str(name or identity), source=shown, status=_STATES.get(str(state)))
        run.config["experiment"] = experiments.get(experiment)
        runs[run.id] = run
    for key, value, identity in database.rows("params", ("key", "value", "run_uuid")):
        if (run := runs.get(str(identity))) is not None:
            run.config[str(key)] = plain_value(value)
    points = database.rows("metrics", ("key", "value", "timestamp", "step", "is_nan", "run_uuid"))
    for key, value, time, step, is_nan, identity in points:
        run = runs.get(str(identity))
        if run is not None and isinstance(value, (int, float)) and isinstance(step, int):
            number = math.nan if is_nan else math.copysign(math.inf, value) if abs(value) >= _INFINITE else float(value)
            run.add(str(key), step, float(time or 0) / 1000, number)
    database.close()
    notes = (f"{deleted} runs are marked deleted and left out",) if deleted else ()
    return Gathered(KIND_DATABASE, tuple(runs.values()), tuple(database.problems), notes)


def read_mlruns(folders: list[Path], root: Path) -> Gathered:
    """Runs of an `mlruns` folder; `folders` are those that hold a run's meta.yaml."""
    runs: list[RawRun] = []
    problems: list[str] = []
    deleted = 0
    experiments: dict[Path, Any] = {}
    for folder in sorted(folders):
        shown = relative(folder, root)
        meta, said = _meta(folder / "meta.yaml", shown)
        if said:
            problems.append(said)
        if meta.get("lifecycle_stage") == "deleted":
            deleted += 1
            continue
        if folder.parent not in experiments:
            experiments[folder.parent] = _meta(folder.parent / "meta.yaml", shown)[0].get("name")
        state = meta.get("status")
        run = RawRun(
            id=str(meta.get("run_id") or folder.name),
            name=str(meta.get("run_name") or folder.name),
            source=shown,
            status=_STATES.get(str(_NUMBERED.get(state, state) if isinstance(state, int) else state)),
        )
        run.config["experiment"] = experiments[folder.parent]
        _params(run, folder / "params")
        _metrics(run, folder / "metrics")
        runs.append(run)
    notes = (f"{deleted} runs are marked deleted and left out",) if deleted else ()
    return Gathered(KIND_FOLDER, tuple(runs), tuple(problems), notes)


def _meta(path: Path, shown: str) -> tuple[dict[str, Any], str]:
    try:
        content = read_yaml(path)
    except ValueError as error:
        return {}, f"{shown}/meta.yaml: {error}"
    return (content, "") if isinstance(content, dict) else ({}, f"{shown}/meta.yaml: holds no settings")


def _params(run: RawRun, folder: Path) -> None:
    for path in only_inside(sorted(folder.rglob("*")), folder.parent):
        if path.is_file():
            try:
                with path.open(encoding="utf-8", errors="replace") as file:
                    run.config[path.relative_to(folder).as_posix()] = plain_value(file.read(8192).strip("\n"))
            except OSError as error:
                run.problems.append(f"{run.source}/params/{path.name}: cannot be read ({error.strerror})")


def _metrics(run: RawRun, folder: Path) -> None:
    """A file a metric, a line a point: time in milliseconds, value, step."""
    for path in only_inside(sorted(folder.rglob("*")), folder.parent):
        if not path.is_file():
            continue
        name = path.relative_to(folder).as_posix()
        bad = 0
        try:
            with path.open(encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    bad += not _point(run, name, line)
        except OSError as error:
            run.problems.append(f"{run.source}/metrics/{name}: cannot be read ({error.strerror})")
        if bad:
            run.problems.append(f"{run.source}/metrics/{name}: {bad} lines are no points and are left out")


def _point(run: RawRun, name: str, line: str) -> bool:
    parts = line.split()
    if not parts:
        return True
    try:
        # a line that lost its end may still read as a number: MLflow ends every line
        if not line.endswith("\n") or len(parts) < 2:
            return False
        run.add(name, int(parts[2]) if len(parts) > 2 else 0, int(parts[0]) / 1000, float(parts[1]))
    except (ValueError, OverflowError):
        return False
    return True
