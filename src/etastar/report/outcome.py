"""Where the target's own sweep exists but was hidden: how far off was the answer, and what would it have cost?"""

from __future__ import annotations

import numpy as np

from etastar.estimate.cells import Quantity
from etastar.predict.cost import Curves, cost_at
from etastar.predict.points import same_params
from etastar.predict.recommend import Recommendation
from etastar.report.view import StudyView
from etastar.report.words import lr_words, octave_words, percent_words, power_words
from etastar.scale import Scale


def outcome_words(whole: StudyView, target: Scale, best: Recommendation | None) -> str:
    """One sentence or two; empty where the whole study has no optimum at the target."""
    lr = whole.estimates(whole.main)[Quantity.LR]
    params = same_params(lr, target.params)
    near = np.abs(np.log2(lr.tokens / target.tokens)) < 1e-3
    found = np.flatnonzero(lr.usable & near & (lr.params == params)) if params is not None else []
    if len(found) == 0:
        return ""
    index = int(found[0])
    truth = lr.optima[index]
    said = f"The target's own sweep, hidden from the laws, has its optimum at {lr_words(truth.value)} ({power_words(truth.log2_value)})"
    if best is None:
        return f"{said}; there was no answer to compare with it."
    missed = best.log2_lr - truth.log2_value
    low, high = best.log2_interval
    inside = "inside" if low <= truth.log2_value <= high else "outside"
    price = cost_at(Curves(lr), index, best.log2_lr)
    ratio = price.ratio(target.tokens)
    cost = (
        f"It would have cost {percent_words(ratio)} of extra compute (a loss {price.loss_gap:.4f} above the optimum's)."
        if ratio is not None and price.loss_gap is not None
        else f"What that costs is not known: {price.reason}."
    )
    return f"{said}: the answer is off by {octave_words(missed, signed=True)}, the optimum lies {inside} the interval. {cost}"
