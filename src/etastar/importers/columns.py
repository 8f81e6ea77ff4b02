"""What does somebody's column mean? Names, units and conventions of foreign tables → the contract's columns.

Usual names are recognised (`N`, `n_params`, `learning_rate`, `config.lr`, `eval/loss`, …), and what can be
worked out from other columns is (tokens = steps × batch_tokens). Every choice is said aloud in a note;
`--map` overrides it. What is not recognised keeps its name, for `--where`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pyarrow as pa

from etastar.errors import InputError
from etastar.importers.expressions import compute, listed
from etastar.importers.hparams import read_yaml
from etastar.importers.units import guess_units, in_units, split_unit
from etastar.records import REQUIRED, RUN_COLUMNS, RunStatus
from etastar.scale import format_number, parse_number

ALIASES: dict[str, tuple[str, ...]] = {
    "params": (
        "n", "n_params", "num_params", "params_total", "total_params", "parameters", "num_parameters",
        "n_parameters", "model_params", "model_size", "size", "n_active", "active_params",
    ),
    "tokens": (
        "d", "n_tokens", "num_tokens", "tokens_total", "train_tokens", "training_tokens", "total_tokens",
        "tokens_seen", "num_train_tokens",
    ),
    "lr": ("learning_rate", "peak_lr", "max_lr", "base_lr", "eta", "optimizer.learning_rate", "optimizer.lr"),
    "loss": (
        "val_loss", "eval/loss", "eval_loss", "final_loss", "validation_loss", "val/loss", "final_val_loss",
        "validation/loss", "valid_loss", "test_loss",
    ),
    "mean_eff_lr": ("eff_lr", "eff_lr_mean", "effective_lr", "mean_effective_lr"),
    "plateau_eff_lr": ("eff_lr_plateau",),
    "params_nonembedding": (
        "n_nonembedding", "non_embedding_params", "nonembedding_params", "params_non_embedding", "nonemb_params",
    ),
    "optimizer": ("optim", "optimizer_name", "optimiser"),
    "weight_decay": ("wd", "lambda"),
    "beta1": ("adam_beta1", "b1"),
    "batch_tokens": ("tokens_per_batch", "tokens_per_step", "batch_size_tokens", "global_batch_tokens"),
    "schedule": ("sched", "lr_schedule", "scheduler", "lr_scheduler"),
    "steps": ("n_steps", "num_steps", "total_steps", "train_steps", "max_steps", "num_train_steps"),
    "warmup_steps": ("warmup", "n_warmup", "num_warmup_steps"),
    "decay_steps": ("n_decay", "cooldown_steps"),
    "run": ("run_id", "run_name", "name", "id"),
    "status": ("state",),
}  # fmt: skip
DECAY_FRACTIONS = ("decay_fraction", "decay_ratio", "decay_frac", "cooldown_fraction", "cooldown_frac", "cooldown")
# How trackers say that a run did not finish; its loss is not that of a finished run
STATES = dict.fromkeys(("failed", "killed", "preempted", "running", "pending", "preempting"), RunStatus.CRASHED) | {
    "completed": RunStatus.FINISHED,
    "success": RunStatus.FINISHED,
}
_PREFIX = re.compile(r"^(config|summary|hparams|params)[./]")
_NUMBERS = tuple(c.name for c in RUN_COLUMNS if not pa.types.is_string(c.type))


@dataclass
class Understood:
    """A frame under the contract's names, which column became which, units guessed, and what to tell the user."""

    frame: pl.DataFrame
    mapped: dict[str, str]
    notes: list[str] = field(default_factory=list)
    units: list[str] = field(default_factory=list)


def understand(frame: pl.DataFrame, mapping: dict[str, str], *, foreign: bool = True) -> Understood:
    """Names, numbers, units, and what follows from other columns. Units of our own studies are not doubted."""
    notes: list[str] = [
        f"two columns are called {c.removesuffix('_duplicated_0')!r}: the first is used"
        for c in frame.columns
        if c.endswith("_duplicated_0")
    ]
    original, given = frame, frame.columns
    formulas = {name: text for name, text in mapping.items() if text not in given}
    columns = {name: column for name, column in mapping.items() if name not in formulas}
    frame, mapped = _rename(frame, columns, set(formulas), notes)
    found = Understood(as_numbers(frame, notes), mapped, notes)
    _named_units(found)
    for name, text in formulas.items():
        # under the contract's names, and under the file's own where those are still free
        kept = [original[c] for c in given if c not in found.frame.columns]
        found.frame = compute(found.frame.with_columns(kept), name, text).drop([c.name for c in kept if c.name != name])
        found.mapped[name] = text
    for step in (_tokens, _decay, _status):
        found.frame = step(found.frame, notes)
    if foreign:
        found.frame = guess_units(found.frame, found.units)
    absent = [name for name in REQUIRED if name not in found.frame.columns]
    if absent:
        raise InputError(f"no column for {', '.join(absent)} among {listed(given)}", hint=_how_to_name(absent, given))
    return found


def parse_mapping(text: str | None) -> dict[str, str]:
    """ "params=N,tokens=D" → {"params": "N", "tokens": "D"}, checked against the contract's names."""
    if not text:
        return {}
    if text.startswith("@"):
        return parse_mapping(_mapping_file(Path(text[1:])))
    mapping: dict[str, str] = {}
    known = {c.name for c in RUN_COLUMNS} | {"step"}
    for item in _items(text):
        name, equals, column = (part.strip() for part in item.partition("="))
        if not equals or not column:
            raise InputError(
                f"--map: {item[:60]!r} is not NAME=COLUMN", hint="write --map params=N,tokens=D,lr=LR,loss=LOSS"
            )
        if name not in known:
            raise InputError(
                f"--map: {name[:60]!r} is not a column of the contract", hint=f"names are {', '.join(sorted(known))}"
            )
        if name in mapping:
            raise InputError(f"--map: {name} is named twice", hint="give each name one column")
        mapping[name] = column
    return mapping


def _mapping_file(path: Path) -> str:
    """A YAML file of `NAME: COLUMN or expression`, as one would type it."""
    try:
        content = read_yaml(path)
    except ValueError as error:
        raise InputError(f"--map @{path}: {error}", hint="write lines like  params: N") from None
    if not isinstance(content, dict) or not content:
        raise InputError(f"--map @{path}: no file with lines of NAME: COLUMN", hint="write lines like  params: N")
    return ",".join(f"{name}={value}" for name, value in content.items() if value is not None)


def _items(text: str) -> list[str]:
    """Split at commas that stand outside brackets and quotes."""
    items, depth, quote, start = [], 0, "", 0
    for place, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif sign in "()":
            depth += 1 if sign == "(" else -1
        elif sign == "," and depth <= 0:
            items.append(text[start:place])
            start = place + 1
    return [*items, text[start:]]


def _plain(column: str) -> str:
    """ "config/Learning Rate" → "learning_rate": how a name is compared with the aliases."""
    return re.sub(r"[\s-]+", "_", _PREFIX.sub("", column.strip().lower()))


def _rename(
    frame: pl.DataFrame, mapping: dict[str, str], worked_out: set[str], notes: list[str]
) -> tuple[pl.DataFrame, dict[str, str]]:
    plain = {_plain(column): column for column in reversed(frame.columns)}
    based = {unit[0]: column for name, column in plain.items() if (unit := split_unit(name)) is not None}
    mapped = {name: column for name, column in mapping.items() if name != "step"}
    for name, aliases in ALIASES.items():
        if name in mapped or name in frame.columns:
            mapped.setdefault(name, name)
            continue
        if name in worked_out:
            continue
        found = next((plain[alias] for alias in (name, *aliases) if alias in plain), None)
        if found is None and name in ("params", "tokens", "lr", "batch_tokens", "params_nonembedding"):
            found = next((based[alias] for alias in (name, *aliases) if alias in based), None)
        if found is not None and found not in mapped.values():
            mapped[name] = found
            notes.append(f"column {found!r} read as {name}")
    # `group` of a foreign file means something else unless it was mapped on purpose
    if "group" in frame.columns and "group" not in mapping:
        if frame["group"].null_count() < frame.height:
            frame = frame.with_columns(pl.col("group").alias("file_group"))
            notes.append("the file's column 'group' was kept as file_group; use --map group=group to group by it")
        frame = frame.drop("group")
    # a mapped name replaces the file's own column of that name, which stays under another
    taken = [name for name, column in mapped.items() if column != name and name in frame.columns]
    renamed = {name: frame[column] for name, column in mapped.items() if column != name and column in frame.columns}
    frame = frame.with_columns([pl.col(name).alias(f"file_{name}") for name in taken])
    frame = frame.with_columns([series.alias(name) for name, series in renamed.items()])
    drop = {column for name, column in mapped.items() if name != column and column not in mapped}
    return frame.drop([c for c in drop if c in frame.columns]), mapped


def as_numbers(frame: pl.DataFrame, notes: list[str]) -> pl.DataFrame:
    """Numbers written as text: "nan", " 2", "707M", "2^-9". A column with other text stays as it is."""
    for name in _NUMBERS:
        if name not in frame.columns or frame[name].dtype != pl.String:
            continue
        text = frame[name].str.strip_chars()
        number = text.cast(pl.Float64, strict=False)
        odd = text.filter(number.is_null() & text.is_not_null()).unique(maintain_order=True).to_list()
        try:
            read = {value: parse_number(value, what=name) for value in odd}
        except InputError:
            continue  # the door names the value, after --where had its chance to drop it
        if read:
            number = number.fill_null(text.replace_strict(read, default=None, return_dtype=pl.Float64))
            first = next(iter(read))
            notes.append(f"column {name}: {first!r} read as {format_number(read[first])}")
        frame = frame.with_columns(number.alias(name))
    return frame


def _named_units(found: Understood) -> None:
    """Units that columns carry in their names."""
    for name in ("params", "tokens", "lr", "batch_tokens", "params_nonembedding"):
        column = found.mapped.get(name, name)
        unit = split_unit(_plain(column)) if column != name else None
        if unit is not None and unit[0] in (name, *ALIASES[name]) and _numeric(found.frame, name):
            found.frame = in_units(found.frame, name, unit[1])
            found.units.append(f"{name}: {column!r} read as {_SPOKEN.get(unit[1], unit[1])}")


_SPOKEN = {"k": "thousands", "m": "millions", "b": "billions", "bn": "billions", "g": "billions", "t": "trillions"}


def _tokens(frame: pl.DataFrame, notes: list[str]) -> pl.DataFrame:
    if "tokens" in frame.columns or not _numeric(frame, "steps", "batch_tokens"):
        return frame
    notes.append("no column tokens: steps × batch_tokens")
    return frame.with_columns((pl.col("steps").cast(pl.Float64) * pl.col("batch_tokens")).alias("tokens"))


def _decay(frame: pl.DataFrame, notes: list[str]) -> pl.DataFrame:
    """A decay given as a share of the run: runs of different shares may not be mixed."""
    if "decay_steps" in frame.columns or not _numeric(frame, "steps"):
        return frame
    found = next((c for c in frame.columns if _plain(c) in DECAY_FRACTIONS and _numeric(frame, c)), None)
    if found is None or not frame[found].drop_nulls().is_between(0, 1).all():
        return frame
    notes.append(f"no column decay_steps: {found} × steps")
    return frame.with_columns((pl.col(found) * pl.col("steps")).round().alias("decay_steps"))


def _status(frame: pl.DataFrame, notes: list[str]) -> pl.DataFrame:
    """Trackers' words for a status, and a yes-or-no column `diverged`."""
    if "status" in frame.columns and frame["status"].dtype == pl.String:
        known = frame["status"].str.strip_chars().str.to_lowercase()
        unfinished = known.is_in([word for word, status in STATES.items() if status is RunStatus.CRASHED]).sum()
        if unfinished:
            notes.append(f"{unfinished} runs did not finish (failed, killed, running, …): counted as crashed")
        frame = frame.with_columns(known.replace(STATES).alias("status"))
    elif "status" not in frame.columns and "diverged" in frame.columns and frame["diverged"].dtype == pl.Boolean:
        count = frame["diverged"].sum()
        notes.append(f"column 'diverged': {count} rows kept as diverged, not fitted")
        word = pl.when(pl.col("diverged")).then(pl.lit(RunStatus.DIVERGED.value))
        frame = frame.with_columns(word.otherwise(pl.lit(None, pl.String)).alias("status"))
    return frame


def _numeric(frame: pl.DataFrame, *names: str) -> bool:
    return all(name in frame.columns and frame[name].dtype.is_numeric() for name in names)


def _how_to_name(absent: list[str], given: list[str]) -> str:
    if len(given) == 1 and (found := re.search(r"[;\t|]", given[0])):
        return f"the columns seem to be separated by {found[0]!r}: save the file with commas, or as .tsv with tabs"
    asked = ",".join(f"{name}={name.upper()}" for name in absent)
    meaning = "; ".join(f"{c.name} is {c.meaning}" for c in RUN_COLUMNS if c.name in absent)
    also = "; where no column holds tokens, steps and batch_tokens will do" if "tokens" in absent else ""
    return f"name your columns with --map, e.g. --map {asked} ({meaning}{also})"
