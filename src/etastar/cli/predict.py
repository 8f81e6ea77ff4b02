"""`etastar predict`: which learning rate should the target run use, and how sure is that?"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from etastar.cli import options as o
from etastar.estimate.cells import EffColumn, Group
from etastar.laws.published import PublishedPrediction, compare
from etastar.predict.backtest import Backtest
from etastar.predict.recommend import Answer, Recommendation, answer
from etastar.predict.strategies import Prediction
from etastar.scale import Scale, format_lr, format_number


def predict_command(
    runs: o.Runs,
    params: Annotated[str, typer.Option("--params", help="Target N, e.g. 707M.", show_default=False)],
    tokens: Annotated[str, typer.Option("--tokens", help="Target D, e.g. 100B.", show_default=False)],
    mapping: o.Map = None,
    where: o.Where = None,
    fit_where: o.FitWhere = None,
    group: o.GroupBy = None,
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

    Every strategy (along D, along N, jointly; in η and in η_eff) is shown with its back-test; one is
    recommended, with its interval, its expected extra compute (ECR) and every doubt.

    Example: etastar predict runs.parquet --params 707M --tokens 100B --fit-where "tokens <= 20e9"
    """
    target = Scale.parse(params, tokens)
    loaded = o.load(
        runs, mapping=mapping, where=where, fit_where=fit_where, group=group, degree=degree, window=window,
        eff_lr=eff_lr, level=level, replicates=replicates, seed=seed, surface=surface,
    )  # fmt: skip
    answers = [answer(found, target, loaded.options, eff_column=eff_lr) for found in loaded.groups]
    known = _published(loaded, target) if published else []
    if as_json:
        o.print_json(answer_json(answers, target, level, known))
        return
    console = Console()
    o.print_notes(console, loaded)
    for found in answers:
        show_answer(console, found, level)
    if known:
        console.print(_published_table(known))
    if len(answers) > 1:
        console.print(
            f"[yellow]{len(answers)} groups were trained differently, so none is recommended over the others.[/]\n"
            f'hint: pick one with --where, e.g. --where "{escape(_where_hint(loaded.groups))}"'
        )


def answer_json(answers: list[Answer], target: Scale, level: float, known: list[PublishedPrediction]) -> dict[str, Any]:
    """The contract's shape: all groups' predictions, one recommendation or the reason for none."""
    single = answers[0] if len(answers) == 1 else None
    reason = single.abstained if single else f"{len(answers)} groups were trained differently; pick one with --where"
    content: dict[str, Any] = {
        "target": {"params": target.params, "tokens": target.tokens, "compute": target.compute},
        "predictions": [
            prediction_json(p, t, level)
            for found in answers
            for p, t in zip(found.predictions, found.backtests, strict=True)
        ],
        "recommended": recommendation_json(single.recommended, level) if single and single.recommended else None,
        "abstained": reason,
    }
    if known:
        content["published"] = [
            {
                "law": p.law.name,
                "lr": p.lr,
                "reason": p.reason,
                "outside_validity": p.outside_validity,
                "flags": list(p.flags),
            }
            for p in known
        ]
    return content


def prediction_json(prediction: Prediction, tested: Backtest, level: float) -> dict[str, Any]:
    """One strategy's answer; value and lr are null with a reason where it has none."""
    value, lr = prediction.log2_value, prediction.log2_lr
    return {
        "axis": prediction.axis.value,
        "quantity": prediction.quantity.value,
        "value": None if value is None else o.exp2(value),
        "lr": None if lr is None else o.exp2(lr),
        "log2_interval": prediction.interval(level),
        "log2_lr_interval": prediction.interval(level, of_lr=True),
        "cells": prediction.cells,
        "pearson_r": prediction.pearson_r,
        "backtest": {
            "trials": len(tested.trials),
            "rms_log2_lr_error": tested.rms_lr_error,
            "bend": tested.bend(of_lr=True) if tested.trials else None,
            "errors": [
                {"params": t.scale.params, "tokens": t.scale.tokens, "log2_lr_error": t.log2_lr_error, "sd": t.lr_sd}
                for t in tested.trials
            ],
        },
        "group": prediction.group,
        "flags": [flag.value for flag in prediction.flags],
        "reason": prediction.reason,
    }


def recommendation_json(found: Recommendation, level: float) -> dict[str, Any]:
    """The recommendation as the contract has it."""
    return {
        "lr": o.exp2(found.log2_lr),
        "log2_interval": list(found.log2_interval),
        "level": level,
        "axis": found.axis.value,
        "quantity": found.quantity.value,
        "why": found.why,
        "expected_ecr": found.expected_ecr,
        "lr_min_ecr": None if found.log2_lr_min_ecr is None else o.exp2(found.log2_lr_min_ecr),
        "safe_range": None if found.safe_range is None else [o.exp2(x) for x in found.safe_range],
        "conditions": found.conditions,
        "cost": {
            "budget_ratio": found.cost.budget_ratio,
            "true_ratio": found.cost.true_ratio,
            "flop": found.cost.flop,
            "target_sweep_flop": found.cost.target_sweep_flop,
            "learning_rates": found.cost.learning_rates,
        },
        "flags": [flag.value for flag in found.flags],
    }


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
    table = Table(title=escape(title), title_justify="left")
    table.add_column("strategy")
    for name in ("η", f"log2 η, {level:.0%} interval", "cells", "back-test", "r"):
        table.add_column(name, justify="right")
    table.add_column("doubts")
    for p, t in zip(found.predictions, found.backtests, strict=True):
        if p.log2_lr is None:
            table.add_row(p.name, "–", "–", str(p.cells), "–", "–", escape(p.reason or ""))
            continue
        low, high = p.interval(level, of_lr=True) or (float("nan"), float("nan"))
        missed = f"{t.rms_lr_error:.2f} oct. ({len(t.trials)})" if t.trials else "none"
        r = "–" if p.pearson_r is None else f"{p.pearson_r:.4f}"
        table.add_row(
            p.name, f"{o.exp2(p.log2_lr):.3g}", f"{p.log2_lr:.2f} [{low:.2f}, {high:.2f}]", str(p.cells), missed, r,
            ", ".join(flag.value for flag in p.flags),
        )  # fmt: skip
    console.print(table)
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
    table = Table(title="Published laws at this target", title_justify="left")
    for name in ("law", "η", "remarks"):
        table.add_column(name)
    for p in known:
        table.add_row(
            escape(p.law.name), "–" if p.lr is None else format_lr(p.lr), escape(p.reason or ", ".join(p.flags))
        )
    return table
