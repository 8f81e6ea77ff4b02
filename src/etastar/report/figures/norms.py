"""Figure 6: η_eff(t) and the weight norm, LR by LR: who has reached equilibrium, and who has not?

Adjacent learning rates an octave apart lie half an octave of η_eff apart in equilibrium and one octave before it;
`octaves_per_octave` says which, at the end of the runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from etastar.report.figures import style
from etastar.report.figures.missing import Missing
from etastar.report.figures.over_time import LrCurve, choose, curves, draw_curves
from etastar.report.view import StudyView, training_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "eff-lr-weight-norm"


@dataclass(frozen=True)
class NormsData:
    """Both panels, for one matrix of one N."""

    params: float
    weight: str
    training: str
    eff_lr: list[LrCurve]
    weight_norm: list[LrCurve]
    octaves_per_octave: list[float]  # slope of final log2 η_eff in log2 η, between neighbours


def data(view: StudyView, params: float | None = None) -> NormsData | Missing:
    """The query matrix of the first layer in the main group."""
    chosen = choose(view, view.main, NAME, params)
    if isinstance(chosen, Missing):
        return chosen
    rates = curves(chosen, lambda one: one.eff_lr)
    if not all(curve.value for curve in rates):
        return Missing(NAME, "the trajectories hold no eff_lr", "runs that log eff_lr of each matrix")
    end = np.log2([curve.value[-1] for curve in rates])
    return NormsData(
        params=chosen.params,
        weight=chosen.weight,
        training=training_of(view.main),
        eff_lr=rates,
        weight_norm=curves(chosen, lambda one: one.weight_norm),
        octaves_per_octave=(np.diff(end) / np.diff([curve.log2_lr for curve in rates])).tolist(),
    )


def draw(found: NormsData) -> Figure:
    """Two panels: η_eff(t) left, ‖w_t‖ right, a colour for each learning rate."""
    with style.paper():
        figure, axes = style.canvas(style.TWO_COLUMNS, 2.6, 1, 2)
        colours = style.lr_bar(figure, axes, [curve.log2_lr for curve in found.eff_lr])
        draw_curves(axes[0], found.eff_lr, colours)
        draw_curves(axes[1], found.weight_norm, colours)
        axes[0].set_ylabel("$\\eta_{\\mathrm{eff}}(t)$")
        axes[1].set_ylabel("$\\Vert w_t \\Vert_2$")
        slopes = [found.octaves_per_octave[0], found.octaves_per_octave[-1]] if found.octaves_per_octave else []
        said = (
            [f"octaves of final η_eff per octave of η: {slopes[0]:.2f} (smallest η) to {slopes[1]:.2f} (largest)"]
            if slopes
            else []
        )
        style.heading(figure, f"N = {style.short(found.params)}, {found.weight}", found.training, *said)
        return figure
