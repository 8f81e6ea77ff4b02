"""What did the importer understand? Tables for people: runs, columns, guesses, refusals."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from etastar.cli.looks import make_table
from etastar.importers.into_study import ImportPlan
from etastar.importers.sources import Imported
from etastar.records import REQUIRED, RUN_COLUMNS, RUN_SCHEMA
from etastar.scale import format_number

_SHOWN = 8  # runs, reasons and problems that are listed
_NAME = 24
_PROVENANCE = ("source", "source_run", "loss_metric", "eff_lr_approximate")
_USEFUL = ("mean_eff_lr", "batch_tokens", "optimizer", "weight_decay", "schedule", "seed")


def show_import(console: Console, source: str, imported: Imported) -> None:
    """Everything that was understood of a source."""
    rows = imported.table.to_pylist()
    told = Counter(row["status"] for row in rows)
    counts = ", ".join(f"{count} {status}" for status, count in told.most_common())
    console.print(f"[bold]{escape(source)}[/]: {imported.kind}, {len(rows)} runs ({counts})", highlight=False)
    console.print(_runs(rows))
    console.print(_columns(imported))
    absent = [name for name in _USEFUL if imported.table[name].null_count == len(rows)]
    if absent:
        console.print(f"[dim]unknown for every run: {', '.join(absent)} (name them with --map)[/]", highlight=False)
    unused = [name for name in imported.table.column_names if name not in (*RUN_SCHEMA.names, *_PROVENANCE)]
    if unused:
        more = f" and {len(unused) - 20} more" if len(unused) > 20 else ""
        shown = ", ".join(unused[:20]) + more
        console.print(f"[dim]kept under their own names, for --where and --map: {escape(shown)}[/]", highlight=False)
    for said in imported.units:
        console.print(f"[yellow]guessed[/] {escape(said)}", highlight=False)
    for said in imported.notes:
        if said not in imported.units:
            console.print(f"[dim]· {escape(said)}[/]", highlight=False)
    _refusals(console, imported)


def _runs(rows: list[dict[str, Any]]) -> Table:
    table = make_table("Runs")
    known = any(row["mean_eff_lr"] is not None for row in rows)
    table.add_column("run", no_wrap=True, overflow="ellipsis")  # the only one that may shrink
    for name, width in (("N", 6), ("D", 6), ("lr", 8), ("loss", 6), *([("mean η_eff", 9)] if known else [])):
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    table.add_column("status", no_wrap=True, min_width=8)
    for row in rows[:_SHOWN]:
        table.add_row(
            escape(_short(str(row["run"] or "–"))),
            format_number(row["params"]),
            format_number(row["tokens"]),
            f"{row['lr']:.3g}",
            "–" if row["loss"] is None else f"{row['loss']:.4f}",
            *([_eff_lr(row)] if known else []),
            row["status"],
        )
    if len(rows) > _SHOWN:
        table.add_row(f"… and {len(rows) - _SHOWN} more")
    return table


def _short(name: str) -> str:
    """Both ends of a long name: sweeps differ at either."""
    return name if len(name) <= _NAME else f"{name[: _NAME // 2 - 1]}…{name[-_NAME // 2 :]}"


def _eff_lr(row: dict[str, Any]) -> str:
    if row["mean_eff_lr"] is None:
        return "–"
    return f"{'≈ ' if row.get('eff_lr_approximate') else ''}{row['mean_eff_lr']:.4g}"


def _columns(imported: Imported) -> Table:
    table = make_table("Columns", "column", "from", "known", "values", left=("column", "from", "values"))
    for column in RUN_COLUMNS:
        values = imported.table[column.name]
        known = len(values) - values.null_count
        if not known or column.name in ("run", "status"):
            continue
        bold = column.name in REQUIRED
        table.add_row(
            f"[bold]{column.name}[/]" if bold else column.name,
            escape(_origin(imported, column.name)),
            f"{known}/{len(values)}",
            escape(_span(values)),
        )
    return table


def _origin(imported: Imported, name: str) -> str:
    if name == "loss" and name not in imported.mapped and "loss_metric" in imported.table.column_names:
        return f"last {imported.table['loss_metric'][0].as_py()}"
    found = imported.mapped.get(name)
    if found is None:
        return name if imported.kind == "a table of runs" else "–"
    return found


def _span(values: pa.ChunkedArray) -> str:
    known = [value for value in values.to_pylist() if value is not None]
    different = sorted(set(known), key=str)
    if isinstance(known[0], str):
        return ", ".join(map(_short, different[:3])) + (f" and {len(different) - 3} more" if len(different) > 3 else "")
    finite = [value for value in known if math.isfinite(value)]
    if not finite:
        return "none finite"
    low, high = min(finite), max(finite)
    spelled = format_number(low) if low == high else f"{format_number(low)} to {format_number(high)}"
    return f"{spelled} ({len(different)} values)" if low != high else spelled


def _refusals(console: Console, imported: Imported) -> None:
    if imported.refused:
        table = make_table(f"Refused: {len(imported.refused)} runs", "runs", "why", "which", left=("why", "which"))
        reasons = Counter(why for _, why in imported.refused)
        for why, count in reasons.most_common(_SHOWN):
            named = [run for run, other in imported.refused if other == why]
            more = f" and {count - 3} more" if count > 3 else ""
            table.add_row(str(count), escape(why), escape(", ".join(map(_short, named[:3])) + more))
        console.print(table)
    for said in imported.problems[:_SHOWN]:
        console.print(f"[red]unreadable[/] {escape(said)}", highlight=False)
    if len(imported.problems) > _SHOWN:
        console.print(f"[red]unreadable[/] and {len(imported.problems) - _SHOWN} more places", highlight=False)


def show_plan(console: Console, plan: ImportPlan, *, written: bool) -> None:
    """What was, or would be, written."""
    for said in plan.notes:
        console.print(f"[dim]· {escape(said)}[/]", highlight=False)
    steps = 0 if plan.trajectories is None else plan.trajectories.num_rows
    told = [f"{len(plan.new)} new", f"{len(plan.changed)} changed", f"{len(plan.same)} as before"]
    if plan.kept:
        told.append(f"{len(plan.kept)} of an earlier import, no longer in the source, kept")
    if plan.elsewhere:
        told.append(f"{len(plan.elsewhere)} equal to runs that the study holds from elsewhere, left there")
    if plan.changed:
        names = ", ".join(plan.changed[:5])
        console.print(f"[yellow]changed since the last import, replaced:[/] {escape(names)}", highlight=False)
    verb = "Written to" if written else "Would be written to"
    console.print(
        f"{verb} {escape(str(plan.study))} as {plan.part}: {', '.join(told)}; {steps} rows of trajectories",
        highlight=False,
    )
