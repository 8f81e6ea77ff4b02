"""Figure 1: which cells does each strategy train for one prediction, at equal compute?

Along D: the target's own model on less data. Along N: smaller models on all of the data. Drawn for the largest test
cell, at one budget that both axes can spend.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from etastar.laws.loglinear import Axis
from etastar.predict.evaluate import Row
from etastar.report.figures import style
from etastar.report.figures.judged import judged
from etastar.report.figures.missing import Missing
from etastar.report.view import StudyView, training_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "extrapolation"
USUAL_BUDGET = 0.35


@dataclass(frozen=True)
class ExtrapolationData:
    """The (N, D) plane of a study, as pairs [N, D]."""

    target: list[float]
    budget_ratio: float
    cells: list[list[float]]  # every measured cell
    along_data: list[list[float]]  # the training set of the data axis
    along_model: list[list[float]]  # of the model axis; empty where no two smaller models are there
    training: str


def data(view: StudyView) -> ExtrapolationData | Missing:
    """The training sets of the main group's largest test cell."""
    group = view.main
    found = judged(view, NAME)
    if isinstance(found, Missing):
        return found
    longest = max(found.test_tokens)
    rows = [row for row in found.rows if row.target.tokens == longest]
    by_axis = {axis: [row for row in rows if row.axis is axis] for axis in (Axis.DATA, Axis.MODEL)}
    if not by_axis[Axis.DATA]:
        return Missing(NAME, "no two shorter horizons of the largest N fit into a budget", "shorter horizons of it")
    model = _nearest(by_axis[Axis.MODEL], USUAL_BUDGET) if by_axis[Axis.MODEL] else None
    along = _nearest(by_axis[Axis.DATA], model.budget_ratio if model else USUAL_BUDGET)
    return ExtrapolationData(
        target=[found.params, longest],
        budget_ratio=along.budget_ratio,
        cells=[[block.params, float(d)] for block in group.blocks for d in block.tokens],
        along_data=[[n, float(d)] for n, d in along.training],
        along_model=[[n, float(d)] for n, d in model.training] if model else [],
        training=training_of(group),
    )


def _nearest(rows: list[Row], budget_ratio: float) -> Row:
    return min(rows, key=lambda row: abs(row.budget_ratio - budget_ratio))


def draw(found: ExtrapolationData) -> Figure:
    """The plane of D and N: measured cells grey, the target a star, arrows along either axis."""
    with style.paper():
        figure, (ax,) = style.canvas(style.ONE_COLUMN, 2.7)
        ax.plot([d for _, d in found.cells], [n for n, _ in found.cells], ".", color="#BBBBBB", ms=2.5, zorder=1)
        params, tokens = found.target
        _arrow(ax, found.along_data, found.target, style.BLUE)
        _arrow(ax, found.along_model, found.target, style.VERMILION)
        ax.plot([tokens], [params], "*", ms=11, color=style.INK, zorder=5)
        style.scale_axis(ax, [d for _, d in found.cells])
        ax.set_yscale("log")
        sizes = sorted({n for n, _ in found.cells})
        ax.set_yticks(sizes, labels=[style.short(n) for n in sizes])
        ax.minorticks_off()
        room = (sizes[-1] / sizes[0]) ** 0.09 if len(sizes) > 1 else 1.5
        ax.set_ylim(sizes[0] / room, sizes[-1] * room**2.2)
        ax.set_xlabel("tokens D")
        ax.set_ylabel("parameters N")
        ax.annotate("target", (tokens, params), (-2, 8), textcoords="offset points", ha="center", fontsize=style.SMALL)
        ax.annotate(
            "along D: this model, less data", (tokens, params), (-9, -6), textcoords="offset points",
            ha="right", va="top", color=style.BLUE, fontsize=style.SMALL, bbox={"fc": "white", "ec": "none", "pad": 0.8},
        )  # fmt: skip
        if found.along_model:
            ax.annotate(
                "along N: smaller models,\nall of the data", (tokens, found.along_model[0][0]), (-8, 0),
                textcoords="offset points", ha="right", va="center", color=style.VERMILION, fontsize=style.SMALL,
                bbox={"fc": "white", "ec": "none", "pad": 1.0},
            )  # fmt: skip
        style.heading(figure, f"either costs β = {found.budget_ratio:.1%} of one run at the target", found.training)
        return figure


def _arrow(ax: Axes, cells: list[list[float]], target: list[float], colour: str) -> None:
    if not cells:
        return
    ax.plot([d for _, d in cells], [n for n, _ in cells], "o", ms=5.5, color=colour, zorder=4)
    last = cells[-1]
    ax.annotate(
        "", (target[1], target[0]), (last[1], last[0]),
        arrowprops={"arrowstyle": "->", "color": colour, "lw": 1.2, "ls": "--", "shrinkA": 4, "shrinkB": 6}, zorder=3,
    )  # fmt: skip
