"""Table 1: prediction error, loss gap and extra compute of each setup, by budget, at the largest test cell.

As Markdown, CSV and LaTeX. Errors are predicted − measured in octaves: in the setup's own quantity, as the paper has
it, and in η, which compares across rows.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from etastar.laws.loglinear import Axis
from etastar.predict.evaluate import Row, Score
from etastar.report.figures.judged import judged, strategy_label
from etastar.report.figures.missing import Missing
from etastar.report.view import StudyView, training_of
from etastar.scale import format_number

NAME = "table-1"
MOST_BUDGETS = 12
_HEADS = ("β (%)", "setup", "log2 error", "log2 error in η", "loss gap (1e-4)", "ECR (%)", "true cost (%)")


@dataclass(frozen=True)
class TableRow:
    """One setup at one budget; None where the number does not exist, with the reason."""

    budget_ratio: float
    axis: str
    quantity: str
    setup: str
    log2_error: float | None
    log2_lr_error: float | None
    loss_gap: float | None
    ecr: float | None
    true_cost: float | None  # of a sweep at the target, trunks paid once
    best: bool  # the lowest ECR of its budget
    reason: str | None


@dataclass(frozen=True)
class TableData:
    """Rows by budget, the paper's order of setups within."""

    params: float
    tokens: float
    training: str
    rows: list[TableRow]


def data(view: StudyView) -> TableData | Missing:
    """Table 1 of the main group."""
    found = judged(view, NAME)
    if isinstance(found, Missing):
        return found
    longest = max(found.test_tokens)
    rows = [row for row in found.rows if row.target.tokens == longest]
    picked = pick_budgets(rows)
    return TableData(
        params=found.params,
        tokens=longest,
        training=training_of(view.main),
        rows=[line for beta in picked for line in _block([row for row in rows if _same(row, beta)])],
    )


def pick_budgets(rows: Sequence[Row | Score], most: int = MOST_BUDGETS) -> list[float]:
    """At most so many budgets: those that both axes have first, then an even spread of the rest."""
    budgets = sorted({round(row.budget_ratio, 6) for row in rows})
    both = [b for b in budgets if len({row.axis for row in rows if _same(row, b)}) == 2]
    shared = both[:: max(1, len(both) // 5 + 1)]
    rest = [b for b in budgets if b not in both]
    spread = rest[:: max(1, len(rest) // (most - len(shared)) + 1)]
    return sorted({*shared, *spread})


def _same(row: Row | Score, beta: float) -> bool:
    return round(row.budget_ratio, 6) == beta


def _block(rows: list[Row]) -> list[TableRow]:
    """One budget: η_eff before η, D before N, as the paper orders them."""
    ordered = sorted(rows, key=lambda row: (row.quantity.value != "eff_lr", row.axis is not Axis.DATA))
    priced = [row.ecr for row in rows if row.ecr is not None]
    return [
        TableRow(
            budget_ratio=row.budget_ratio,
            axis=row.axis.value,
            quantity=row.quantity.value,
            setup=strategy_label(row.axis, row.quantity).replace(", ", "-dim, "),
            log2_error=row.log2_error,
            log2_lr_error=row.log2_lr_error,
            loss_gap=row.loss_gap,
            ecr=row.ecr,
            true_cost=row.cost.true_ratio if row.cost else None,
            best=row.ecr is not None and row.ecr == min(priced),
            reason=row.reason,
        )
        for row in ordered
    ]


def write(found: TableData) -> dict[str, str]:
    """The table in every format, by file ending."""
    return {"md": _markdown(found), "csv": _csv(found), "tex": _latex(found)}


def _cells(row: TableRow) -> list[str]:
    return [
        f"{100 * row.budget_ratio:.2f}",
        row.setup,
        _number(row.log2_error, "{:+.4f}"),
        _number(row.log2_lr_error, "{:+.4f}"),
        _number(row.loss_gap, "{:.2f}", 1e4),
        _number(row.ecr, "{:.2f}", 100),
        _number(row.true_cost, "{:.1f}", 100),
    ]


def _number(value: float | None, form: str, factor: float = 1.0) -> str:
    return "–" if value is None else form.format(value * factor)


def _caption(found: TableData) -> str:
    return (
        "Prediction error, validation loss gap and extra compute ratio of each setup by budget, tested at "
        f"N = {format_number(found.params)}, D = {format_number(found.tokens)} ({found.training}). "
        "Bold: the lowest ECR of its budget."
    )


def _markdown(found: TableData) -> str:
    lines = [f"Table 1. {_caption(found)}", "", f"| {' | '.join(_HEADS)} |", "|---:|:---|" + "---:|" * 5]
    for row in found.rows:
        cells = _cells(row)
        cells[5] = f"**{cells[5]}**" if row.best else cells[5]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _csv(found: TableData) -> str:
    names = (
        "budget_ratio",
        "axis",
        "quantity",
        "log2_error",
        "log2_lr_error",
        "loss_gap",
        "ecr",
        "true_cost",
        "reason",
    )
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("params", "tokens", *names))
    for row in found.rows:
        values = [getattr(row, name) for name in names]
        writer.writerow((found.params, found.tokens, *("" if value is None else value for value in values)))
    return out.getvalue()


_TEX = {"η_eff": r"$\eta_{\text{eff}}$", "η": r"$\eta$", "D-dim": "$D$-dim", "N-dim": "$N$-dim"}


def _latex(found: TableData) -> str:
    head = (
        r"Budget ratio (\%)", "Setup", r"$\log_2$ error", r"$\log_2$ error in $\eta$", r"Loss gap ($10^{-4}$)",
        r"ECR (\%)", r"True cost (\%)",
    )  # fmt: skip
    caption = _caption(found).replace("_", r"\_").replace("λ", r"$\lambda$").replace("β₁", r"$\beta_1$")
    lines = [
        r"\begin{table}[t]", rf"\caption{{{caption}}}", r"\centering", r"\small", r"\begin{tabular}{rlrrrrr}",
        r"\toprule", " & ".join(head) + r" \\",
    ]  # fmt: skip
    last = None
    for row in found.rows:
        if row.budget_ratio != last:
            lines.append(r"\midrule")
            last = row.budget_ratio
        cells = _cells(row)
        dimension, quantity = cells[1].split(", ")
        cells[1] = f"{_TEX[dimension]}, {_TEX[quantity]}"
        numbers = [f"${cell}$" if cell != "–" else "--" for cell in cells[2:]]
        numbers[3] = rf"$\mathbf{{{cells[5]}}}$" if row.best else numbers[3]
        lines.append(" & ".join([f"${cells[0]}$", cells[1], *numbers]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"
