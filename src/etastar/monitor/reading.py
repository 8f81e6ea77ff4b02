"""What does one logged step say?

The six statistics of every watched weight, the mean over the weights, and the means over all steps so far;
and how they are named in a tracker.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from etastar.monitor import names
from etastar.train.statistics import STATISTICS, StepStatistics, Tally

PER = ("role", "weight", "none")


@dataclass(frozen=True)
class Reading:
    """Of optimizer step `step` (from 0), on the host."""

    step: int
    lr: float | None  # where the optimizer has one
    eff_lr: float
    mean_eff_lr: float
    plateau_eff_lr: float | None
    weights: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]  # a row a weight, in the order of STATISTICS; NaN where unknown

    def metrics(self, per: str = "role") -> dict[str, float]:
        """Names and numbers for a tracker; `per` is "role" (layers averaged), "weight" or "none"."""
        found = {names.EFF_LR: self.eff_lr, names.MEAN_EFF_LR: self.mean_eff_lr}
        known = {names.LR: self.lr, names.PLATEAU_EFF_LR: self.plateau_eff_lr}
        found |= {name: value for name, value in known.items() if value is not None}
        if per == "none":
            return found
        gathered: dict[str, list[tuple[float, ...]]] = {}
        for weight, row in zip(self.weights, self.values, strict=True):
            gathered.setdefault(names.role(weight) if per == "role" else weight, []).append(row)
        for weight, rows in gathered.items():
            for column, statistic in enumerate(STATISTICS):
                value = sum(row[column] for row in rows) / len(rows)
                if not math.isnan(value):
                    found[names.weight_metric(statistic, weight)] = value
        return found


def statistics(
    sums: Tensor, eff_lr: Tensor, grad_sq: Tensor, rate: Tensor | None, share: Tensor | None
) -> StepStatistics:
    """All six of every weight, from (‖w‖², ⟨w, Δ⟩, ‖Δ‖²) and ‖g‖².

    With Δ = −s·w − r·u: u is the update before the learning rate, r the rate and s the share that decay takes.
    Where r is zero or not known, so is u.
    """
    weight_sq, dot, step_sq = sums
    if rate is None or share is None:
        update_sq = update_dot = torch.full_like(step_sq, math.nan)
    else:
        update_sq = (step_sq + 2 * share * dot + share.square() * weight_sq).clamp_min(0) / rate.square()
        update_dot = -(dot + share * weight_sq) / rate
        unknown = rate == 0
        update_sq, update_dot = (x.masked_fill(unknown, math.nan) for x in (update_sq, update_dot))
    return StepStatistics(
        weight_norm=weight_sq.sqrt(),
        grad_norm=grad_sq.sqrt(),
        step_norm=step_sq.sqrt(),
        update_norm=update_sq.sqrt(),
        update_dot_weight=update_dot,
        eff_lr=eff_lr,
    )


def means(tally: Tally) -> tuple[int, float, float | None]:
    """Steps taken, the mean over all of them, and over the plateau where there is one; the host waits for these.

    A cosine schedule touches its peak for a step or two: that is no plateau.
    """
    total, plateau, steps, plateau_steps = torch.cat(list(tally.tensors().values())).tolist()
    mean = total / steps if steps else math.nan
    flat = plateau_steps > 2 and 20 * plateau_steps >= steps
    return int(steps), mean, plateau / plateau_steps if flat else None


def to_rows(seen: StepStatistics, weights: Sequence[str]) -> tuple[tuple[float, ...], ...]:
    """The statistics on the host, a row a weight."""
    rows = tuple(tuple(row) for row in seen.stacked().tolist())
    assert len(rows) == len(weights)
    return rows
