"""How does a plan look on a terminal, and as JSON? Tables, and a bar while worlds are simulated."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from etastar.plan.price import PlanPrice
from etastar.plan.study_plan import StackPlan, StudyPlan
from etastar.scale import format_number

if TYPE_CHECKING:
    from etastar.design.expect import Expectation
    from etastar.design.search import Found

SHOWN = 12  # candidates


class Watch:
    """A bar on a terminal, nothing elsewhere."""

    def __init__(self, console: Console, what: str) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._progress.add_task(what, total=None)

    def __enter__(self) -> Watch:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def tell(self, what: str, done: int, total: int) -> None:
        """So many of so many are done."""
        self._progress.update(self._task, description=what, completed=done, total=total)


def show_plan(console: Console, plan: StudyPlan, price: PlanPrice) -> None:
    """The runs, model by model, and what they cost."""
    if plan.target is not None:
        said = f"target N = {format_number(plan.target.params)}, D = {format_number(plan.target.tokens)}"
        console.print(f"{plan.name}: {said}", style="bold", markup=False)
    table = Table(box=None, pad_edge=False)
    for title in ("width", "N", "LRs", "seeds", "trunks", "stacks", "FLOP", "GPU-hours", "disk"):
        table.add_column(title, justify="right")
    for width, stacks in _by_width(plan).items():
        priced = [p for p in price.stacks if p.width == width]
        table.add_row(
            str(width),
            format_number(priced[0].params),
            str(len({lr for stack in stacks for lr in stack.lrs})),
            str(len({stack.seed for stack in stacks})),
            str(sum(len(stack.lrs) for stack in stacks)),
            str(len(stacks)),
            f"{sum(p.flop for p in priced):.3g}",
            _hours(sum(p.seconds for p in priced)),
            _bytes(sum(p.disk_bytes for p in priced)),
        )
    console.print(table)
    for width, stacks in _by_width(plan).items():
        _show_model(console, plan, width, stacks)
    _show_price(console, plan, price)


def _show_model(console: Console, plan: StudyPlan, width: int, stacks: list[StackPlan]) -> None:
    training = plan.training_of(stacks[0])
    logs = sorted({round(float(np.log2(lr)), 4) for stack in stacks for lr in stack.lrs})
    spacing = f", every {np.median(np.diff(logs)):g} octave" if len(logs) > 1 else ""
    horizons = sorted({h for stack in stacks for h in stack.horizons})
    tokens = ", ".join(format_number(h * training.batch_tokens) for h in horizons)
    leaves = ", ".join(f"{h - training.decay_of(h):g}" for h in horizons)
    lines = [
        f"width {width}: learning rates 2^{logs[0]:g} … 2^{logs[-1]:g}{spacing}",
        f"  horizons {', '.join(map(str, horizons))} steps = {tokens} tokens",
    ]
    if training.schedule != "cosine":
        lines.append(f"  branches leave the trunk after {leaves} steps")
    for line in lines:
        console.print(line, markup=False)


def _show_price(console: Console, plan: StudyPlan, price: PlanPrice) -> None:
    table = Table(box=None, pad_edge=False, title_justify="left")
    for title in ("", "FLOP", "GPU-hours", "counted as"):
        table.add_column(title, justify="left" if title in ("", "counted as") else "right")
    per_flop = price.gpu_seconds / price.flop
    if plan.target is not None and price.budget_ratio is not None and price.target_sweep_flop is not None:
        run = 6 * plan.target.params * plan.target.tokens
        paper = price.budget_ratio * run
        table.add_row(
            "paper's β = Σα",
            f"{paper:.3g}",
            _hours(paper * per_flop),
            f"{price.budget_ratio:.2%} of one target run, each cell once",
        )
    true = f"{price.true_ratio:.2%} of that sweep" if price.true_ratio is not None else "all learning rates and seeds"
    table.add_row("true cost", f"{price.flop:.3g}", _hours(price.gpu_seconds), f"{true}, trunks shared")
    if price.target_sweep_flop is not None:
        table.add_row(
            "sweep at target scale",
            f"{price.target_sweep_flop:.3g}",
            _hours(price.target_sweep_flop * per_flop),
            f"{price.learning_rates:g} learning rates at the target's N and D",
        )
    console.print()
    console.print(table)
    hardware = plan.hardware
    speed = "measured tokens/s" if hardware.tokens_per_second else f"MFU {hardware.mfu:.0%}"
    console.print(
        f"{price.runs} runs on {hardware.gpus} × {hardware.gpu} ({speed}): {_hours(price.wall_seconds)} hours of wall "
        f"time, at most {_bytes(price.disk_bytes)} of checkpoints; adaptive {'on' if plan.adaptive else 'off'}",
        markup=False,
    )


def show_expectation(console: Console, found: Expectation, study: Path | None) -> None:
    """What to expect of the plan's answer."""
    whence = "like those of your study" if study is not None else "drawn from priors"
    console.print(f"\nexpected, from {found.worlds} simulated worlds {whence}:", markup=False)
    console.print(
        f"  |log2 error| of the learning rate: median {found.median_error:.2f}, 90 % below {found.high_error:.2f} octaves"
    )
    console.print(f"  extra compute (ECR): median {found.median_ecr:.2%}, 90 % below {found.high_ecr:.2%}")
    if found.abstained:
        console.print(f"  no answer in {found.abstained} of {found.worlds} worlds")


def show_found(console: Console, found: Found) -> None:
    """The candidates of a search, best first, and the winner in fresh worlds."""
    table = Table(box=None, pad_edge=False, title="plans of equal true cost", title_justify="left")
    for title in ("mean ECR", "median |error|", "90 %", "worlds", "plan"):
        table.add_column(title, justify="left" if title == "plan" else "right")
    for candidate in found.candidates[:SHOWN]:
        seen = candidate.expectation
        table.add_row(
            f"{seen.mean_ecr:.2%}",
            f"{seen.median_error:.2f}",
            f"{seen.high_error:.2f}",
            str(seen.worlds),
            candidate.what,
        )
    console.print()
    console.print(table)
    for what, seen in (("the first of them", found.fresh), ("the plan as given", found.fresh_start)):
        console.print(
            f"{what} in {seen.worlds} worlds not used in the search: mean ECR {seen.mean_ecr:.2%}, 90 % below "
            f"{seen.high_ecr:.2%}; |log2 error| median {seen.median_error:.2f}, 90 % below {seen.high_error:.2f}"
        )
    if not found.improved:
        console.print("so the plan stays as it was given: no better one was found")
    else:
        console.print(f"it takes {found.best.flop:.3g} FLOP; the plan as given took {found.start.flop:.3g}")


def plan_json(
    plan: StudyPlan, price: PlanPrice, expectation: Expectation | None, found: Found | None
) -> dict[str, Any]:
    """Everything that is shown, and the plan."""
    content: dict[str, Any] = {
        "plan": plan.model_dump(mode="json"),
        "price": asdict(price) | {"true_ratio": price.true_ratio},
        "expected": asdict(expectation) if expectation is not None else None,
    }
    if found is not None:
        content["improved"] = found.improved
        content["expected"] = asdict(found.fresh if found.improved else found.fresh_start)
        content["expected_as_given"] = asdict(found.fresh_start)
        content["candidates"] = [{"what": c.what, "flop": c.flop, **asdict(c.expectation)} for c in found.candidates]
    return content


def _by_width(plan: StudyPlan) -> dict[int, list[StackPlan]]:
    found: dict[int, list[StackPlan]] = {}
    for stack in sorted(plan.stacks, key=lambda s: s.width):
        found.setdefault(stack.width, []).append(stack)
    return found


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"


def _bytes(number: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number / 1e3:.3g} kB"
