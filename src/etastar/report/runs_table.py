"""Which columns of the runs does a page carry? Those that vary or are always wanted; the rest is said once.

Names are cut to what a page can hold, and of a very large study the first rows come along; both are said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from etastar.records import RUN_COLUMNS, group_labels
from etastar.report.tables import Column, Kind, Table, plain
from etastar.report.words import short_name

MOST_ROWS = 10_000
MOST_COLUMNS = 24
_ALWAYS = ("run", "params", "tokens", "lr", "loss", "mean_eff_lr", "seed", "status")
_KIND: dict[str, Kind] = {
    "params": "scale", "tokens": "scale", "lr": "lr", "loss": "loss", "mean_eff_lr": "lr", "plateau_eff_lr": "lr",
    "params_nonembedding": "scale", "batch_tokens": "scale", "steps": "int", "warmup_steps": "int",
    "decay_steps": "int", "seed": "int", "diverged_step": "int", "spikes": "int", "stack": "int", "micro_batch": "int",
    "ranks": "int", "threads": "int",
}  # fmt: skip
_LABEL: dict[str, str] = {
    "params": "N", "tokens": "D", "lr": "η", "mean_eff_lr": "mean η_eff", "plateau_eff_lr": "plateau η_eff",
    "params_nonembedding": "N without embedding", "weight_decay": "λ", "beta1": "β₁", "batch_tokens": "batch",
}  # fmt: skip
_MEANING = {c.name: f"{c.meaning}{f' ({c.unit})' if c.unit else ''}" for c in RUN_COLUMNS}


@dataclass(frozen=True)
class RunsTable:
    """The rows, and what all of them share."""

    table: Table
    shared: tuple[tuple[str, str], ...]  # (column, value) that no row differs in
    total: int
    columns_left_out: tuple[str, ...] = ()


def runs_table(runs: pa.Table, group_columns: tuple[str, ...] | None = None) -> RunsTable:
    """The runs of a study as a page shows them; a study of several groups names each row's."""
    columns = {name: runs[name].to_pylist() for name in runs.column_names}
    labels = group_labels(runs, list(group_columns) if group_columns else None)
    if len(set(labels)) > 1:
        columns = {"group": labels} | {k: v for k, v in columns.items() if k != "group"}
    names: list[str] = []
    shared: list[tuple[str, str]] = []
    for name, values in columns.items():
        known = {str(v) for v in values if v is not None}
        if name in _ALWAYS or len(known) > 1:
            if known or name in ("params", "tokens", "lr", "loss"):
                names.append(name)
        elif len(known) == 1 and None not in values:
            shared.append((_LABEL.get(name, name.replace("_", " ")), short_name(next(iter(known)), 80)))
    names.sort(key=_place)
    left_out, names = names[MOST_COLUMNS:], names[:MOST_COLUMNS]
    kinds: dict[str, Kind] = {name: _kind(name, columns[name]) for name in names}
    kept = [columns[name][:MOST_ROWS] for name in names]
    rows = tuple(
        tuple(_cell(v, kinds[name]) for v, name in zip(row, names, strict=True)) for row in zip(*kept, strict=True)
    )
    heads = tuple(
        Column(name, _LABEL.get(name, name.replace("_", " ")), kinds[name], _MEANING.get(name, "")) for name in names
    )
    return RunsTable(
        Table("Every run of the study", heads, rows, max(0, runs.num_rows - MOST_ROWS)),
        tuple(shared[:MOST_COLUMNS]),
        runs.num_rows,
        tuple(left_out),
    )


def _place(name: str) -> int:
    """The wanted columns first, then the contract's, then what the file had besides."""
    if name in _ALWAYS:
        return _ALWAYS.index(name)
    return len(_ALWAYS) + (0 if name in _MEANING else 1)


def _kind(name: str, values: list[Any]) -> Kind:
    number = all(v is None or (isinstance(v, (int, float)) and not isinstance(v, bool)) for v in values)
    return _KIND.get(name, "number") if number else "text"


def _cell(value: Any, kind: Kind) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return short_name(str(value)) if kind == "text" and value is not None else plain(value)
