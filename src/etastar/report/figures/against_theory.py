"""Figures 8, 9 and 10: do ‖u_t‖, −⟨u_t, w_t⟩/‖u_t‖ and ‖w_t‖² do what the theory says, LR by LR?"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from etastar.errors import InputError
from etastar.predict.settings import RunSettings, sweep_settings
from etastar.predict.trunks import Path
from etastar.report.figures import style
from etastar.report.figures.missing import Missing
from etastar.report.figures.over_time import choose, smoothed
from etastar.report.view import StudyView, training_of
from etastar.theory import validate
from etastar.theory.planned import PlannedRun
from etastar.theory.trajectories import Trajectory

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Kind(enum.StrEnum):
    """Which quantity."""

    UPDATE_NORM = "update-norm"  # against a constant: assumption 1
    CORRELATION = "correlation"  # against equation (20), for assumption 2
    WEIGHT_NORM = "weight-norm-squared"  # against the recursion driven by the measured ‖u_t‖


@dataclass(frozen=True)
class AgainstTheory:
    """One learning rate, measured and predicted (smoothed alike)."""

    lr: float
    log2_lr: float
    step: list[int]
    measured: list[float]
    predicted_step: list[int]
    predicted: list[float]
    error: float  # median |relative error| of stretches after the warm-up
    worst: float


@dataclass(frozen=True)
class TheoryData:
    """One matrix of one N; `left_out` names learning rates that could not be compared, and why."""

    kind: str
    params: float
    weight: str
    training: str
    curves: list[AgainstTheory]
    left_out: list[str]


def data(view: StudyView, kind: Kind = Kind.UPDATE_NORM, params: float | None = None) -> TheoryData | Missing:
    """The query matrix of the first layer in the main group."""
    group = view.main
    chosen = choose(view, group, kind.value, params)
    if isinstance(chosen, Missing):
        return chosen
    settings = sweep_settings(group)
    beta1 = group.conditions.get("beta1")
    if isinstance(settings, str) or not isinstance(beta1, (int, float)):
        reason = settings if isinstance(settings, str) else "β₁ is not known"
        return Missing(kind.value, reason, "a runs table with optimizer, schedule, weight_decay and beta1")
    curves, left_out = [], []
    for path, matrix in zip(chosen.paths, chosen.matrices, strict=True):
        try:
            curves.append(_compared(kind, path, matrix, settings, float(beta1)))
        except InputError as error:
            left_out.append(error.message)
    if not curves:
        return Missing(kind.value, left_out[0], "runs that are logged more often")
    return TheoryData(kind.value, chosen.params, chosen.weight, training_of(group), curves, left_out)


def _compared(kind: Kind, path: Path, matrix: Trajectory, settings: RunSettings, beta1: float) -> AgainstTheory:
    """From the end of the warm-up: Adam's first updates are many times the later ones, and logs skip most of them."""
    warmup = round(settings.warmup_steps)
    run = _run(path, matrix, settings)
    if kind is Kind.UPDATE_NORM:
        found = validate.update_norm_figure(matrix, warmup_steps=warmup)
    else:
        figure = validate.correlation_figure if kind is Kind.CORRELATION else validate.weight_norm_figure
        found = figure(matrix, lr=path.lr, run=run, beta1=beta1, warmup_steps=warmup)
    measured = smoothed(path.lr, found.step, found.measured)
    predicted = smoothed(path.lr, found.step, found.predicted)
    return AgainstTheory(
        lr=path.lr,
        log2_lr=measured.log2_lr,
        step=measured.step,
        measured=measured.value,
        predicted_step=predicted.step,
        predicted=predicted.value,
        error=found.goodness,
        worst=found.worst,
    )


def _run(path: Path, matrix: Trajectory, settings: RunSettings) -> PlannedRun:
    """The schedule that the logged steps followed: a trunk's, or a whole run's own."""
    if path.shared:
        return settings.trunk(int(matrix.step[-1]) + 1)
    return settings.planned(max(max(path.horizons), int(matrix.step[-1]) + 1) * settings.batch_tokens)


_SYMBOLS = {
    Kind.UPDATE_NORM.value: "$\\Vert u_t \\Vert_2$",
    Kind.CORRELATION.value: "$-\\langle u_t, w_t\\rangle / \\Vert u_t \\Vert_2$",
    Kind.WEIGHT_NORM.value: "$\\Vert w_t \\Vert^2$",
}
_THEORY = {
    Kind.UPDATE_NORM.value: "a constant",
    Kind.CORRELATION.value: "equation (20) with the measured ‖u_t‖",
    Kind.WEIGHT_NORM.value: "the recursion with the measured ‖u_t‖",
}


def draw(found: TheoryData) -> Figure:
    """Solid: measured; dashed: the theory."""
    with style.paper():
        figure, (ax,) = style.canvas(style.ONE_COLUMN, 2.9)
        colours = style.lr_bar(figure, ax, [curve.log2_lr for curve in found.curves])
        for curve, colour in zip(found.curves, colours, strict=True):
            ax.plot(curve.step, np.log2(curve.measured), color=colour, lw=1.2)
            ax.plot(curve.predicted_step, np.log2(curve.predicted), color=colour, lw=0.8, ls=(0, (3, 1.5)))
        values = np.log2([v for curve in found.curves for v in (*curve.measured, *curve.predicted)])
        style.steps_axis(ax, [step for curve in found.curves for step in curve.step])
        low, high = float(values.min()), float(values.max())
        room = max(0.05 * (high - low), 0.5 - 0.5 * (high - low))  # an octave at least: a constant shall look like one
        ax.set_ylim(low - room, high + room)
        style.log2_axis(ax.yaxis, low - room, high + room)
        ax.set_ylabel(_SYMBOLS[found.kind])
        errors = [curve.error for curve in found.curves]
        style.heading(
            figure,
            f"N = {style.short(found.params)}, {found.weight}",
            f"dashed: {_THEORY[found.kind]}",
            f"median error {100 * min(errors):.1f} to {100 * max(errors):.1f} % by η",
        )
        return figure
