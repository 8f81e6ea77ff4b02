"""How does a file of somebody's runs become the runs table? CSV, Parquet and JSONL, with column mapping.

Usual names are recognised (`N`, `n_params`, `learning_rate`, `eval/loss`, …) and the choice is reported;
`--map params=N,…` overrides it. Everything that is not recognised is kept under its own name, for `--where`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from etastar.errors import InputError
from etastar.records import REQUIRED, RUN_COLUMNS, conform_runs

ALIASES: dict[str, tuple[str, ...]] = {
    "params": ("n", "n_params", "num_params", "params_total", "parameters", "model_params", "model_size"),
    "tokens": ("d", "n_tokens", "num_tokens", "tokens_total", "train_tokens", "total_tokens", "tokens_seen"),
    "lr": ("learning_rate", "peak_lr", "max_lr", "eta"),
    "loss": ("val_loss", "eval/loss", "eval_loss", "final_loss", "validation_loss", "val/loss", "final_val_loss"),
    "mean_eff_lr": ("eff_lr", "eff_lr_mean", "effective_lr", "mean_effective_lr"),
    "plateau_eff_lr": ("eff_lr_plateau",),
    "params_nonembedding": ("n_nonembedding", "non_embedding_params", "params_non_embedding", "nonemb_params"),
    "weight_decay": ("wd", "lambda"),
    "beta1": ("adam_beta1", "b1"),
    "batch_tokens": ("tokens_per_batch", "tokens_per_step", "batch_size_tokens"),
    "schedule": ("sched", "lr_schedule", "scheduler"),
    "steps": ("n_steps", "num_steps", "total_steps", "train_steps", "max_steps"),
    "warmup_steps": ("warmup", "n_warmup"),
    "decay_steps": ("n_decay", "cooldown_steps"),
    "run": ("run_id", "run_name", "name", "id"),
    "status": (),
}
_TEXT = tuple(c.name for c in RUN_COLUMNS if pa.types.is_string(c.type))


@dataclass(frozen=True)
class Imported:
    """A runs table, and what was understood on the way in."""

    table: pa.Table
    mapped: dict[str, str]  # contract name → the file's column
    notes: tuple[str, ...]


def read_runs(path: str | Path, *, mapping: dict[str, str] | None = None, where: str | None = None) -> Imported:
    """Read a runs file (or a study folder of Parquet parts) into the contract."""
    frame = _read(Path(path))
    frame, mapped, notes = _rename(frame, mapping or {})
    if where:
        frame, dropped = keep(frame, where)
        notes.append(f"--where kept {frame.height} rows and dropped {dropped}")
        if frame.height == 0:
            raise InputError(f"--where {where[:80]!r} keeps no row", hint=f"columns are {', '.join(frame.columns)}")
    conformed = conform_runs(_to_arrow(frame))
    return Imported(conformed.table, mapped, (*notes, *conformed.notes))


def keep(frame: pl.DataFrame, expression: str) -> tuple[pl.DataFrame, int]:
    """Rows for which a polars SQL expression holds, and how many were dropped."""
    try:
        predicate = pl.sql_expr(expression)
        kept = frame.filter(predicate)
    except pl.exceptions.PolarsError as error:
        said = str(error).splitlines()[0][:120]
        raise InputError(
            f"cannot use the expression {expression[:80]!r}: {said}",
            hint=f"write e.g. tokens <= 12e9 AND optimizer = 'adamw'; columns are {', '.join(frame.columns)}",
        ) from None
    return kept, frame.height - kept.height


def keep_runs(table: pa.Table, expression: str) -> pa.Table:
    """The same on a conformed runs table."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    kept, _ = keep(frame, expression)
    if kept.height == 0:
        raise InputError(f"the expression {expression[:80]!r} keeps no row", hint="loosen it, or look at the values")
    return conform_runs(kept.to_arrow()).table


def parse_mapping(text: str | None) -> dict[str, str]:
    """ "params=N,tokens=D" → {"params": "N", "tokens": "D"}, checked against the contract's names."""
    if not text:
        return {}
    mapping: dict[str, str] = {}
    known = {c.name for c in RUN_COLUMNS}
    for item in text.split(","):
        name, equals, column = (part.strip() for part in item.partition("="))
        if not equals or not column:
            raise InputError(
                f"--map: {item[:60]!r} is not NAME=COLUMN", hint="write --map params=N,tokens=D,lr=LR,loss=LOSS"
            )
        if name not in known:
            raise InputError(
                f"--map: {name[:60]!r} is not a column of the contract", hint=f"names are {', '.join(sorted(known))}"
            )
        mapping[name] = column
    return mapping


def _read(path: Path) -> pl.DataFrame:
    if path.is_dir():
        return _read_folder(path)
    if not path.exists():
        raise InputError(f"no file {str(path)!r}", hint="give a CSV, Parquet or JSONL file, or a study folder")
    suffix = path.suffix.lower()
    readers = {".csv": _csv, ".tsv": _csv, ".parquet": _parquet, ".pq": _parquet, ".jsonl": _jsonl, ".ndjson": _jsonl}
    if suffix not in readers:
        raise InputError(
            f"{path.name}: {suffix or 'no ending'} is not a known format", hint="use .csv, .parquet or .jsonl"
        )
    if path.stat().st_size == 0:
        raise InputError(f"{path.name}: the file is empty", hint="it needs a header and at least one row")
    try:
        frame = readers[suffix](path)
    except (pl.exceptions.PolarsError, pa.ArrowException, OSError, UnicodeDecodeError) as error:
        said = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
        raise InputError(f"{path.name}: cannot be read as {suffix[1:]}: {said}", hint="is the file whole?") from None
    if frame.height == 0:
        raise InputError(f"{path.name}: the file has no rows", hint="it needs at least one row")
    return frame


def _csv(path: Path) -> pl.DataFrame:
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    return pl.read_csv(path, separator=separator, infer_schema_length=None, null_values=["", "null", "None", "NA"])


def _parquet(path: Path) -> pl.DataFrame:
    frame = pl.from_arrow(pq.read_table(path))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _jsonl(path: Path) -> pl.DataFrame:
    return pl.read_ndjson(path, infer_schema_length=None)


def _read_folder(path: Path) -> pl.DataFrame:
    parts = sorted([*path.glob("runs*.parquet"), *path.glob("runs/*.parquet")])
    if not parts:
        raise InputError(f"{path}: no runs.parquet and no runs/*.parquet in the folder", hint="is it a study folder?")
    return pl.concat([_read(part) for part in parts], how="diagonal_relaxed")


def _rename(frame: pl.DataFrame, mapping: dict[str, str]) -> tuple[pl.DataFrame, dict[str, str], list[str]]:
    missing = [column for column in mapping.values() if column not in frame.columns]
    if missing:
        raise InputError(f"--map: no column {missing[0][:60]!r}", hint=f"columns are {', '.join(frame.columns)}")
    lowered = {column.lower().strip(): column for column in reversed(frame.columns)}
    mapped, notes = dict(mapping), []
    for name, aliases in ALIASES.items():
        if name in mapped or name in frame.columns:
            mapped.setdefault(name, name)
            continue
        found = next((lowered[alias] for alias in (name, *aliases) if alias in lowered), None)
        if found is not None and found not in mapped.values():
            mapped[name] = found
            notes.append(f"column {found!r} read as {name}")
    # `group` of a foreign file means something else unless it was mapped on purpose
    if "group" in frame.columns and "group" not in mapping:
        frame = frame.rename({"group": "file_group"})
        notes.append("the file's column 'group' was kept as file_group; use --map group=group to group by it")
    # a mapped name replaces the file's own column of that name, which stays under another
    taken = [name for name, column in mapped.items() if column != name and name in frame.columns]
    frame = frame.with_columns([pl.col(name).alias(f"file_{name}") for name in taken])
    renamed = {name: frame[column] for name, column in mapped.items() if column != name}
    frame = frame.with_columns([series.alias(name) for name, series in renamed.items()])
    drop = {column for name, column in mapped.items() if name != column and column not in mapped}
    absent = [name for name in REQUIRED if name not in frame.columns]
    if absent:
        raise InputError(
            f"no column for {', '.join(absent)} among {', '.join(frame.columns[:30])}",
            hint="name them with --map, e.g. --map params=N,tokens=D,lr=LR,loss=LOSS",
        )
    return frame.drop([c for c in drop if c in frame.columns]), mapped, notes


def _to_arrow(frame: pl.DataFrame) -> pa.Table:
    """polars' large strings as plain ones, numbers in text columns as text."""
    casts = [pl.col(name).cast(pl.String) for name in _TEXT if name in frame.columns and frame[name].dtype != pl.String]
    return frame.with_columns(casts).to_arrow()
