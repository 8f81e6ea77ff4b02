"""Figure 5: without weight decay, do all large learning rates walk the same η_eff(t) and reach the same loss?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from etastar.estimate.cells import Group
from etastar.report.figures import style
from etastar.report.figures.missing import Missing, same_with
from etastar.report.figures.optimum import spread
from etastar.report.figures.over_time import LrCurve, choose, curves, draw_curves
from etastar.report.view import StudyView, block_of, training_of
from etastar.scale import format_number
from etastar.theory.dynamics import no_decay_asymptote

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "adam-no-decay"
SETTINGS = "`optimizer.kind: adam` and `schedule.kind: constant`"
MOST_HORIZONS = 5


@dataclass(frozen=True)
class LossesAt:
    """Loss by learning rate at one horizon; None where the run diverged."""

    tokens: float
    log2_lr: list[float]
    loss: list[float | None]


@dataclass(frozen=True)
class NoDecayData:
    """Both panels; `eff_lr` is empty where nothing was logged (then `missing` says so)."""

    params: float
    weight: str | None
    training: str
    eff_lr: list[LrCurve]
    common_step: list[int]  # the curve √((1−β₁)/(1+β₁)/t) that large η fall onto
    common_eff_lr: list[float]
    losses: list[LossesAt]
    collapse_log2_lr: float | None  # above it the theory expects one η_eff(t) at the end
    words: str | None
    missing: list[Missing]


def data(view: StudyView, params: float | None = None) -> NoDecayData | Missing:
    """The largest group trained by Adam without weight decay."""
    group = view.no_decay
    if group is None:
        return Missing(NAME, "no run was trained by Adam without weight decay", same_with(view.main, SETTINGS))
    chosen = choose(view, group, NAME, params)
    missing = [chosen] if isinstance(chosen, Missing) else []
    size = group.blocks[-1].params if isinstance(chosen, Missing) else chosen.params
    rates = [] if isinstance(chosen, Missing) else curves(chosen, lambda one: one.eff_lr)
    losses = _losses(group, size)
    if not losses and not rates:
        return Missing(
            NAME,
            f"no run without decay finished at N = {format_number(size)}",
            same_with(group, "smaller learning rates"),
        )
    steps = _steps(max((curve.step[-1] for curve in rates if curve.step), default=0))
    beta1 = group.conditions.get("beta1")
    common = no_decay_asymptote(steps, beta1=beta1).tolist() if isinstance(beta1, (int, float)) and steps else []
    judged = view.no_decay_report(group, size)
    return NoDecayData(
        params=size,
        weight=None if isinstance(chosen, Missing) else chosen.weight,
        training=training_of(group),
        eff_lr=rates,
        common_step=steps if common else [],
        common_eff_lr=common,
        losses=losses,
        collapse_log2_lr=None if judged is None else float(np.log2(judged.collapse_lr)),
        words=None if judged is None else judged.words,
        missing=missing,
    )


def _losses(group: Group, params: float) -> list[LossesAt]:
    block = block_of(group, params)
    alive = [k for k in range(len(block.tokens)) if np.isfinite(block.loss[k]).any()]
    shown = spread([float(block.tokens[k]) for k in alive], MOST_HORIZONS)
    return [
        LossesAt(
            tokens=float(block.tokens[k]),
            log2_lr=block.log2_lr.tolist(),
            loss=[float(x) if np.isfinite(x) else None for x in block.loss[k]],
        )
        for k in alive
        if float(block.tokens[k]) in shown
    ]


def _steps(last: int) -> list[int]:
    """Steps at which the common curve is drawn, over its last two decades."""
    return np.unique(np.geomspace(max(last / 100, 1), last, 60).astype(int)).tolist() if last > 0 else []


def draw(found: NoDecayData) -> Figure:
    """η_eff(t) left, loss by learning rate right; the right alone where nothing was logged."""
    with style.paper():
        two = bool(found.eff_lr)
        figure, axes = style.canvas(style.TWO_COLUMNS if two else style.ONE_COLUMN, 2.6, 1, 2 if two else 1)
        if two:
            _draw_rates(figure, axes[0], found)
        _draw_losses(axes[-1], found)
        words = [found.words] if found.words else []
        words += ["dashed: √((1−β₁)/(1+β₁)/t)"] if found.common_step else []
        parts = [f"N = {style.short(found.params)}" + (f", {found.weight}" if found.weight else ""), found.training]
        style.heading(figure, *parts, *words, *(missing.sentence for missing in found.missing))
        return figure


def _draw_rates(figure: Figure, ax: Axes, found: NoDecayData) -> None:
    colours = style.lr_bar(figure, ax, [curve.log2_lr for curve in found.eff_lr])
    draw_curves(ax, found.eff_lr, colours)
    if found.common_step:
        ax.plot(found.common_step, np.log2(found.common_eff_lr), color=style.INK, ls="--", lw=1.0)
    ax.set_ylabel("$\\eta_{\\mathrm{eff}}(t)$")


def _draw_losses(ax: Axes, found: NoDecayData) -> None:
    colours = style.sequence(len(found.losses))
    labels = []
    for k, (losses, colour) in enumerate(zip(found.losses, colours, strict=True)):
        known = [(x, y) for x, y in zip(losses.log2_lr, losses.loss, strict=True) if y is not None]
        ax.plot(*zip(*known, strict=True), marker=style.MARKERS[k % len(style.MARKERS)], color=colour, lw=0.9, ms=3)
        labels.append((known[-1][1], style.short(losses.tokens), colour))
    if found.collapse_log2_lr is not None:
        ax.axvline(found.collapse_log2_lr, color=style.GREY, lw=0.8, ls=":")
    everything = [x for losses in found.losses for x in losses.log2_lr]
    style.log2_axis(ax.xaxis, min(everything), max(everything), most=7)
    ax.set_xlabel("η")
    ax.set_ylabel("validation loss")
    ax.margins(y=0.08)
    ax.set_ylim(*ax.get_ylim())
    style.end_labels(ax, labels, head="D")
