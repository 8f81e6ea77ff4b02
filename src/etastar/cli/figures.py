"""`etastar figures`: every figure and table of the paper, from any study."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from etastar.cli import options as o
from etastar.cli import target as t
from etastar.cli.looks import make_console, make_table
from etastar.cli.study_view import view_of
from etastar.errors import InputError
from etastar.estimate.cells import EffColumn
from etastar.report.figures import FIGURES, PaperFigure
from etastar.report.figures.files import FORMATS, Outcome, write_figure
from etastar.report.view import training_of


def figures_command(
    study: o.Runs,
    out: Annotated[Path, typer.Option("--out", help="Folder for the files.", show_default=False)],
    formats: Annotated[str, typer.Option("--format", help=f"Of {', '.join(FORMATS)}.")] = "png,pdf",
    only: Annotated[
        str | None, typer.Option("--only", help="Names of figures, e.g. optimal-lr,table-1.", show_default=False)
    ] = None,
    mapping: o.Map = None,
    where: o.Where = None,
    group: o.GroupBy = None,
    trajectories: t.Trajectories = None,
    degree: o.Degree = None,
    window: o.Window = "auto",
    eff_lr: o.EffLr = EffColumn.MEAN,
    surface: o.Surface = False,
    level: o.Level = 0.9,
    replicates: o.Replicates = 500,
    seed: o.Seed = 0,
    as_json: o.Json = False,
) -> None:
    """Draw every figure and write every table of the paper from a study, or say which run would supply it.

    Tables are written as Markdown, CSV and LaTeX. Format `json` writes what a figure shows as plain numbers.

    Example: etastar figures study/ --out figures --format pdf --only optimal-lr,optimal-eff-lr
    """
    wanted = _formats(formats)
    chosen = _chosen(only)
    loaded = o.load(
        study, mapping=mapping, where=where, group=group, degree=degree, window=window, eff_lr=eff_lr, level=level,
        replicates=replicates, seed=seed, surface=surface,
    )  # fmt: skip
    view = view_of(study, loaded, group=group, trajectories=trajectories)
    _folder(out)
    outcomes = [write_figure(figure, view, out, wanted) for figure in chosen]
    if as_json:
        o.print_json({"figures": [asdict(one) for one in outcomes]})
        return
    console = make_console()
    o.print_notes(console, loaded)
    if len(view.groups) > 1:
        console.print(f"[dim]· of {len(view.groups)} groups, one is shown: {escape(training_of(view.main))}[/]")
    console.print(_table(outcomes, out))


def _formats(text: str) -> tuple[str, ...]:
    wanted = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    unknown = [one for one in wanted if one not in FORMATS]
    if unknown or not wanted:
        said = repr(unknown[0][:40]) if unknown else "nothing"
        raise InputError(f"--format: {said} is not a known format", hint=f"of {', '.join(FORMATS)}, e.g. png,pdf")
    return wanted


def _chosen(only: str | None) -> list[PaperFigure]:
    if only is None:
        return list(FIGURES)
    names = [part.strip() for part in only.split(",") if part.strip()]
    known = {figure.name: figure for figure in FIGURES}
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        said = repr(unknown[0][:60]) if unknown else "nothing"
        raise InputError(f"--only: {said} is no figure", hint=f"of {', '.join(known)}")
    return [figure for figure in FIGURES if figure.name in names]


def _folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"--out: {str(out)[:80]!r} cannot be a folder: {error.strerror}", hint="choose another place"
        ) from None


def _table(outcomes: list[Outcome], out: Path) -> Table:
    columns = ("figure", "what it shows", "file, or which run would supply it")
    table = make_table(f"Figures of the paper → {out}", *columns, left=columns)
    for one in outcomes:
        said = ", ".join(one.files) if one.files else f"[yellow]missing:[/] {escape(one.missing or '')}"
        partly = "".join(f"\n[yellow]in part:[/] {escape(sentence)}" for sentence in one.partly)
        table.add_row(one.number, escape(one.title), said + partly)
    return table
