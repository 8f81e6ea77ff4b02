"""How do raw runs become the runs and trajectories tables? One row a run, with what was understood and refused.

Every column says where it came from. `--map` overrides it, by the name of a setting or a metric or by an
expression over them. A run that lacks what the contract needs is refused by name; the others go on.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import pyarrow as pa

from etastar.errors import InputError
from etastar.importers.columns import as_numbers
from etastar.importers.expressions import compute, keep, listed
from etastar.importers.meaning import Meaning, meaning_of, possible
from etastar.importers.names import LR_METRICS, NUMBERS
from etastar.importers.outcome import EffLr, LossChoice, choose_loss, eff_lr_of, status_of
from etastar.importers.raw import Gathered, RawRun, cleaned
from etastar.importers.tables import Imported
from etastar.importers.traces import trajectories_table
from etastar.records import REQUIRED, RUN_COLUMNS, RUN_SCHEMA, RunStatus, conform_runs

_CONTRACT = {column.name for column in RUN_COLUMNS}
_MOST_COLUMNS = 500  # beside the contract's; a tracker may hold thousands of metrics
_KEPT = 30  # settings that differ between runs and stay in the table, for --where


@dataclass(frozen=True)
class _Read:
    """A run with all that was found out about it."""

    raw: RawRun
    name: str
    meaning: Meaning
    eff_lr: EffLr


def interpret(gathered: Gathered, mapping: dict[str, str], where: str | None = None) -> Imported:
    """Raw runs → tables, notes, problems and refusals."""
    if not gathered.runs:
        raise InputError(
            f"{gathered.kind}: no run could be read" + "".join(f"; {said}" for said in gathered.problems[:3]),
            hint="is the source whole, and does it hold finished runs?",
        )
    gathered = replace(gathered, runs=tuple(cleaned(run) for run in gathered.runs))
    choice = choose_loss(gathered.runs, _mapped_metric(gathered.runs, mapping))
    read = [_read(raw, name) for raw, name in zip(gathered.runs, _unique(gathered.runs), strict=True)]
    frame = _frame(read, choice)
    notes = [*gathered.notes, *_notes(read, choice)]
    frame, mapped = _override(frame, read, mapping, notes)
    frame, refused = _refuse(_status(frame, read, notes), gathered, choice, mapping)
    if where is not None:
        frame, dropped = keep(frame, where)
        notes.append(f"--where kept {frame.height} runs and dropped {dropped}")
        if frame.height == 0:
            raise InputError(f"--where {where[:80]!r} keeps no run", hint=f"columns are {listed(frame.columns)}")
    conformed = conform_runs(_lean(frame, read).to_arrow())
    kept = set(conformed.table["run"].to_pylist())
    units = tuple(dict.fromkeys(guess for one in read for guess in one.meaning.guesses))
    return Imported(
        conformed.table,
        mapped,
        (*units, *notes, *conformed.notes),
        units,
        kind=gathered.kind,
        refused=tuple(refused),
        problems=(*gathered.problems, *(said for one in read for said in one.raw.problems)),
        trajectories=trajectories_table([(r.name, r.raw, r.eff_lr) for r in read if r.name in kept], choice),
    )


def _mapped_metric(runs: tuple[RawRun, ...], mapping: dict[str, str]) -> str | None:
    asked = mapping.get("loss", "").removeprefix("metric.")
    return asked if any(asked in run.metrics for run in runs) else None


def _unique(runs: tuple[RawRun, ...]) -> list[str]:
    """Names; where two runs share one, their ids tell them apart."""
    counts = Counter(run.name for run in runs)
    return [run.name if counts[run.name] == 1 else f"{run.name} ({run.id})" for run in runs]


def _read(raw: RawRun, name: str) -> _Read:
    rate = next((series for key, series in raw.metrics.items() if key.lower() in LR_METRICS), None)
    meaning = meaning_of(raw)
    eff_lr = eff_lr_of(raw, rate)
    for column, value, origin in (
        ("mean_eff_lr", eff_lr.mean, eff_lr.origin),
        ("plateau_eff_lr", eff_lr.plateau, "etastar/plateau_eff_lr"),
    ):
        if value is not None and possible(column, value):
            meaning.set(column, value, origin)
    return _Read(raw, name, meaning, eff_lr)


def _frame(read: list[_Read], choice: LossChoice) -> pl.DataFrame:
    """The contract's columns, then settings and last values of metrics under their own names."""
    rows: list[dict[str, Any]] = []
    for one in read:
        loss = one.raw.metrics.get(choice.metric or "")
        row = dict(one.meaning.values)
        row |= {"run": one.name, "loss": None if loss is None else loss.last, "status": None}
        row |= {"source": one.raw.source, "source_run": one.raw.id, "loss_metric": choice.metric}
        row["eff_lr_approximate"] = one.eff_lr.approximate if one.eff_lr.mean is not None else None
        others = {k: v for k, v in one.raw.config.items() if not isinstance(v, list)}
        for name, value in others.items():
            row.setdefault(f"config.{name}" if name in _CONTRACT else name, value)
        for name, series in one.raw.metrics.items():
            taken = name in _CONTRACT or name in others
            row.setdefault(f"metric.{name}" if taken else name, series.last)
        rows.append(row)
    names = list(dict.fromkeys(name for row in rows for name in row))
    extra = [name for name in names if name not in _CONTRACT][:_MOST_COLUMNS]
    return pl.DataFrame([_series(name, [row.get(name) for row in rows]) for name in (*RUN_SCHEMA.names, *extra)])


def _series(name: str, values: list[Any]) -> pl.Series:
    """Numbers where all are, truth values where all are, else text."""
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, bool) for value in known):
        return pl.Series(name, values, pl.Boolean)
    if known and all(isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62 for value in known):
        return pl.Series(name, values, pl.Int64)
    if known and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in known):
        return pl.Series(name, [None if value is None else float(value) for value in values], pl.Float64)
    if not known and name in RUN_SCHEMA.names and not pa.types.is_string(RUN_SCHEMA.field(name).type):
        return pl.Series(name, values, pl.Float64)
    return pl.Series(name, [None if value is None else str(value)[:500] for value in values], pl.String)


def _override(
    frame: pl.DataFrame, read: list[_Read], mapping: dict[str, str], notes: list[str]
) -> tuple[pl.DataFrame, dict[str, str]]:
    """`--map`, and what follows from it; and for each column where it came from."""
    origins: dict[str, Counter[str]] = {}
    for one in read:
        for column, origin in one.meaning.origin.items():
            origins.setdefault(column, Counter())[origin] += 1
    mapped = {column: " | ".join(origin for origin, _ in count.most_common(4)) for column, count in origins.items()}
    for name, text in mapping.items():
        if name == "step":
            continue
        if name == "mean_eff_lr" and (means := _means(text, read)) is not None:
            frame = frame.with_columns(pl.Series(name, means, pl.Float64))
            notes.append(f"mean_eff_lr: the mean of {text} over its logged steps")
        elif text in frame.columns:
            frame = frame.with_columns(pl.col(text).alias(name))
        elif name != "loss" or _never_logged(text, read):
            frame = compute(frame, name, text)
        mapped[name] = text
    frame = as_numbers(frame, notes)
    derived = pl.Series([one.meaning.origin.get("tokens") == "steps × batch_tokens" for one in read])
    if "tokens" not in mapping and all(frame[name].dtype.is_numeric() for name in ("steps", "batch_tokens")):
        product = pl.col("steps").cast(pl.Float64) * pl.col("batch_tokens")
        missing = frame["tokens"].is_null() | derived
        frame = frame.with_columns(pl.when(missing).then(product).otherwise("tokens").alias("tokens"))
        if missing.any():
            mapped.setdefault("tokens", "steps × batch_tokens")
    return frame, {name: mapped[name] for name in RUN_SCHEMA.names if name in mapped}


def _means(metric: str, read: list[_Read]) -> list[float | None] | None:
    """The mean of a metric over each run's logged steps; None where it is no metric, or a running mean already."""
    metric = metric.removeprefix("metric.")
    if "mean" in metric or _never_logged(metric, read):
        return None
    series = [one.raw.metrics.get(metric) for one in read]
    kept = [[v for v in one.values if math.isfinite(v) and v > 0] if one else [] for one in series]
    return [sum(values) / len(values) if values else None for values in kept]


def _never_logged(text: str, read: list[_Read]) -> bool:
    return not any(text.removeprefix("metric.") in one.raw.metrics for one in read)


def _status(frame: pl.DataFrame, read: list[_Read], notes: list[str]) -> pl.DataFrame:
    """How each run ended, unless a column was mapped for it."""
    if frame["status"].null_count() < frame.height:
        return frame
    words, reasons = [], Counter()
    for one, loss, steps in zip(read, frame["loss"].to_list(), frame["steps"].to_list(), strict=True):
        loss = loss if isinstance(loss, (int, float)) else None
        planned = None if one.meaning.origin.get("steps") == "last logged step" else steps
        status, why = status_of(one.raw, loss, planned if isinstance(planned, (int, float)) else None)
        words.append(status.value)
        if status is RunStatus.CRASHED:
            reasons[why if why.startswith("its") else "it stopped before its last step"] += 1
    notes += [f"{count} runs count as crashed: {why}" for why, count in reasons.items()]
    return frame.with_columns(pl.Series("status", words))


def _refuse(
    frame: pl.DataFrame, gathered: Gathered, choice: LossChoice, mapping: dict[str, str]
) -> tuple[pl.DataFrame, list[tuple[str, str]]]:
    """Runs that lack what the contract needs go, by name."""
    refused: list[tuple[str, str]] = []
    for row in frame.select(*REQUIRED, "run", "status").to_dicts():
        absent = [name for name in REQUIRED if row[name] is None and name != "loss"]
        if row["loss"] is None and row["status"] == RunStatus.FINISHED.value:
            absent.append("loss")
        if absent:
            reasons = [_why(name, choice) for name in absent]
            refused.append((row["run"], "; ".join(reasons)))
    names = {name for name, _ in refused}
    if len(names) < frame.height:
        return frame.filter(~pl.col("run").is_in(list(names))), refused
    settings = list(dict.fromkeys(name for run in gathered.runs for name in run.config))
    metrics = list(dict.fromkeys(name for run in gathered.runs for name in run.metrics))
    missing = Counter(name for _, why in refused for name in REQUIRED if f"no {name}" in why).most_common()
    said = ", ".join(f"no {name} in {count}" for name, count in missing)
    first = missing[0][0] if missing else "loss"
    example = {"tokens": "tokens=steps*524288", "params": "params=124M", "loss": "loss=METRIC"}.get(first, "lr=NAME")
    if not settings:
        example = "\"lr=split_part(run,'lr',2)\" (no settings were logged; a run's name may hold them)"
    seen = f"settings are {listed(settings) or 'none'}; metrics are {listed(metrics) or 'none'}"
    raise InputError(
        f"{gathered.kind}: none of {frame.height} runs can be used ({said})",
        hint=f"name what is missing, e.g. --map {example}; {seen}",
    )


def _why(name: str, choice: LossChoice) -> str:
    if name == "loss":
        return f"no loss: {choice.metric!r} was not logged" if choice.metric else "no loss: no metric looks like one"
    known = ", ".join(NUMBERS[name][:4])
    return f"no {name}: no setting like {known}"


def _notes(read: list[_Read], choice: LossChoice) -> list[str]:
    notes = []
    if choice.metric is not None:
        said = f"loss: the last {choice.metric}"
        said += f"; also logged: {listed(list(choice.others))} (--map loss=NAME)" if choice.others else ""
        notes.append(said)
        if not choice.validation:
            notes.append(
                "no validation loss was logged: the training loss stands in, which is noisier and not after it"
            )
    for one in read:
        again = sum(series.rewritten for series in one.raw.metrics.values())
        if again:
            notes.append(
                f"{one.name}: {again} values of earlier writes were overtaken by a restart: the later write wins"
            )
        notes += [f"{one.name}: {said}" for said in one.raw.notes]
    guessed = Counter(one.eff_lr.origin.partition(" over ")[0] for one in read if one.eff_lr.approximate)
    notes += [f"mean_eff_lr of {count} runs is {origin}" for origin, count in guessed.items()]
    return notes


def _lean(frame: pl.DataFrame, read: list[_Read]) -> pl.DataFrame:
    """The contract, where it came from, and the settings that tell runs apart and are not in the contract yet."""
    own = [*RUN_SCHEMA.names, "source", "source_run", "loss_metric", "eff_lr_approximate"]
    used = {name for one in read for name in one.meaning.origin.values()}
    settings = {name for one in read for name in one.raw.config}
    others = [
        name
        for name in frame.columns
        if name not in own and name in settings and name not in used and not name.endswith("output_dir")
    ]
    return frame.select(*own, *[name for name in others if frame[name].n_unique() > 1][:_KEPT])
