"""What does the report hold of one study? Everything that the page, the Markdown and the JSON show, computed once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etastar.estimate.cells import Quantity
from etastar.predict.answer_json import answer_json
from etastar.predict.recommend import Answer
from etastar.predict.settings import RunSettings
from etastar.report.figures import table_one
from etastar.report.figures.missing import Missing
from etastar.report.headline import Headline, headline
from etastar.report.interactive.adamh import adamh_plot
from etastar.report.interactive.base import Plot
from etastar.report.interactive.evaluation import ecr_plot, r2_plot
from etastar.report.interactive.losses import loss_plot
from etastar.report.interactive.optimum import optimum_plot
from etastar.report.interactive.over_time import no_decay_plot, norms_plot, spread_plot, theory_plot
from etastar.report.interactive.strategies import strategy_plot, strategy_table
from etastar.report.plan_part import PlanPart, plan_part
from etastar.report.provenance import Provenance, provenance
from etastar.report.runs_table import RunsTable, runs_table
from etastar.report.tables import Column, Table, plain, table
from etastar.report.theory_part import TheoryPart, theory_part
from etastar.report.view import StudyView
from etastar.report.words import prediction_key, prediction_words, short_name
from etastar.scale import Scale, format_number


@dataclass(frozen=True)
class Progress:
    """Where a running study stands: a row a stack, and one sentence."""

    words: str
    done: int
    cells: int
    finished: bool
    stacks: Table


@dataclass(frozen=True)
class Section:
    """One study of a report. All but the name is None or empty while nothing has finished."""

    key: str
    title: str
    intro: str
    headline: Headline | None = None
    waiting: str = ""  # why there is no headline yet
    strategies: Table | None = None
    switches: tuple[tuple[str, str], ...] = ()  # (key, words) of strategies that have an answer
    plots: tuple[Plot, ...] = ()
    tables: tuple[Table, ...] = ()  # beyond the strategies: the paper's Table 1
    cells: Table | None = None
    runs: RunsTable | None = None
    plan: PlanPart | None = None
    theory: TheoryPart | None = None
    provenance: Provenance | None = None
    progress: Progress | None = None
    predict: Mapping[str, Any] | None = None  # as `etastar predict --json`

    def to_json(self) -> dict[str, Any]:
        """The numbers, without the drawings."""
        head = self.headline
        return {
            "study": self.title,
            "waiting": self.waiting or None,
            "training": head.group if head else None,
            "would_help": list(head.would_help) if head else [],
            "outcome": (head.outcome or None) if head else None,
            "predict": plain(dict(self.predict)) if self.predict else None,
            "strategies": self.strategies.to_json() if self.strategies else None,
            "tables": [t.to_json() for t in self.tables],
            "cells": self.cells.to_json() if self.cells else None,
            "runs": (self.runs.table.to_json() | {"shared": dict(self.runs.shared), "total": self.runs.total}) if self.runs else None,
            "figures": {p.key: p.table.to_json() if p.table else {"missing": p.missing} for p in self.plots},
            "plan": {"stacks": _json(self.plan.stacks), "price": _json(self.plan.price), "words": self.plan.words}
            if self.plan
            else None,
            "theory": {"regimes": _json(self.theory.regimes), "calibration": _json(self.theory.calibration), "words": list(self.theory.sentences), "reason": self.theory.reason or None}
            if self.theory
            else None,
            "provenance": {"values": dict(self.provenance.values), "notes": list(self.provenance.notes)} if self.provenance else None,
            "progress": {"done": self.progress.done, "cells": self.progress.cells, "finished": self.progress.finished, "stacks": _json(self.progress.stacks)}
            if self.progress
            else None,
        }  # fmt: skip


def study_section(
    view: StudyView,
    target: Scale,
    *,
    title: str | None = None,
    intro: str = "",
    outcome: str = "",
    settings: RunSettings | None = None,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Section:
    """The section of one study for one target.

    `outcome` says what is known of the truth (a demo knows it), `folder` is the study's, for its plan and
    specifications, `settings` the target's where they are not the sweep's.
    """
    group = view.main
    found = view.answer(group, target, settings)
    head = headline(view, target, settings=settings, outcome=outcome)
    name = title or short_name(view.name, 80)
    plots = (
        strategy_plot(found, head),
        optimum_plot(view, Quantity.LR, found),
        optimum_plot(view, Quantity.EFF_LR, found),
        loss_plot(view),
        r2_plot(view),
        ecr_plot(view),
        norms_plot(view),
        theory_plot(view),
        spread_plot(view),
        adamh_plot(view),
        no_decay_plot(view),
    )
    return Section(
        key=section_key(name),
        title=name,
        intro=intro,
        headline=head,
        strategies=strategy_table(found, view.options.level),
        switches=_switches(found, plots),
        plots=plots,
        tables=_table_one(view),
        cells=_cells(view),
        runs=runs_table(view.table, view.group_columns),
        plan=plan_part(folder),
        theory=theory_part(view, group, target, settings),
        provenance=provenance(view, folder),
        progress=progress,
        predict=answer_json([found], target, view.options.level, []),
    )


def waiting_section(title: str, why: str, *, folder: Path | None = None, progress: Progress | None = None) -> Section:
    """A study that has nothing to fit yet: its plan, its progress, and why there is no number."""
    return Section(section_key(title), title, "", waiting=why, plan=plan_part(folder), progress=progress)


def section_key(title: str) -> str:
    """A name for anchors, from letters and digits of the title alone; none of the page's own begins so."""
    return f"study-{re.sub(r'[^a-z0-9]+', '-', title.lower()).strip('-')[:40]}".rstrip("-")


def _switches(found: Answer, plots: tuple[Plot, ...]) -> tuple[tuple[str, str], ...]:
    """Every strategy that some figure shows."""
    shown = {t["meta"]["strategy"] for p in plots for v in p.views for t in v.traces if "strategy" in t.get("meta", {})}
    return tuple((prediction_key(p), prediction_words(p)) for p in found.predictions if prediction_key(p) in shown)


def _json(value: Table | None) -> dict[str, Any] | None:
    return None if value is None else value.to_json()


def _table_one(view: StudyView) -> tuple[Table, ...]:
    """The paper's Table 1 for this study; none where nothing can be judged."""
    found = table_one.data(view)
    if isinstance(found, Missing) or not found.rows:
        return ()
    columns = (
        Column("setup", "setup", "text"), Column("beta", "β", "percent"), Column("error", "log₂ error", "log2", "in the setup's own quantity"),
        Column("lr_error", "log₂ error in η", "log2"), Column("gap", "loss gap"), Column("ecr", "ECR", "percent"),
        Column("cost", "true cost", "percent", "of a sweep at the target, trunks paid once"), Column("note", "", "text"),
    )  # fmt: skip
    rows = [
        (r.setup, r.budget_ratio, r.log2_error, r.log2_lr_error, r.loss_gap, r.ecr, r.true_cost,
         "lowest ECR of its budget" if r.best else (r.reason or ""))
        for r in found.rows
    ]  # fmt: skip
    where = f"N = {format_number(found.params)}, D = {format_number(found.tokens)}"
    return (table(f"Table 1: error and extra compute of each setup by budget, tested at {where}", columns, rows),)


def _cells(view: StudyView) -> Table:
    """η* and η_eff* of every cell of the main group, as `etastar fit` prints them."""
    estimates = view.estimates(view.main)
    columns = [
        Column("params", "N", "scale"), Column("tokens", "D", "scale"), Column("lr", "η*", "lr"),
        Column("log2_lr", "log₂ η*", "log2"), Column("low", "low", "log2"), Column("high", "high", "log2"),
    ]  # fmt: skip
    eff = estimates.get(Quantity.EFF_LR)
    if eff is not None:
        columns += [Column("log2_eff", "log₂ η_eff*", "log2"), Column("eff_low", "low", "log2"), Column("eff_high", "high", "log2")]  # fmt: skip
    columns += [Column("loss", "loss there", "loss"), Column("points", "LRs", "int"), Column("status", "status", "text"),
                Column("flags", "flags", "text")]  # fmt: skip
    rows = []
    for k, o in enumerate(estimates[Quantity.LR].optima):
        row: list[Any] = [o.params, o.tokens, o.value, o.log2_value, *o.log2_interval]
        if eff is not None:
            row += [eff.optima[k].log2_value, *eff.optima[k].log2_interval]
        rows.append((*row, o.loss, o.points, o.status.value, ", ".join(flag.value for flag in o.flags)))
    return table("The optimum of every cell", columns, rows)
