"""Does a table meet the contract? The door through which every table enters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from etastar.errors import InputError
from etastar.records.contract import RUN_COLUMNS, TRAJECTORY_COLUMNS, Column, RunStatus
from etastar.scale import LARGEST

pc: Any = pyarrow.compute  # its functions are made at import, where no type checker sees them


@dataclass(frozen=True)
class Conformed:
    """A table that met the contract, and what was noticed on the way in."""

    table: pa.Table
    notes: tuple[str, ...] = ()


def conform_runs(table: pa.Table) -> Conformed:
    """Check a table against the runs contract and give it the contract's columns and types.

    Other columns are kept behind the contract's. A NaN or infinite loss makes a diverged row, counted
    in the notes; a null loss must come with a status that explains it.
    """
    notes: list[str] = []
    table = _typed(table, RUN_COLUMNS, "runs table", notes)
    if table.num_rows == 0:
        raise InputError("the runs table is empty", hint="give at least one row with params, tokens, lr, loss")
    table = _settle_status(table, notes)
    _refuse_contradictions(table)
    if table["run"].null_count == table.num_rows and table["seed"].null_count == table.num_rows:
        repeats = table.num_rows - table.group_by(["params", "tokens", "lr"]).aggregate([]).num_rows
        if repeats:
            notes.append(f"{repeats} rows repeat a cell and no seed or run column tells them apart: replicates")
    return Conformed(table, tuple(notes))


def conform_trajectories(table: pa.Table) -> Conformed:
    """Check a table against the trajectories contract and give it the contract's columns and types."""
    notes: list[str] = []
    return Conformed(_typed(table, TRAJECTORY_COLUMNS, "trajectories table", notes), tuple(notes))


def runs_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows as mappings → a contract-checked runs table."""
    listed = [dict(row) for row in rows]
    names = dict.fromkeys(name for row in listed for name in row)
    return conform_runs(pa.table({name: pa.array([row.get(name) for row in listed]) for name in names})).table


def _typed(table: pa.Table, columns: tuple[Column, ...], name: str, notes: list[str]) -> pa.Table:
    missing = [c.name for c in columns if c.required and c.name not in table.column_names]
    if missing:
        raise InputError(
            f"{name}: no column {', '.join(missing)} among {', '.join(table.column_names[:20]) or 'none'}",
            hint="name them with --map, e.g. --map params=N,tokens=D,lr=LR,loss=LOSS",
        )
    if len(set(table.column_names)) < len(table.column_names):
        twice = next(c for c in table.column_names if table.column_names.count(c) > 1)
        raise InputError(f"{name}: two columns are called {twice[:60]!r}", hint="rename or drop one of them")
    fields: dict[str, pa.ChunkedArray | pa.Array] = {}
    for column in columns:
        if column.name not in table.column_names:
            fields[column.name] = pa.nulls(table.num_rows, column.type)
            continue
        values = _cast(_without_nan(table[column.name], column, notes), column)
        _check_values(values, column)
        fields[column.name] = values
    for other in table.column_names:
        if other not in fields:
            fields[other] = table[other]
    return pa.table(fields)


def _without_nan(values: pa.ChunkedArray, column: Column, notes: list[str]) -> pa.ChunkedArray:
    """NaN in an optional column means unknown: so do tools write it that have no null."""
    bounded = column.low is not None or pa.types.is_integer(column.type)
    if column.required or not bounded or not pa.types.is_floating(values.type):
        return values
    nan = pc.fill_null(pc.is_nan(values), False)
    count = pc.sum(nan).as_py() or 0
    if not count:
        return values
    notes.append(f"column {column.name}: {count} NaN read as unknown")
    return pc.if_else(nan, pa.scalar(None, values.type), values)


def _cast(values: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    number = not pa.types.is_string(column.type)
    try:
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        if number and pa.types.is_boolean(values.type):
            raise pa.ArrowTypeError("yes or no is no number")
        if pa.types.is_integer(column.type) and pa.types.is_floating(values.type):
            values = pc.round(values)
        if number and _is_text(values.type):
            values = pc.utf8_trim_whitespace(values.cast(pa.string()))
        return values.cast(column.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        shown = str(next((v for v in values.to_pylist() if not _castable(v, column)), "?"))[:60]
        raise InputError(
            f"column {column.name}: {shown!r} is not {_spoken(column.type)}",
            hint=f"{column.name} is {column.meaning}; clean the column or map another with --map",
        ) from None


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _castable(value: Any, column: Column) -> bool:
    if value is None:
        return True
    if isinstance(value, bool):
        return pa.types.is_string(column.type)
    try:
        pa.array([value]).cast(column.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OverflowError):
        return False
    return True


def _spoken(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return "a whole number below 2^63"
    return "a number" if pa.types.is_floating(kind) else "text"


def _check_values(values: pa.ChunkedArray, column: Column) -> None:
    if column.required and column.name != "loss" and values.null_count:
        raise InputError(
            f"column {column.name}: {values.null_count} of {len(values)} values are missing",
            hint=f"drop those rows with --where '{column.name} IS NOT NULL', or fill them in",
        )
    if column.low is None:
        return
    array = values.to_numpy(zero_copy_only=False).astype(float)
    high = np.inf if column.high is None else column.high
    present = ~np.asarray(values.is_null())
    bad = present & ~(np.isfinite(array) & (array >= column.low) & (array <= high))
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        held, above = array[first], "a finite number above zero" if column.positive else "zero or above"
        wanted = above if not held > column.low or not np.isfinite(held) else f"at most {high:g}"
        raise InputError(
            f"column {column.name}: row {first} holds {held}, expected {wanted}",
            hint=f"drop such rows with --where '{column.name} {f'<= {high:g}' if held > high else '> 0'}'",
        )


def _settle_status(table: pa.Table, notes: list[str]) -> pa.Table:
    """A row's status follows from its loss where it is not given; contradictions are refused."""
    given = np.array(table["status"].to_pylist(), dtype=object)
    loss = table["loss"].to_numpy(zero_copy_only=False).astype(float)
    null = np.asarray(table["loss"].is_null())
    unknown = sorted({str(s) for s in given if s is not None and s not in set(RunStatus)})
    if unknown:
        raise InputError(
            f"column status: {unknown[0][:60]!r} is not one of {', '.join(RunStatus)}",
            hint="map another column with --map status=…, or rename the values",
        )
    missing = null & np.array([s is None or s == RunStatus.FINISHED for s in given])
    if missing.any():
        raise InputError(
            f"column loss: {int(missing.sum())} rows have no loss and no status that explains it",
            hint="drop them with --where 'loss IS NOT NULL', or set status to diverged or crashed",
        )
    blown = ~null & ~(np.abs(loss) <= LARGEST)
    if blown.any():
        notes.append(f"{int(blown.sum())} rows have a NaN or infinite loss: kept as diverged, not fitted")
    status = np.where(given == None, RunStatus.FINISHED.value, given)  # noqa: E711 (elementwise)
    status[blown & (status == RunStatus.FINISHED)] = RunStatus.DIVERGED.value
    position = table.column_names.index("status")
    return table.set_column(position, "status", pa.array(status.tolist(), pa.string()))


def _refuse_contradictions(table: pa.Table) -> None:
    """The same run at the same cell with two losses is an error, not a replicate."""
    if table["run"].null_count == table.num_rows:
        return
    # null-safe: a table without run names cannot contradict itself
    named = table.filter(pc.is_valid(table["run"]))
    keys = ["run", "params", "tokens", "lr", "seed"]
    counted = named.group_by(keys).aggregate([("loss", "count_distinct")])
    worst = counted.filter(pc.greater(counted["loss_count_distinct"], 1))
    if worst.num_rows:
        row = worst.slice(0, 1).to_pylist()[0]
        raise InputError(
            f"run {str(row['run'])[:60]!r} has {row['loss_count_distinct']} different losses "
            f"at params {row['params']:.4g}, tokens {row['tokens']:.4g}, lr {row['lr']:.4g}",
            hint="keep one row a run and cell, or give replicates their own run or seed",
        )
