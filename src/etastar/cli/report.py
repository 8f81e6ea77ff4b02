"""`etastar report`: everything that a study says about a target, as one page to open, send and keep."""

from __future__ import annotations

import enum
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from etastar.cli import options as o
from etastar.cli import target as t
from etastar.cli.study_view import view_of
from etastar.errors import EtastarError, InputError
from etastar.estimate.cells import EffColumn, build_groups
from etastar.importers.expressions import keep_runs
from etastar.plan.study_plan import load_plan
from etastar.report.markdown import build_markdown
from etastar.report.outcome import outcome_words
from etastar.report.page import checked_place, write_report, write_text
from etastar.report.section import Section, study_section
from etastar.report.view import StudyView
from etastar.scale import Scale


class Format(enum.StrEnum):
    """What is written."""

    HTML = "html"
    MARKDOWN = "md"


Params = Annotated[
    str | None, typer.Option("--params", help="Target N, e.g. 707M; by default the plan's.", show_default=False)
]
Tokens = Annotated[
    str | None, typer.Option("--tokens", help="Target D, e.g. 100B; by default the plan's.", show_default=False)
]


def report_command(
    study: o.Runs,
    params: Params = None,
    tokens: Tokens = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Default: report.html or report.md.", show_default=False)
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="A page, or the same numbers as Markdown.")] = Format.HTML,
    title: Annotated[
        str | None, typer.Option("--title", help="The study's name on the page.", show_default=False)
    ] = None,
    mapping: o.Map = None,
    where: o.Where = None,
    fit_where: o.FitWhere = None,
    group: o.GroupBy = None,
    trajectories: t.Trajectories = None,
    weight_decay: t.WeightDecay = None,
    warmup: t.Warmup = None,
    schedule: t.ScheduleKind = None,
    decay_steps: t.DecaySteps = None,
    batch_tokens: t.BatchTokens = None,
    degree: o.Degree = None,
    window: o.Window = "auto",
    eff_lr: o.EffLr = EffColumn.MEAN,
    surface: o.Surface = False,
    level: o.Level = 0.9,
    replicates: o.Replicates = 500,
    seed: o.Seed = 0,
) -> None:
    """Write a report: the learning rate to type, how sure it is, every figure, every run.

    The page is one file that needs no network: open it, send it, keep it. With `--fit-where` the laws see a part of the
    runs only; if the rest holds the target's own sweep, the page says how far off the answer is.

    Example: etastar report runs.parquet --params 707M --tokens 100B --out report.html
    """
    target = target_of(Path(study), params, tokens)
    path = out or Path("report.html" if form is Format.HTML else "report.md")
    loaded = o.load(
        study, mapping=mapping, where=where, group=group, degree=degree, window=window, eff_lr=eff_lr, level=level,
        replicates=replicates, seed=seed, surface=surface,
    )  # fmt: skip
    checked_place(path)
    whole = view_of(study, loaded, group=group, trajectories=trajectories)
    view = fitted_part(whole, fit_where)
    settings = t.target_settings(
        view.main, target.tokens, weight_decay=weight_decay, warmup=warmup, schedule=schedule, decay_steps=decay_steps,
        batch_tokens=batch_tokens,
    )  # fmt: skip
    outcome = (
        "" if view is whole else outcome_words(whole, target, view.answer(view.main, target, settings).recommended)
    )
    folder = Path(study) if Path(study).is_dir() else None
    section = study_section(view, target, title=title, outcome=outcome, settings=settings, folder=folder)
    if form is Format.HTML:
        write_report([section], path)
    else:
        write_text(path, build_markdown([section]))
    _say(section, path)


def fitted_part(whole: StudyView, fit_where: str | None) -> StudyView:
    """The view that laws may see."""
    if fit_where is None:
        return whole
    table = keep_runs(whole.table, fit_where)
    groups = build_groups(table, group_columns=whole.group_columns, eff_column=whole.eff_column)
    note = f"--fit-where lets the laws see {table.num_rows} of {whole.table.num_rows} rows"
    return replace(whole, table=table, groups=tuple(g for g in groups if g.blocks), notes=(*whole.notes, note))


def target_of(study: Path, params: str | None, tokens: str | None) -> Scale:
    """The target as typed, else the one that the study's plan was made for."""
    if params is not None and tokens is not None:
        return Scale.parse(params, tokens)
    planned = planned_target(study)
    if planned is None:
        raise InputError(
            f"no target: {str(study)[:80]} has no plan that names one",
            hint="give --params and --tokens, e.g. --params 707M --tokens 100B",
        )
    return Scale.parse(params or planned.params, tokens or planned.tokens)


def planned_target(study: Path) -> Scale | None:
    """The target of a study's plan, if there is a readable one."""
    if not (study / "plan.yaml").is_file():
        return None
    try:
        target = load_plan(study / "plan.yaml").target
    except EtastarError:
        return None  # the page shows what is wrong with it
    return None if target is None else Scale(target.params, target.tokens)


def _say(section: Section, path: Path) -> None:
    console = Console(highlight=False, soft_wrap=True)
    head = section.headline
    if head is not None and head.log2_lr is not None and head.interval is not None:
        said = f"learning rate {head.lr} for {head.target}, {head.level:.0%} interval {head.interval.words}"
    else:
        said = f"no recommendation for {head.target}: {head.abstained}" if head is not None else section.waiting
    console.print(escape(said))
    if head is not None and head.outcome:
        console.print(escape(head.outcome))
    console.print(f"wrote {escape(str(path))} ({path.stat().st_size / 1e6:.1f} MB)")
