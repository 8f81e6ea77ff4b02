"""How wrong would each strategy have been? The largest measured cells, predicted from smaller ones.

Every strategy is asked about cells it may not see, over a distance like the target's where the study
allows. What its errors hold beyond the noise is read as a bend of the law, and that bend, carried to the
target's distance, widens the strategy's interval. So a strategy is chosen by what it did, not by belief.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from etastar.estimate.cells import Quantity
from etastar.estimate.flags import Flag, merge_flags
from etastar.laws.loglinear import Axis
from etastar.predict.strategies import Evidence, Prediction, predict_strategy
from etastar.scale import Scale

Array = NDArray[np.float64]

HELD_OUT_PER_SIZE = 3
# With no back-test a law is credited with this bend (octaves per octave²); with one, with less and less of it
PRIOR_BEND = 0.01


@dataclass(frozen=True)
class Trial:
    """One held-out cell: what was predicted, what was measured."""

    scale: Scale
    log2_value_error: float
    log2_lr_error: float
    value_sd: float  # of prediction − measurement, from the redraws
    lr_sd: float
    bend_leverage: float
    cells: int


@dataclass(frozen=True)
class Backtest:
    """A strategy's trials and the law error they show."""

    axis: Axis
    quantity: Quantity
    trials: tuple[Trial, ...]
    inverted: bool = False

    @property
    def rms_lr_error(self) -> float | None:
        """Root-mean-square error in octaves of η."""
        return float(np.sqrt(np.mean([t.log2_lr_error**2 for t in self.trials]))) if self.trials else None

    @property
    def standard_lr_error(self) -> float | None:
        """The same in units of the noise of each trial: about 1 where the strategy is right."""
        ratios = [t.log2_lr_error / max(t.lr_sd, 1e-9) for t in self.trials]
        return float(np.sqrt(np.mean(np.square(ratios)))) if ratios else None

    def bend(self, *, of_lr: bool) -> float:
        """The bend (octaves per octave²) that the errors show beyond their noise."""
        excess = weight = 0.0
        for trial in self.trials:
            error, sd = (trial.log2_lr_error, trial.lr_sd) if of_lr else (trial.log2_value_error, trial.value_sd)
            excess += error**2 - sd**2
            weight += trial.bend_leverage**2
        prior = PRIOR_BEND**2 / (1 + len(self.trials))
        return float(np.sqrt(max(excess / weight if weight > 0 else 0.0, prior)))


def backtest(evidence: Evidence, axis: Axis, quantity: Quantity, target: Scale, *, inverted: bool = False) -> Backtest:
    """Ask the strategy about the largest measured cells, under the settings that those had."""
    if quantity not in evidence.estimates:
        return Backtest(axis, quantity, (), inverted)
    trials = [
        trial
        for held_out, allowed in _questions(evidence, axis, quantity, target)
        if (trial := _trial(evidence, axis, quantity, held_out, allowed, inverted)) is not None
    ]
    return Backtest(axis, quantity, tuple(trials), inverted)


def _questions(
    evidence: Evidence, axis: Axis, quantity: Quantity, target: Scale
) -> list[tuple[int, NDArray[np.bool_]]]:
    estimates = evidence.estimates[quantity]
    usable, d, n = estimates.usable, np.log2(estimates.tokens), np.log2(estimates.params)
    if not usable.any():
        return []
    if axis is Axis.DATA:
        reach = max(np.log2(target.tokens) - d[usable].max(), 0.0)
        found = []
        for size in np.unique(n[usable]):
            own = usable & (n == size)
            found += [(k, own & (d < d[k] - 1e-9), d) for k in _largest(own, d)]
    elif axis is Axis.MODEL:
        reach = max(np.log2(target.params) - n[usable].max(), 0.0)
        found = []
        for horizon in _nearest(np.unique(d[usable]), np.log2(target.tokens)):
            own = usable & (np.abs(d - horizon) < 1e-9)
            found += [(k, usable & (n < n[k] - 1e-9), n) for k in _largest(own, n)[:1]]
    else:
        size = d + n
        reach = max(np.log2(target.tokens * target.params) - size[usable].max(), 0.0)
        found = [(k, usable & (size < size[k] - 1e-9), size) for k in _largest(usable, size)]
    return [(int(k), _at_distance(allowed, along, float(along[k]), reach)) for k, allowed, along in found]


def _largest(own: NDArray[np.bool_], along: Array) -> NDArray[np.int64]:
    """Up to three held-out cells: the largest, and those about half an octave and an octave below it."""
    members = np.flatnonzero(own)
    members = members[np.argsort(along[members])][::-1]
    picked: list[int] = []
    for drop in (0.0, 0.5, 1.0)[:HELD_OUT_PER_SIZE]:
        wanted = along[members[0]] - drop
        nearest = int(members[np.argmin(np.abs(along[members] - wanted))])
        if nearest not in picked:
            picked.append(nearest)
    return np.array(picked)


def _nearest(horizons: Array, wanted: float) -> Array:
    """Up to four horizons, those nearest the target's."""
    return horizons[np.argsort(np.abs(horizons - wanted))][:4]


def _at_distance(allowed: NDArray[np.bool_], along: Array, end: float, reach: float) -> NDArray[np.bool_]:
    """Keep cells as far below the held-out one as the target is above all, if at least three levels remain."""
    for distance in (reach, 0.5 * reach):
        far = allowed & (along <= end - distance + 1e-9)
        if len(np.unique(np.round(along[far], 6))) >= 3:
            return far
    return allowed


def _trial(
    evidence: Evidence, axis: Axis, quantity: Quantity, held_out: int, allowed: NDArray[np.bool_], inverted: bool
) -> Trial | None:
    own, lr = evidence.estimates[quantity], evidence.estimates[Quantity.LR]
    if not lr.usable[held_out]:
        return None
    scale = Scale(float(own.params[held_out]), float(own.tokens[held_out]))
    said = predict_strategy(evidence, axis, quantity, scale, allowed, inverted=inverted)
    if said.log2_lr is None or said.log2_value is None or said.lr_redraws is None or said.value_redraws is None:
        return None
    return Trial(
        scale=scale,
        log2_value_error=said.log2_value - float(own.log2_values[held_out]),
        log2_lr_error=said.log2_lr - float(lr.log2_values[held_out]),
        value_sd=float(np.std(said.value_redraws - own.replicates[:, held_out])),
        lr_sd=float(np.std(said.lr_redraws - lr.replicates[:, held_out])),
        bend_leverage=said.bend_leverage,
        cells=said.cells,
    )


def widen(prediction: Prediction, tested: Backtest) -> Prediction:
    """Add the law error that the back-test shows, at the target's distance, to the redraws."""
    if prediction.lr_redraws is None or prediction.value_redraws is None:
        return prediction
    assert prediction.log2_value is not None
    assert prediction.log2_lr is not None
    rng = np.random.default_rng(11)
    shock = rng.standard_normal(len(prediction.lr_redraws)) * prediction.bend_leverage
    flags = [Flag.BACKTEST_WIDENED] if tested.trials else [Flag.NO_BACKTEST]
    own = _own_bend(prediction, rng)
    middle = float(np.mean(own))
    return replace(
        prediction,
        log2_value=prediction.log2_value + middle,
        log2_lr=prediction.log2_lr + _slope(prediction) * middle,
        value_redraws=prediction.value_redraws + tested.bend(of_lr=False) * shock + own,
        lr_redraws=prediction.lr_redraws + tested.bend(of_lr=True) * shock + _slope(prediction) * own,
        flags=merge_flags(prediction.flags, flags),
    )


def _own_bend(prediction: Prediction, rng: np.random.Generator) -> Array | float:
    """A bend that the cells themselves show may end behind them or go on to the target: any share of it."""
    if prediction.bend_redraws is None:
        return 0.0
    return rng.uniform(size=len(prediction.bend_redraws)) * prediction.bend_redraws


def _slope(prediction: Prediction) -> float:
    """Octaves of η an octave of the strategy's own quantity, at the target, as the redraws show it."""
    value, lr = prediction.value_redraws, prediction.lr_redraws
    assert value is not None
    assert lr is not None
    if prediction.quantity is Quantity.LR or not np.var(value) > 0:
        return 1.0
    return float(np.cov(value, lr)[0, 1] / np.var(value, ddof=1))
