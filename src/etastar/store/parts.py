"""How are runs and trajectories kept so that no crash loses or halves them?

A study is a folder; `runs/*.parquet` and `trajectories/*.parquet` are its parts. A part is written beside
its place, flushed to disk and renamed into it, so it is there whole or not at all. Writing a part again
replaces it. Every page carries a checksum and every part a digest of its content, so that a flipped bit
is seen wherever it falls. A part that cannot be read, or that does not hold what was written, is named in a
warning and left out.
"""

from __future__ import annotations

import contextlib
import hashlib
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from etastar.errors import InputError
from etastar.records import RUN_SCHEMA, TRAJECTORY_SCHEMA, conform_runs, conform_trajectories
from etastar.store.disk import inside, only_inside, write_atomically


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
    if folder.is_symlink() and not inside(folder, Path(study)):
        # left out in silence, a training would write its rows there and never see them
        raise InputError(f"{folder}: is a link out of the study", hint="move the whole study there and link that")
    found = sorted(p for p in folder.glob("*.parquet") if p.name.startswith(prefix) and p.name[0] != ".")
    return only_inside(found, Path(study)) if any(p.is_symlink() for p in found) else found


def _write(folder: Path, table: pa.Table, part: str) -> Path:
    path = folder / f"{part}.parquet"
    write_atomically(path, lambda temporary: _write_table(table, temporary))
    return path


_DIGEST = b"etastar.digest"


def _write_table(table: pa.Table, path: Path) -> None:
    table = table.replace_schema_metadata({_DIGEST: content_digest(table)})
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)


def content_digest(table: pa.Table) -> str:
    """A hash of names, types and values, whatever the layout that a version of Arrow gives them in memory."""
    digest = hashlib.sha256()
    for field in table.schema:
        column = table[field.name].combine_chunks()
        nulls = np.asarray(column.is_null())
        digest.update(f"{field.name}\0{field.type}\0{len(column)}\0".encode())
        digest.update(nulls.tobytes())
        if pa.types.is_floating(field.type) or pa.types.is_integer(field.type):
            digest.update(np.ascontiguousarray(column.fill_null(0).to_numpy(zero_copy_only=False)).tobytes())
        else:
            # as texts with a zero byte between them; Arrow joins a million of them in the time of a thousand here
            for start in range(0, len(column), _TEXTS):
                digest.update(b"\0" if start else b"")
                digest.update(_joined(column.slice(start, _TEXTS)))
    return digest.hexdigest()


_TEXTS = 1 << 18  # joined at a time


def _joined(column: pa.Array) -> bytes:
    if not pa.types.is_string(column.type):
        return "\0".join("" if value is None else str(value) for value in column.to_pylist()).encode()
    whole = pa.ListArray.from_arrays(pa.array([0, len(column)], pa.int32()), column.fill_null(""))
    return pc.call_function("binary_join", [whole, "\0"])[0].as_py().encode()


def sweep_leftovers(folder: Path, prefix: str) -> None:
    """Remove temporary files that a killed writer of `prefix` left; only its present claimant may ask."""
    for path in folder.glob(f".{prefix}*.tmp"):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _read(folder: Path, schema: pa.Schema) -> pa.Table:
    tables = [table for path in parts(folder.parent, folder.name) if (table := read_part(path)) is not None]
    if not tables:
        return schema.empty_table()
    return pa.concat_tables(tables, promote_options="permissive")


def read_part(path: Path) -> pa.Table | None:
    """One part, or None and a warning that names it."""
    try:
        return checked_part(path)
    except DamagedPartError as error:
        warnings.warn(f"{path} cannot be read and is left out: {error.reason}", stacklevel=3)
        return None


class DamagedPartError(InputError):
    """A part that does not hold what was written."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}", hint="remove it and launch again: its runs are made anew")
        self.reason = reason


def checked_part(path: Path) -> pa.Table:
    """One part with its checksums and its columns checked; `DamagedPartError` says what is wrong."""
    schema = RUN_SCHEMA if path.parent.name == "runs" else TRAJECTORY_SCHEMA
    try:
        table = read_parquet(path)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise DamagedPartError(path, reason) from None
    for field in schema:
        if field.name not in table.column_names or table.schema.field(field.name).type != field.type:
            raise DamagedPartError(path, f"the column {field.name} is not there as {field.type}")
    return table


def read_parquet(path: Path) -> pa.Table:
    """Any Parquet file; checksums, and the digest where it carries one, are compared before anything is believed.

    In one thread: of some hundred thousand damaged files one ended the process, in a thread of Arrow's that outlived
    the refused read.
    """
    with path.open("rb") as file:  # by name, a folder or a pattern would be taken for a dataset
        table = pq.ParquetFile(file, page_checksum_verification=True).read(use_threads=False)
    written = (table.schema.metadata or {}).get(_DIGEST)
    if written is not None and written.decode(errors="replace") != content_digest(table):
        raise DamagedPartError(path, "its content is not what was written")
    return table.replace_schema_metadata(None)
