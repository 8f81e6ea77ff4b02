"""Where are a study's trajectories, and to which group's runs do they belong?"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from etastar.errors import InputError
from etastar.estimate.cells import Group
from etastar.predict.trunks import Paths, paths_of
from etastar.records import conform_trajectories, group_labels


def read_trajectories(study: Path, given: Path | None = None) -> pa.Table | None:
    """The trajectories table of a file or folder that was named, else the study folder's own; None without one."""
    places = [given] if given is not None else []
    if given is None and study.is_dir():
        places = sorted([*study.glob("trajectories*.parquet"), *study.glob("trajectories/*.parquet")])
    elif given is not None and given.is_dir():
        places = sorted(
            [*given.glob("trajectories*.parquet"), *given.glob("*.parquet"), *given.glob("trajectories/*.parquet")]
        )
    tables = [_read(place) for place in places if not place.name.startswith(".")]
    if not tables:
        if given is not None:
            raise InputError(f"--trajectories: no Parquet file in {str(given)!r}", hint="give a file or a study folder")
        return None
    return pa.concat_tables(tables, promote_options="permissive")  # imported ones have a column more


def paths_by_group(
    table: pa.Table,
    trajectories: pa.Table,
    groups: list[Group],
    group_columns: list[str] | None = None,
    *,
    insist: bool = False,
) -> tuple[dict[str, Paths], list[str]]:
    """Paths by group label, and notes on groups without; `insist` refuses a table that fits no run of a lone group."""
    labels = group_labels(table, group_columns)
    by_group: dict[str, Paths] = {}
    notes = []
    for group in groups:
        rows = table.filter(pa.array([label == group.label for label in labels]))
        try:
            by_group[group.label] = paths_of(rows, trajectories)
        except InputError as error:
            if insist and len(groups) == 1:
                raise
            notes.append(f"trajectories left aside: {error.message}")
    return by_group, notes


def _read(path: Path) -> pa.Table:
    try:
        return conform_trajectories(pq.read_table(path)).table
    except FileNotFoundError:
        raise InputError(f"--trajectories: no file {str(path)!r}", hint="give a Parquet file") from None
    except (OSError, pa.ArrowException) as error:
        said = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise InputError(f"{path.name}: cannot be read as Parquet: {said}", hint="is the file whole?") from None
