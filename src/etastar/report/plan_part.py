"""What was planned, and what does it cost? The plan of a study's folder, priced, where it has one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from etastar.errors import EtastarError
from etastar.plan.price import PlanPrice, price_plan
from etastar.plan.study_plan import StudyPlan, load_plan
from etastar.report.tables import Column, Table, table
from etastar.report.words import percent_words
from etastar.scale import format_number


@dataclass(frozen=True)
class PlanPart:
    """A plan and its price; `problem` where the file cannot be read."""

    name: str = ""
    target: str = ""
    stacks: Table | None = None
    price: Table | None = None
    words: str = ""
    problem: str = ""


def plan_part(folder: Path | None) -> PlanPart | None:
    """The plan of a folder; None where there is none."""
    if folder is None or not (folder / "plan.yaml").is_file():
        return None
    try:
        plan = load_plan(folder / "plan.yaml")
        price = price_plan(plan)
    except EtastarError as error:
        return PlanPart(problem=f"{error.message} ({error.hint})")
    target = plan.target
    said = "" if target is None else f"N = {format_number(target.params)}, D = {format_number(target.tokens)}"
    return PlanPart(plan.name, said, _stacks(plan, price), _price(plan, price), _words(plan, price))


def _stacks(plan: StudyPlan, price: PlanPrice) -> Table:
    columns = (
        Column("name", "stack", "text"), Column("params", "N", "scale"), Column("seed", "seed", "int"),
        Column("lrs", "learning rates", "text"), Column("horizons", "horizons (tokens)", "text"),
        Column("flop", "FLOP"), Column("gpu_hours", "GPU-hours"),
    )  # fmt: skip
    rows = []
    for stack, priced in zip(plan.stacks, price.stacks, strict=True):
        logs = np.log2(stack.lrs)
        batch = plan.batch_tokens_of(stack)
        tokens = [format_number(h * batch) for h in sorted(stack.horizons)]
        shown = ", ".join(tokens) if len(tokens) <= 6 else f"{', '.join(tokens[:3])} … {tokens[-1]} ({len(tokens)})"
        rates = f"{len(logs)}: 2^{min(logs):g} … 2^{max(logs):g}"
        rows.append((stack.name, priced.params, stack.seed, rates, shown, priced.flop, priced.seconds / 3600))
    return table("The stacks of the plan", columns, rows)


def _price(plan: StudyPlan, price: PlanPrice) -> Table:
    columns = (
        Column("what", "", "text"), Column("flop", "FLOP"), Column("gpu_hours", "GPU-hours"),
        Column("counted", "counted as", "text"),
    )  # fmt: skip
    hours = price.gpu_seconds / price.flop / 3600
    rows = []
    if plan.target is not None and price.budget_ratio is not None:
        paper = price.budget_ratio * 6 * plan.target.params * plan.target.tokens
        counted = f"{percent_words(price.budget_ratio)} of one target run, each cell once"
        rows.append(("the paper's β = Σα", paper, paper * hours, counted))
    share = "all learning rates and seeds" if price.true_ratio is None else f"{percent_words(price.true_ratio)} of it"
    rows.append(("true cost", price.flop, price.flop * hours, f"{share}, shared trunks once"))
    if price.target_sweep_flop is not None:
        counted = f"{price.learning_rates:g} learning rates at the target's N and D"
        rows.append(("a sweep at target scale", price.target_sweep_flop, price.target_sweep_flop * hours, counted))
    return table("What it costs", columns, rows)


def _words(plan: StudyPlan, price: PlanPrice) -> str:
    hardware = plan.hardware
    speed = "measured tokens/s" if hardware.tokens_per_second else f"MFU {hardware.mfu:.0%}"
    return (
        f"{price.runs} runs on {hardware.gpus} × {hardware.gpu} ({speed}): {price.wall_seconds / 3600:.3g} hours of wall "
        f"time, at most {price.disk_bytes / 1e9:.3g} GB of checkpoints; adaptive {'on' if plan.adaptive else 'off'}"
    )
