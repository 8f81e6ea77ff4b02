"""Which η has this η_eff at this D? The map from the effective learning rate back to the one to type.

Two roads, both measured on the study's own runs. `TransientMap` fits the two unknowns of the paper's
AdamW transient (W₀/U and the correlation factor) to the measured η_eff and extrapolates by the formula;
`PolynomialMap` regresses log2 η on (log2 η_eff, log2 D) and knows no physics. The first is used where
the optimizer, λ and the step counts are known and it describes the runs; the second otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import least_squares

from etastar.estimate.cells import Block, EffColumn, Group
from etastar.estimate.flags import Flag, merge_flags
from etastar.predict.settings import RunSettings, sweep_settings
from etastar.theory.horizon import mean_eff_lr_wsd
from etastar.theory.planned import Optimizer

Array = NDArray[np.float64]

WINDOW = 2.5  # octaves of η around each cell's lowest loss: the map is needed near the optimum
_TABLE = np.arange(-30.0, 5.0, 1 / 64)  # log2 η; linear between, which is exact to 1e-5 octaves
GOOD_FIT = 0.05  # octaves: a transient that misses the runs by more is not believed


class EffMap(Protocol):
    """Anything that turns log2 η_eff at D into log2 η."""

    @property
    def error(self) -> float:
        """What it missed the study's own runs by, octaves (root mean square)."""
        ...

    @property
    def flags(self) -> tuple[Flag, ...]: ...

    def covers(self, tokens: float) -> bool:
        """Whether a run of so many tokens can be spoken of."""
        ...

    def reach(self, tokens: float) -> tuple[float, float]:
        """log2 of the least and most η_eff that a run of so many tokens can have."""
        ...

    def log2_lr(self, log2_eff_lr: ArrayLike, tokens: float) -> Array:
        """log2 η for log2 η_eff at `tokens`."""
        ...


@dataclass(frozen=True)
class Conditions:
    """What the transient needs to know of a run besides its learning rate."""

    settings: RunSettings
    plateau: bool

    @classmethod
    def of(cls, group: Group, eff_column: EffColumn) -> Conditions | None:
        """The group's own, if it was trained by Adam(W) under WSD with everything known."""
        settings = sweep_settings(group)
        return None if isinstance(settings, str) else cls.under(settings, eff_column)

    @classmethod
    def under(cls, settings: RunSettings, eff_column: EffColumn) -> Conditions | None:
        """Of these settings, if the closed form speaks of them."""
        if settings.optimizer.fixes_norm or settings.schedule not in ("wsd", "constant"):
            return None
        return cls(settings, plateau=eff_column is EffColumn.PLATEAU)

    @property
    def decay(self) -> float:
        """λ as it acts: plain Adam has none."""
        return 0.0 if self.settings.optimizer is Optimizer.ADAM else self.settings.weight_decay

    def steps(self, tokens: ArrayLike) -> tuple[Array, Array]:
        """(T, its decay) of runs of so many tokens."""
        total, known = np.asarray(tokens, float) / self.settings.batch_tokens, self.settings
        if known.schedule == "constant":
            return total, np.zeros_like(total)
        if known.decay_steps is not None:
            return total, np.full_like(total, known.decay_steps)
        return total, (known.decay_fraction or 0.0) * total

    def covers(self, tokens: ArrayLike) -> bool:
        """Are all such runs longer than their warm-up and decay?"""
        total, decay = self.steps(tokens)
        return bool((total > self.settings.warmup_steps + decay).all())


@dataclass(frozen=True)
class TransientMap:
    """The paper's AdamW transient with measured W₀/U and correlation factor."""

    conditions: Conditions
    log2_correlation: float
    log2_norm_ratio: float
    error: float
    flags: tuple[Flag, ...] = (Flag.MEASURED_MAP,)

    def log2_eff_lr(self, log2_lr: ArrayLike, tokens: ArrayLike) -> Array:
        """log2 mean η_eff of a run, the forward map."""
        return _transient(
            self.conditions, self.log2_correlation, self.log2_norm_ratio, np.asarray(log2_lr), np.asarray(tokens)
        )

    def covers(self, tokens: float) -> bool:
        """A run longer than its own warm-up and decay."""
        return self.conditions.covers(tokens)

    def reach(self, tokens: float) -> tuple[float, float]:
        """log2 of the least and most η_eff that any η has."""
        ends = self.log2_eff_lr(self._table()[[0, -1]], tokens)
        return float(ends[0]), float(ends[1])

    def log2_lr(self, log2_eff_lr: ArrayLike, tokens: float) -> Array:
        """Invert through a fine table: mean η_eff rises with η."""
        table = self._table()
        return np.interp(np.asarray(log2_eff_lr, float), self.log2_eff_lr(table, tokens), table)

    def _table(self) -> Array:
        return _TABLE[_largest_log2_lr(self.conditions) > _TABLE]


def _largest_log2_lr(conditions: Conditions) -> float:
    """Above this one step of decay would erase the weight: η·λ must stay below 1."""
    if conditions.decay == 0 or conditions.settings.independent_decay:
        return float("inf")
    return float(np.log2(0.9 / conditions.decay))


def _transient(conditions: Conditions, log2_corr: float, log2_ratio: float, log2_lr: Array, tokens: Array) -> Array:
    corr = 2.0**log2_corr
    # far outside any training the formula over- or underflows; what is not finite is not believed
    with np.errstate(all="ignore"):
        total, decay = conditions.steps(tokens)
        mean, plateau = mean_eff_lr_wsd(
            2.0**log2_lr,
            total,
            warmup_steps=conditions.settings.warmup_steps,
            decay_steps=decay,
            weight_decay=conditions.decay,
            beta1=(corr - 1) / (corr + 1),
            norm_ratio=2.0**log2_ratio,
            independent_decay=conditions.settings.independent_decay,
        )
        return np.log2(plateau if conditions.plateau else mean)


@dataclass(frozen=True)
class PolynomialMap:
    """log2 η as a quadratic in log2 η_eff and log2 D, fitted near the optima."""

    coefficients: Array
    powers: tuple[tuple[int, int], ...]
    center: tuple[float, float]
    error: float
    flags: tuple[Flag, ...] = (Flag.MEASURED_MAP,)

    def covers(self, tokens: float) -> bool:
        """A polynomial speaks of anything."""
        return True

    def reach(self, tokens: float) -> tuple[float, float]:
        """It knows no bounds."""
        return -np.inf, np.inf

    def log2_lr(self, log2_eff_lr: ArrayLike, tokens: float) -> Array:
        """Evaluate the quadratic."""
        e = np.asarray(log2_eff_lr, float) - self.center[0]
        t = np.full(e.shape, np.log2(tokens) - self.center[1])
        return _features(e, t, self.powers) @ self.coefficients


@dataclass(frozen=True)
class MixedMap:
    """A target N without runs: the maps of measured sizes, each on its line in log2 N."""

    maps: tuple[EffMap, ...]
    mix: Array  # weights that extrapolate a line in log2 N to the target
    error: float
    flags: tuple[Flag, ...] = (Flag.MEASURED_MAP, Flag.MAP_ACROSS_PARAMS)

    def covers(self, tokens: float) -> bool:
        """Where every part does."""
        return all(part.covers(tokens) for part in self.maps)

    def reach(self, tokens: float) -> tuple[float, float]:
        """What every part reaches."""
        ends = [part.reach(tokens) for part in self.maps]
        return max(low for low, _ in ends), min(high for _, high in ends)

    def log2_lr(self, log2_eff_lr: ArrayLike, tokens: float) -> Array:
        """The line through what the measured sizes say."""
        return sum(
            (w * m.log2_lr(log2_eff_lr, tokens) for w, m in zip(self.mix, self.maps, strict=True)), np.array(0.0)
        )


def fit_map(block: Block, conditions: Conditions | None, rows: NDArray[np.bool_]) -> EffMap | None:
    """The map of one block from the rows (D) it may see; None without enough runs."""
    e, t, l = points_near_optima(block, rows)
    if len(l) < 4 or np.ptp(e) <= 0:
        return None
    if conditions is not None:
        transient = fit_transient(conditions, e, t, l)
        if transient is not None and transient.error <= GOOD_FIT:
            return transient
    return _fit_polynomial(e, t, l)


def map_for(
    group: Group, params: float, conditions: Conditions | None, allowed: dict[float, NDArray[np.bool_]]
) -> EffMap | None:
    """The map at `params`: its own block's, or a line in log2 N through the others'.

    `allowed` says, by N, which rows (D) of each block may be looked at.
    """
    own = [b for b in group.blocks if b.params == params and allowed.get(b.params, np.zeros(0, bool)).any()]
    if own:
        return fit_map(own[0], conditions, allowed[own[0].params])
    found = [
        (b, fit_map(b, conditions, allowed[b.params]))
        for b in group.blocks
        if allowed.get(b.params, np.zeros(0, bool)).any()
    ]
    return mixed([(b.params, m) for b, m in found if m is not None], params)


def mixed(maps: list[tuple[float, EffMap]], params: float) -> MixedMap | None:
    """The maps of measured N, carried along a line in log2 N to `params`; None without any."""
    if not maps:
        return None
    n = np.log2([p for p, _ in maps])
    features = np.column_stack([np.ones(len(n)), n]) if len(n) > 1 else np.ones((1, 1))
    target = np.array([1.0, np.log2(params)])[: features.shape[1]]
    error = float(np.max([m.error for _, m in maps]))
    flags = merge_flags([Flag.MAP_ACROSS_PARAMS], *(m.flags for _, m in maps))
    return MixedMap(tuple(m for _, m in maps), (target @ np.linalg.pinv(features)).astype(float), error, flags)


def points_near_optima(block: Block, rows: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """(log2 η_eff, log2 D, log2 η) of the runs near each cell's lowest loss."""
    loss = np.where(rows[:, None], block.loss, np.nan)
    known = np.isfinite(loss) & np.isfinite(block.log2_eff_lr)
    lowest = block.log2_lr[np.argmin(np.where(known, loss, np.inf), axis=1)]
    known &= np.abs(block.log2_lr[None] - lowest[:, None]) <= WINDOW
    l = np.broadcast_to(block.log2_lr, loss.shape)[known]
    t = np.broadcast_to(np.log2(block.tokens)[:, None], loss.shape)[known]
    return block.log2_eff_lr[known], t, l


def fit_transient(conditions: Conditions, e: Array, t: Array, l: Array) -> TransientMap | None:
    tokens = 2.0**t
    if not conditions.covers(tokens) or (l >= _largest_log2_lr(conditions)).any():
        return None

    def miss(theta: Array) -> Array:
        return _transient(conditions, float(theta[0]), float(theta[1]), l, tokens) - e

    start = np.array([np.log2(39.0), -3.0])
    if not np.isfinite(miss(start)).all():
        return None  # learning rates or steps far from any training: the formula says nothing
    fit = least_squares(miss, x0=start, bounds=([0.01, -12.0], [12.0, 6.0]))
    error = float(np.sqrt(np.mean(fit.fun**2)))
    return TransientMap(conditions, float(fit.x[0]), float(fit.x[1]), error)


def _fit_polynomial(e: Array, t: Array, l: Array) -> PolynomialMap:
    horizons = len(np.unique(np.round(t, 9)))
    powers = [(0, 0), (1, 0)]
    if len(l) >= 5 * horizons:
        powers.append((2, 0))
    if horizons >= 2:
        powers.append((0, 1))
    if horizons >= 3:
        powers += [(1, 1), (0, 2)]
    center = (float(e.mean()), float(t.mean()))
    # recent horizons say more about the target's
    weight = 2.0 ** ((t - t.max()) / 2)
    features = _features(e - center[0], t - center[1], tuple(powers))
    coefficients = np.linalg.lstsq(features * weight[:, None], l * weight, rcond=1e-10)[0]
    error = float(np.sqrt(np.average((features @ coefficients - l) ** 2, weights=weight)))
    return PolynomialMap(coefficients, tuple(powers), center, error)


def _features(e: Array, t: Array, powers: tuple[tuple[int, int], ...]) -> Array:
    return np.stack([e**i * t**j for i, j in powers], axis=-1)
