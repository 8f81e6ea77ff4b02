"""`etastar plan`: from "N, D, 20 %" to a plan file with a price, and what to expect of it.

With the path of a plan it prices that file as it stands, edited or not.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from etastar.cli.options import Json, print_json
from etastar.cli.plan_request import (
    Counts,
    PlanAxis,
    Switch,
    between,
    read_budget,
    read_hardware,
    read_learning_rates,
    read_specification,
    read_tokens,
    read_whole_numbers,
    smaller_widths,
)
from etastar.cli.plan_show import Watch, plan_json, show_expectation, show_found, show_plan
from etastar.errors import InputError
from etastar.plan.make import MOST_SEEDS, PlanRequest, make_plan, spec_without_choices
from etastar.plan.price import price_plan
from etastar.plan.study_plan import StudyPlan, load_plan
from etastar.scale import parse_positive
from etastar.shipped import named

if TYPE_CHECKING:
    from etastar.design.expect import Expectation
    from etastar.design.search import Found
    from etastar.simulate import World

MOST_WORLDS = 10_000
LEAST_SEARCHED = 6  # worlds of a search, in three rounds


def plan_command(
    plan: Annotated[Path | None, typer.Argument(help="A plan to price again, e.g. after editing it.")] = None,
    preset: Annotated[str | None, typer.Option(help="gpt2 (the paper's) or rope (small scale).")] = None,
    spec: Annotated[Path | None, typer.Option(help="In place of a preset: a training specification in YAML.")] = None,
    width: Annotated[int | None, typer.Option(help="Width of the target's model.")] = None,
    tokens: Annotated[str | None, typer.Option(help="D of the target, e.g. 100B.")] = None,
    budget: Annotated[str | None, typer.Option(help="What the runs may cost, e.g. 0.2 or 20%.")] = None,
    cost: Annotated[
        Counts,
        typer.Option(help="Budget of what: paper's β = Σα (of one target run), or true (of a sweep at target scale)."),
    ] = Counts.PAPER,
    axis: Annotated[PlanAxis, typer.Option(help="Short runs of the target's model, smaller models, or both.")] = (
        PlanAxis.DATA
    ),
    lrs: Annotated[str | None, typer.Option(help="Learning rates: a list, or FROM:TO:OCTAVES (2^-15:2^-7:1).")] = None,
    horizons: Annotated[str | None, typer.Option(help="Steps, e.g. 10000,20000, in place of what a budget buys.")] = (
        None
    ),
    points: Annotated[int | None, typer.Option(help="Horizons a model; by default as many as make sense.")] = None,
    widths: Annotated[str | None, typer.Option(help="Smaller widths to choose from.")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of every run.")] = 1,
    layers: Annotated[int, typer.Option(help="Layers of the rope preset.")] = 4,
    optimizer: Annotated[str, typer.Option(help="adamw, adam, adamh or muonh.")] = "adamw",
    corpus: Annotated[str | None, typer.Option(help="A folder of `etastar data prepare`, default, or synthetic.")] = (
        None
    ),
    batch: Annotated[int | None, typer.Option(help="Sequences a step, in place of the preset's.")] = None,
    warmup: Annotated[int | None, typer.Option(help="Warm-up steps, in place of the preset's.")] = None,
    decay: Annotated[int | None, typer.Option(help="Decay steps, in place of the preset's.")] = None,
    gpu: Annotated[str, typer.Option(help="A100, H100, H200, B200, L40S, RTX4090, …")] = "H100",
    gpus: Annotated[int, typer.Option(help="GPUs at once.")] = 1,
    mfu: Annotated[float, typer.Option(help="Assumed share of the GPU's dense bf16 peak.")] = 0.4,
    tokens_per_second: Annotated[
        str | None, typer.Option(help="Measured, of one stack over all its learning rates; in place of the MFU.")
    ] = None,
    stack: Annotated[int | None, typer.Option(help="Learning rates a stack; by default what a GPU holds.")] = None,
    adaptive: Annotated[Switch, typer.Option(help="Stop hopeless learning rates, widen at an edge; off: the grid.")] = (
        Switch.ON
    ),
    optimize: Annotated[bool, typer.Option("--optimize", help="Search plans of equal true cost.")] = False,
    worlds: Annotated[int, typer.Option(help="Simulated worlds behind the expected error; 0: none.")] = 24,
    study: Annotated[
        Path | None, typer.Option("--from", help="Draw the worlds from a study: yours, or the shipped mini.")
    ] = None,
    where: Annotated[str | None, typer.Option("--where", help="Keep rows of that study, as in `fit`.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the plan.")] = None,
    out: Annotated[Path, typer.Option(help="The plan file.")] = Path("plan.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Write over a plan that is there.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the simulated worlds and of the search.")] = 0,
    as_json: Json = False,
) -> None:
    """Turn a target and a budget into a plan of runs, with its price and the error to expect.

    Example: etastar plan --preset gpt2 --width 2048 --tokens 100B --budget 0.2 --axis data
    """
    asked = {k: v for k, v in locals().items() if k in _MAKING and v is not None}
    _refuse_extremes(worlds=worlds, seed=seed)
    if plan is not None:
        if asked:
            raise InputError(f"--{next(iter(asked))}: not beside a plan that is there", hint=f"edit {plan}")
        whole = load_plan(plan)
    else:
        machine = read_hardware(gpu, gpus, mfu)
        content = read_specification(
            preset, spec, width, layers, optimizer, corpus, batch=batch, warmup=warmup, decay=decay
        )
        speed = None if tokens_per_second is None else parse_positive(tokens_per_second, what="--tokens-per-second")
        request = PlanRequest(
            name=name or f"{preset or 'study'}-{content['model']['width']}",
            spec=spec_without_choices(content),
            width=content["model"]["width"],
            tokens=read_tokens(tokens),
            lrs=read_learning_rates(lrs) if lrs is not None else tuple(content["lrs"]),
            budget=read_budget(budget, cost, axis),
            seeds=between(seeds, "--seeds", 1, MOST_SEEDS),
            widths=smaller_widths(widths, preset, axis, content),
            horizons=read_whole_numbers(horizons, "--horizons") if horizons is not None else (),
            count=None if points is None else between(points, "--points", 2, 100),
            lrs_a_stack=None if stack is None else between(stack, "--stack", 1, 10_000),
            hardware=machine,
            tokens_per_second=speed,
            adaptive=adaptive is Switch.ON,
        )
        whole = make_plan(request)
    console = Console(stderr=as_json, highlight=False)
    found = expectation = None
    if optimize:
        out = out if plan is None else plan.with_name(f"{plan.stem}-optimized{plan.suffix}")
        _refuse_to_lose(out, None, force=force)
        found = _optimized(whole, study, where, max(worlds, LEAST_SEARCHED), seed, console)
        whole = found.best.plan
    elif plan is None:
        _refuse_to_lose(out, whole.to_yaml(), force=force)
    if worlds and not optimize and whole.target is not None:
        expectation = _expected(whole, study, where, worlds, seed, console)
    if plan is None or optimize:
        _write(whole, out)
    if as_json:
        print_json(plan_json(whole, price_plan(whole), expectation, found))
        return
    show_plan(console, whole, price_plan(whole))
    if found is not None:
        show_found(console, found)
    elif expectation is not None:
        show_expectation(console, expectation, study)
    if plan is None or optimize:
        console.print(f"\nwrote {out}", markup=False)
    if plan is None and corpus is None and spec is None:
        console.print("name spec.data.corpus in it (or --corpus) before you launch", markup=False)


_MAKING = ("preset", "spec", "width", "tokens", "budget", "lrs", "horizons", "points", "widths", "corpus", "stack")


def _refuse_extremes(*, worlds: int, seed: int) -> None:
    if not 0 <= worlds <= MOST_WORLDS:
        raise InputError(f"--worlds: {worlds} is not between 0 and {MOST_WORLDS}", hint="24 is the default")
    if not 0 <= seed < 2**32:
        raise InputError(f"--seed: {seed} is not between 0 and 2^32", hint="0 is the default")


def _worlds(plan: StudyPlan, study: Path | None, where: str | None, count: int, seed: int) -> list[World]:
    """Worlds to try the plan in: from priors, or from the user's study."""
    if study is None:
        from etastar.design.priors import prior_worlds

        return prior_worlds(plan, count, seed=seed)
    from etastar.design.study import worlds_from
    from etastar.estimate.cells import build_groups
    from etastar.importers.sources import read_source

    groups = [group for group in build_groups(read_source(named(str(study)), where=where).table) if group.blocks]
    if len(groups) > 1:
        labels = "; ".join(group.label for group in groups[:3])
        raise InputError(f"--from: the runs hold {len(groups)} groups ({labels})", hint="pick one with --where")
    return worlds_from(groups[0], plan, count, seed=seed)


def _expected(
    plan: StudyPlan, study: Path | None, where: str | None, count: int, seed: int, console: Console
) -> Expectation:
    from etastar.design.expect import expect

    drawn = _worlds(plan, study, where, count, seed)
    what = "the plan in simulated worlds"
    with Watch(console, what) as watch:
        return expect(plan, drawn, seed=seed, each=lambda done: watch.tell(what, done, count))


def _optimized(
    plan: StudyPlan, study: Path | None, where: str | None, count: int, seed: int, console: Console
) -> Found:
    from etastar.design.search import optimize

    every = _worlds(plan, study, where, 2 * count, seed)
    with Watch(console, "plans of equal cost") as watch:
        return optimize(plan, every[:count], every[count:], seed=seed, progress=watch.tell)


def _refuse_to_lose(out: Path, text: str | None, *, force: bool) -> None:
    """A plan that is there may have been edited: it is not written over unasked, unless it is the same."""
    try:
        if out.exists() and not force and (text is None or out.read_text(encoding="utf-8") != text):
            raise InputError(f"--out: {out.name!r} is there already", hint="--force writes over it, or name another")
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or "not a text file"
        raise InputError(f"--out: {str(out)[:60]!r}: {said}", hint="choose another place") from None


def _write(plan: StudyPlan, out: Path) -> None:
    """Write beside the target first, so that a broken write leaves the old file whole."""
    partial = out.with_name(f".{out.name}.partial")
    try:
        partial.write_text(plan.to_yaml(), encoding="utf-8")
        partial.replace(out)
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        said = getattr(error, "strerror", None) or str(error)
        raise InputError(f"--out: cannot write {str(out)[:60]!r}: {said}", hint="choose another place") from None
