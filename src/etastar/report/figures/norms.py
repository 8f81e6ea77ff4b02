"""Figure 6: η_eff(t) and the weight norm, LR by LR: who has reached equilibrium, and who has not?

Adjacent learning rates an octave apart lie half an octave of η_eff apart in equilibrium and one octave before it;
`octaves_per_octave` says which, at the end of the runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from etastar.report.figures.missing import Missing
from etastar.report.figures.over_time import LrCurve, choose, curves
from etastar.report.view import StudyView, training_of

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
