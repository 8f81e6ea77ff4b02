"""Do the paper's two definitions of η_eff* agree? The argmin in log η_eff, and the mean η_eff at η*."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from etastar.estimate.cells import Quantity
from etastar.estimate.estimates import Estimates, cell_map
from etastar.estimate.flags import Flag, merge_flags
from etastar.estimate.optimum import Optimum, Status

AGREEMENT = 0.1  # octaves; differences below it are not worth a flag


def eff_lr_at_optimal_lr(estimates: dict[Quantity, Estimates], index: int) -> float:
    """log2 of the mean η_eff that the run at η* has: Section 3's second definition; NaN without one."""
    lr = estimates[Quantity.LR].optima[index]
    if lr.status is not Status.INTERIOR:
        return float("nan")
    block, row = estimates[Quantity.LR].locate(index)
    carry = cell_map(block, row, Quantity.LR, Quantity.EFF_LR)
    return float(carry(lr.log2_value)) if carry is not None else float("nan")


def flag_disagreements(estimates: dict[Quantity, Estimates]) -> dict[Quantity, Estimates]:
    """The same estimates, with a flag on cells whose two definitions differ by more than their error."""
    if Quantity.EFF_LR not in estimates:
        return estimates
    eff = estimates[Quantity.EFF_LR]
    flagged: list[Optimum] = []
    for index, optimum in enumerate(eff.optima):
        other = eff_lr_at_optimal_lr(estimates, index)
        if optimum.status is Status.INTERIOR and np.isfinite(other):
            tolerance = max(AGREEMENT, 2 * optimum.log2_sd)
            if abs(other - optimum.log2_value) > tolerance:
                optimum = replace(optimum, flags=merge_flags(optimum.flags, (Flag.DEFINITIONS_DISAGREE,)))
        flagged.append(optimum)
    return {**estimates, Quantity.EFF_LR: replace(eff, optima=tuple(flagged))}
