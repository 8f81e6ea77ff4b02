"""`etastar theory`: which regime is an LR in, which LR has the η_eff that is wanted, and does a study obey?"""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from etastar.cli.diagnosis import regime_table
from etastar.cli.looks import make_console
from etastar.cli.options import print_json
from etastar.cli.theory_study import StudyTheory, load_study, report_json, show_report
from etastar.errors import EtastarError, InputError
from etastar.scale import format_lr, format_number, parse_number, parse_positive
from etastar.theory.bend import Bend, bend, log_linear
from etastar.theory.dynamics import equilibrium_eff_lr
from etastar.theory.invert import Inversion, invert_eff_lr, invert_weight_decay
from etastar.theory.planned import (
    Matrices,
    MatricesAt,
    Optimizer,
    PlannedRun,
    equilibrium_of,
    noise_update_rms,
    typed_matrices,
)
from etastar.theory.regime import Diagnosis, diagnose
from etastar.theory.schedules import Schedule


def theory_command(
    study: Annotated[
        Path | None,
        typer.Argument(
            help="A study with trajectories: calibrate on it. Else W₀, U and β₁ are typed.", show_default=False
        ),
    ] = None,
    lr: Annotated[list[str] | None, typer.Option(help="Peak LR; repeat it or separate by commas.")] = None,
    weight_decay: Annotated[str | None, typer.Option(help="λ; default 0.1, or the study's.")] = None,
    steps: Annotated[str, typer.Option(help="T, the decay included.")] = "",
    warmup: Annotated[str | None, typer.Option(help="Warm-up steps; default 0, or the study's.")] = None,
    decay_steps: Annotated[
        str | None, typer.Option(help="Steps of WSD's decay to zero; default 0, or the study's.")
    ] = None,
    schedule: Annotated[str | None, typer.Option(help="wsd, cosine or constant; default wsd, or the study's.")] = None,
    optimizer: Annotated[
        str | None, typer.Option(help="adamw, adam, adamh or muonh; default adamw, or the study's.")
    ] = None,
    beta1: Annotated[str, typer.Option(help="Adam's β₁, or the fitted one.")] = "0.95",
    init_std: Annotated[str, typer.Option(help="RMS of a weight at the start.")] = "0.02",
    update_rms: Annotated[
        str, typer.Option(help="RMS of Adam's update; default: of noise gradients, √((1−β₁)/(1+β₁)).")
    ] = "",
    eff_lr: Annotated[str, typer.Option(help="A mean η_eff: answer with the LR that has it.")] = "",
    solve_weight_decay: Annotated[bool, typer.Option(help="With --eff-lr and --lr: solve for λ.")] = False,
    equilibrium: Annotated[bool, typer.Option("--equilibrium", help="W_∞/W₀ and η_eff(∞) of each LR.")] = False,
    sweep_steps: Annotated[str, typer.Option(help="Swept horizons, e.g. 10k,20k,40k: predict the bend.")] = "",
    law_slope: Annotated[str, typer.Option(help="d log η_eff*/d log T of the straight law.")] = "-0.3",
    independent_decay: Annotated[bool, typer.Option(help="Weights shrink by λ a step, not η·λ.")] = False,
    trajectories: Annotated[Path | None, typer.Option(help="Of the study, if they lie elsewhere (Parquet).")] = None,
    where: Annotated[str | None, typer.Option(help="Rows of the study to keep (SQL).")] = None,
    params: Annotated[str, typer.Option(help="Which N of the study; default: the largest with trajectories.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="JSON alone on stdout.")] = False,
) -> None:
    """Regime, timescales and slope of an LR, the LR of an η_eff, and how a straight η law would bend.

    With a study: its fitted constants beside the theory's, held-out errors, and the λ = 0 check where it has
    no weight decay. With --lr or --eff-lr as well, the question is answered by the calibrated network.
    """
    try:
        known = load_study(study, trajectories, where, params) if study is not None else None
        lrs = [parse_positive(one, what="lr") for text in lr or [] for one in text.split(",")]
        if known is not None and not lrs and not eff_lr:
            if as_json:
                print_json(report_json(known))
            else:
                show_report(make_console(), known)
            return
        run = _planned(
            known, schedule, optimizer, steps, warmup, decay_steps, weight_decay, independent_decay=independent_decay
        )
        matrices = known.matrices(run) if known is not None else _typed(beta1, init_std, update_rms)
        # another λ or length than the trunk's cannot share its beginning
        from_start = known.matrices_from_start() if known is not None else matrices
        answer = _answer(run, from_start if solve_weight_decay else matrices, lrs, eff_lr, solve_weight_decay)
        if sweep_steps:
            answer["bend"] = _bend(run, from_start, answer["diagnosis"][-1], sweep_steps, law_slope)
        if equilibrium:
            answer["equilibrium"] = _equilibrium(run, from_start, [one.lr for one in answer["diagnosis"]])
    except EtastarError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    if as_json:
        print_json(_plain(answer))
    else:
        _show(answer, run)


def _planned(
    known: StudyTheory | None,
    schedule: str | None,
    optimizer: str | None,
    steps: str,
    warmup: str | None,
    decay_steps: str | None,
    weight_decay: str | None,
    *,
    independent_decay: bool,
) -> PlannedRun:
    """The run asked about: what was typed, else the study's, else the defaults."""
    if not steps and known is None:
        raise InputError("steps: not given", hint="say how long the run is, e.g. --steps 200k")
    length = parse_positive(steps, what="steps") if steps else float(known.steps if known else 1)
    if length > 20_000_000:
        raise InputError(f"steps: {format_number(length)} is more than 20M", hint="steps, not tokens: D = B·T")
    usual = known.settings if known is not None else None
    kind = schedule or (usual.schedule if usual else "wsd")
    rule = optimizer or (usual.optimizer.value if usual else "adamw")
    for what, value, allowed in (
        ("schedule", kind, ("wsd", "cosine", "constant")),
        ("optimizer", rule, tuple(Optimizer)),
    ):
        if value not in allowed:
            raise InputError(f"{what}: {value[:40]!r} is unknown", hint=f"one of {', '.join(allowed)}")
    decay = parse_number(weight_decay or (str(usual.weight_decay) if usual else "0.1"), what="weight decay")
    if decay < 0:
        raise InputError(f"weight decay: {weight_decay} is below zero", hint="give zero or above")
    counts = {
        "steps": length,
        "warmup_steps": parse_number(warmup or (str(usual.warmup_steps) if usual else "0"), what="warmup"),
        "decay_steps": parse_number(
            decay_steps or (str(usual.decay_of(round(length))) if usual and kind == "wsd" else "0"), what="decay steps"
        ),
    }
    return PlannedRun(
        schedule=Schedule.model_validate({"kind": kind, **counts}),
        weight_decay=decay,
        independent_decay=independent_decay or bool(usual and usual.independent_decay),
        optimizer=Optimizer(rule),
    )


def _typed(beta1: str, init_std: str, update_rms: str) -> Matrices:
    beta = parse_number(beta1, what="beta1")
    if not -1 < beta < 1:
        raise InputError(f"beta1: {beta1} is not between −1 and 1", hint="Adam's β₁ is 0.9 or 0.95")
    rms = parse_positive(update_rms, what="update RMS") if update_rms else noise_update_rms(beta)
    return typed_matrices(beta1=beta, init_std=parse_positive(init_std, what="initial RMS"), update_rms=rms)


def _answer(
    run: PlannedRun,
    matrices: MatricesAt,
    lrs: list[float],
    eff_lr: str,
    solve_weight_decay: bool,
) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    if eff_lr:
        target = parse_positive(eff_lr, what="η_eff")
        if solve_weight_decay:
            if len(lrs) != 1:
                raise InputError(f"lr: {len(lrs)} given", hint="solving for λ needs one --lr")
            solved = invert_weight_decay(target, lr=lrs[0], run=run, matrices=_at(matrices, lrs))
            answer["weight_decay"] = solved
            run = run.model_copy(update={"weight_decay": solved.value})
        else:
            answer["lr"] = invert_eff_lr(target, run=run, matrices=matrices)
            lrs = [*lrs, answer["lr"].value]
    if not lrs:
        raise InputError("lr: not given", hint="give --lr 2^-10, or --eff-lr to solve for it")
    answer["diagnosis"] = diagnose(lrs, run=run, matrices=matrices)
    return answer


def _at(matrices: MatricesAt, lrs: list[float]) -> Matrices:
    return matrices(np.array(lrs)) if callable(matrices) else matrices


def _equilibrium(run: PlannedRun, matrices: MatricesAt, lrs: list[float]) -> list[dict[str, float]]:
    """W_∞/W₀ and η_eff(∞), the mean over matrices; without weight decay there is none, and that is said."""
    if run.optimizer.fixes_norm:
        raise InputError(f"{run.optimizer} holds the norm fixed: W_∞ is W₀", hint="η_eff(t) is η(t) itself")
    found = []
    for lr in lrs:
        some = _at(matrices, [lr])
        ratio = equilibrium_of(np.array([lr]), run=run, matrices=some) / some.weight_norm0
        rate = equilibrium_eff_lr(
            lr=lr, weight_decay=run.decay, beta1=some.beta1, independent_decay=run.independent_decay
        )
        found.append({"lr": lr, "norm_ratio": float(np.mean(ratio)), "eff_lr": float(np.mean(rate))})
    return found


def _bend(run: PlannedRun, matrices: MatricesAt, target: Diagnosis, sweep_steps: str, law_slope: str) -> Bend:
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
    """Results → JSON: records to objects, arrays to lists."""
    if isinstance(value, (Diagnosis, Inversion, Bend)):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def _show(answer: dict[str, Any], run: PlannedRun) -> None:
    console = make_console()
    for name in ("lr", "weight_decay"):
        if name in answer:
            solved = answer[name]
            shown = format_lr(solved.value) if name == "lr" else f"{solved.value:.4g}"
            console.print(
                f"{name.replace('_', ' ')} {shown} has mean η_eff {solved.mean_eff_lr:.4g} "
                f"over {format_number(run.steps)} steps",
                highlight=False,
            )
    console.print(regime_table("", answer["diagnosis"]))
    for one in answer["diagnosis"]:
        console.print(f"{format_lr(one.lr)}: {one.words}", highlight=False)
    for one in answer.get("equilibrium", ()):
        console.print(
            f"{format_lr(one['lr'])}: in equilibrium ‖w‖ is {one['norm_ratio']:.3g} ‖w₀‖ and η_eff {one['eff_lr']:.4g}",
            highlight=False,
        )
    if "bend" in answer:
        console.print(answer["bend"].words, highlight=False)
