"""Figure 15: does one mean of η_eff stand for all matrices? Mean ± half a standard deviation over them, LR by LR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from etastar.errors import InputError
from etastar.report.figures import style
from etastar.report.figures.missing import Missing
from etastar.report.figures.over_time import choose, smoothed
from etastar.report.view import StudyView, training_of
from etastar.theory.validate import eff_lr_band

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "weight-spread"
BAND = 0.5  # standard deviations


@dataclass(frozen=True)
class SpreadCurve:
    """One learning rate: η_eff over matrices by step, smoothed."""

    lr: float
    log2_lr: float
    step: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True)
class SpreadData:
    """All learning rates of one N."""

    params: float
    matrices: int
    training: str
    curves: list[SpreadCurve]


def data(view: StudyView, params: float | None = None) -> SpreadData | Missing:
    """Every matrix of the main group's largest N with trajectories."""
    chosen = choose(view, view.main, NAME, params)
    if isinstance(chosen, Missing):
        return chosen
    matrices = min(len(path.matrices) for path in chosen.paths)
    if matrices < 2:
        return Missing(NAME, "one matrix was logged", "runs that log eff_lr of every matrix")
    curves = []
    for path in chosen.paths:
        try:
            band = eff_lr_band(path.matrices)
        except InputError as error:
            return Missing(NAME, error.message, "runs that log all matrices together")
        later = (band.mean > 0) & (band.step >= chosen.warmup_steps)
        step, mean, half = band.step[later], band.mean[later], BAND * band.sd[later]
        # mean ± half σ of a linear quantity may reach below zero, where no logarithm is
        curves.append(
            SpreadCurve(
                lr=path.lr,
                log2_lr=smoothed(path.lr, step, mean).log2_lr,
                step=step.tolist(),
                mean=smoothed(path.lr, step, mean).value,
                low=smoothed(path.lr, step, (mean - half).clip(1e-12)).value,
                high=smoothed(path.lr, step, mean + half).value,
            )
        )
    if not all(curve.step for curve in curves):
        return Missing(NAME, "the trajectories hold no eff_lr", "runs that log eff_lr of each matrix")
    return SpreadData(chosen.params, matrices, training_of(view.main), curves)


def draw(found: SpreadData) -> Figure:
    """A band for each learning rate."""
    with style.paper():
        figure, (ax,) = style.canvas(style.ONE_COLUMN, 2.9)
        colours = style.lr_bar(figure, ax, [curve.log2_lr for curve in found.curves])
        for curve, colour in zip(found.curves, colours, strict=True):
            ax.fill_between(curve.step, np.log2(curve.low), np.log2(curve.high), color=colour, alpha=0.18, lw=0)
            ax.plot(curve.step, np.log2(curve.mean), color=colour, lw=1.1)
        values = np.log2([v for curve in found.curves for v in (*curve.mean, *curve.high)])
        style.steps_axis(ax, [step for curve in found.curves for step in curve.step])
        ax.set_ylim(float(values.min()) - 0.8, float(values.max()) + 0.2)
        style.log2_axis(ax.yaxis, *ax.get_ylim())
        ax.set_ylabel("$\\eta_{\\mathrm{eff}}(t)$")
        style.heading(
            figure, f"N = {style.short(found.params)}, mean ± σ/2 over {found.matrices} matrices", found.training
        )
        return figure
