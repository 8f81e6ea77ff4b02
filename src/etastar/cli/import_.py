"""`etastar import`: what is in somebody's logs, shown before it is written to a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from etastar.cli import options as o
from etastar.cli.import_show import show_import, show_plan
from etastar.cli.looks import make_console
from etastar.errors import InputError
from etastar.importers.into_study import ImportPlan, carry_out, plan_import
from etastar.importers.sources import Imported, parse_mapping, read_source


def import_command(
    source: o.Runs,
    to: Annotated[
        Path | None, typer.Option("--to", help="The study's folder; made if it is not there.", show_default=False)
    ] = None,
    mapping: o.Map = None,
    where: o.Where = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what was understood; write nothing.")] = False,
    as_json: o.Json = False,
) -> None:
    """Import runs of W&B, TensorBoard, MLflow, Trackio, a Trainer, Lightning or a table into a study.

    Shows what was understood first: the runs, which of your names became which column, units that were
    guessed, and what was refused and why. Importing a source again replaces what changed.

    Example: etastar import wandb/ --map tokens=steps*524288 --to study
    """
    if to is None and not dry_run:
        raise InputError("--to is missing: where should the runs go?", hint="give --to STUDY, or look with --dry-run")
    imported = read_source(source, mapping=parse_mapping(mapping), where=where, refuse_rows=True)
    plan = plan_import(imported, source, to) if to is not None else None
    if plan is not None and not dry_run:
        carry_out(plan, imported, source)
    if as_json:
        o.print_json(_json(source, imported, plan, written=not dry_run))
        return
    console = make_console()
    show_import(console, source, imported)
    if plan is not None:
        show_plan(console, plan, written=not dry_run)
    else:
        console.print("Nothing was written. Import with --to STUDY, or ask at once: etastar predict SOURCE …")


def _json(source: str, imported: Imported, plan: ImportPlan | None, *, written: bool) -> dict[str, Any]:
    content: dict[str, Any] = {
        "source": source,
        "kind": imported.kind,
        "runs": imported.table.num_rows,
        "columns": imported.mapped,
        "units": list(imported.units),
        "notes": list(imported.notes),
        "refused": [{"run": run, "why": why} for run, why in imported.refused],
        "problems": list(imported.problems),
        "written": written,
    }
    if plan is not None:
        content["study"] = str(plan.study)
        for name in ("new", "changed", "same", "kept", "elsewhere"):
            content[name] = len(getattr(plan, name))
    return content
