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

from etastar.estimate.cells import Block, Group
from etastar.estimate.flags import Flag, merge_flags
from etastar.predict.closed_form import Conditions, TransientMap, fit_transient

__all__ = ["Conditions", "EffMap", "MixedMap", "PolynomialMap", "TransientMap", "fit_map", "map_for", "mixed"]

Array = NDArray[np.float64]

WINDOW = 2.5  # octaves of η around each cell's lowest loss: the map is needed near the optimum
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
