"""What has the user pointed at? One door for every source: tables, trackers' files, studies, servers.

`read_source` looks at what is there, not at what it is called: a folder is searched for the files of every
tracker. Where several kinds are found, the one that knows most is read and the others are named; `KIND:PATH`
(`tensorboard:runs/`) asks for one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from etastar.errors import InputError
from etastar.importers.columns import parse_mapping
from etastar.importers.hub import read_hub, table_files
from etastar.importers.interpret import interpret
from etastar.importers.long import is_lightning, long_columns, read_lightning, runs_from_long
from etastar.importers.mlflow import read_mlflow_database, read_mlruns
from etastar.importers.raw import Gathered
from etastar.importers.sqlite import Database, is_database
from etastar.importers.tables import Imported, read_frame, read_frames, runs_from_frame
from etastar.importers.tensorboard import PATTERN, read_tensorboard
from etastar.importers.trackio import is_trackio_parquet, read_trackio_database, read_trackio_parquet
from etastar.importers.trainer_state import NAME as STATE
from etastar.importers.trainer_state import read_trainer_states
from etastar.importers.wandb_api import read_wandb_api
from etastar.importers.wandb_files import read_wandb_files, wandb_paths
from etastar.store.disk import only_inside

__all__ = ["Imported", "parse_mapping", "read_source"]

Reader = Callable[[], Gathered]
_MOST_FILES = 200_000
# what may stand before a path; in this order a folder with several kinds is understood
_KINDS = ("wandb-files", "mlflow", "trackio", "trainer", "lightning", "tensorboard")
_ALIASES = {"tb": "tensorboard", "huggingface": "trainer", "trainer_state": "trainer", "mlruns": "mlflow"}
_WHAT = (
    "give a CSV, Parquet or JSONL file, a study folder, a folder of W&B, TensorBoard, MLflow, Trackio, "
    "Trainer or Lightning logs, wandb:ENTITY/PROJECT or hf:OWNER/DATASET"
)


def read_source(
    source: str | Path,
    *,
    mapping: dict[str, str] | None = None,
    where: str | None = None,
    refuse_rows: bool = False,
) -> Imported:
    """Runs (and trajectories, where there are any) of whatever `source` names.

    A tracker's run that lacks something is refused by itself. A table with such a row is refused as a whole,
    since a column may be misread; with `refuse_rows` the row alone goes.
    """
    text = str(source)
    mapping = mapping or {}
    head, colon, rest = text.partition(":")
    if colon and not Path(text).exists():
        if head == "wandb" and not Path(rest).exists():
            return interpret(read_wandb_api(rest), mapping, where)
        if head == "hf":
            return _tables(read_hub(rest), Path(rest), mapping, where, refuse_rows)
        kind = _ALIASES.get(head, "wandb-files" if head == "wandb" else head)
        if kind in _KINDS:
            return _asked(kind, Path(rest), mapping, where)
    path = Path(text)
    if _is_study(path) or not _exists(path):
        return runs_from_frame(read_frame(path), mapping, where, foreign=False)  # or says that there is none
    found = _readers(path)
    if found:
        (kind, reader), *others = found
        read = reader()
        aside = tuple(f"{other} logs are there too and are left aside (ask with {other}:PATH)" for other, _ in others)
        if kind in ("trainer",):
            aside = tuple(said for said in aside if not said.startswith("tensorboard"))
        return interpret(Gathered(read.kind, read.runs, read.problems, (*read.notes, *aside)), mapping, where)
    if path.is_dir():
        return _tables(only_inside(table_files(path), path), path, mapping, where, refuse_rows)
    return _tables([path], path, mapping, where, refuse_rows)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _is_study(path: Path) -> bool:
    """Our own store: parts of runs in a folder."""
    if not _exists(path) or not path.is_dir():
        return False
    return any(path.glob("runs*.parquet")) or any(path.glob("runs/*.parquet"))


def _asked(kind: str, path: Path, mapping: dict[str, str], where: str | None) -> Imported:
    if not _exists(path):
        raise InputError(f"no file or folder {str(path)!r}", hint=_WHAT)
    reader = dict(_readers(path)).get(kind)
    if reader is None:
        raise InputError(f"{path}: holds no {kind} logs", hint=_WHAT)
    return interpret(reader(), mapping, where)


def _tables(paths: list[Path], shown: Path, mapping: dict[str, str], where: str | None, refuse_rows: bool) -> Imported:
    """Tables of runs, or of steps."""
    if not paths:
        raise InputError(f"{shown}: nothing in the folder is known", hint=_WHAT)
    frame = read_frame(paths[0]) if len(paths) == 1 else read_frames(paths, shown)
    if (columns := long_columns(frame, mapping)) is not None:
        gathered = runs_from_long(frame, *columns, source=shown.name)
        return interpret(gathered, {k: v for k, v in mapping.items() if k not in ("run", "step")}, where)
    return runs_from_frame(frame, mapping, where, refuse_rows=refuse_rows)


def _readers(path: Path) -> list[tuple[str, Reader]]:
    """Kinds of logs that are there, with what reads them."""
    if path.is_file():
        reader = _file_reader(path)
        return [reader] if reader is not None else []
    files = _files(path)
    found: dict[str, Reader] = {}
    wandb = only_inside(wandb_paths(path), path) if any(f.suffix == ".wandb" for f in files) else []
    if wandb:
        found["wandb-files"] = lambda: read_wandb_files(wandb, path)
    runs = [f.parent for f in files if f.name == "meta.yaml" and _is_mlflow_run(f.parent)]
    databases = [reader for f in files if f.suffix in (".db", ".sqlite", ".sqlite3") and (reader := _database(f))]
    synced = [f for f in files if f.suffix == ".parquet" and f.with_name(f"{f.stem}_configs.parquet").is_file()]
    for kind in ("mlflow", "trackio"):
        readers: list[Reader] = [reader for name, reader in databases if name == kind]
        if kind == "mlflow" and runs:
            readers.append(lambda: read_mlruns(runs, path))
        if kind == "trackio" and not readers:
            readers = [lambda f=f: read_trackio_parquet(f, path) for f in synced if is_trackio_parquet(f)]
        if readers:
            found[kind] = lambda readers=readers: _together([reader() for reader in readers])
    states = [f for f in files if f.name == STATE]
    if states:
        found["trainer"] = lambda: read_trainer_states(states, path)
    csvs = [f for f in files if f.name == "metrics.csv" and is_lightning(f)]
    if csvs:
        found["lightning"] = lambda: read_lightning(csvs, path)
    events = [f for f in files if f.match(PATTERN)]
    if events:
        found["tensorboard"] = lambda: read_tensorboard(events, path)
    return [(kind, found[kind]) for kind in _KINDS if kind in found]


def _file_reader(path: Path) -> tuple[str, Reader] | None:
    root = path.parent
    if path.suffix == ".wandb":
        return "wandb-files", lambda: read_wandb_files([path], root)
    if path.name == STATE:
        return "trainer", lambda: read_trainer_states([path], root)
    if path.match(PATTERN):
        return "tensorboard", lambda: read_tensorboard([path], root)
    if path.name == "metrics.csv" and is_lightning(path):
        return "lightning", lambda: read_lightning([path], root)
    if path.suffix == ".parquet" and path.with_name(f"{path.stem}_configs.parquet").is_file():
        return ("trackio", lambda: read_trackio_parquet(path, root)) if is_trackio_parquet(path) else None
    if path.suffix in (".db", ".sqlite", ".sqlite3") or is_database(path):
        known = _database(path)
        if known is None:
            raise InputError(f"{path.name}: is no database of MLflow or Trackio, or is damaged", hint=_WHAT)
        return known
    return None


def _database(path: Path) -> tuple[str, Reader] | None:
    if not is_database(path):
        return None
    database = Database(path, path.name)
    tables = {name for name in ("runs", "params", "metrics", "configs") if database.columns(name)}
    columns = database.columns("metrics")
    database.close()
    if {"runs", "metrics"} <= tables:
        return "mlflow", lambda: read_mlflow_database(path, path.parent)
    if "metrics" in tables and "run_name" in columns:
        return "trackio", lambda: read_trackio_database(path, path.parent)
    return None


def _is_mlflow_run(folder: Path) -> bool:
    return (folder / "metrics").is_dir() or (folder / "params").is_dir() or (folder / "tags").is_dir()


def _together(parts: list[Gathered]) -> Gathered:
    return Gathered(
        parts[0].kind,
        tuple(run for part in parts for run in part.runs),
        tuple(said for part in parts for said in part.problems),
        tuple(said for part in parts for said in part.notes),
    )


def _files(folder: Path) -> list[Path]:
    """All files below a folder, without following links to folders."""
    found: list[Path] = []
    for path in folder.rglob("*"):
        if path.is_file():
            found.append(path)
            if len(found) > _MOST_FILES:
                raise InputError(
                    f"{folder}: holds more than {_MOST_FILES} files", hint="point at the folder of the runs"
                )
    return only_inside(sorted(found), folder)
