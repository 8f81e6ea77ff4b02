"""With the learning rate given, which weight decay has the η_eff that the law asks for?"""

from __future__ import annotations

import numpy as np

from etastar.errors import InputError
from etastar.estimate.cells import Quantity
from etastar.predict.convert import TransientMap
from etastar.predict.invert import RecursionMap, matrices_of
from etastar.predict.points import same_params
from etastar.predict.strategies import Evidence, Prediction
from etastar.theory.invert import Inversion, invert_weight_decay


def solve_weight_decay(evidence: Evidence, prediction: Prediction, lr: float, level: float) -> Inversion:
    """λ with which a run at `lr` has the predicted η_eff*, and its interval; refused in words where none has."""
    theory = evidence.theory
    if isinstance(theory, str) or prediction.log2_value is None:
        reason = theory if isinstance(theory, str) else prediction.reason
        raise InputError(f"no weight decay can be solved for: {reason}", hint="solving for λ needs an η_eff law")
    estimates = evidence.estimates[Quantity.EFF_LR]
    params = same_params(estimates, prediction.target.params)
    everything = np.ones(len(estimates.optima), dtype=bool)
    way = (
        "no run has the target's N" if params is None else evidence.inverted(params, everything, None, from_start=True)
    )
    run = (evidence.settings or theory.sweep).planned(prediction.target.tokens)
    if isinstance(way, TransientMap):
        some = matrices_of(way)
    elif isinstance(way, RecursionMap):
        asked = way.matrices_for(run)
        some = asked(np.array([lr])) if callable(asked) else asked
    else:
        reason = way if isinstance(way, str) else f"{theory.sweep.optimizer} holds the norm fixed"
        raise InputError(f"no weight decay can be solved for: {reason}", hint="solve for the learning rate instead")
    return invert_weight_decay(
        float(2.0**prediction.log2_value),
        lr=lr,
        run=run,
        matrices=some,
        log2_interval=prediction.interval(level),
    )
