"""`etastar plan`: from "N, D, 20 %" to a plan file with a price, and what to expect of it.

With the path of a plan it prices that file as it stands, edited or not.
"""

from __future__ import annotations

import contextlib
import enum
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from etastar.cli.options import Json, print_json
from etastar.cli.plan_show import Watch, plan_json, show_expectation, show_found, show_plan
from etastar.errors import InputError, SpecError
from etastar.plan.make import MOST_SEEDS, PlanRequest, make_plan, octaves, spec_without_choices
from etastar.plan.price import price_plan
from etastar.plan.study_plan import Budget, Hardware, StudyPlan, load_plan
from etastar.scale import parse_number, parse_positive

if TYPE_CHECKING:
    from etastar.simulate import World
    from etastar.train.spec import TrainSpec

MOST_WORLDS = 10_000


class PlanAxis(enum.StrEnum):
    """Along what the runs of a plan approach the target."""

    DATA = "data"
    MODEL = "model"
    BOTH = "both"


class Counts(enum.StrEnum):
    """How a budget is counted."""

    PAPER = "paper"
    TRUE = "true"


class Switch(enum.StrEnum):
    """On or off."""

    ON = "on"
    OFF = "off"


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
        Path | None, typer.Option("--from", help="Draw the worlds from a study of yours (folder or runs file).")
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
        machine = _hardware(gpu, gpus, mfu)
        # what the stacks share
        content = _specification(
            preset, spec, width, layers, optimizer, corpus, batch=batch, warmup=warmup, decay=decay
        )
        whole = make_plan(
            PlanRequest(
                name=name or f"{preset or 'study'}-{width}",
                spec=spec_without_choices(content),
                width=content["model"]["width"],
                tokens=_needed(tokens, "--tokens", "the target's D, e.g. --tokens 100B"),
                lrs=_learning_rates(lrs) if lrs is not None else tuple(content["lrs"]),
                budget=_budget(budget, cost, axis),
                seeds=_between(seeds, "--seeds", 1, MOST_SEEDS),
                widths=_widths(widths, preset, axis, content),
                horizons=_whole_numbers(horizons, "--horizons") if horizons is not None else (),
                count=None if points is None else _between(points, "--points", 2, 100),
                lrs_a_stack=None if stack is None else _between(stack, "--stack", 1, 10_000),
                hardware=machine,
                tokens_per_second=None
                if tokens_per_second is None
                else parse_positive(tokens_per_second, what="--tokens-per-second"),
                adaptive=adaptive is Switch.ON,
            )
        )
        if not optimize:
            _write(whole, out, force=force)
    console = Console(stderr=as_json, highlight=False)
    found = expectation = None
    if optimize:
        found = _optimized(whole, study, where, max(worlds, 6), seed, console)
        whole = found.best.plan
        target = out if plan is None else plan.with_name(f"{plan.stem}-optimized{plan.suffix}")
        _write(whole, target, force=force)
        out = target
    elif worlds and whole.target is not None:
        from etastar.design.expect import expect

        with Watch(console, "the plan in simulated worlds") as watch:
            expectation = expect(
                whole,
                _worlds(whole, study, where, worlds, seed),
                seed=seed,
                each=lambda done: watch.tell("the plan in simulated worlds", done, worlds),
            )
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
        if corpus is None and spec is None and plan is None:
            console.print("name spec.data.corpus in it (or --corpus) before you launch", markup=False)


_MAKING = ("preset", "spec", "width", "tokens", "budget", "lrs", "horizons", "points", "widths", "corpus", "stack")


def _refuse_extremes(*, worlds: int, seed: int) -> None:
    if not 0 <= worlds <= MOST_WORLDS:
        raise InputError(f"--worlds: {worlds} is not between 0 and {MOST_WORLDS}", hint="24 is the default")
    if not 0 <= seed < 2**32:
        raise InputError(f"--seed: {seed} is not between 0 and 2^32", hint="0 is the default")


def _hardware(gpu: str, gpus: int, mfu: float) -> Hardware:
    if not 0 < mfu <= 1:
        raise InputError(f"--mfu: {mfu} is not between 0 and 1", hint="0.4 is common for a GPT in bf16")
    try:
        return Hardware(gpu=gpu, gpus=_between(gpus, "--gpus", 1, 1_000_000), mfu=mfu)
    except SpecError as error:
        raise InputError(f"--{error.message}", hint=error.hint.partition(";")[0]) from None


def _specification(
    preset: str | None,
    path: Path | None,
    width: int | None,
    layers: int,
    optimizer: str,
    corpus: str | None,
    *,
    batch: int | None,
    warmup: int | None,
    decay: int | None,
) -> dict[str, Any]:
    """The training specification of the target's model, whole and checked."""
    from etastar.train import presets
    from etastar.train.spec_file import build_spec, load_spec

    if (preset is None) == (path is None):
        raise InputError(
            "give a plan, --preset or --spec",
            hint="etastar plan --preset gpt2 --width 2048 --tokens 100B --budget 0.2",
        )
    if path is not None:
        content = load_spec(path).model_dump(mode="json")
        content["model"] |= {} if width is None else {"width": width}
    else:
        if width is None:
            raise InputError("--width is missing", hint="the width of the target's model, e.g. --width 2048")
        if optimizer not in ("adamw", "adam", "adamh", "muonh"):
            raise InputError(f"--optimizer: {optimizer[:40]!r} is not known", hint="adamw, adam, adamh or muonh")
        data = _data(corpus)
        if preset == "gpt2":
            if width not in presets.PAPER_WIDTHS:
                listed = ", ".join(map(str, presets.PAPER_WIDTHS))
                raise InputError(
                    f"--width: {width} is not a width of the preset gpt2 ({listed})",
                    hint="take one of them, or another model with --spec spec.yaml",
                )
            made: TrainSpec = presets.gpt2(width=width, optimizer=optimizer, **data)
        elif preset == "rope":
            made = presets.rope(
                width=_between(width, "--width", 1, 10**6),
                layers=_between(layers, "--layers", 1, 10_000),
                optimizer=optimizer,
                **data,
            )
        else:
            raise InputError(f"--preset: {str(preset)[:40]!r} is not known", hint="gpt2 or rope")
        content = made.model_dump(mode="json")
    content |= {} if batch is None else {"batch_sequences": batch}
    content["schedule"] |= {k: v for k, v in (("warmup_steps", warmup), ("decay_steps", decay)) if v is not None}
    if batch is not None or warmup is not None or decay is not None or width is not None:
        # horizons are chosen later: a long one stands in, so that the rest is checked
        content = build_spec(content | {"horizons": [10**12]}, where="plan").model_dump(mode="json")
    return content


def _data(corpus: str | None) -> dict[str, Any]:
    """The preset's data: its own vocabulary until a corpus is named."""
    from etastar.train.spec import DataSpec

    if corpus is None:
        return {}
    if corpus == "synthetic":
        data = DataSpec()
        return {"data": data, "vocab": data.synthetic_vocab, "eval_tokens": 32_768}
    data = DataSpec(corpus=corpus)
    if corpus == "default":
        return {"data": data, "vocab": math.ceil(data.default_vocab / 64) * 64}
    from etastar.train.data import Corpus

    return {"data": data, "vocab": math.ceil(Corpus.open(corpus).vocab / 64) * 64}


def _budget(text: str | None, cost: Counts, axis: PlanAxis) -> Budget | None:
    if text is None:
        return None
    stripped = text.strip()
    ratio = parse_positive(stripped.removesuffix("%"), what="--budget") / (100 if stripped.endswith("%") else 1)
    if not 1e-9 <= ratio <= 1e6:
        raise InputError(f"--budget: {text} is not between 1e-9 and 1e6", hint="0.2 is a fifth")
    return Budget(ratio=ratio, counts=cost.value, axis=axis.value)


def _widths(text: str | None, preset: str | None, axis: PlanAxis, content: dict[str, Any]) -> tuple[int, ...]:
    """The smaller models that a plan may use: typed, the preset's, or multiples of the head dimension."""
    own, head = int(content["model"]["width"]), int(content["model"]["head_dim"])
    if text is not None:
        chosen = _whole_numbers(text, "--widths")
    elif axis is PlanAxis.MODEL and preset == "gpt2":
        from etastar.train.presets import PAPER_WIDTHS

        chosen = tuple(w for w in PAPER_WIDTHS if w < own)
    elif axis is PlanAxis.MODEL:
        scales = {max(round(own / 2 ** (k / 2) / head), 1) * head for k in range(1, 7)}
        chosen = tuple(sorted(w for w in scales if w < own))
    else:
        return ()
    for width in chosen:
        if width % head:
            raise InputError(
                f"--widths: {width} is not a multiple of head_dim {head}", hint=f"take {-(-width // head) * head}"
            )
    return chosen


def _learning_rates(text: str) -> tuple[float, ...]:
    """ "2^-10,2^-9" or "2^-15:2^-7:0.5", ends included."""
    parts = text.split(":")
    if len(parts) == 1:
        found = tuple(parse_positive(part, what="--lrs") for part in text.split(",") if part.strip())
    elif len(parts) == 3:
        low, high = (math.log2(parse_positive(part, what="--lrs")) for part in parts[:2])
        step = parse_positive(parts[2], what="--lrs")
        if not 0 <= (high - low) / step < 1000:
            raise InputError(f"--lrs: {text[:40]!r} holds no or too many values", hint="write 2^-15:2^-7:0.5")
        found = octaves(low, high, step)
    else:
        raise InputError(f"--lrs: {text[:40]!r} is neither a list nor FROM:TO:OCTAVES", hint="write 2^-15:2^-7:0.5")
    if len(set(found)) < 3:
        raise InputError(f"--lrs: {len(set(found))} learning rates make no curve", hint="at least three, better nine")
    return tuple(sorted(set(found)))


def _whole_numbers(text: str, what: str) -> tuple[int, ...]:
    values = [parse_positive(part, what=what) for part in text.split(",") if part.strip()]
    broken = [v for v in values if not v.is_integer() or v > 10**15]
    if broken or not values:
        raise InputError(f"{what}: {text[:40]!r} is not a list of whole numbers", hint="e.g. 10000,20000,40000")
    return tuple(sorted({int(v) for v in values}))


def _needed(text: str | None, what: str, hint: str) -> float:
    if text is None:
        raise InputError(f"{what} is missing", hint=hint)
    value = parse_number(text, what=what)
    if not 1 <= value <= 1e18:
        raise InputError(f"{what}: {text} is not between 1 and 1e18", hint=hint)
    return value


def _between(value: int, what: str, low: int, high: int) -> int:
    if not low <= value <= high:
        raise InputError(f"{what}: {value} is not between {low} and {high}", hint="see etastar plan --help")
    return value


def _worlds(plan: StudyPlan, study: Path | None, where: str | None, count: int, seed: int) -> list[World]:
    """Worlds to try the plan in: from priors, or from the user's study."""
    if study is None:
        from etastar.design.priors import prior_worlds

        return prior_worlds(plan, count, seed=seed)
    from etastar.design.study import worlds_from
    from etastar.estimate.cells import build_groups
    from etastar.importers.tables import read_runs

    groups = [group for group in build_groups(read_runs(study, where=where).table) if group.blocks]
    if len(groups) > 1:
        labels = "; ".join(group.label for group in groups[:3])
        raise InputError(f"--from: the runs hold {len(groups)} groups ({labels})", hint="pick one with --where")
    return worlds_from(groups[0], plan, count, seed=seed)


def _optimized(plan: StudyPlan, study: Path | None, where: str | None, count: int, seed: int, console: Console) -> Any:
    from etastar.design.search import optimize

    every = _worlds(plan, study, where, 2 * count, seed)
    with Watch(console, "plans of equal cost") as watch:
        return optimize(plan, every[:count], every[count:], seed=seed, progress=watch.tell)


def _write(plan: StudyPlan, out: Path, *, force: bool) -> None:
    """Write beside the target first, so that a broken write leaves the old file whole."""
    text = plan.to_yaml()
    try:
        if out.exists() and not force and out.read_text(encoding="utf-8") != text:
            raise InputError(
                f"--out: {out.name!r} is there and differs", hint="--force writes over it, or name another"
            )
        partial = out.with_name(f".{out.name}.partial")
        try:
            partial.write_text(text, encoding="utf-8")
            partial.replace(out)
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise InputError(f"--out: cannot write {str(out)[:60]!r}: {said}", hint="choose another place") from None
