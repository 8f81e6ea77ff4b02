"""How will the target be trained, and where are the trajectories? Options of `predict` that the theory needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from etastar.errors import InputError
from etastar.estimate.cells import Group
from etastar.predict.logged import LoggedRows, read_trajectories
from etastar.predict.paths import paths_by_group
from etastar.predict.settings import RunSettings, sweep_settings
from etastar.predict.trunks import Paths
from etastar.scale import parse_number, parse_positive

Trajectories = Annotated[
    Path | None,
    typer.Option(
        "--trajectories",
        help="Trajectories (Parquet) to calibrate the theory on; a study folder's own by default.",
        show_default=False,
    ),
]
WeightDecay = Annotated[
    str | None, typer.Option("--weight-decay", help="The target's λ, if not the sweep's.", show_default=False)
]
Warmup = Annotated[
    str | None, typer.Option("--warmup", help="The target's warm-up steps, if not the sweep's.", show_default=False)
]
ScheduleKind = Annotated[
    str | None, typer.Option("--schedule", help="The target's: wsd, cosine or constant.", show_default=False)
]
DecaySteps = Annotated[
    str | None, typer.Option("--decay-steps", help="The target's decay steps (wsd).", show_default=False)
]
BatchTokens = Annotated[
    str | None, typer.Option("--batch-tokens", help="The target's tokens a step.", show_default=False)
]
SolveWeightDecay = Annotated[
    str | None,
    typer.Option("--solve-weight-decay", help="A learning rate: which λ makes it the right one?", show_default=False),
]


def target_settings(
    group: Group,
    tokens: float,
    *,
    weight_decay: str | None,
    warmup: str | None,
    schedule: str | None,
    decay_steps: str | None,
    batch_tokens: str | None,
) -> RunSettings | None:
    """The sweep's settings with what was typed in their place; None where nothing was. Impossible ones are refused."""
    typed: dict[str, object] = {}
    if weight_decay is not None:
        typed["weight_decay"] = _not_negative(weight_decay, "weight decay")
    if warmup is not None:
        typed["warmup_steps"] = _not_negative(warmup, "warmup")
    if decay_steps is not None:
        typed |= {"decay_steps": _not_negative(decay_steps, "decay steps"), "decay_fraction": None}
    if batch_tokens is not None:
        typed["batch_tokens"] = parse_positive(batch_tokens, what="batch tokens")
    if schedule is not None:
        if schedule not in ("wsd", "cosine", "constant"):
            raise InputError(f"schedule: {schedule[:40]!r} is unknown", hint="one of wsd, cosine, constant")
        typed["schedule"] = schedule
    if not typed:
        return None
    known = sweep_settings(group)
    if isinstance(known, str):
        raise InputError(
            f"--{next(iter(typed)).replace('_', '-')}: the sweep's own settings are not known: {known}",
            hint="add the columns to the runs table; without them η cannot be carried to other settings",
        )
    if typed.get("schedule") == "wsd" and known.schedule != "wsd" and decay_steps is None:
        raise InputError("schedule: wsd needs the length of its decay", hint="give --decay-steps")
    settings = known.model_copy(update=typed)
    settings.planned(tokens)  # a run shorter than its warm-up is refused here, in words
    return settings


def _not_negative(text: str, what: str) -> float:
    value = parse_number(text, what=what)
    if value < 0:
        raise InputError(f"{what}: {text} is below zero", hint="give zero or above")
    return value


def load_paths(
    runs: str | Path,
    given: Path | None,
    table: pa.Table,
    groups: list[Group],
    group_columns: str | None,
    own: pa.Table | None = None,
) -> tuple[dict[str, Paths], list[str]]:
    """Trajectories by group label, and notes. Nothing asked for and none in the source: nothing, in silence.

    `own` are those that came with the runs, out of a tracker's logs.
    """
    found = read_trajectories(Path(runs), given)
    if found is None and own is not None and own["update_norm"].null_count < own.num_rows:
        found = LoggedRows.of_table(own)
    if found is None:
        return {}, []
    columns = [part.strip() for part in group_columns.split(",") if part.strip()] if group_columns else None
    return paths_by_group(table, found, groups, columns, insist=given is not None)
