"""Which runs would change the answer? From what the study lacks for its target, the cheapest first.

No new statistics: each suggestion follows from a cell's status, a strategy's reason, or a flag.
"""

from __future__ import annotations

import numpy as np

from etastar.estimate.cells import Group, Quantity
from etastar.estimate.estimates import Estimates
from etastar.estimate.flags import Flag
from etastar.estimate.optimum import Status
from etastar.predict.points import same_params
from etastar.predict.recommend import Answer
from etastar.report.view import StudyView
from etastar.scale import Scale, format_number

MOST = 5


def runs_that_would_help(view: StudyView, group: Group, found: Answer) -> tuple[str, ...]:
    """Suggestions for one group and target; empty where nothing is plainly missing."""
    lr = view.estimates(group)[Quantity.LR]
    flags = set(found.recommended.flags) if found.recommended else set()
    said = [*_wider_sweeps(lr, group), *_more_rates(lr), *_more_cells(lr, found.target)]
    if not group.has_eff_lr:
        said.append("log the effective learning rate (mean_eff_lr) of every run: η_eff laws bend less than η laws")
    if flags & {Flag.TWO_CELLS, Flag.FEW_CELLS, Flag.NO_BACKTEST, Flag.FAR_EXTRAPOLATION} and not said:
        said.append(_longer(lr, found.target))
    if flags & {Flag.UNSTABLE, Flag.FLAT, Flag.NOISE_UNKNOWN} or (found.recommended is None and not said):
        said.append("repeat the sweep with another seed: the noise decides how far the intervals reach")
    return tuple(dict.fromkeys(said))[:MOST]


def _wider_sweeps(lr: Estimates, group: Group) -> list[str]:
    """Cells whose loss is lowest at an end of the sweep, by N: beyond which learning rate to go on."""
    ends: dict[tuple[float, str], list[float]] = {}
    for index, optimum in enumerate(lr.optima):
        if optimum.status is not Status.AT_BOUNDARY:
            continue
        block, row = lr.locate(index)
        known = np.flatnonzero(np.isfinite(block.loss[row]))
        best = known[np.argmin(block.loss[row][known])]
        side = "below" if best <= known[len(known) // 2] else "above"
        edge = block.log2_lr[known[0] if side == "below" else known[-1]]
        ends.setdefault((block.params, f"{side} 2^{edge:g}"), []).append(optimum.tokens)
    return [
        f"learning rates {where} at N = {format_number(params)}, D = {_listed(tokens)}: "
        "the loss is lowest at that end of the sweep"
        for (params, where), tokens in ends.items()
    ]


def _more_rates(lr: Estimates) -> list[str]:
    few = [o for o in lr.optima if o.status in (Status.TOO_FEW_POINTS, Status.NO_MINIMUM)]
    sizes = sorted({o.params for o in few})
    return [
        f"more learning rates at N = {format_number(n)}, D = {_listed([o.tokens for o in few if o.params == n])}: "
        "the sweep there has no usable minimum"
        for n in sizes
    ]


def _more_cells(lr: Estimates, target: Scale) -> list[str]:
    params = same_params(lr, target.params)
    if params is None:
        if len(np.unique(lr.params[lr.usable])) >= 2:
            return []
        return [f"a sweep at N = {format_number(target.params)}, at two or more D below the target's"]
    have = int((lr.usable & (lr.params == params)).sum())
    if have >= 3:
        return []
    return [f"{3 - have} more D at N = {format_number(params)}: along D there are {have} usable cells"]


def _longer(lr: Estimates, target: Scale) -> str:
    params = same_params(lr, target.params) or float(lr.params.max())
    own = lr.tokens[lr.params == params]
    middle = float(np.sqrt(own.max() * target.tokens))
    return f"a sweep at N = {format_number(params)}, D = {format_number(middle)}: halfway (in octaves) to the target"


def _listed(tokens: list[float]) -> str:
    tokens = sorted(tokens)
    if len(tokens) <= 3:
        return ", ".join(format_number(d) for d in tokens)
    return f"{format_number(tokens[0])} … {format_number(tokens[-1])} ({len(tokens)} cells)"
