"""What is a run, and what may a table of runs hold?

This is the contract between the rooms: the runs table (one row a trained and evaluated cell), the
trajectories table (one row a run × step × weight), and `RunSpec`, what was trained. Tables are
pyarrow, so that the training path needs nothing heavier; `conform_runs` and `conform_trajectories`
are the door through which every table enters.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from pydantic import BaseModel, ConfigDict, Field

from etastar.errors import InputError
from etastar.scale import LARGEST, SMALLEST

pc: Any = pyarrow.compute  # its functions are made at import, where no type checker sees them


class RunStatus(enum.StrEnum):
    """How a run ended."""

    FINISHED = "finished"
    DIVERGED = "diverged"
    CRASHED = "crashed"


@dataclass(frozen=True)
class Column:
    """One column of a contract table: its type, its unit and what it means."""

    name: str
    type: pa.DataType
    unit: str
    meaning: str
    required: bool = False
    low: float | None = None  # the range that a value must lie in, where there is one
    high: float | None = None

    @property
    def positive(self) -> bool:
        """Values are logarithmed, so zero and below mean nothing."""
        return self.low is not None and self.low > 0


_POSITIVE: dict[str, Any] = {"low": SMALLEST, "high": LARGEST}

RUN_COLUMNS: tuple[Column, ...] = (
    Column("params", pa.float64(), "parameters", "N, the token embedding once", required=True, **_POSITIVE),
    Column("tokens", pa.float64(), "tokens", "D, the decay included", required=True, **_POSITIVE),
    Column("lr", pa.float64(), "", "peak learning rate η", required=True, **_POSITIVE),
    Column("loss", pa.float64(), "nats (or the user's unit)", "loss after the decay", required=True),
    Column("mean_eff_lr", pa.float64(), "", "mean η_eff over all steps and matrices", **_POSITIVE),
    Column("plateau_eff_lr", pa.float64(), "", "the same between warm-up and decay", **_POSITIVE),
    Column("params_nonembedding", pa.float64(), "parameters", "N without embeddings", **_POSITIVE),
    Column("optimizer", pa.string(), "", "adamw, adam, adamh, …"),
    Column("weight_decay", pa.float64(), "", "λ, as in torch (η·λ a step)", low=0.0, high=LARGEST),
    Column("beta1", pa.float64(), "", "Adam's β₁", low=0.0, high=1.0),
    Column("batch_tokens", pa.float64(), "tokens", "B, tokens a step", **_POSITIVE),
    Column("schedule", pa.string(), "", "wsd, cosine, constant, …"),
    Column("steps", pa.int64(), "steps", "T, the decay included", low=0.0),
    Column("warmup_steps", pa.int64(), "steps", "warm-up", low=0.0),
    Column("decay_steps", pa.int64(), "steps", "decay to zero", low=0.0),
    Column("seed", pa.int64(), "", "seed of init and data order"),
    Column("trunk", pa.string(), "", "the shared constant-LR trunk: cells of one trunk share its noise"),
    Column("run", pa.string(), "", "the run's own name"),
    Column("status", pa.string(), "", "finished | diverged | crashed"),
    Column("group", pa.string(), "", "cells of one group may be fitted together"),
)

TRAJECTORY_COLUMNS: tuple[Column, ...] = (
    Column("run", pa.string(), "", "the run", required=True),
    Column("step", pa.int64(), "steps", "optimizer step t", required=True),
    Column("weight", pa.string(), "", "the matrix; null for a row of the whole run"),
    Column("weight_norm", pa.float64(), "", "‖w_t‖₂ before the step"),
    Column("grad_norm", pa.float64(), "", "‖g_t‖₂"),
    Column("step_norm", pa.float64(), "", "‖w_{t+1} − w_t‖₂"),
    Column("update_norm", pa.float64(), "", "‖u_t‖₂, the optimizer's update before the LR"),
    Column("update_dot_weight", pa.float64(), "", "⟨u_t, w_t⟩"),
    Column("eff_lr", pa.float64(), "", "η_eff(t) = ‖ŵ_{t+1} − ŵ_t‖₂"),
    Column("train_loss", pa.float64(), "nats", "training loss at the step"),
    Column("val_loss", pa.float64(), "nats", "validation loss at the step"),
)

RUN_SCHEMA = pa.schema([pa.field(c.name, c.type) for c in RUN_COLUMNS])
TRAJECTORY_SCHEMA = pa.schema([pa.field(c.name, c.type) for c in TRAJECTORY_COLUMNS])
REQUIRED = tuple(c.name for c in RUN_COLUMNS if c.required)

# Runs that differ in one of these were not trained the same way, so their losses share no curve.
GROUP_COLUMNS = ("optimizer", "batch_tokens", "weight_decay", "beta1", "schedule")


class RunSpec(BaseModel):
    """What was trained: everything of a runs row that is chosen before training.

    `run_id` hashes exactly this, so two machines that train the same thing name it the same.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    params: float = Field(gt=0)
    tokens: float = Field(gt=0)
    lr: float = Field(gt=0)
    params_nonembedding: float | None = None
    optimizer: str | None = None
    weight_decay: float | None = None
    beta1: float | None = None
    batch_tokens: float | None = None
    schedule: str | None = None
    steps: int | None = None
    warmup_steps: int | None = None
    decay_steps: int | None = None
    seed: int | None = None
    trunk: str | None = None

    @property
    def run_id(self) -> str:
        """Twelve hex digits of a hash over the specification."""
        return content_id(self.model_dump())


def content_id(content: Mapping[str, Any]) -> str:
    """Twelve hex digits that name a JSON-like content, independent of key order."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


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


def group_labels(table: pa.Table, columns: Iterable[str] | None = None) -> list[str]:
    """A label a row: rows with one label may be fitted together.

    Default: the columns of `GROUP_COLUMNS` and the decay: `decay_steps` where it is constant, else the
    decay fraction where that is constant (to 1 %), else `decay_steps`. Columns with one value say nothing
    and stay out of the label; an empty label means that all rows belong together.
    """
    if columns is None:
        named = {name: table[name].to_pylist() for name in GROUP_COLUMNS}
        named["decay"] = _decay_key(table)
    else:
        columns = list(columns)
        absent = [name for name in columns if name not in table.column_names]
        if absent:
            raise InputError(
                f"--group: no column {', '.join(absent)[:80]}",
                hint=f"columns are {', '.join(table.column_names[:40])}",
            )
        named = {name: table[name].to_pylist() for name in columns}
    telling = {name: _hashable(values) for name, values in named.items()}
    telling = {name: values for name, values in telling.items() if len(set(values)) > 1}
    if not telling:
        return [""] * table.num_rows
    spelled = {
        key: ", ".join(f"{name}={_short(value)}" for name, value in zip(telling, key, strict=True))
        for key in set(zip(*telling.values(), strict=True))
    }
    return [spelled[key] for key in zip(*telling.values(), strict=True)]


def _hashable(values: list[Any]) -> list[Any]:
    """Lists and records of a foreign column as their text, NaN as one value."""
    return [str(v) if isinstance(v, (list, dict)) or (isinstance(v, float) and v != v) else v for v in values]


def _decay_key(table: pa.Table) -> list[Any]:
    decay = table["decay_steps"].to_pylist()
    steps = table["steps"].to_pylist()
    known = {d for d in decay if d is not None}
    if len(known) <= 1 or any(d is None or not s for d, s in zip(decay, steps, strict=True)):
        return decay
    fractions = [round(d / s, 2) for d, s in zip(decay, steps, strict=True)]
    return fractions if len(set(fractions)) < len(known) else decay


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
