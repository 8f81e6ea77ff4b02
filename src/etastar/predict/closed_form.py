"""Which W₀/U and correlation factor make the paper's AdamW transient fit the runs' mean η_eff?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import least_squares

from etastar.estimate.cells import EffColumn, Group
from etastar.estimate.flags import Flag
from etastar.predict.settings import RunSettings, sweep_settings
from etastar.theory.horizon import mean_eff_lr_wsd
from etastar.theory.planned import Optimizer

Array = NDArray[np.float64]

_TABLE = np.arange(-30.0, 5.0, 1 / 64)  # log2 η; linear between, which is exact to 1e-5 octaves


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
        table, wanted = self._table(), np.asarray(log2_eff_lr, float)
        values = self.log2_eff_lr(table, tokens)
        return np.interp(wanted, values, table) + beyond(wanted, values, table)

    def _table(self) -> Array:
        return _TABLE[_largest_log2_lr(self.conditions) > _TABLE]


def beyond(wanted: Array, values: Array, table: Array) -> Array:
    """What to add outside a rising table: its ends go on straight, so that no spread is lost there.

    A map that has gone flat (η_eff hardly depends on η) would go on too steeply to be of use: up to 100.
    """
    first, last = (
        float(np.clip((table[k + 1] - table[k]) / max(values[k + 1] - values[k], 1e-9), 0.1, 100.0)) for k in (0, -2)
    )
    return np.minimum(wanted - values[0], 0.0) * first + np.maximum(wanted - values[-1], 0.0) * last


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


def fit_transient(conditions: Conditions, e: Array, t: Array, l: Array) -> TransientMap | None:
    """W₀/U and κ by least squares of log2 η_eff; None where the formula does not speak of such runs."""
    # the measured map and the inverted strategies ask for the same fits
    return _fitted(conditions, e.tobytes(), t.tobytes(), l.tobytes())


@lru_cache(maxsize=512)
def _fitted(conditions: Conditions, *points: bytes) -> TransientMap | None:
    e, t, l = (np.frombuffer(one) for one in points)
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
