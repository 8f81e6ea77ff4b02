"""Does the optimum follow a straight line in log-log, and where does the line lead?

The paper's four laws (η or η_eff; along D at fixed N, or along N at fixed D), the joint law
a·log D + b·log N + c, and a test of their straightness. A law is linear in the optima, so the redraws
of the optima carry through one matrix product to slopes, curvature and predictions.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from etastar.estimate.cells import Quantity
from etastar.estimate.estimates import Estimates
from etastar.estimate.flags import Flag, merge_flags

Array = NDArray[np.float64]

# A bend smaller than this over the measured span (octaves) is not worth a flag, however certain.
MATERIAL_BEND = 0.03
WEIGHT_FLOOR = 0.05  # octaves; cells better than this are not trusted more than each other


class Axis(enum.StrEnum):
    """Along what a law extrapolates."""

    DATA = "data"
    MODEL = "model"
    JOINT = "joint"


@dataclass(frozen=True)
class Law:
    """A fitted log-linear law: log2 optimum = intercept + Σ slope · log2(scale)."""

    axis: Axis
    quantity: Quantity
    group: str
    fixed: float | None  # the N of a data law, the D of a model law
    slopes: tuple[float, ...]  # data: (a,), model: (b,), joint: (a, b)
    intercept: float
    slope_intervals: tuple[tuple[float, float], ...]
    pearson_r: float | None
    curvature: float | None  # octaves per octave² (joint: along D)
    curvature_interval: tuple[float, float] | None
    curved: bool | None
    cells: int
    flags: tuple[Flag, ...]


@dataclass(frozen=True)
class Line:
    """The weighted least-squares machinery behind a law, for any points that are mixes of cells."""

    features: Array  # (P, p): 1 and the varying log2 scales
    weight: Array  # (P,)
    operator: Array  # (p, P)

    @classmethod
    def through(cls, scales: Array, weight: Array) -> Line:
        """A line over the columns of `scales` (P, k), log2."""
        features = np.column_stack([np.ones(len(scales)), scales])
        root = np.sqrt(weight / weight.max())
        operator = np.linalg.pinv(features * root[:, None], rcond=1e-12) * root
        return cls(features, weight, operator)

    def at(self, target: Array) -> Array:
        """(P,): the weights with which the points' values add up to the prediction at `target`."""
        return np.concatenate([[1.0], target]) @ self.operator

    def bend_leverage(self, target: Array) -> float:
        """How far the line would miss at `target`, per unit of quadratic bend in the points.

        For every product of two scales: its value at the target minus what the line makes of it.
        """
        scales = self.features[:, 1:]
        mix = self.at(target)
        total = 0.0
        for i in range(scales.shape[1]):
            for j in range(i, scales.shape[1]):
                missed = target[i] * target[j] - mix @ (scales[:, i] * scales[:, j])
                total += missed**2
        return float(np.sqrt(total))


def cell_weights(estimates: Estimates) -> Array:
    """How much each optimum counts in a law: by its variance, with a floor."""
    sd = np.array([o.log2_sd for o in estimates.optima])
    return 1 / (np.where(np.isfinite(sd), sd, np.inf) ** 2 + WEIGHT_FLOOR**2)


def fit_law(
    estimates: Estimates, members: NDArray[np.int64], axis: Axis, *, fixed: float | None = None, level: float = 0.9
) -> Law:
    """The law through the cells `members` (indices into the estimates, all INTERIOR)."""
    d, n = np.log2(estimates.tokens[members]), np.log2(estimates.params[members])
    scales = {Axis.DATA: d[:, None], Axis.MODEL: n[:, None], Axis.JOINT: np.column_stack([d, n])}[axis]
    values = estimates.log2_values[members]
    redraws = estimates.replicates[:, members]
    line = Line.through(scales, cell_weights(estimates)[members])
    coefficients = line.operator @ values
    drawn = redraws @ line.operator.T
    tails = [0.5 * (1 - level), 0.5 * (1 + level)]
    intervals = tuple((float(a), float(b)) for a, b in np.quantile(drawn[:, 1:], tails, axis=0).T)
    curvature = curvature_test(scales, values, redraws, line, level=level)
    flags = _cell_flags(estimates, members, curvature)
    return Law(
        axis=axis,
        quantity=estimates.quantity,
        group=estimates.group.label,
        fixed=fixed,
        slopes=tuple(float(c) for c in coefficients[1:]),
        intercept=float(coefficients[0]),
        slope_intervals=intervals,
        pearson_r=pearson(line.features @ coefficients if axis is Axis.JOINT else scales[:, 0], values),
        curvature=None if curvature is None else curvature[0],
        curvature_interval=None if curvature is None else curvature[1],
        curved=None if curvature is None else curvature[2],
        cells=len(members),
        flags=flags,
    )


def curvature_test(
    scales: Array, values: Array, redraws: Array, line: Line, *, level: float
) -> tuple[float, tuple[float, float], bool] | None:
    """(quadratic coefficient along the first scale, its interval, is it there?); None below three cells."""
    x = scales[:, 0]
    levels = len(np.unique(np.round(x, 9)))
    if len(x) <= scales.shape[1] + 1 or levels < 3:
        return None
    operator = bend_operator(scales, line)
    low, high = np.quantile(redraws @ operator, [0.5 * (1 - level), 0.5 * (1 + level)])
    value = float(operator @ values)
    # the interval is that of the redraws' spread, laid around the value itself
    middle = float(np.mean(redraws @ operator))
    low, high = float(low) - middle + value, float(high) - middle + value
    sag = abs(value) * (x.max() - x.min()) ** 2 / 4
    return value, (low, high), bool((low > 0 or high < 0) and sag > MATERIAL_BEND)


def bend_operator(scales: Array, line: Line) -> Array:
    """(P,): the weights with which the points' values add up to the quadratic coefficient along the first scale."""
    x = scales[:, 0]
    centered = x - np.average(x, weights=line.weight)
    features = np.column_stack([line.features, centered**2])
    root = np.sqrt(line.weight / line.weight.max())
    return (np.linalg.pinv(features * root[:, None], rcond=1e-12) * root)[-1]


def pearson(x: Array, y: Array) -> float | None:
    """Pearson's r; None below three points, where it says nothing."""
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])


def _cell_flags(estimates: Estimates, members: NDArray[np.int64], curvature: object) -> tuple[Flag, ...]:
    flags: list[Flag] = []
    if len(members) == 2:
        flags.append(Flag.TWO_CELLS)
    if len(members) < 4:
        flags.append(Flag.FEW_CELLS)
    if isinstance(curvature, tuple) and curvature[2]:
        flags.append(Flag.CURVED)
    return merge_flags(flags)


def all_laws(estimates: Estimates, *, level: float = 0.9) -> list[Law]:
    """Every law that the group's interior cells can carry: along D, along N, joint."""
    usable = estimates.usable
    laws = []
    for params in np.unique(estimates.params):
        members = np.flatnonzero(usable & (estimates.params == params))
        if len(members) >= 2:
            laws.append(fit_law(estimates, members, Axis.DATA, fixed=float(params), level=level))
    for tokens in np.unique(estimates.tokens):
        members = np.flatnonzero(usable & (estimates.tokens == tokens))
        if len(members) >= 2:
            laws.append(fit_law(estimates, members, Axis.MODEL, fixed=float(tokens), level=level))
    members = np.flatnonzero(usable)
    if len(members) >= 3 and len(np.unique(estimates.params[members])) > 1 < len(np.unique(estimates.tokens[members])):
        laws.append(fit_law(estimates, members, Axis.JOINT, level=level))
    return laws
