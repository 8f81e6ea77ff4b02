"""What does each strategy say about the target? Axis × quantity → a prediction in η and in η_eff.

From η_eff there are two ways back to η: the study's own measured map, and the theory (`inverted`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from etastar.estimate.cells import EffColumn, Quantity
from etastar.estimate.estimates import Estimates
from etastar.estimate.flags import Flag, merge_flags
from etastar.estimate.optimum import Status
from etastar.laws.loglinear import Axis, Line, bend_operator, curvature_test, pearson
from etastar.predict.convert import EffMap
from etastar.predict.evidence import Evidence
from etastar.predict.invert import Source, source_of, too_short
from etastar.predict.points import Points, collect, same_params, target_coordinates
from etastar.predict.settings import RunSettings
from etastar.scale import Scale, format_lr

Array = NDArray[np.float64]

CURVATURE_LEVEL = 0.9


@dataclass(frozen=True)
class Prediction:
    """One strategy's answer. `reason` says why where there is none; redraws carry its uncertainty."""

    axis: Axis
    quantity: Quantity
    group: str
    target: Scale
    cells: int = 0
    log2_value: float | None = None
    log2_lr: float | None = None
    value_redraws: Array | None = None
    lr_redraws: Array | None = None
    pearson_r: float | None = None
    bend_leverage: float = 0.0
    bend_redraws: Array | None = None  # what the cells' own bend adds at the target if it goes on; None if straight
    flags: tuple[Flag, ...] = ()
    reason: str | None = None
    inverted: bool = False  # η from η_eff by the theory
    source: Source | None = None  # where the theory's constants come from

    @property
    def name(self) -> str:
        """ "data, eff_lr" or "data, inverted": how tables call it."""
        return f"{self.axis.value}, {'inverted' if self.inverted else self.quantity.value}"

    def interval(self, level: float, *, of_lr: bool = False) -> tuple[float, float] | None:
        """log2 interval of the strategy's own quantity, or of η."""
        redraws = self.lr_redraws if of_lr else self.value_redraws
        if redraws is None:
            return None
        low, high = np.quantile(redraws, [0.5 * (1 - level), 0.5 * (1 + level)])
        return float(low), float(high)

    @property
    def lr_sd(self) -> float:
        """Standard deviation in octaves of η."""
        return float(np.std(self.lr_redraws)) if self.lr_redraws is not None else float("inf")


def predict_strategy(
    evidence: Evidence,
    axis: Axis,
    quantity: Quantity,
    target: Scale,
    allowed: NDArray[np.bool_] | None = None,
    *,
    inverted: bool = False,
    settings: RunSettings | None = None,
) -> Prediction:
    """Extrapolate one law to the target from the allowed cells (all, by default).

    `inverted` goes from η_eff to η by the theory, under `settings` (by default the sweep's).
    """
    blank = Prediction(axis, quantity, evidence.group.label, target, inverted=inverted)
    if quantity not in evidence.estimates:
        return replace(blank, reason="η_eff was not measured in every run")
    estimates = evidence.estimates[quantity]
    if allowed is None:
        allowed = np.ones(len(estimates.optima), dtype=bool)
    points = collect(estimates, axis, target, allowed)
    if isinstance(points, str):
        return replace(blank, reason=points)
    return follow(evidence, estimates, points, axis, target, allowed, inverted=inverted, settings=settings)


def follow(
    evidence: Evidence,
    estimates: Estimates,
    points: Points,
    axis: Axis,
    target: Scale,
    allowed: NDArray[np.bool_],
    *,
    inverted: bool = False,
    settings: RunSettings | None = None,
) -> Prediction:
    """The line through given points, read off at the target and turned into η."""
    scales, there = points.scales(axis), target_coordinates(axis, target)
    if any(np.ptp(scales[:, k]) < 1e-6 for k in range(scales.shape[1])):
        return Prediction(
            axis,
            estimates.quantity,
            evidence.group.label,
            target,
            cells=len(scales),
            reason="the cells do not vary in scale",
            inverted=inverted,
        )
    line = Line.through(scales, points.weight)
    mix = line.at(there)
    values = points.values(estimates.log2_values)
    value = float(mix @ values)
    drawn = points.values(estimates.replicates)
    bends = curvature_test(scales, values, drawn, line, level=CURVATURE_LEVEL)
    redraws = drawn @ mix
    # centre the redraws on the answer: their own mean carries the bias of a nonlinear fit twice
    redraws = redraws - np.mean(redraws) + value
    prediction = Prediction(
        axis=axis,
        quantity=estimates.quantity,
        group=evidence.group.label,
        target=target,
        cells=len(values),
        log2_value=value,
        log2_lr=value,
        value_redraws=redraws,
        lr_redraws=redraws,
        pearson_r=pearson(scales[:, 0] if axis is not Axis.JOINT else line.features @ (line.operator @ values), values),
        bend_leverage=line.bend_leverage(there),
        bend_redraws=_bend_at(scales, drawn, line, there) if bends is not None and bends[2] else None,
        flags=merge_flags(
            _reach_flags(scales, there),
            _cell_flags(estimates, points, axis, target, allowed),
            [Flag.CURVED] if bends is not None and bends[2] else [],
        ),
        inverted=inverted,
    )
    if estimates.quantity is Quantity.LR:
        return prediction
    return _to_lr(evidence, prediction, allowed, settings)


def _bend_at(scales: Array, drawn: Array, line: Line, there: Array) -> Array:
    """Redraws of (quadratic − line) at the target, the bend along the first scale."""
    operator = bend_operator(scales, line)
    missed = there[0] ** 2 - line.at(there) @ scales[:, 0] ** 2
    return (drawn @ operator) * missed


def _to_lr(
    evidence: Evidence, prediction: Prediction, allowed: NDArray[np.bool_], settings: RunSettings | None
) -> Prediction:
    estimates = evidence.estimates[Quantity.EFF_LR]
    params = same_params(estimates, prediction.target.params) or prediction.target.params
    tokens = prediction.target.tokens
    if prediction.inverted:
        way = evidence.inverted(params, allowed, settings)
    else:
        way = evidence.map(params, allowed) or "too few runs to map η_eff back to η"
    unanswered = replace(prediction, log2_lr=None, lr_redraws=None)
    if isinstance(way, str):
        return replace(unanswered, reason=way)
    assert prediction.log2_value is not None
    assert prediction.value_redraws is not None
    if not way.covers(tokens):
        said = too_short(settings, tokens) if settings is not None else None
        return replace(unanswered, reason=said or "the target is no longer than the runs' warm-up and decay")
    least, most = way.reach(tokens)
    if not least <= prediction.log2_value <= most:
        return replace(unanswered, reason=_out_of_reach(prediction.log2_value, way, tokens))
    centre = float(way.log2_lr(np.array([prediction.log2_value]), tokens)[0])
    redraws = way.log2_lr(prediction.value_redraws, tokens)
    beyond = (prediction.value_redraws < least) | (prediction.value_redraws > most)
    # the map's own misses on its runs, drawn afresh (fixed seed: same question, same answer)
    redraws = redraws + way.error * np.random.default_rng(7).standard_normal(len(redraws))
    plateau = (Flag.PLATEAU_EFF_LR,) if evidence.eff_column is EffColumn.PLATEAU else ()
    opened = (Flag.INTERVAL_OPEN,) if beyond.mean() > 0.01 else ()
    return replace(
        prediction,
        log2_lr=centre,
        lr_redraws=redraws,
        flags=merge_flags(prediction.flags, way.flags, plateau, opened),
        source=source_of(way) if prediction.inverted else None,
    )


def _out_of_reach(log2_eff_lr: float, way: EffMap, tokens: float) -> str:
    least, most = way.reach(tokens)
    asked = f"the law asks for η_eff {2.0**log2_eff_lr:.3g}"
    if log2_eff_lr > most:
        top = format_lr(float(2.0 ** way.log2_lr(np.array([most]), tokens)[0]))
        return f"{asked}, above the {2.0**most:.3g} that any learning rate up to {top} reaches in such a run"
    low = format_lr(float(2.0 ** way.log2_lr(np.array([least]), tokens)[0]))
    return f"{asked}, below the {2.0**least:.3g} of the smallest learning rate that can be spoken of, {low}"


def _reach_flags(scales: Array, there: Array) -> list[Flag]:
    flags = []
    low, high = scales.min(axis=0), scales.max(axis=0)
    beyond = np.maximum(there - high, low - there)
    if (beyond > high - low).any():
        flags.append(Flag.FAR_EXTRAPOLATION)
    if (beyond <= 1e-9).all():
        flags.append(Flag.INTERPOLATION)
    elif (there < low - 1e-9).any():
        flags.append(Flag.BELOW_MEASURED_RANGE)
    return flags


def _cell_flags(
    estimates: Estimates, points: Points, axis: Axis, target: Scale, allowed: NDArray[np.bool_]
) -> list[Flag]:
    flags = []
    if len(points.weight) == 2:
        flags.append(Flag.TWO_CELLS)
    if len(points.weight) < 4:
        flags.append(Flag.FEW_CELLS)
    near = allowed.copy()
    if axis is Axis.DATA:
        near &= np.abs(np.log2(estimates.params / target.params)) <= 0.05
    elif axis is Axis.MODEL:
        near &= np.abs(np.log2(estimates.tokens / target.tokens)) <= 0.05
    statuses = {estimates.optima[k].status for k in np.flatnonzero(near)}
    if Status.AT_BOUNDARY in statuses:
        flags.append(Flag.BOUNDARY_CELLS)
    if statuses & {Status.NO_MINIMUM, Status.TOO_FEW_POINTS}:
        flags.append(Flag.UNFITTED_CELLS)
    return flags
