"""`etastar theory`: which regime is an LR in, and which LR has the η_eff that is wanted?"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from etastar.errors import EtastarError, InputError
from etastar.scale import format_lr, format_number, parse_number, parse_positive
from etastar.theory.bend import Bend, bend, log_linear
from etastar.theory.invert import Inversion, invert_eff_lr, invert_weight_decay
from etastar.theory.planned import Matrices, Optimizer, PlannedRun, noise_update_rms, typed_matrices
from etastar.theory.regime import Diagnosis, diagnose
from etastar.theory.schedules import Schedule


def theory_command(
    lr: Annotated[list[str] | None, typer.Option(help="Peak LR; repeat it or separate by commas.")] = None,
    weight_decay: Annotated[str, typer.Option(help="λ.")] = "0.1",
    steps: Annotated[str, typer.Option(help="T, the decay included.")] = "",
    warmup: Annotated[str, typer.Option(help="Warm-up steps.")] = "0",
    decay_steps: Annotated[str, typer.Option(help="Steps of WSD's decay to zero.")] = "0",
    schedule: Annotated[str, typer.Option(help="wsd, cosine or constant.")] = "wsd",
    optimizer: Annotated[str, typer.Option(help="adamw, adam, adamh or muonh.")] = "adamw",
    beta1: Annotated[str, typer.Option(help="Adam's β₁, or the fitted one.")] = "0.95",
    init_std: Annotated[str, typer.Option(help="RMS of a weight at the start.")] = "0.02",
    update_rms: Annotated[
        str, typer.Option(help="RMS of Adam's update; default: of noise gradients, √((1−β₁)/(1+β₁)).")
    ] = "",
    eff_lr: Annotated[str, typer.Option(help="A mean η_eff: answer with the LR that has it.")] = "",
    solve_weight_decay: Annotated[bool, typer.Option(help="With --eff-lr and --lr: solve for λ.")] = False,
    sweep_steps: Annotated[str, typer.Option(help="Swept horizons, e.g. 10k,20k,40k: predict the bend.")] = "",
    law_slope: Annotated[str, typer.Option(help="d log η_eff*/d log T of the straight law.")] = "-0.3",
    independent_decay: Annotated[bool, typer.Option(help="Weights shrink by λ a step, not η·λ.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON alone on stdout.")] = False,
) -> None:
    """Regime, timescales and slope of an LR, the LR of an η_eff, and how a straight η law would bend."""
    try:
        run = _planned(
            schedule, optimizer, steps, warmup, decay_steps, weight_decay, independent_decay=independent_decay
        )
        matrices = _typed(beta1, init_std, update_rms)
        lrs = [parse_positive(one, what="lr") for text in lr or [] for one in text.split(",")]
        answer = _answer(run, matrices, lrs, eff_lr, solve_weight_decay, sweep_steps, law_slope)
    except EtastarError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    if as_json:
        typer.echo(json.dumps(_plain(answer), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _show(answer, run)


def _planned(
    schedule: str,
    optimizer: str,
    steps: str,
    warmup: str,
    decay_steps: str,
    weight_decay: str,
    *,
    independent_decay: bool,
) -> PlannedRun:
    if not steps:
        raise InputError("steps: not given", hint="say how long the run is, e.g. --steps 200k")
    for what, value, allowed in (
        ("schedule", schedule, ("wsd", "cosine", "constant")),
        ("optimizer", optimizer, tuple(Optimizer)),
    ):
        if value not in allowed:
            raise InputError(f"{what}: {value[:40]!r} is unknown", hint=f"one of {', '.join(allowed)}")
    decay = parse_number(weight_decay, what="weight decay")
    if decay < 0:
        raise InputError(f"weight decay: {weight_decay} is below zero", hint="give zero or above")
    counts = {
        "steps": parse_positive(steps, what="steps"),
        "warmup_steps": parse_number(warmup, what="warmup"),
        "decay_steps": parse_number(decay_steps, what="decay steps"),
    }
    if counts["steps"] > 20_000_000:
        raise InputError(f"steps: {format_number(counts['steps'])} is more than 20M", hint="steps, not tokens: D = B·T")
    return PlannedRun(
        schedule=Schedule.model_validate({"kind": schedule, **counts}),
        weight_decay=decay,
        independent_decay=independent_decay,
        optimizer=Optimizer(optimizer),
    )


def _typed(beta1: str, init_std: str, update_rms: str) -> Matrices:
    beta = parse_number(beta1, what="beta1")
    if not -1 < beta < 1:
        raise InputError(f"beta1: {beta1} is not between −1 and 1", hint="Adam's β₁ is 0.9 or 0.95")
    rms = parse_positive(update_rms, what="update RMS") if update_rms else noise_update_rms(beta)
    return typed_matrices(beta1=beta, init_std=parse_positive(init_std, what="initial RMS"), update_rms=rms)


def _answer(
    run: PlannedRun,
    matrices: Matrices,
    lrs: list[float],
    eff_lr: str,
    solve_weight_decay: bool,
    sweep_steps: str,
    law_slope: str,
) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    if eff_lr:
        target = parse_positive(eff_lr, what="η_eff")
        if solve_weight_decay:
            if len(lrs) != 1:
                raise InputError(f"lr: {len(lrs)} given", hint="solving for λ needs one --lr")
            solved = invert_weight_decay(target, lr=lrs[0], run=run, matrices=matrices)
            answer["weight_decay"] = solved
            run = run.model_copy(update={"weight_decay": solved.value})
        else:
            answer["lr"] = invert_eff_lr(target, run=run, matrices=matrices)
            lrs = [*lrs, answer["lr"].value]
    if not lrs:
        raise InputError("lr: not given", hint="give --lr 2^-10, or --eff-lr to solve for it")
    answer["diagnosis"] = diagnose(lrs, run=run, matrices=matrices)
    if sweep_steps:
        answer["bend"] = _bend(run, matrices, answer["diagnosis"][-1], sweep_steps, law_slope)
    return answer


def _bend(run: PlannedRun, matrices: Matrices, target: Diagnosis, sweep_steps: str, law_slope: str) -> Bend:
    """The law passes through the target's own η_eff, so --lr is the optimum there."""
    planned = run.schedule
    if not isinstance(planned, Schedule):
        raise InputError("schedule: an array has no other horizons", hint="name a schedule")
    slope = parse_number(law_slope, what="law slope")
    swept = [int(parse_positive(one, what="sweep steps")) for one in sweep_steps.split(",")]
    level = math.log2(target.mean_eff_lr) - slope * math.log2(run.steps)

    def run_of(steps: int) -> PlannedRun:
        return run.model_copy(update={"schedule": Schedule.model_validate({**planned.model_dump(), "steps": steps})})

    return bend(
        swept_steps=swept,
        target_steps=run.steps,
        log2_eff_lr_of=log_linear(slope, level),
        run_of=run_of,
        matrices_of=lambda _: matrices,
    )


def _plain(value: Any) -> Any:
    """Results → JSON: arrays to lists, infinite and missing numbers to null."""
    if isinstance(value, (Diagnosis, Inversion, Bend)):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _show(answer: dict[str, Any], run: PlannedRun) -> None:
    console = Console()
    for name in ("lr", "weight_decay"):
        if name in answer:
            solved = answer[name]
            shown = format_lr(solved.value) if name == "lr" else f"{solved.value:.4g}"
            console.print(
                f"{name.replace('_', ' ')} {shown} has mean η_eff {solved.mean_eff_lr:.4g} "
                f"over {format_number(run.steps)} steps",
                highlight=False,
            )
    headers = ("log2 lr", "regime", "1/(2ηλ)", "2ηλT", "1/(ηλT)", "slope", "mean η_eff", "‖w_T‖/‖w₀‖")
    table = Table(*headers)
    for one in answer["diagnosis"]:
        table.add_row(
            f"{math.log2(one.lr):.2f}",
            str(one.regime),
            f"{one.decay_time:,.0f}" if math.isfinite(one.decay_time) else "∞",
            f"{one.relaxations:.3g}",
            f"{one.timescale:.3g}",
            f"{one.slope:.2f}",
            f"{one.mean_eff_lr:.4g}",
            f"{one.norm_ratio:.3g}",
        )
    console.print(table)
    for one in answer["diagnosis"]:
        console.print(f"{format_lr(one.lr)}: {one.words}", highlight=False)
    if "bend" in answer:
        console.print(answer["bend"].words, highlight=False)
