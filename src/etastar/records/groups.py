"""Which runs were trained alike, so that they may be fitted together?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from etastar.errors import InputError

# Runs that differ in one of these were not trained the same way, so their losses share no curve.
GROUP_COLUMNS = ("optimizer", "batch_tokens", "weight_decay", "beta1", "schedule")


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
