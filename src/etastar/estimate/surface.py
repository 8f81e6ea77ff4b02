"""Can all D of one N be fitted together? A surface: one shape, a free floor at each D, a moving optimum.

Losses are smoothed onto f_D + b₁x + b₂x² + b₃x³ + t·(b₄x + b₅x²) + b₆t²x, x the log2 learning rate and
t = log2 D: a cubic whose minimum moves along log D, with the shape shared. Smoothing is linear in the
losses, and within a cell the smoothed losses lie on a cubic exactly; so the per-cell fit that follows
finds the surface's own minimum, and redrawn noise goes the same way. `bench/surface.py` compares the two.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SHARED = ((1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (1, 2))  # powers of (x, t)
MIN_HORIZONS = 3


def smoother(x: Array, weight: Array, tokens: Array) -> Array | None:
    """(D·L, D·L): the matrix that lays a block's losses on the surface; None where it has no say.

    Points without weight are left as they are; so is a block with too few horizons or points.
    """
    there = weight > 0
    horizons = there.any(axis=1)
    if horizons.sum() < MIN_HORIZONS or there.sum() < horizons.sum() + len(SHARED) + 2:
        return None
    d, _ = np.nonzero(there)
    u = x[there]
    u = (u - u.mean()) / max(float(np.ptp(u)) / 2, 1e-9)
    t = np.log2(tokens)
    t = (t - t[horizons].mean()) / max(float(np.ptp(t[horizons])) / 2, 1e-9)
    floors = (d[:, None] == np.flatnonzero(horizons)[None]).astype(float)
    basis = np.column_stack([floors, *(u**i * t[d] ** j for i, j in SHARED)])
    # cells weigh alike: within each, the heaviest point counts 1
    relative = (weight / np.maximum(weight.max(axis=1, keepdims=True), 1e-300))[there]
    root = np.sqrt(relative)
    hat = basis @ (np.linalg.pinv(basis * root[:, None], rcond=1e-11) * root)
    matrix = np.eye(weight.size)
    index = np.flatnonzero(there.ravel())
    matrix[np.ix_(index, index)] = hat
    return matrix


def smooth(matrix: Array | None, values: Array) -> Array:
    """Apply a block's smoother to (…, D, L) values."""
    if matrix is None:
        return values
    flat = values.reshape(*values.shape[:-2], -1)
    return (flat @ matrix.T).reshape(values.shape)
