"""How are runs and trajectories kept so that no crash loses or halves them?

A study is a folder; `runs/*.parquet` and `trajectories/*.parquet` are its parts. A part is written beside
its place, flushed to disk and renamed into it, so it is there whole or not at all. Writing a part again
replaces it. A part that cannot be read is named in a warning and left alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from etastar.errors import InputError
from etastar.records import RUN_SCHEMA, TRAJECTORY_SCHEMA, conform_runs, conform_trajectories


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file, flush it to disk, rename it to `path`; on failure leave nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise InputError(
                f"{path}: no space left on the disk; what was written before is intact",
                hint="free some space and run the same command again: it goes on from the last checkpoint",
            ) from None
        raise InputError(f"{path}: cannot be written ({error.strerror})", hint="check the --out folder") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    """The rename itself must reach the disk, or a power cut brings the old name back."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_runs(study: str | Path, table: pa.Table, part: str) -> Path:
    """Check rows against the runs contract and write them as the part `part`."""
    return _write(Path(study) / "runs", conform_runs(table).table, part)


def write_trajectories(study: str | Path, table: pa.Table, part: str) -> Path:
    """Check rows against the trajectories contract and write them as the part `part`."""
    return _write(Path(study) / "trajectories", conform_trajectories(table).table, part)


def read_runs(study: str | Path) -> pa.Table:
    """All rows of all readable runs parts, in the order of the parts' names; empty where there are none."""
    return _read(Path(study) / "runs", RUN_SCHEMA)


def read_trajectories(study: str | Path) -> pa.Table:
    """All rows of all readable trajectory parts, in the order of the parts' names."""
    return _read(Path(study) / "trajectories", TRAJECTORY_SCHEMA)


def parts(study: str | Path, kind: str, prefix: str = "") -> list[Path]:
    """The parts of `kind` ("runs" or "trajectories") whose names begin with `prefix`, sorted."""
    folder = Path(study) / kind
    return sorted(p for p in folder.glob("*.parquet") if p.name.startswith(prefix) and p.name[0] != ".")


def _write(folder: Path, table: pa.Table, part: str) -> Path:
    path = folder / f"{part}.parquet"
    write_atomically(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"))
    return path


def _read(folder: Path, schema: pa.Schema) -> pa.Table:
    tables = [table for path in parts(folder.parent, folder.name) if (table := read_part(path)) is not None]
    if not tables:
        return schema.empty_table()
    return pa.concat_tables(tables, promote_options="permissive")


def read_part(path: Path) -> pa.Table | None:
    """One part, or None and a warning that names it."""
    try:
        return pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        reason = str(error).splitlines()[0][:120]
        warnings.warn(f"{path} cannot be read and is left out: {reason}", stacklevel=3)
        return None
