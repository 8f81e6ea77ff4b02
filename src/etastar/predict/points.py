"""Which optima does a strategy see? Cells, or mixes of two neighbouring cells along D.

A strategy is an axis and a quantity. Along D it sees cells of the target's N; along N, cells of other N
at the target's D, interpolated along log D where that exact D was not run; jointly, all cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from etastar.estimate.estimates import Estimates
from etastar.laws.loglinear import Axis, cell_weights
from etastar.scale import Scale, format_number

Array = NDArray[np.float64]

SAME_PARAMS = 0.05  # octaves: a typed "707M" means the 707,002,368 of the table


@dataclass(frozen=True)
class Points:
    """P optima as mixes of two cells each: Σ share · value[cell]."""

    cell: NDArray[np.int64]  # (P, 2)
    share: Array  # (P, 2)
    log2_tokens: Array
    log2_params: Array
    weight: Array

    def values(self, per_cell: Array) -> Array:
        """(…, C) per cell → (…, P) per point."""
        return (per_cell[..., self.cell] * self.share).sum(axis=-1)

    def scales(self, axis: Axis) -> Array:
        """(P, k) log2 scales that vary along the axis."""
        columns = {Axis.DATA: [self.log2_tokens], Axis.MODEL: [self.log2_params]}
        return np.column_stack(columns.get(axis, [self.log2_tokens, self.log2_params]))


def target_coordinates(axis: Axis, target: Scale) -> Array:
    """The target in the coordinates of `Points.scales`."""
    d, n = np.log2(target.tokens), np.log2(target.params)
    return {Axis.DATA: np.array([d]), Axis.MODEL: np.array([n]), Axis.JOINT: np.array([d, n])}[axis]


def same_params(estimates: Estimates, params: float) -> float | None:
    """The measured N that a typed N means, or None."""
    sizes = np.unique(estimates.params)
    distance = np.abs(np.log2(sizes / params))
    return float(sizes[np.argmin(distance)]) if distance.min() <= SAME_PARAMS else None


def collect(estimates: Estimates, axis: Axis, target: Scale, allowed: NDArray[np.bool_]) -> Points | str:
    """The points of a strategy among the allowed, usable cells; or the reason why there are too few."""
    seen = allowed & estimates.usable
    if axis is Axis.DATA:
        params = same_params(estimates, target.params)
        if params is None:
            return f"no run has N = {format_number(target.params)}"
        members = np.flatnonzero(seen & (estimates.params == params))
        found = f"{len(members)} usable cells at N = {format_number(params)}"
    elif axis is Axis.MODEL:
        return _across_params(estimates, target, seen)
    else:
        members = np.flatnonzero(seen)
        found = f"{len(members)} usable cells"
        if len(np.unique(estimates.params[members])) < 2 or len(np.unique(estimates.tokens[members])) < 2:
            return f"{found} that do not vary in both N and D"
    needed = 4 if axis is Axis.JOINT else 2
    if len(members) < needed:
        return f"{found}; {needed} are needed"
    return exact(estimates, members)


def exact(estimates: Estimates, members: NDArray[np.int64]) -> Points:
    """Points that are cells."""
    share = np.column_stack([np.ones(len(members)), np.zeros(len(members))])
    return Points(
        cell=np.column_stack([members, members]),
        share=share,
        log2_tokens=np.log2(estimates.tokens[members]),
        log2_params=np.log2(estimates.params[members]),
        weight=cell_weights(estimates)[members],
    )


def _across_params(estimates: Estimates, target: Scale, seen: NDArray[np.bool_]) -> Points | str:
    found = []
    for params in np.unique(estimates.params[seen]):
        if abs(np.log2(params / target.params)) <= SAME_PARAMS:
            continue
        point = at_tokens(estimates, float(params), target.tokens, seen)
        if point is not None:
            found.append(point)
    if len(found) < 2:
        return f"{len(found)} other model sizes have D = {format_number(target.tokens)} in range; 2 are needed"
    return stack(found)


def at_tokens(estimates: Estimates, params: float, tokens: float, seen: NDArray[np.bool_]) -> Points | None:
    """The optimum of one N at any D inside its range, by interpolation along log D; None outside it."""
    members = np.flatnonzero(seen & (estimates.params == params))
    if len(members) == 0:
        return None
    members = members[np.argsort(estimates.tokens[members])]
    d, x = np.log2(estimates.tokens[members]), np.log2(tokens)
    if x < d[0] - 1e-3 or x > d[-1] + 1e-3:
        return None
    right = int(np.clip(np.searchsorted(d, x), 1, max(len(d) - 1, 1))) if len(d) > 1 else 0
    left = max(right - 1, 0)
    width = d[right] - d[left]
    part = float(np.clip((x - d[left]) / width, 0.0, 1.0)) if width > 0 else 0.0
    weights = cell_weights(estimates)[members[[left, right]]]
    return Points(
        cell=members[[left, right]][None],
        share=np.array([[1 - part, part]]),
        log2_tokens=np.array([x]),
        log2_params=np.array([np.log2(params)]),
        weight=np.array([(1 - part) * weights[0] + part * weights[1]]),
    )


def stack(parts: list[Points]) -> Points:
    """Several sets of points as one."""
    return Points(
        cell=np.concatenate([p.cell for p in parts]),
        share=np.concatenate([p.share for p in parts]),
        log2_tokens=np.concatenate([p.log2_tokens for p in parts]),
        log2_params=np.concatenate([p.log2_params for p in parts]),
        weight=np.concatenate([p.weight for p in parts]),
    )
