"""All optima of a group with joint error bars: the point fits, their alternatives and the bootstrap.

Noise is redrawn on the fixed design, shared along each trunk, and the same draws go through both
quantities and every cell, so that laws and back-tests inherit the right correlations. To each redraw
the part of a differing fit choice (wider, narrower, quartic) that noise does not explain is added.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from etastar.estimate.cell_fits import CellFits
from etastar.estimate.cells import Block, Group, Quantity
from etastar.estimate.flags import Flag
from etastar.estimate.noise import Noise, draw, sigma_scales
from etastar.estimate.optimum import Optimum, Status
from etastar.estimate.surface import smooth, smoother
from etastar.estimate.weights import FitChoice, Settled, by_degree, coordinate, gaps, settle

Array = NDArray[np.float64]

DEFAULT_CHOICE = FitChoice()


@dataclass(frozen=True, kw_only=True)
class Options:
    """How optima and their intervals are computed; `surface` fits all D of one N together."""

    choice: FitChoice = DEFAULT_CHOICE
    level: float = 0.9
    replicates: int = 500
    seed: int = 0
    surface: bool = False


@dataclass(frozen=True)
class Estimates:
    """The optima of one group in one quantity. `replicates` is (B, C), NaN columns where not INTERIOR."""

    group: Group
    quantity: Quantity
    optima: tuple[Optimum, ...]
    replicates: Array
    noise: Noise | None

    @cached_property
    def params(self) -> Array:
        return np.array([o.params for o in self.optima])

    @cached_property
    def tokens(self) -> Array:
        return np.array([o.tokens for o in self.optima])

    @cached_property
    def log2_values(self) -> Array:
        return np.array([o.log2_value for o in self.optima])

    def locate(self, index: int) -> tuple[Block, int]:
        """The block of a cell, and its row there."""
        for block in self.group.blocks:
            if index < len(block.tokens):
                return block, index
            index -= len(block.tokens)
        raise IndexError(index)

    @cached_property
    def usable(self) -> NDArray[np.bool_]:
        """Cells whose optimum may carry a law."""
        return np.array([o.status is Status.INTERIOR for o in self.optima], dtype=bool)


def estimate_group(group: Group, options: Options = Options()) -> dict[Quantity, Estimates]:
    """Optima of every cell of a group, in η and, where it is measured, in η_eff."""
    blocks = list(group.blocks)
    settled = settle(blocks, options.choice)
    rng = np.random.default_rng(options.seed)
    replicates = _affordable(options.replicates, blocks)
    scales = sigma_scales(settled.noise, replicates, rng) if settled.noise else np.ones(replicates)
    draws = [
        draw(settled.noise, b.count, replicates=replicates, rng=rng, sigma_scale=scales)
        if settled.noise
        else np.zeros((replicates, *b.loss.shape))
        for b in blocks
    ]
    # what no polynomial follows, alike at all D of one LR
    misfits = [gaps(b) * rng.standard_normal((replicates, 1, b.loss.shape[1])) for b in blocks]
    pick = rng.integers(0, 4, replicates)
    quantities = [Quantity.LR, *([Quantity.EFF_LR] if group.has_eff_lr else [])]
    found: dict[Quantity, Estimates] = {}
    for quantity in quantities:
        optima, columns = [], []
        for k, block in enumerate(blocks):
            eps = draws[k] + settled.misfit[quantity] * misfits[k]
            cells, reps = _estimate_block(block, settled.weights[k], settled, eps, pick, quantity, options)
            optima.extend(cells)
            columns.append(reps)
        found[quantity] = Estimates(group, quantity, tuple(optima), np.concatenate(columns, axis=1), settled.noise)
    return found


def _affordable(wanted: int, blocks: list[Block]) -> int:
    """Fewer redraws for huge tables, so that memory stays bounded (about 1 GB of redraws)."""
    largest = max(block.loss.size for block in blocks)
    cells = sum(len(block.tokens) for block in blocks)
    return int(max(50, min(wanted, 4e7 // max(largest, 1), 6e7 // max(cells, 1))))


def _estimate_block(
    block: Block,
    weight: Array,
    settled: Settled,
    eps: Array,
    pick: NDArray[np.int64],
    quantity: Quantity,
    options: Options,
) -> tuple[list[Optimum], Array]:
    home = settled.homes[quantity]
    x = coordinate(block, home.coordinate)
    if options.surface:
        matrix = smoother(x, weight, block.tokens)
        laid = smooth(matrix, np.nan_to_num(block.loss))
        block = replace(block, loss=np.where(np.isfinite(block.loss), laid, np.nan))
        eps = smooth(matrix, eps)
    optima: list[Optimum | None] = [None] * len(block.tokens)
    replicates = np.full((len(pick), len(block.tokens)), np.nan)
    for degree, rows in by_degree(weight, options.choice, home.degree):
        fits = CellFits(block, rows, x[rows], weight[rows], degree, settled.noise, options.choice, options.level)
        reps = fits.redraw(eps[:, rows], pick)
        for local, row in enumerate(rows):
            carry = cell_map(block, int(row), home.coordinate, quantity)
            optima[row], replicates[:, row] = fits.optimum(local, reps[:, local], quantity, home, carry)
    filled = [o if o is not None else _too_few(block, row, quantity) for row, o in enumerate(optima)]
    return filled, replicates


def cell_map(block: Block, row: int, source: Quantity, to: Quantity) -> CubicSpline | None:
    """A cell's own map between log2 η and log2 η_eff, through every run it has; None for no map."""
    if source is to:
        return None
    known = np.isfinite(block.log2_eff_lr[row]) & np.isfinite(block.loss[row])
    x, y = coordinate(block, source)[row][known], coordinate(block, to)[row][known]
    order = np.argsort(x, kind="stable")
    rising = np.concatenate([[True], np.diff(np.maximum.accumulate(x[order])) > 1e-9])
    if rising.sum() < 2:
        # every run has one and the same η_eff: no fit in it has a minimum, so nothing is carried over
        middle = float(np.mean(y)) if len(y) else float("nan")
        return CubicSpline([0.0, 1.0], [middle, middle], bc_type="natural") if np.isfinite(middle) else None
    return CubicSpline(x[order][rising], y[order][rising], bc_type="natural")


def _too_few(block: Block, row: int, quantity: Quantity) -> Optimum:
    nan = float("nan")
    flags = (Flag.DIVERGED_ROWS,) if block.diverged[row].any() else ()
    points = int(np.isfinite(block.loss[row]).sum())
    return Optimum(
        block.group, block.params, float(block.tokens[row]), quantity, Status.TOO_FEW_POINTS,
        nan, (nan, nan), nan, nan, nan, nan, None, quantity, points, flags,
    )  # fmt: skip
