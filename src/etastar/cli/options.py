"""Options that several verbs share, and how they become a group of cells."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer
from rich.console import Console
from rich.markup import escape

from etastar.errors import InputError
from etastar.estimate.cells import EffColumn, Group, build_groups
from etastar.estimate.estimates import Options
from etastar.estimate.weights import FitChoice
from etastar.importers.expressions import keep_runs
from etastar.importers.sources import parse_mapping, read_source
from etastar.predict.answer_json import exp2 as exp2
from etastar.records import REQUIRED
from etastar.scale import parse_number
from etastar.shipped import named

Runs = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="Runs: a study folder; a CSV, Parquet or JSONL file; a folder of W&B, TensorBoard, MLflow, Trackio, "
        "Hugging Face Trainer or Lightning logs; wandb:ENTITY/PROJECT; the shipped study mini.",
        show_default=False,
        callback=named,
    ),
]
Map = Annotated[
    str | None,
    typer.Option(
        "--map",
        help="Your columns, or expressions over them, e.g. params=N,tokens=steps*524288; or @mapping.yaml.",
        show_default=False,
    ),
]
Where = Annotated[
    str | None, typer.Option("--where", help="Keep rows, e.g. \"optimizer = 'adamw'\" (SQL).", show_default=False)
]
FitWhere = Annotated[
    str | None, typer.Option("--fit-where", help='Limit what laws may see, e.g. "tokens <= 12e9".', show_default=False)
]
GroupBy = Annotated[
    str | None,
    typer.Option(
        "--group",
        help="Columns whose values must not be mixed in one fit. Default: optimizer, batch_tokens, weight_decay, "
        "beta1, schedule, decay.",
        show_default=False,
    ),
]
Degree = Annotated[
    int | None, typer.Option("--degree", help="Degree of the fit: 3 is the paper's; by default the data choose.")
]
Window = Annotated[
    str, typer.Option("--window", help="auto (points weigh by their loss gap), all (the paper's), or ± octaves.")
]
EffLr = Annotated[EffColumn, typer.Option("--eff-lr", help="Which mean of η_eff stands for a run.")]
Surface = Annotated[bool, typer.Option("--surface", help="Fit all D of one N together, instead of cell by cell.")]
Level = Annotated[float, typer.Option("--level", help="Level of all intervals.")]
Replicates = Annotated[int, typer.Option("--replicates", help="Redraws behind the intervals.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the redraws.")]
MOST_REFUSALS = 5  # named one by one in the notes
Json = Annotated[bool, typer.Option("--json", help="Print JSON alone.")]


@dataclass(frozen=True)
class Loaded:
    """Groups of cells, the options to estimate them with, and what to tell the user first."""

    table: pa.Table
    groups: list[Group]
    options: Options
    eff_column: EffColumn
    notes: tuple[str, ...]
    trajectories: pa.Table | None = None  # of the source itself, where it is no study folder


def load(
    runs: str,
    *,
    mapping: str | None,
    where: str | None,
    group: str | None,
    degree: int | None,
    window: str,
    eff_lr: EffColumn,
    level: float,
    replicates: int,
    seed: int,
    fit_where: str | None = None,
    surface: bool = False,
) -> Loaded:
    """Read, map, filter, group: the door of every verb that looks at runs."""
    options = _options(degree, window, level, replicates, seed, surface)
    imported = read_source(runs, mapping=parse_mapping(mapping), where=where)
    table, notes = imported.table, [*imported.notes, *imported.problems]
    if imported.trajectories is not None:  # a tracker's logs: say at least where the sizes and the rate come from
        told = ", ".join(f"{name} from {imported.mapped[name]}" for name in REQUIRED if name in imported.mapped)
        notes.insert(0, f"{imported.kind}: {told}")
    notes += [f"run {run!r} left out: {why}" for run, why in imported.refused[:MOST_REFUSALS]]
    if len(imported.refused) > MOST_REFUSALS:
        notes.append(
            f"{len(imported.refused) - MOST_REFUSALS} more runs left out; `etastar import --dry-run` lists them"
        )
    if fit_where is not None:
        before = table.num_rows
        table = keep_runs(table, fit_where)
        notes.append(f"--fit-where lets the laws see {table.num_rows} of {before} rows")
    columns = tuple(part.strip() for part in group.split(",") if part.strip()) if group else None
    groups = [g for g in build_groups(table, group_columns=columns, eff_column=eff_lr) if g.blocks]
    notes += [
        f"{found.crashed} crashed rows left out" + (f" ({found.label})" if found.label else "")
        for found in groups
        if found.crashed
    ]
    diverged = int(sum(block.diverged.sum() for found in groups for block in found.blocks))
    if diverged and not any("diverged" in note for note in notes):
        notes.append(f"{diverged} diverged cells kept, not fitted")
    return Loaded(table, groups, options, eff_lr, tuple(notes), imported.trajectories)


def _options(degree: int | None, window: str, level: float, replicates: int, seed: int, surface: bool) -> Options:
    if not 0.5 <= level < 1:
        raise InputError(f"--level: {level} is not between 0.5 and 1", hint="0.9 is the default")
    if not 50 <= replicates <= 100_000:
        raise InputError(f"--replicates: {replicates} is not between 50 and 100000", hint="500 is the default")
    if not 0 <= seed < 2**63:
        raise InputError(f"--seed: {seed} is not between 0 and 2^63", hint="0 is the default")
    chosen: str | float = window if window in ("auto", "all") else parse_number(window, what="--window")
    # a window or degree that was asked for is the paper's way: each quantity in its own logarithm
    own = window != "auto" or degree is not None
    choice = FitChoice(degree=degree, window=chosen, own_coordinate=own)
    return Options(choice=choice, level=level, replicates=replicates, seed=seed, surface=surface)


def print_notes(console: Console, loaded: Loaded) -> None:
    """What was understood of the input, before any result."""
    for note in loaded.notes:
        console.print(f"[dim]· {escape(note)}[/]")


def print_json(content: Any) -> None:
    """JSON alone on stdout; NaN and infinities become null."""
    typer.echo(json.dumps(clean(content), indent=2, ensure_ascii=False, allow_nan=False))


def clean(value: Any) -> Any:
    """A JSON-ready copy: numpy numbers as Python's, non-finite as null."""
    if isinstance(value, dict):
        return {str(k): clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, str) else value
