"""How do imported runs enter a study so that importing twice is importing once?

A source has one part in the study, named by a hash of where it is, and writing it again replaces it. Runs are
compared by name: equal ones are left, changed ones are replaced and counted, those that the source no longer has
stay. A run that another part holds with other values stops the import before anything is written.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from etastar.errors import InputError
from etastar.importers.tables import Imported
from etastar.records import RUN_SCHEMA, content_id
from etastar.scale import format_number
from etastar.store import Journal, parts, read_part, write_runs, write_trajectories
from etastar.store.verify import same_values


@dataclass(frozen=True)
class ImportPlan:
    """What an import would write, and what it would change."""

    study: Path
    part: str
    runs: pa.Table
    trajectories: pa.Table | None
    new: tuple[str, ...]
    changed: tuple[str, ...]
    same: tuple[str, ...]
    kept: tuple[str, ...]  # of an earlier import, no longer in the source
    elsewhere: tuple[str, ...]  # equal runs that another part holds already
    notes: tuple[str, ...] = ()


def plan_import(imported: Imported, source: str, study: Path) -> ImportPlan:
    """Compare with what the study holds; a contradiction is an `InputError`, and nothing is written."""
    if study.exists() and not study.is_dir():
        raise InputError(f"--to {study}: is a file", hint="name a folder; it is made if it is not there")
    part = f"import-{content_id({'source': _canonical(source)})}"
    table, notes = _named(imported.table)
    before, others = _held(study, part)
    rows = {row["run"]: row for row in table.to_pylist()}
    twin = [name for name in rows if name in others]
    for name in twin:
        if not _same(rows[name], others[name]):
            raise InputError(
                f"--to {study}: run {name[:60]!r} is there already, from another source and with other values",
                hint="import into another study, or rename the runs with --map run=…",
            )
    fresh = [name for name in rows if name not in twin]
    kept = [name for name in before if name not in rows]
    wanted = table.filter(pa.array([name in set(fresh) for name in table["run"].to_pylist()]))
    trajectories = _only(imported.trajectories, set(fresh))
    if kept:
        wanted = _joined([wanted, _only(_part(study, "runs", part), set(kept))])
        trajectories = _joined([trajectories, _only(_part(study, "trajectories", part), set(kept))])
    return ImportPlan(
        study=study,
        part=part,
        runs=wanted if wanted is not None else table.slice(0, 0),
        trajectories=trajectories if trajectories is not None and trajectories.num_rows else None,
        new=tuple(name for name in fresh if name not in before),
        changed=tuple(name for name in fresh if name in before and not _same(rows[name], before[name])),
        same=tuple(name for name in fresh if name in before and _same(rows[name], before[name])),
        kept=tuple(kept),
        elsewhere=tuple(twin),
        notes=tuple(notes),
    )


def carry_out(plan: ImportPlan, imported: Imported, source: str) -> None:
    """Write the parts, each whole or not at all: trajectories first, so that a run never lacks its own."""
    try:
        plan.study.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"--to {plan.study}: cannot be made ({error.strerror})", hint="name a folder where you may write"
        ) from None
    if plan.trajectories is not None:
        write_trajectories(plan.study, plan.trajectories, plan.part)
    if plan.runs.num_rows:
        write_runs(plan.study, plan.runs, plan.part)
    journal = Journal(plan.study, writer="import")
    journal.write(
        "import",
        source=source,
        kind=imported.kind,
        part=plan.part,
        columns=imported.mapped,
        new=len(plan.new),
        changed=len(plan.changed),
        refused=len(imported.refused),
    )
    journal.close()


def _canonical(source: str) -> str:
    """The same source by whatever relative path it was named."""
    path = Path(source)
    return str(path.resolve()) if path.exists() else source


def _named(table: pa.Table) -> tuple[pa.Table, list[str]]:
    """A name of its own for every row: a run at several horizons is its trunk's cells; a row without one is a hash."""
    rows = table.to_pylist()
    notes: list[str] = []
    counts = Counter(row["run"] for row in rows)
    names, trunks, seen = [], [], Counter()
    for row in rows:
        name, trunk = row["run"], row["trunk"]
        if name is None:
            name = f"row-{content_id({key: row[key] for key in RUN_SCHEMA.names})}"
        elif counts[name] > 1:
            trunk = trunk or name
            name = f"{name}@{format_number(row['tokens'])}"
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
        trunks.append(trunk)
    if counts[None]:
        notes.append(f"{counts[None]} rows have no run name: they are named by their content")
    several = sum(1 for name, count in counts.items() if name is not None and count > 1)
    if several:
        notes.append(f"{several} runs have several rows: each is named RUN@TOKENS, and RUN is their trunk")
    for column, values in (("run", names), ("trunk", trunks)):
        table = table.set_column(table.column_names.index(column), column, pa.array(values, pa.string()))
    return table, notes


def _held(study: Path, part: str) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """Rows by run: of this source's earlier import, and of all other parts."""
    own: dict[str, dict[str, Any]] = {}
    others: dict[str, dict[str, Any]] = {}
    for path in parts(study, "runs"):
        table = read_part(path)
        for row in table.to_pylist() if table is not None else []:
            if row["run"] is not None:
                (own if path.stem == part else others)[row["run"]] = row
    return own, others


def _same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return same_values({k: left.get(k) for k in RUN_SCHEMA.names}, {k: right.get(k) for k in RUN_SCHEMA.names})


def _part(study: Path, kind: str, part: str) -> pa.Table | None:
    path = study / kind / f"{part}.parquet"
    return read_part(path) if path.is_file() else None


def _only(table: pa.Table | None, names: set[str]) -> pa.Table | None:
    return None if table is None else table.filter(pa.array([name in names for name in table["run"].to_pylist()]))


def _joined(tables: list[pa.Table | None]) -> pa.Table | None:
    some = [table for table in tables if table is not None and table.num_rows]
    return pa.concat_tables(some, promote_options="permissive") if some else None
