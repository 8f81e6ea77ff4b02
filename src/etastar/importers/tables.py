"""How does a file of somebody's runs become the runs table? CSV, Parquet and JSONL, or a study folder.

What the columns mean is the business of `columns`; which rows are wanted, that of `expressions`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from etastar.errors import InputError
from etastar.importers.columns import parse_mapping, understand
from etastar.importers.expressions import keep, keep_runs, listed
from etastar.records import RUN_COLUMNS, conform_runs
from etastar.store import read_parquet
from etastar.store.disk import only_inside

__all__ = ["Imported", "keep", "keep_runs", "parse_mapping", "read_runs"]

_TEXT = tuple(c.name for c in RUN_COLUMNS if pa.types.is_string(c.type))
_NULLS = ["", "null", "None", "NA", "N/A", "NULL", "none", "<NA>"]


@dataclass(frozen=True)
class Imported:
    """A runs table, and what was understood on the way in."""

    table: pa.Table
    mapped: dict[str, str]  # contract name → the file's column
    notes: tuple[str, ...]
    units: tuple[str, ...] = ()  # those of the notes that are guesses about units
    kind: str = "a table of runs"  # what the source was taken for
    refused: tuple[tuple[str, str], ...] = ()  # (run, why)
    problems: tuple[str, ...] = ()  # files, or parts of files, that could not be read
    trajectories: pa.Table | None = None  # where the source holds any


def read_runs(path: str | Path, *, mapping: dict[str, str] | None = None, where: str | None = None) -> Imported:
    """Read a runs file (or a study folder of Parquet parts) into the contract."""
    return runs_from_frame(read_frame(Path(path)), mapping or {}, where, foreign=not Path(path).is_dir())


def runs_from_frame(
    frame: pl.DataFrame, mapping: dict[str, str], where: str | None, *, foreign: bool = True, refuse_rows: bool = False
) -> Imported:
    """A table of runs under any names → the contract. `refuse_rows`: a row outside it goes, by name; else all do."""
    found = understand(frame, mapping, foreign=foreign)
    frame, notes = found.frame, found.notes
    if where is not None:
        frame, dropped = keep(frame, where)
        notes.append(f"--where kept {frame.height} rows and dropped {dropped}")
        if frame.height == 0:
            raise InputError(f"--where {where[:80]!r} keeps no row", hint=f"columns are {listed(frame.columns)}")
    frame, refused = _refuse(frame) if refuse_rows else (frame, [])
    conformed = conform_runs(_to_arrow(frame))
    notes = [*found.units, *notes, *conformed.notes]
    return Imported(conformed.table, found.mapped, tuple(notes), tuple(found.units), refused=tuple(refused))


def _refuse(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[tuple[str, str]]]:
    """Rows without a size, a rate or a loss, by name; where all are such, the contract says why in its own words."""
    reasons: dict[int, list[str]] = {}
    for column in RUN_COLUMNS:
        if not column.required or not frame[column.name].dtype.is_numeric():
            continue
        value = pl.col(column.name)
        if column.name == "loss":
            explained = pl.col("status").is_in(["diverged", "crashed"]) if "status" in frame.columns else pl.lit(False)
            bad, why = value.is_null() & ~explained.fill_null(False), "no loss, and no status that explains it"
        else:
            within = value.is_between(column.low, column.high) & value.is_not_nan()
            bad, why = ~within.fill_null(False), f"{column.name} is missing, or not above zero"
        for row in frame.select(bad.arg_true()).to_series().to_list():
            reasons.setdefault(row, []).append(why)
    if not reasons or len(reasons) == frame.height:
        return frame, []
    names = frame["run"].cast(pl.String).to_list() if "run" in frame.columns else [None] * frame.height
    refused = [(names[row] or f"row {row}", "; ".join(why)) for row, why in sorted(reasons.items())]
    return frame.filter(~pl.int_range(pl.len()).is_in(list(reasons))), refused


def read_frame(path: Path) -> pl.DataFrame:
    """A table as it is in the file, or the parts of a study folder together."""
    try:
        if path.is_dir():
            return _read_folder(path)
        size = path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"no file {str(path)!r}", hint="give a CSV, Parquet or JSONL file, or a study folder"
        ) from None
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            f"{str(path)[:80]!r} cannot be opened: {said}", hint="give a CSV, Parquet or JSONL file"
        ) from None
    suffix = path.suffix.lower()
    readers = {".csv": _csv, ".tsv": _csv, ".parquet": _parquet, ".pq": _parquet, ".jsonl": _jsonl, ".ndjson": _jsonl}
    if suffix not in readers:
        raise InputError(
            f"{path.name}: {suffix or 'no ending'} is not a known format", hint="use .csv, .parquet or .jsonl"
        )
    if size == 0:
        raise InputError(f"{path.name}: the file is empty", hint="it needs at least one row, and a CSV a header")
    try:
        frame = readers[suffix](path)
    except PermissionError:
        raise InputError(f"{path.name}: no permission to read it", hint=f"chmod u+r {path.name}") from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException, OSError, ValueError) as error:
        said = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
        hint = "save it as UTF-8" if "utf-8" in said.lower() else "is the file whole, and of the format its name says?"
        raise InputError(f"{path.name}: cannot be read as {suffix[1:]}: {said}", hint=hint) from None
    if odd := [name for name in frame.columns if "\0" in name]:
        raise InputError(
            f"{path.name}: the column {odd[0][:40]!r} has a zero byte in its name", hint="save it as UTF-8"
        )
    if frame.height == 0 or frame.width == 0:
        raise InputError(f"{path.name}: the file has no rows", hint="it needs at least one row")
    return frame


def _csv(path: Path) -> pl.DataFrame:
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    with path.open("rb") as file:  # by name, polars would take [ and * in it as a pattern
        return pl.read_csv(file, separator=separator, infer_schema_length=None, null_values=_NULLS)


def _parquet(path: Path) -> pl.DataFrame:
    frame = pl.from_arrow(read_parquet(path))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _jsonl(path: Path) -> pl.DataFrame:
    try:
        with path.open("rb") as file:
            return pl.read_ndjson(file, infer_schema_length=None)
    except pl.exceptions.PolarsError:
        # Python writes NaN and Infinity, which JSON does not have: read such a file line by line
        return pl.from_dicts(_json_rows(path), infer_schema_length=None, strict=False)


def _json_rows(path: Path) -> list[dict[str, Any]]:
    rows = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                raise ValueError(f"line {number} is not JSON") from None
            if not isinstance(row, dict):
                raise ValueError(f"line {number} is not an object with a value for each column")
            rows.append(row)
    if not rows:
        raise ValueError("no line holds a row")
    return rows


def _read_folder(path: Path) -> pl.DataFrame:
    parts = only_inside(sorted([*path.glob("runs*.parquet"), *path.glob("runs/*.parquet")]), path)
    if not parts:
        raise InputError(f"{path}: no runs.parquet and no runs/*.parquet in the folder", hint="is it a study folder?")
    return read_frames(parts, path)


def read_frames(paths: list[Path], shown: Path) -> pl.DataFrame:
    """Several tables as one, their columns by name."""
    try:
        return pl.concat([read_frame(path) for path in paths], how="diagonal_relaxed")
    except pl.exceptions.PolarsError as error:
        raise InputError(
            f"{shown}: its parts do not fit together: {str(error).splitlines()[0][:120]}",
            hint="every part must give a column the same type",
        ) from None


def _to_arrow(frame: pl.DataFrame) -> pa.Table:
    """Numbers in text columns as text; what has no text form is refused by name."""
    casts = []
    for name in _TEXT:
        if name not in frame.columns or frame[name].dtype == pl.String:
            continue
        if frame[name].dtype.is_nested() or frame[name].dtype in (pl.Binary, pl.Object):
            raise InputError(
                f"column {name}: {str(frame[name].dtype)[:60]} is not text",
                hint=f"map another with --map {name}=COLUMN",
            )
        casts.append(pl.col(name).cast(pl.String))
    wide = [name for name, kind in frame.schema.items() if kind == pl.Int128 and name not in _TEXT]
    casts += [pl.col(name).cast(pl.Float64) for name in wide]  # Arrow has no such integer
    return frame.with_columns(casts).to_arrow()
