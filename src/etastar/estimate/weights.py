"""How much does each point of a sweep count in the fit of its minimum?

A cubic is right near the optimum and wrong far from it. So a point counts by how well a cubic can be
expected to describe it: its variance is taken as σ² + (ρ · gap)², where gap is how far its loss lies
above the minimum. Where noise is large far points help and are used; where it is small they would only
bias the fit. `bench/estimators.py` shows what this is worth against plain windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from etastar.errors import InputError
from etastar.estimate.cells import Block, Quantity
from etastar.estimate.noise import Noise, Residuals, from_replicates, pool_residuals
from etastar.estimate.polynomial import Design, make_design

Array = NDArray[np.float64]

GAP_SHARE = 0.3  # ρ: the cubic's expected relative error at a gap; chosen by bench/estimators.py
ROUNDS = 8
WIDTHS = (1.0, 1 / 3, 1 / 10)  # shares of ρ at which the noise is looked for
MISFIT_FACTOR = 2.0
MISFIT_RANGE = (0.17, 0.3)  # no polynomial is credited with less, none needs more
FIRM = 4.0  # degrees of freedom from which on a residual variance is believed
MISFIT = 1.05  # residuals this much larger than the best are misfit, not noise
FLOOR = 0.003  # losses are never taken to be quieter than this share of a cell's height
START = 0.1  # first guess of the noise, as a share of a cell's height


@dataclass(frozen=True, kw_only=True)
class FitChoice:
    """Degree, window and coordinate of a cell's fit; the defaults let the data choose.

    `window` is "auto" (weights by gap), "all" (the paper's: every point alike) or a half-width in
    octaves around the minimum. `degree` None means 3, 4 where the whole group's residuals ask for it,
    or 2 where a cell has too few points for 3. `own_coordinate` fits each quantity in its own
    logarithm, as the paper does; otherwise both are fitted where the polynomial follows the losses
    better, and the cell's own measured map carries the minimum to the other.
    """

    degree: int | None = None
    window: str | float = "auto"
    own_coordinate: bool = False
    gap_share: float = GAP_SHARE

    def __post_init__(self) -> None:
        if self.degree is not None and self.degree not in (2, 3, 4):
            raise InputError(f"degree: {self.degree} is not 2, 3 or 4", hint="use --degree 3 (the paper's), 2 or 4")
        if isinstance(self.window, str) and self.window not in ("auto", "all"):
            raise InputError(
                f"window: {self.window[:40]!r} is not auto, all or a number", hint="use --window auto, all or 2.5"
            )
        if not isinstance(self.window, str) and not self.window > 0:
            raise InputError(f"window: {self.window} is not above zero", hint="a half-width in octaves, e.g. 2.5")

    def degree_for(self, points: int, asked: int = 3) -> int | None:
        """The degree a cell of so many points is fitted with; None where there are too few."""
        if self.degree is not None:
            return self.degree if points > self.degree else None
        if points >= asked + 2:
            return asked
        if points >= 5:
            return 3
        return 2 if points >= 3 else None


@dataclass(frozen=True)
class Home:
    """Where a quantity's curve is fitted: in which logarithm, with which degree."""

    coordinate: Quantity
    degree: int


@dataclass(frozen=True)
class Settled:
    """Every block's weights, the noise that all blocks agree on, and each quantity's home."""

    weights: list[Array]  # per block, (D, L)
    noise: Noise | None
    homes: dict[Quantity, Home]
    misfit: dict[Quantity, float]  # error of the fit at a point, as a share of the point's gap


def coordinate(block: Block, quantity: Quantity) -> Array:
    """log2 of the quantity at every point of the block, (D, L)."""
    return np.broadcast_to(block.log2_lr, block.loss.shape) if quantity is Quantity.LR else block.log2_eff_lr


def settle(blocks: list[Block], choice: FitChoice) -> Settled:
    """Weights, noise and homes, found together: each needs the others, and a few rounds settle all.

    Residuals also hold what the polynomial cannot follow. So the noise is read off cubics and quartics
    in log η and in log η_eff, and the smallest is believed: noise is in all of them, misfit is not.
    """
    there = [np.isfinite(block.loss) for block in blocks]
    floor = [_lowest(block.loss) for block in blocks]
    scale = _height(blocks)
    sigma, noise = START * scale, None
    quantities = [Quantity.LR, *([Quantity.EFF_LR] if all(block.has_eff_lr for block in blocks) else [])]
    leftover: dict[Home, Noise] = {}
    weights = [_weigh(b, t, f, sigma, choice) for b, t, f in zip(blocks, there, floor, strict=True)]
    for _ in range(ROUNDS if choice.window != "all" else 1):
        for k, block in enumerate(blocks):
            floor[k] = _floor(block, weights[k], choice, sigma, floor[k])
        widths = [_leftover(blocks, [_wider(w, share) for w in weights], quantities) for share in WIDTHS]
        # the narrowest width at which every candidate can be judged
        leftover = next((w for w in widths if w and min(n.freedom for n in w.values()) >= FIRM), widths[-1])
        # seeds tell noise from shape by themselves: as much of the curve speaks as it takes
        noise = next(
            (n for share in (*WIDTHS, 0.0) if (n := from_replicates(blocks, [_wider(w, share) for w in weights]))), None
        )
        candidates = [candidate for width in widths for candidate in width.values()]
        if noise is None and candidates:
            noise = _believed(candidates)
        # no freedom left: the weights were too narrow to tell, so widen them and look again
        sigma = max(noise.total, FLOOR * scale) if noise else 2 * sigma
        weights = [_weigh(b, t, f, sigma, choice) for b, t, f in zip(blocks, there, floor, strict=True)]
    homes = {q: _home(q, quantities, leftover, choice) for q in quantities}
    misfit = {q: _misfit(blocks, weights, home, noise) for q, home in homes.items()}
    return Settled(weights, noise, homes, misfit)


def gaps(block: Block) -> Array:
    """How far each loss lies above its cell's lowest, 0 where there is none."""
    known = np.isfinite(block.loss)
    lowest = _lowest(block.loss)
    return np.where(known, block.loss - np.where(np.isfinite(lowest), lowest, 0.0)[:, None], 0.0)


def _misfit(blocks: list[Block], weights: list[Array], home: Home, noise: Noise | None) -> float:
    """The m for which errors of m·gap explain what a wider fit leaves over beyond the noise."""
    square = expected = freedom = reach = 0.0
    for block, weight in zip(blocks, weights, strict=True):
        gap = gaps(block)
        for part in _residuals(block, coordinate(block, home.coordinate), _wider(weight, WIDTHS[1]), home.degree):
            made = part.weight[..., None] * part.maker
            # replicates average noise away, not misfit
            bare = made * np.sqrt(np.maximum(block.count[part.rows], 1))[:, None, :]
            square += float(((part.weight * part.residual) ** 2).sum())
            expected += (noise.total**2 if noise else 0.0) * float((made**2).sum())
            freedom += float((bare**2).sum())
            reach += float((bare**2 * gap[part.rows][:, None, :] ** 2).sum())
    # what noise alone may well leave over is no misfit
    excess = square - expected * (1 + np.sqrt(2 / max(freedom, 1.0)))
    share = np.sqrt(max(excess, 0.0) / reach) if reach > 0 else 0.0
    return float(np.clip(MISFIT_FACTOR * share, *MISFIT_RANGE))


def _believed(candidates: list[Noise]) -> Noise:
    """The candidate whose 90 % upper bound is the smallest: misfit only ever adds to a residual."""
    return min(candidates, key=lambda noise: noise.total * np.sqrt(noise.freedom / chdtri(noise.freedom, 0.9)))


def _wider(weight: Array, share: float) -> Array:
    """The same weights with ρ scaled by `share`: more points, for telling noise from shape."""
    near = _near(weight)
    return np.where(near > 0, 1 / (1 + (1 / np.maximum(near, 1e-300) - 1) * share**2), 0.0)


def _leftover(blocks: list[Block], weights: list[Array], quantities: list[Quantity]) -> dict[Home, Noise]:
    """Pooled residual noise of every (coordinate, degree)."""
    found: dict[Home, Noise] = {}
    for quantity in quantities:
        for degree in (3, 4):
            parts = [
                part
                for block, weight in zip(blocks, weights, strict=True)
                for part in _residuals(block, coordinate(block, quantity), weight, degree)
            ]
            noise = pool_residuals(parts)
            if noise is not None:
                found[Home(quantity, degree)] = noise
    return found


def _home(quantity: Quantity, quantities: list[Quantity], leftover: dict[Home, Noise], choice: FitChoice) -> Home:
    """The simplest fit whose residuals are within MISFIT of the smallest: own cubic before all others."""
    degrees = (3, 4) if choice.degree is None else (choice.degree,)
    others = [] if choice.own_coordinate else [q for q in quantities if q is not quantity]
    order = [Home(q, d) for d in degrees for q in (quantity, *others)]
    known = {home: leftover[home].total for home in order if home in leftover}
    if choice.window == "all" or not known:
        return order[0]
    best = min(known.values())
    return next(home for home in order if home in known and known[home] <= MISFIT * best)


def _lowest(loss: Array) -> Array:
    return np.min(np.where(np.isfinite(loss), loss, np.inf), axis=1)


def _height(blocks: list[Block]) -> float:
    """How far the lowest five losses of a cell typically spread: the scale that noise is compared with."""
    heights = []
    for block in blocks:
        ordered = np.sort(np.where(np.isfinite(block.loss), block.loss, np.inf), axis=1)[:, :5]
        finite = np.isfinite(ordered)
        top = np.max(np.where(finite, ordered, -np.inf), axis=1)
        heights.append((top - ordered[:, 0])[finite.sum(axis=1) >= 3])
    pooled = np.concatenate(heights) if heights else np.empty(0)
    pooled = pooled[np.isfinite(pooled) & (pooled > 0)]
    return float(np.median(pooled)) if len(pooled) else 1e-3


def _weigh(block: Block, there: NDArray[np.bool_], floor: Array, sigma: float, choice: FitChoice) -> Array:
    if choice.window == "all":
        return np.where(there, np.maximum(block.count, 1), 0).astype(float)
    gap = np.maximum(np.where(there, block.loss, 0.0) - np.where(np.isfinite(floor), floor, 0.0)[:, None], 0.0)
    variance = sigma**2 / np.maximum(block.count, 1) + (choice.gap_share * gap) ** 2
    weight = np.where(there, sigma**2 / np.maximum(variance, 1e-300), 0.0)
    if isinstance(choice.window, str):
        return weight
    return _windowed(block, there, weight, float(choice.window), choice)


def _windowed(block: Block, there: NDArray[np.bool_], weight: Array, half: float, choice: FitChoice) -> Array:
    """Equal weights within ±half octaves of a pilot minimum; at least degree + 2 points."""
    out = np.zeros_like(weight)
    for row in range(len(weight)):
        points = np.flatnonzero(there[row])
        degree = choice.degree_for(len(points))
        if degree is None:
            out[row, points] = 1.0
            continue
        x = block.log2_lr[points]
        # losses that do not differ leave no weight: then every point counts alike
        near = weight[row, points] if weight[row, points].any() else np.ones(len(points))
        pilot = make_design(x[None], near[None], min(degree, len(points) - 1))
        lowest = x[np.argmin(block.loss[row, points])]
        fitted = pilot.coefficients(block.loss[row, points][None])
        center = pilot.minimiser(fitted, start=np.array([lowest]))[0][0]
        if not np.isfinite(center) or abs(center - lowest) > 2:
            center = lowest
        distance = np.abs(x - center)
        keep = distance <= half + 1e-9
        keep[np.argsort(distance, kind="stable")[: degree + 2]] = True
        out[row, points[keep]] = np.maximum(block.count[row, points[keep]], 1)
    return out


def by_degree(weight: Array, choice: FitChoice, asked: int = 3) -> list[tuple[int, NDArray[np.int64]]]:
    """Rows of a block by the degree that their number of points carries."""
    points = (weight > 0).sum(axis=1)
    degrees = np.array([choice.degree_for(int(n), asked) or 0 for n in points])
    return [(int(d), np.flatnonzero(degrees == d)) for d in np.unique(degrees) if d > 0]


def block_design(x: Array, weight: Array, degree: int) -> Design:
    """The design of some rows of a block; x may hold NaN where the weight is 0."""
    return make_design(np.where(weight > 0, x, 0.0), weight, degree)


def _near(weight: Array) -> Array:
    top = np.max(weight, axis=1, keepdims=True)
    return np.divide(weight, top, out=np.zeros_like(weight), where=top > 0)


def _residuals(block: Block, x: Array, weight: Array, degree: int) -> list[Residuals]:
    """What a fit (of this degree, or what the points carry with one freedom kept) leaves over."""
    y = np.nan_to_num(block.loss)
    points = (weight > 0).sum(axis=1)
    degrees = np.where(points >= 4, np.minimum(points - 2, degree), 0)
    parts = []
    for carried in np.unique(degrees[degrees > 0]):
        rows = np.flatnonzero(degrees == carried)
        there = weight[rows] > 0
        design = block_design(x[rows], weight[rows], int(carried))
        residual = np.where(there, y[rows] - design.fitted(y[rows]), 0.0)
        eye = np.eye(weight.shape[1])[None] * there[:, None, :]
        maker = eye - np.matmul(design.basis, design.operator) * there[..., None]
        maker = maker / np.sqrt(np.maximum(block.count[rows], 1))[:, None, :]
        parts.append(Residuals(residual, maker, _near(weight[rows]), rows))
    return parts


def _floor(block: Block, weight: Array, choice: FitChoice, sigma: float, floor: Array) -> Array:
    """The loss at each cell's minimum: fitted where the fit has one, else the lowest measured."""
    floor = floor.copy()
    x = np.broadcast_to(block.log2_lr, weight.shape)
    y = np.nan_to_num(block.loss)
    for degree, rows in by_degree(weight, choice):
        design = block_design(x[rows], weight[rows], degree)
        low, _ = design.minimiser(
            design.coefficients(y[rows]), start=x[rows, np.argmin(np.where(weight[rows] > 0, y[rows], np.inf), axis=1)]
        )
        value = design.value(design.coefficients(y[rows]), low)
        inside = np.isfinite(low) & (low >= design.low) & (low <= design.high)
        raw = _lowest(block.loss[rows])
        # the fitted minimum is the better floor, but never far below what was measured
        floor[rows] = np.where(inside, np.clip(value, raw - 2 * sigma, raw + 2 * sigma), raw)
    return floor
