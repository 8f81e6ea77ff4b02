"""Where are the rows that a study logged, and how are those of a few runs read out of very many?"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from etastar.errors import InputError
from etastar.records import TRAJECTORY_SCHEMA, conform_trajectories
from etastar.store import parts, read_parquet, read_part


@dataclass(frozen=True)
class LoggedRows:
    """The logged rows of a study, read when those of some runs are asked for: all of them may not fit into memory."""

    where: Mapping[str, tuple[Path, ...]]  # a run → the files that hold rows of it
    table: pa.Table | None = None  # rows that are in memory already
    stop: int | None = None  # rows of this step and later are not looked at

    @classmethod
    def of_table(cls, table: pa.Table) -> LoggedRows:
        """Rows that came with the runs, out of a tracker's logs."""
        return cls(dict.fromkeys(_names(table), ()), table)

    @property
    def names(self) -> Collection[str]:
        """The runs (or trunks) that have rows of a matrix."""
        return self.where.keys()

    def before(self, step: int) -> LoggedRows:
        """The same, ending before a step."""
        return replace(self, stop=step)

    def of(self, names: Collection[str]) -> pa.Table:
        """The rows of some runs, in the order of the files."""
        files = sorted({path for name in names for path in self.where.get(name, ())})
        tables = [] if self.table is None else [self.table]
        tables += [table for path in files if (table := _read(path)) is not None]
        wanted = pc.field("run").isin(list(names))
        if self.stop is not None:
            wanted &= pc.field("step") < self.stop
        kept = [table.filter(wanted) for table in tables] or [TRAJECTORY_SCHEMA.empty_table()]
        return pa.concat_tables(kept, promote_options="permissive")  # imported ones have a column more


def read_trajectories(study: Path, given: Path | None = None) -> LoggedRows | None:
    """The trajectories of a file or folder that was named, else the study folder's own; None without any."""
    places = [given] if given is not None else []
    if given is None and study.is_dir():
        places = [*sorted(study.glob("trajectories*.parquet")), *parts(study, "trajectories")]
    elif given is not None and given.is_dir():
        places = [*sorted({*given.glob("trajectories*.parquet"), *given.glob("*.parquet")}),
                  *parts(given, "trajectories")]  # fmt: skip
    where: dict[str, list[Path]] = {}
    for place in places:
        for name in _runs_in(place) if not place.name.startswith(".") else ():
            where.setdefault(name, []).append(place)
    if not where:
        if given is not None:
            said = f"--trajectories: no Parquet file with rows of a matrix in {str(given)!r}"
            raise InputError(said, hint="give a file or a study folder")
        return None
    return LoggedRows({name: tuple(found) for name, found in where.items()})


def _read(path: Path) -> pa.Table | None:
    """The rows of one file; a damaged part of a study is named in a warning and left out."""
    if path.parent.name == "trajectories":
        return read_part(path)
    with _refused(path):
        return conform_trajectories(read_parquet(path)).table


def _runs_in(path: Path) -> list[str]:
    """The runs with rows in a file, by two of its columns."""
    with _refused(path, warn=path.parent.name == "trajectories"), path.open("rb") as file:
        there = pq.read_schema(file)
        conform_trajectories(there.empty_table())  # says what is missing
        keys = [name for name in ("run", "weight") if name in there.names]
        texts = [name for name in keys if pa.types.is_string(there.field(name).type)]
        file.seek(0)
        reader = pq.ParquetFile(file, read_dictionary=texts, page_checksum_verification=True)
        return _names(reader.read(columns=keys, use_threads=False))
    return []


def _names(table: pa.Table) -> list[str]:
    if "run" not in table.column_names or "weight" not in table.column_names:
        return []
    found = table["run"].filter(table["weight"].is_valid())
    return [str(name) for name in found.unique().to_pylist() if name is not None]


@contextmanager
def _refused(path: Path, *, warn: bool = False) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"--trajectories: no file {str(path)!r}", hint="give a Parquet file") from None
    except (OSError, pa.ArrowException, UnicodeDecodeError, InputError) as error:
        said = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        if warn:
            warnings.warn(f"{path} cannot be read and is left out: {said}", stacklevel=4)
        elif isinstance(error, InputError):
            raise
        else:
            raise InputError(f"{path.name}: cannot be read as Parquet: {said}", hint="is the file whole?") from None
