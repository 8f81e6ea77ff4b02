"""Is the extra compute proportional to the share of variance that a prediction misses? ECR ∝ 1 − R²_OOD.

Both sides of the paper's equation (13) over all strategies and budgets: the factor, as the median ratio in logarithms,
and the exponent that a free power law would have (1 where the proportion holds).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from etastar.laws.loglinear import pearson


@dataclass(frozen=True)
class Proportion:
    """ECR = factor · (1 − R²_OOD), judged in logarithms."""

    factor: float
    exponent: float | None  # slope of log ECR in log(1 − R²); None below three points
    pearson_r: float | None
    scatter: float  # octaves, root mean square about the proportion
    points: int


def ecr_proportion(unexplained: Sequence[float], ecr: Sequence[float]) -> Proportion | None:
    """Fit ECR ∝ 1 − R²_OOD to points where both are above zero; None below two."""
    x, y = np.asarray(unexplained, float), np.asarray(ecr, float)
    good = (x > 0) & (y > 0) & np.isfinite(x) & np.isfinite(y)
    x, y = np.log2(x[good]), np.log2(y[good])
    if len(x) < 2:
        return None
    ratio = y - x
    middle = float(np.median(ratio))
    r = pearson(x, y)
    return Proportion(
        factor=2.0**middle,
        exponent=float(np.polyfit(x, y, 1)[0]) if r is not None else None,
        pearson_r=r,
        scatter=float(np.sqrt(np.mean((ratio - middle) ** 2))),
        points=len(x),
    )
