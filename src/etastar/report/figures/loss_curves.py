"""Figures 11 to 14: does a cubic (or a quadratic) follow the loss in log η and in log η_eff?

The paper's fits: every point alike, each quantity in its own logarithm. Marked are the lowest measured loss and the
minimum of the fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from etastar.estimate.cells import Quantity
from etastar.estimate.estimates import Estimates
from etastar.estimate.optimum import Status
from etastar.estimate.weights import coordinate
from etastar.report.figures import style
from etastar.report.figures.missing import Missing, no_eff_lr
from etastar.report.figures.optimum import spread
from etastar.report.view import StudyView, training_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

MOST_PANELS = 8
KNOTS = 65


@dataclass(frozen=True)
class LossPanel:
    """One cell: measured losses, the fit through them, and both minima."""

    tokens: float
    log2_x: list[float]
    loss: list[float]
    replicates: list[int]
    diverged_log2_lr: list[float]
    curve_log2_x: list[float]  # empty without a fit
    curve_loss: list[float]
    raw_minimum: list[float]  # [log2 x, loss] of the lowest measured loss
    fitted_minimum: list[float] | None  # of the fit; None unless INTERIOR
    status: str
    r2: float | None


@dataclass(frozen=True)
class LossCurvesData:
    """Some horizons of one N, in one logarithm and degree."""

    quantity: str
    degree: int
    params: float
    training: str
    panels: list[LossPanel]
    median_r2: float | None  # over all cells of this N, drawn or not
    cells: int


def data(
    view: StudyView, quantity: Quantity = Quantity.LR, degree: int = 3, params: float | None = None
) -> LossCurvesData | Missing:
    """Horizons of the test N (or of `params`) in the main group."""
    group = view.main
    name = f"loss-{'lr' if quantity is Quantity.LR else 'eff-lr'}-{'cubic' if degree == 3 else 'quadratic'}"
    found = view.paper_fits(group, degree).get(quantity)
    if found is None:
        return no_eff_lr(name)
    params = params or view.test_cells(group)[0]
    cells = np.flatnonzero(found.params == params)
    fitted = [k for k in cells if found.optima[k].polynomial is not None]
    if not fitted:
        return Missing(
            name, f"no cell has the {degree + 1} losses that a fit takes", "a sweep of at least five learning rates"
        )
    r2 = [found.optima[k].r2 for k in fitted if np.isfinite(found.optima[k].r2)]
    chosen = spread([float(found.tokens[k]) for k in fitted], MOST_PANELS)
    return LossCurvesData(
        quantity=quantity.value,
        degree=degree,
        params=params,
        training=training_of(group),
        panels=[_panel(found, int(k)) for k in fitted if float(found.tokens[k]) in chosen],
        median_r2=float(np.median(r2)) if r2 else None,
        cells=len(fitted),
    )


def _panel(found: Estimates, index: int) -> LossPanel:
    optimum = found.optima[index]
    block, row = found.locate(index)
    known = np.isfinite(block.loss[row])
    x, y = coordinate(block, found.quantity)[row][known], block.loss[row][known]
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    lowest = int(np.argmin(y))
    grid = np.linspace(x[0], x[-1], KNOTS)
    fit = optimum.polynomial
    return LossPanel(
        tokens=optimum.tokens,
        log2_x=x.tolist(),
        loss=y.tolist(),
        replicates=block.count[row][known][order].tolist(),
        diverged_log2_lr=block.log2_lr[block.diverged[row]].tolist(),
        curve_log2_x=grid.tolist() if fit is not None else [],
        curve_loss=fit(grid).tolist() if fit is not None else [],
        raw_minimum=[float(x[lowest]), float(y[lowest])],
        fitted_minimum=[optimum.log2_value, optimum.loss] if optimum.status is Status.INTERIOR else None,
        status=optimum.status.value,
        r2=optimum.r2 if np.isfinite(optimum.r2) else None,
    )


def draw(found: LossCurvesData) -> Figure:
    """Small panels, one a horizon, in two columns' width."""
    with style.paper():
        rows = -(-len(found.panels) // 4)
        columns = -(-len(found.panels) // rows)
        width = style.TWO_COLUMNS if columns > 2 else style.ONE_COLUMN
        figure, axes = style.canvas(width, 0.55 + 1.55 * rows, rows, columns, sharex=True)
        for ax, panel in zip(axes, found.panels, strict=False):
            _draw_panel(ax, panel)
        for ax in axes[len(found.panels) :]:
            ax.remove()
        everything = [x for panel in found.panels for x in panel.log2_x]
        style.log2_axis(axes[0].xaxis, min(everything), max(everything), most=4)
        symbol = "$\\eta$" if found.quantity == Quantity.LR.value else "$\\overline{\\eta}_{\\mathrm{eff}}$"
        for k, ax in enumerate(axes[: len(found.panels)]):
            lowest = k + columns >= len(found.panels)
            ax.set_xlabel(symbol if lowest else "")
            ax.tick_params(labelbottom=lowest)
            ax.set_ylabel("validation loss" if k % columns == 0 else "")
        fit = "cubic" if found.degree == 3 else "quadratic"
        r2 = "" if found.median_r2 is None else f"median R² {found.median_r2:.4f} over {found.cells} horizons"
        style.heading(figure, f"{fit} fit, N = {style.short(found.params)}", r2, found.training)
        figure.legend(*_key(fit), loc="outside lower center", ncols=4 if columns > 2 else 2)
        return figure


def _draw_panel(ax: Axes, panel: LossPanel) -> None:
    ax.plot(panel.log2_x, panel.loss, "o", ms=3, mfc="white", mec=style.BLUE, mew=0.9)
    ax.plot(panel.curve_log2_x, panel.curve_loss, ls=(0, (4, 2)), color=style.INK, lw=0.9)
    ax.plot(*[[v] for v in panel.raw_minimum], "^", ms=5, color=style.GREEN)
    if panel.fitted_minimum is not None:
        ax.plot(*[[v] for v in panel.fitted_minimum], "x", ms=5.5, mew=1.4, color=style.VERMILION)
    r2 = "" if panel.r2 is None else f", R² {panel.r2:.4f}"
    ax.set_title(f"D = {style.short(panel.tokens)}{r2}", fontsize=style.SMALL, pad=3)
    if panel.status != Status.INTERIOR.value:
        ax.text(0.5, 0.97, panel.status, transform=ax.transAxes, ha="center", va="top", fontsize=style.SMALL)
    ax.margins(y=0.12)


def _key(fit: str) -> tuple[list[Line2D], list[str]]:
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], ls="", marker="o", mfc="white", mec=style.BLUE),
        Line2D([], [], ls=(0, (4, 2)), color=style.INK, lw=0.9),
        Line2D([], [], ls="", marker="^", ms=5, color=style.GREEN),
        Line2D([], [], ls="", marker="x", ms=5.5, mew=1.4, color=style.VERMILION),
    ], ["measured", fit, "lowest measured", "minimum of the fit"]
