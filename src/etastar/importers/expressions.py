"""Which rows does the user mean? `--where` and `--fit-where` as polars SQL expressions, safely.

An expression sees the columns of one table and nothing else: no statements, no files, no other tables.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator

import polars as pl
import pyarrow as pa

from etastar.errors import InputError
from etastar.records import conform_runs
from etastar.scale import parse_number

LONGEST = 2000  # characters; the parser recurses, and a hundred conditions fit in this
DEEPEST = 100  # open brackets and prefix operators
_SHOWN = 30


def keep(frame: pl.DataFrame, expression: str) -> tuple[pl.DataFrame, int]:
    """Rows for which a polars SQL expression holds, and how many were dropped."""
    _refuse_monsters(expression)
    try:
        with _quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of polars, about SQL that it still takes
            kept = frame.filter(pl.sql_expr(expression))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, TypeError, ValueError) as error:
        # a panic of polars is a BaseException, and here it is only one more way to say "no"
        said = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise InputError(
            f"cannot use the expression {expression[:80]!r}: {said}",
            hint=f"write e.g. tokens <= 12e9 AND optimizer = 'adamw'; columns are {listed(frame.columns)}",
        ) from None
    return kept, frame.height - kept.height


def compute(frame: pl.DataFrame, name: str, expression: str) -> pl.DataFrame:
    """The frame with a column worked out: a number ("124M"), or an expression over the other columns."""
    try:
        return frame.with_columns(pl.lit(parse_number(expression)).alias(name))
    except InputError:
        _refuse_monsters(expression)
    try:
        with _quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return frame.with_columns(pl.sql_expr(expression).alias(name))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, TypeError, ValueError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise InputError(
            f"--map: {name}={expression[:60]!r} is no column, and no expression over columns: {said}",
            hint=f'e.g. {name}=steps*524288, or {name}="odd/name"*2 for a column with signs in its name; '
            f"columns are {listed(frame.columns)}",
        ) from None


def keep_runs(table: pa.Table, expression: str) -> pa.Table:
    """The same on a conformed runs table."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    kept, _ = keep(frame, expression)
    if kept.height == 0:
        raise InputError(f"the expression {expression[:80]!r} keeps no row", hint="loosen it, or look at the values")
    return conform_runs(kept.to_arrow()).table


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """A panic of polars writes its backtrace straight to the process's stderr, past Python: not now."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def listed(columns: list[str]) -> str:
    """Column names for a hint, the first thirty of them."""
    more = f" and {len(columns) - _SHOWN} more" if len(columns) > _SHOWN else ""
    return ", ".join(name[:60] for name in columns[:_SHOWN]) + more


def _refuse_monsters(expression: str) -> None:
    """polars descends an expression without a limit of its own and overflows the stack on a deep one."""
    if not expression.strip():
        raise InputError("the expression is empty", hint="write e.g. tokens <= 12e9 AND optimizer = 'adamw'")
    if "\x00" in expression:
        raise InputError("the expression holds a NUL character", hint="write e.g. tokens <= 12e9")
    deep = max(expression.count("("), expression.count("["), expression.count("-"), expression.upper().count("NOT"))
    if len(expression) > LONGEST or deep > DEEPEST:
        raise InputError(
            f"the expression {expression[:40]!r}… is {len(expression)} characters long and {deep} deep",
            hint=f"at most {LONGEST} characters and {DEEPEST} brackets; a list of values is written lr IN (1, 2, 3)",
        )
