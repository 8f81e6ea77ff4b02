"""`etastar evaluate`: how well does each strategy predict cells that were measured, budget by budget?"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from etastar.cli import options as o
from etastar.cli.looks import make_console, make_table
from etastar.errors import InputError
from etastar.estimate.cells import EffColumn, Quantity
from etastar.estimate.estimates import estimate_group
from etastar.laws.loglinear import Axis
from etastar.predict.evaluate import STRATEGIES, Evaluation, Row, Score, evaluate
from etastar.predict.strategies import Evidence
from etastar.report.figures.table_one import pick_budgets
from etastar.scale import format_number, parse_positive, parse_range


def evaluate_command(
    runs: o.Runs,
    params: Annotated[str, typer.Option("--params", help="N of the test cells, e.g. 707M.", show_default=False)],
    tokens: Annotated[
        str, typer.Option("--tokens", help="Range of D of the test cells, e.g. 50B:100B.", show_default=False)
    ],
    budgets: Annotated[str, typer.Option("--budgets", help="Range of β.")] = "0.05:0.6",
    every_pair: Annotated[bool, typer.Option("--every-pair", help="Every pair of D, not α₁·D fixed.")] = False,
    mapping: o.Map = None,
    where: o.Where = None,
    group: o.GroupBy = None,
    degree: o.Degree = None,
    window: o.Window = "auto",
    eff_lr: o.EffLr = EffColumn.MEAN,
    surface: o.Surface = False,
    level: o.Level = 0.9,
    seed: o.Seed = 0,
    as_json: o.Json = False,
) -> None:
    """Judge the four strategies on held-out cells: error, loss gap, ECR and R²_OOD at every budget β.

    Prints the paper's Table 1 for the largest test cell. Errors are predicted − measured in octaves, in
    the strategy's own quantity (as the paper's table has it) and in η (which compares across rows).

    Example: etastar evaluate runs.parquet --params 707M --tokens 50B:100B --budgets 0.05:0.6
    """
    size = parse_positive(params, what="params")
    test_range = parse_range(tokens, what="tokens")
    budget_range = parse_range(budgets, what="--budgets")
    if budget_range[1] > 2 or budget_range[0] < 1e-3:
        raise InputError(
            f"--budgets: {budgets} is not within 0.001:2", hint="β is a ratio: 0.05:0.6 is the paper's range"
        )
    loaded = o.load(
        runs, mapping=mapping, where=where, group=group, degree=degree, window=window,
        eff_lr=eff_lr, level=level, replicates=50, seed=seed, surface=surface,
    )  # fmt: skip
    if len(loaded.groups) > 1:
        labels = "; ".join(found.label for found in loaded.groups[:4])
        raise InputError(
            f"{len(loaded.groups)} groups were trained differently: {labels}",
            hint="pick one with --where, or merge with --group",
        )
    evidence = Evidence(loaded.groups[0], estimate_group(loaded.groups[0], loaded.options), eff_lr)
    found = evaluate(evidence, params=size, tokens=test_range, budgets=budget_range, every_pair=every_pair)
    if as_json:
        o.print_json(evaluation_json(found, budgets))
        return
    console = make_console()
    o.print_notes(console, loaded)
    show_evaluation(console, found)
    for axis, _ in _unasked(found):
        console.print(f"[dim]· {axis.value} axis: {_no_training_set(axis, budgets)}[/]")


def _unasked(found: Evaluation) -> list[tuple[Axis, Quantity]]:
    """Strategies for which no budget in the range buys a training set."""
    asked = {(score.axis, score.quantity) for score in found.scores}
    return [strategy for strategy in STRATEGIES if strategy not in asked]


def _no_training_set(axis: Axis, budgets: str) -> str:
    cells = "two horizons of this N" if axis is Axis.DATA else "two smaller model sizes"
    return f"no budget within {budgets} buys {cells}"


def evaluation_json(found: Evaluation, budgets: str) -> dict[str, Any]:
    """Scores by strategy and β, and the rows of every test cell; null with a reason where there is none."""
    unasked = [
        Score(axis, quantity, float("nan"), 0, *[None] * 7, reason=_no_training_set(axis, budgets))
        for axis, quantity in _unasked(found)
    ]
    return {
        "params": found.params,
        "test_tokens": list(found.test_tokens),
        "group": found.group,
        "scores": [_score_json(score) for score in (*found.scores, *unasked)],
        "rows": [_row_json(row) for row in found.rows],
    }


def _score_json(score: Score) -> dict[str, Any]:
    return {
        "axis": score.axis.value,
        "quantity": score.quantity.value,
        "budget_ratio": score.budget_ratio,
        "value": score.log2_error,
        "log2_error": score.log2_error,
        "log2_lr_error": score.log2_lr_error,
        "loss_gap": score.loss_gap,
        "ecr": score.ecr,
        "r2_ood": score.r2_ood,
        "r2_ood_lr": score.r2_ood_lr,
        "true_cost": score.true_cost,
        "tests": score.tests,
        "reason": score.reason,
    }


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "axis": row.axis.value,
        "quantity": row.quantity.value,
        "budget_ratio": row.budget_ratio,
        "params": row.target.params,
        "tokens": row.target.tokens,
        "training": [list(cell) for cell in row.training],
        "value": None if row.log2_value is None else o.exp2(row.log2_value),
        "log2_error": row.log2_error,
        "log2_lr_error": row.log2_lr_error,
        "loss_gap": row.loss_gap,
        "ecr": row.ecr,
        "cost": None
        if row.cost is None
        else {"budget_ratio": row.cost.budget_ratio, "true_ratio": row.cost.true_ratio},
        "flags": [flag.value for flag in row.flags],
        "reason": row.reason,
    }


def show_evaluation(console: Console, found: Evaluation) -> None:
    """Table 1 for the largest test cell, then the scores over all of them."""
    console.print(table_one(found))
    if len(found.test_tokens) > 1:
        console.print(_score_table(found))


def table_one(found: Evaluation) -> Table:
    """The paper's Table 1: error, loss gap and ECR of each setup at some budgets, for the largest test cell."""
    largest = max(found.test_tokens)
    rows = [row for row in found.rows if row.target.tokens == largest]
    budgets = pick_budgets(rows)
    title = f"Table 1 at N = {format_number(found.params)}, D = {format_number(largest)}"
    columns = ("β (%)", "setup", "log2 error", "log2 error in η", "loss gap (1e-4)", "ECR (%)", "true cost (%)")
    table = make_table(title, *columns, left=("setup",))
    for beta in budgets:
        block = [row for row in rows if round(row.budget_ratio, 6) == beta]
        priced = [row.ecr for row in block if row.ecr is not None]
        for row in block:
            ecr = _number(row.ecr, "{:.2f}", 100)
            if row.ecr is not None and row.ecr == min(priced):
                ecr = f"[bold]{ecr}[/]"
            setup = (
                f"{'D' if row.axis.value == 'data' else 'N'}-dim, {'η_eff' if row.quantity is Quantity.EFF_LR else 'η'}"
            )
            table.add_row(
                f"{beta:.2%}".rstrip("%"), setup, _number(row.log2_error, "{:+.4f}"),
                _number(row.log2_lr_error, "{:+.4f}"), _number(row.loss_gap, "{:.2f}", 1e4), ecr,
                _number(row.cost.true_ratio if row.cost else None, "{:.1f}", 100),
            )  # fmt: skip
        table.add_section()
    return table


def _score_table(found: Evaluation) -> Table:
    span = f"{format_number(min(found.test_tokens))} to {format_number(max(found.test_tokens))}"
    columns = (
        "β (%)",
        "strategy",
        "rms log2 error in η",
        "R²_OOD",
        "R²_OOD in η",
        "ECR (%)",
        "true cost (%)",
        "remarks",
    )
    title = f"All {len(found.test_tokens)} test cells, D from {span}"
    table = make_table(title, *columns, left=("strategy", "remarks"))
    budgets = pick_budgets(found.scores)
    for beta in budgets:
        for s in (s for s in found.scores if round(s.budget_ratio, 6) == beta):
            table.add_row(
                f"{beta:.2%}".rstrip("%"), f"{s.axis.value}, {s.quantity.value}", _number(s.log2_lr_error, "{:.3f}"),
                _number(s.r2_ood, "{:.3f}"), _number(s.r2_ood_lr, "{:.3f}"), _number(s.ecr, "{:.2f}", 100),
                _number(s.true_cost, "{:.1f}", 100), (s.reason or "")[:60],
            )  # fmt: skip
        table.add_section()
    return table


def _number(value: float | None, form: str, factor: float = 1.0) -> str:
    return "–" if value is None else form.format(value * factor)
