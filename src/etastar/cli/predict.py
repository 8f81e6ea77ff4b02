"""`etastar predict`: which learning rate should the target run use, and how sure is that?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from etastar.cli import options as o
from etastar.cli import target as t
from etastar.cli.diagnosis import diagnosis_json, show_diagnosis
from etastar.cli.looks import make_console, make_table
from etastar.errors import InputError
from etastar.estimate.cells import EffColumn, Group, Quantity
from etastar.estimate.estimates import estimate_group
from etastar.laws.published import PublishedPrediction, compare
from etastar.predict.answer_json import answer_json
from etastar.predict.diagnosis import StudyDiagnosis, diagnose_study
from etastar.predict.recommend import Answer, Recommendation, answer_from
from etastar.predict.solve import solve_weight_decay
from etastar.predict.strategies import Evidence
from etastar.scale import Scale, format_lr, format_number, parse_positive
from etastar.theory.invert import Inversion


def predict_command(
    runs: o.Runs,
    params: Annotated[str, typer.Option("--params", help="Target N, e.g. 707M.", show_default=False)],
    tokens: Annotated[str, typer.Option("--tokens", help="Target D, e.g. 100B.", show_default=False)],
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
    solve_for: t.SolveWeightDecay = None,
    published: Annotated[bool, typer.Option("--published", help="Show what published laws say beside it.")] = False,
    degree: o.Degree = None,
    window: o.Window = "auto",
    eff_lr: o.EffLr = EffColumn.MEAN,
    surface: o.Surface = False,
    level: o.Level = 0.9,
    replicates: o.Replicates = 500,
    seed: o.Seed = 0,
    as_json: o.Json = False,
) -> None:
    """Predict the optimal learning rate at a target (N, D) from finished runs.

    Every strategy (along D, along N, jointly; in η, in η_eff, and in η_eff inverted by the theory) is
    shown with its back-test; one is recommended, with its interval, its expected extra compute (ECR) and
    every doubt. A diagnosis says in which regime the runs are and whether a straight η law can be trusted.

    Example: etastar predict runs.parquet --params 707M --tokens 100B --fit-where "tokens <= 20e9"
    """
    target = Scale.parse(params, tokens)
    loaded = o.load(
        runs, mapping=mapping, where=where, fit_where=fit_where, group=group, degree=degree, window=window,
        eff_lr=eff_lr, level=level, replicates=replicates, seed=seed, surface=surface,
    )  # fmt: skip
    paths, notes = t.load_paths(runs, trajectories, loaded.table, loaded.groups, group, loaded.trajectories)
    typed = {
        "weight_decay": weight_decay, "warmup": warmup, "schedule": schedule, "decay_steps": decay_steps,
        "batch_tokens": batch_tokens,
    }  # fmt: skip
    evidences = [
        Evidence(
            found,
            estimate_group(found, loaded.options),
            eff_lr,
            paths.get(found.label, {}),
            t.target_settings(found, target.tokens, **typed),
        )
        for found in loaded.groups
    ]
    answers = [answer_from(evidence, target, level) for evidence in evidences]
    single = evidences[0] if len(evidences) == 1 else None
    diagnosis = _diagnosis(single, answers[0], level) if single else None
    decay = _solved(single, answers[0], solve_for, level) if solve_for else None
    known = _published(loaded, target) if published else []
    if as_json:
        content = answer_json(answers, target, level, known)
        content["diagnosis"] = diagnosis_json(diagnosis) if diagnosis else None
        if decay is not None:
            content["weight_decay"] = {"lr": parse_positive(solve_for or "", what="lr")} | asdict(decay)
        o.print_json(content)
        return
    console = make_console()
    o.print_notes(console, loaded)
    for note in notes:
        console.print(f"[dim]· {escape(note)}[/]")
    for found in answers:
        show_answer(console, found, level)
    if diagnosis is not None:
        show_diagnosis(console, diagnosis)
    if decay is not None:
        console.print(_weight_decay_line(decay, solve_for or ""), highlight=False)
    if known:
        console.print(_published_table(known))
    if len(answers) > 1:
        console.print(
            f"[yellow]{len(answers)} groups were trained differently, so none is recommended over the others.[/]\n"
            f'hint: pick one with --where, e.g. --where "{escape(_where_hint(loaded.groups))}"'
        )


def _diagnosis(evidence: Evidence, found: Answer, level: float) -> StudyDiagnosis:
    """At the recommended η; where there is none, at the first that a strategy gave."""
    said = [found.recommended.log2_lr] if found.recommended else []
    said += [p.log2_lr for p in found.predictions if p.log2_lr is not None]
    return diagnose_study(evidence, found.target, said[0] if said else None, level)


def _solved(evidence: Evidence | None, found: Answer, lr: str, level: float) -> Inversion:
    """λ for a given learning rate, from the η_eff law that is recommended, or the first that has a value."""
    rate = parse_positive(lr, what="lr")
    if evidence is None:
        raise InputError("--solve-weight-decay: the table holds several groups", hint="pick one with --where")
    best = found.recommended
    laws = [p for p in found.predictions if p.quantity is Quantity.EFF_LR and p.log2_value is not None]
    laws.sort(key=lambda p: best is None or p.axis is not best.axis)
    if not laws:
        raise InputError("--solve-weight-decay: no η_eff law reaches the target", hint="measure mean_eff_lr")
    return solve_weight_decay(evidence, laws[0], rate, level)


def _weight_decay_line(decay: Inversion, lr: str) -> str:
    ends = ""
    if decay.log2_interval is not None:
        low, high = (o.exp2(end) for end in decay.log2_interval)
        ends = f" ({low:.3g} … {high:.3g})"
    return f"with lr {escape(lr)} the same η_eff {decay.mean_eff_lr:.3g} takes weight decay {decay.value:.4g}{ends}"


def _published(loaded: o.Loaded, target: Scale) -> list[PublishedPrediction]:
    """Published laws at the target, with what the table knows of non-embedding parameters and batch."""
    table = loaded.table
    rows = [i for i, n in enumerate(table["params"].to_pylist()) if abs(n / target.params - 1) < 0.035]
    bare = {table["params_nonembedding"][i].as_py() for i in rows} - {None}
    batch = {found.conditions.get("batch_tokens") for found in loaded.groups}
    only = next(iter(batch)) if len(batch) == 1 else None
    return compare(
        params=target.params,
        tokens=target.tokens,
        params_nonembedding=next(iter(bare)) if len(bare) == 1 else None,
        batch_tokens=only if isinstance(only, float) else None,
    )


def _where_hint(groups: list[Group]) -> str:
    """A condition that keeps the first group: the settings that tell it from the others."""
    first, parts = groups[0], []
    for part in first.label.split(", "):
        name = part.partition("=")[0]
        name = "decay_steps" if name == "decay" else name
        value = first.conditions.get(name)
        if isinstance(value, str):
            quoted = value.replace("'", "''")
            parts.append(f"{name} = '{quoted}'")
        elif value is not None:
            parts.append(f"{name} = {int(value) if float(value).is_integer() else value}")
        elif part.endswith("=None"):
            parts.append(f"{name} IS NULL")
    return " AND ".join(parts) or "batch_tokens = 524288"


def show_answer(console: Console, found: Answer, level: float) -> None:
    title = f"Strategies for {found.target}" + (f" · {found.group}" if found.group else "")
    columns = ("strategy", "η", f"log2 η, {level:.0%} interval", "back-test", "r", "cells")
    table = make_table(title, *columns, left=("strategy",))
    doubts: dict[str, str] = {}
    without: dict[str, list[str]] = {}
    for p, tested in zip(found.predictions, found.backtests, strict=True):
        if p.inverted and p.log2_value is None:
            continue  # the same axis has said above why it has no law
        if p.log2_lr is None:
            without.setdefault(p.reason or "no reason given", []).append(p.name)
            continue
        low, high = p.interval(level, of_lr=True) or (float("nan"), float("nan"))
        missed = f"{tested.rms_lr_error:.2f} octave ({len(tested.trials)})" if tested.trials else "none"
        r = "–" if p.pearson_r is None else f"{p.pearson_r:.4f}"
        table.add_row(
            p.name, f"{o.exp2(p.log2_lr):.3g}", f"{p.log2_lr:.2f} [{low:.2f}, {high:.2f}]", missed, r, str(p.cells)
        )  # fmt: skip
        if p.flags:
            doubts[p.name] = ", ".join(flag.value for flag in p.flags)
    console.print(table)
    for name, flags in doubts.items():
        console.print(f"[dim]doubts of {escape(name)}: {flags}[/]", highlight=False)
    for reason, names in without.items():
        console.print(f"[dim]nothing from {escape('; '.join(names))}: {escape(reason)}[/]", highlight=False)
    for road in dict.fromkeys(p.source for p in found.predictions if p.source is not None):
        console.print(f"[dim]inverted: η from η_eff by the {escape(road)}[/]", highlight=False)
    if found.recommended is None:
        console.print(Panel(escape(f"No recommendation: {found.abstained}"), style="yellow", title="abstained"))
        return
    console.print(_recommendation_panel(found.recommended, level))


def _recommendation_panel(found: Recommendation, level: float) -> Panel:
    low, high = found.log2_interval
    lines = [
        f"[bold green]learning rate {format_lr(o.exp2(found.log2_lr))}[/]   {level:.0%} interval "
        f"{o.exp2(low):.3g} … {o.exp2(high):.3g}",
    ]
    if found.expected_ecr is not None:
        lines.append(f"expected extra compute {found.expected_ecr:.2%}")
    if found.log2_lr_min_ecr is not None:
        lines.append(f"smallest expected extra compute at {format_lr(o.exp2(found.log2_lr_min_ecr))}")
    if found.safe_range is not None:
        safe = " … ".join(f"{o.exp2(end):.3g}" for end in found.safe_range)
        lines.append(f"safe (expected extra compute ≤ 2 %): {safe}")
    lines.append(f"why: {escape(found.why)}")
    held = ", ".join(f"{k} {format_value(v)}" for k, v in found.conditions.items() if v is not None)
    lines.append(f"holds for: {escape(held) or 'the settings of these runs'}")
    lines.append(
        f"price: β = {found.cost.budget_ratio:.1%} as the paper counts; really {found.cost.true_ratio:.1%} of a "
        f"sweep of {found.cost.learning_rates:.0f} learning rates at the target ({found.cost.flop:.3g} FLOP)"
    )
    lines.extend(f"[yellow]doubt[/] {flag.value}: {flag.sentence}" for flag in found.flags)
    return Panel("\n".join(lines), title="recommended", title_align="left")


def format_value(value: object) -> str:
    """A condition for people."""
    return format_number(value) if isinstance(value, (int, float)) and abs(value) >= 1000 else str(value)


def _published_table(known: list[PublishedPrediction]) -> Table:
    table = make_table("Published laws at this target", "law", "η", "remarks", left=("law", "remarks"))
    for p in known:
        table.add_row(
            escape(p.law.name), "–" if p.lr is None else format_lr(p.lr), escape(p.reason or ", ".join(p.flags))
        )
    return table
