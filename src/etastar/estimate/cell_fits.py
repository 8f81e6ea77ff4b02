"""How is one cell fitted, how is its optimum judged, and how far would another choice of fit move it?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from etastar.estimate.cells import Block, Quantity
from etastar.estimate.flags import Flag, merge_flags
from etastar.estimate.noise import Noise
from etastar.estimate.optimum import Optimum, Polynomial, Status
from etastar.estimate.polynomial import Design
from etastar.estimate.weights import FitChoice, Home, block_design

Array = NDArray[np.float64]

# A quadratic cannot see the asymmetry of the loss; its bias per octave of half-window, from bench/estimators.py
QUADRATIC_BIAS = 0.1
# Points that weigh at least this much of the heaviest are those the polynomial answers for
NEAR = 0.25


class CellFits:
    """The fits of some rows of a block in one degree, with the alternatives that judge the choice."""

    def __init__(
        self,
        block: Block,
        rows: NDArray[np.int64],
        x: Array,
        weight: Array,
        degree: int,
        noise: Noise | None,
        choice: FitChoice,
        level: float,
    ) -> None:
        self.block, self.rows, self.x, self.weight = block, rows, x, weight
        self.degree, self.noise, self.choice, self.level = degree, noise, choice, level
        self.y = np.nan_to_num(block.loss[rows])
        self.design = block_design(x, weight, degree)
        self.coefficients = self.design.coefficients(self.y)
        self.start = self._pilot()
        self.best, self.bend = self.design.minimiser(self.coefficients, start=self.start)
        self.status = np.array([self._status(k) for k in range(len(rows))], dtype=object)
        self.shifts = self._shifts()

    def _pilot(self) -> Array:
        """Where to look for the minimum of a quartic: at the cubic's, or at the lowest loss."""
        lowest = np.argmin(np.where(self.weight > 0, self.y, np.inf), axis=1)
        raw = np.take_along_axis(self.x, lowest[:, None], axis=1)[:, 0]
        if self.degree <= 3:
            return raw
        cubic = block_design(self.x, self.weight, 3)
        best, _ = cubic.minimiser(cubic.coefficients(self.y))
        return np.where(np.isfinite(best) & (best > cubic.low) & (best < cubic.high), best, raw)

    def _status(self, k: int) -> Status:
        there = self.weight[k] > 0
        x, y = self.x[k][there], self.y[k][there]
        if np.ptp(y) <= 1e-12 * np.abs(y).max():
            return Status.NO_MINIMUM  # equal losses: any minimum would be rounding
        fitted = self.design.fitted(self.y)[k][there]
        near = self.weight[k][there] >= NEAR * self.weight[k].max()
        # far points hardly count in the fit, so the fit says nothing of them: their own loss does
        lowest = int(np.argmin(np.where(near, fitted, y)))
        edges = (int(np.argmin(x)), int(np.argmax(x)))
        inside = np.isfinite(self.best[k]) and x.min() < self.best[k] < x.max()
        if inside and lowest not in edges:
            return Status.INTERIOR
        if lowest in edges or int(np.argmin(y)) in edges:
            return Status.AT_BOUNDARY
        return Status.NO_MINIMUM

    def _shifts(self) -> Array:
        """(4, C): what choosing another fit would move, beyond what noise explains; first row 0."""
        shifts = np.zeros((4, len(self.rows)))
        home = self._jacobian(self.design, self.best, self.bend)
        for k, (degree, weight) in enumerate(self._alternatives(), start=1):
            points = (weight > 0).sum(axis=1)
            if (points <= degree).any():
                continue
            other = block_design(self.x, weight, degree)
            best, bend = other.minimiser(other.coefficients(self.y), start=self.start)
            moved = best - self.best
            noise = self._noise_variance(self._jacobian(other, best, bend) - home)
            real = np.sign(moved) * np.sqrt(np.maximum(moved**2 - noise, 0.0))
            half = 0.5 * (self.design.high - self.design.low)
            shifts[k] = np.where(np.isfinite(real), np.clip(real, -half, half), 0.0)
        if self.degree == 2:
            half = 0.5 * (self.design.high - self.design.low)
            shifts[1:] += QUADRATIC_BIAS * half * np.array([-1.0, 0.0, 1.0])[:, None]
        return shifts

    def _alternatives(self) -> list[tuple[int, Array]]:
        wide, narrow = self._reweigh(1 / 3), self._reweigh(3.0)
        if self.degree == 2:
            return [(2, narrow)]
        return [(self.degree, wide), (self.degree, narrow), (7 - self.degree, self.weight)]

    def _reweigh(self, factor: float) -> Array:
        """The same weights with ρ scaled: σ²/(σ² + (ρ·gap)²) = 1/(1 + g) → 1/(1 + factor²·g)."""
        top = self.weight.max(axis=1, keepdims=True)
        relative = np.where(self.weight > 0, self.weight / top, 0.0)
        g = np.divide(1.0, relative, out=np.ones_like(relative), where=relative > 0) - 1
        if isinstance(self.choice.window, str) and self.choice.window == "auto":
            return np.where(self.weight > 0, 1 / (1 + factor**2 * g), 0.0)
        # a plain window: narrow it (or keep it) by distance from its minimum
        center = np.where(np.isfinite(self.best), self.best, self.design.center)
        half = 0.5 * (self.design.high - self.design.low) * (1.0 if factor < 1 else 0.6)
        distance = np.abs(self.x - center[:, None])
        near = np.sort(np.where(self.weight > 0, distance, np.inf), axis=1)
        reach = np.maximum(half, near[:, min(self.degree + 1, near.shape[1] - 1)])
        return np.where((self.weight > 0) & (distance <= reach[:, None] + 1e-9), self.weight, 0.0)

    def _jacobian(self, design: Design, best: Array, bend: Array) -> Array:
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            return np.where(self.weight > 0, design.sensitivity(best, bend), 0.0)

    def _noise_variance(self, jacobian: Array) -> Array:
        sigma = self.noise.total if self.noise else 0.0
        return sigma**2 * (jacobian**2 / np.maximum(self.block.count[self.rows], 1)).sum(axis=1)

    def redraw(self, eps: Array, pick: NDArray[np.int64]) -> Array:
        """(B, C) optima under redrawn noise, kept to the swept range and a spacing around it."""
        start = self.design.fitted(self.y)
        noisy = np.where(self.weight > 0, start + eps, 0.0)
        best, _ = self.design.minimiser(self.design.coefficients(noisy), start=self.start)
        reach = 0.25 * (self.design.high - self.design.low)
        lost = ~np.isfinite(best)
        if lost.any():
            # no minimum: the loss falls towards an end, so the optimum is beyond it
            falling = self.design.coefficients(noisy)[..., 1] < 0
            best = np.where(lost, np.where(falling, self.design.high + reach, self.design.low - reach), best)
        best = best + self.shifts[pick]
        return np.clip(best, self.design.low - reach, self.design.high + reach)

    def optimum(
        self, k: int, reps: Array, quantity: Quantity, home: Home, carry: CubicSpline | None
    ) -> tuple[Optimum, Array]:
        """One cell's answer and its redraws, in the quantity asked for."""
        block, row, status = self.block, self.rows[k], self.status[k]
        there = self.weight[k] > 0
        nan = float("nan")
        y, fitted = self.y[k][there], self.design.fitted(self.y)[k][there]
        weight = self.weight[k][there]
        spread = float((weight * (y - np.average(y, weights=weight)) ** 2).sum())
        r2 = 1 - float((weight * (y - fitted) ** 2).sum()) / spread if spread > 0 else nan
        interior = status is Status.INTERIOR
        outside = float(np.mean((reps <= self.design.low[k]) | (reps >= self.design.high[k])))
        best, slope = self.best[k], 1.0
        if carry is not None and interior:
            slope = float(carry(best, 1))
            best, reps = float(carry(best)), carry(reps)
        tail = 0.5 * (1 - self.level)
        low, high = (float(q) for q in np.quantile(reps, [tail, 1 - tail])) if interior else (nan, nan)
        wide = interior and high - low > 0.5 * abs(slope) * (self.design.high[k] - self.design.low[k])
        optimum = Optimum(
            group=block.group,
            params=block.params,
            tokens=float(block.tokens[row]),
            quantity=quantity,
            status=status,
            log2_value=float(best) if interior else nan,
            log2_interval=(low, high),
            log2_sd=float(np.std(reps)) if interior else nan,
            loss=float(self.design.value(self.coefficients, self.best)[k]) if interior else float(y.min()),
            curvature=float(self.bend[k]) / slope**2 if interior and slope**2 > 0 else nan,
            r2=r2,
            degree=self.degree,
            fitted_in=home.coordinate,
            points=int(there.sum()),
            flags=self._flags(k, row, quantity, interior, outside, wide),
            polynomial=self._polynomial(k, home),
        )
        return optimum, reps if interior else np.full(len(reps), nan)

    def _polynomial(self, k: int, home: Home) -> Polynomial:
        near = self.block.log2_lr[self.weight[k] >= NEAR * self.weight[k].max()]
        return Polynomial(
            coordinate=home.coordinate,
            center=float(self.design.center[k]),
            scale=float(self.design.scale[k]),
            coefficients=tuple(float(c) for c in self.coefficients[k]),
            near=(float(near.min()), float(near.max())),
        )

    def _flags(
        self, k: int, row: int, quantity: Quantity, interior: bool, outside: float, wide: bool
    ) -> tuple[Flag, ...]:
        flags: list[Flag] = []
        block, there = self.block, self.weight[k] > 0
        finite = np.flatnonzero(np.isfinite(block.loss[row]))
        lowest = finite[np.argmin(block.loss[row, finite])]
        if block.diverged[row].any():
            flags.append(Flag.DIVERGED_ROWS)
            beyond = lowest + 1 < len(block.log2_lr) and bool(block.diverged[row, lowest + 1])
            if not interior and beyond:
                flags.append(Flag.BOUNDED_BY_DIVERGENCE)
        if interior and lowest in (finite[0], finite[-1]):
            flags.append(Flag.RAW_MINIMUM_AT_EDGE)
        if self.degree == 2 and self.choice.degree is None:
            flags.append(Flag.QUADRATIC_FALLBACK)
        if there.sum() == self.degree + 1:
            flags.append(Flag.NO_RESIDUAL_FREEDOM)
        if self.noise is None:
            flags.append(Flag.NOISE_UNKNOWN)
        if block.unmarked and (block.count[row] > 1).any():
            flags.append(Flag.UNMARKED_REPLICATES)
        if interior and outside > 0.1:
            flags.append(Flag.UNSTABLE)
        if wide:
            flags.append(Flag.FLAT)
        if quantity is Quantity.EFF_LR:
            eff = block.log2_eff_lr[row][there & (self.weight[k] >= 0.1 * self.weight[k].max())]
            if (np.diff(eff) <= 0).any():
                flags.append(Flag.EFF_LR_NOT_MONOTONE)
        return merge_flags(flags)
