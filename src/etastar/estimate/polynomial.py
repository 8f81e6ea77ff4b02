"""Where is the minimum of a polynomial fitted to a few losses, for thousands of cells at once?

A weighted least-squares fit on a fixed design is linear in the losses, so the whole bootstrap is one
matrix product: `Design.operator` maps losses to coefficients, and minimisers have a closed form.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Design:
    """C cells of up to n points each: where they lie and how they weigh, for one degree.

    `operator` is (C, p, n): coefficients of 1, u, …, u^degree with u = (x − center) / scale.
    """

    degree: int
    center: Array  # (C,)
    scale: Array  # (C,)
    basis: Array  # (C, n, p)
    operator: Array  # (C, p, n)
    low: Array  # (C,), the fitted points' range in x
    high: Array

    def coefficients(self, y: Array) -> Array:
        """(…, C, n) losses → (…, C, p) coefficients; masked points must be finite (any value)."""
        return np.matmul(self.operator, y[..., None])[..., 0]

    def fitted(self, y: Array) -> Array:
        """Losses of the fit at the design's own points."""
        return np.matmul(self.basis, self.coefficients(y)[..., None])[..., 0]

    def value(self, coefficients: Array, x: Array) -> Array:
        """The polynomial at x, (…, C)."""
        return polynomial((x - self.center) / self.scale, coefficients)

    def minimiser(self, coefficients: Array, *, start: Array | None = None) -> tuple[Array, Array]:
        """(x of the local minimum, second derivative there in x); NaN where there is no minimum."""
        u0 = None if start is None else (start - self.center) / self.scale
        u, bend = minimiser(coefficients, start=u0)
        return self.center + self.scale * u, bend / self.scale**2

    def sensitivity(self, x: Array, bend: Array) -> Array:
        """∂x*/∂y, (C, n): how the minimiser moves with each loss, to first order."""
        u = (x - self.center) / self.scale
        powers = np.stack([k * u ** max(k - 1, 0) for k in range(self.degree + 1)], axis=-1)
        slope = np.einsum("cp,cpn->cn", powers, self.operator)
        return -slope / self.scale[:, None] / bend[:, None]


def make_design(x: Array, weight: Array, degree: int) -> Design:
    """Weighted polynomial design; a point with weight 0 is not there."""
    there = weight > 0
    low = np.min(np.where(there, x, np.inf), axis=1)
    high = np.max(np.where(there, x, -np.inf), axis=1)
    center = 0.5 * (low + high)
    scale = np.maximum(0.5 * (high - low), 1e-12)
    u = np.where(there, (x - center[:, None]) / scale[:, None], 0.0)
    basis = u[..., None] ** np.arange(degree + 1, dtype=float)
    root = np.sqrt(weight / np.max(weight, axis=1, keepdims=True))
    operator = np.linalg.pinv(basis * root[..., None], rcond=1e-13) * root[:, None, :]
    return Design(degree, center, scale, basis, operator, low, high)


def polynomial(u: Array, coefficients: Array) -> Array:
    """Σ c_k u^k by Horner's rule; coefficients along the last axis, lowest first."""
    result = np.zeros(np.broadcast_shapes(np.shape(u), coefficients.shape[:-1]))
    for k in range(coefficients.shape[-1] - 1, -1, -1):
        result = result * u + coefficients[..., k]
    return result


def minimiser(coefficients: Array, *, start: Array | None = None) -> tuple[Array, Array]:
    """(u of the local minimum, second derivative there), NaN where none; closed form up to degree 3.

    Above degree 3, Newton's method from `start` follows the minimum that the cubic found.
    """
    degree = coefficients.shape[-1] - 1
    if degree > 3:
        if start is None:
            raise ValueError("a minimum of degree 4 and above needs a start")
        return _newton(coefficients, start)
    c1, c2 = coefficients[..., 1], coefficients[..., 2]
    c3 = coefficients[..., 3] if degree == 3 else np.zeros_like(c2)
    discriminant = c2**2 - 3 * c1 * c3
    root = np.sqrt(np.maximum(discriminant, 0.0))
    # -c1 / (c2 + root) is the root with positive curvature, and keeps its digits as c3 → 0
    denominator = c2 + root
    safe = (discriminant > 0) & (np.abs(denominator) > 1e-300)
    u = np.where(safe, -c1 / np.where(safe, denominator, 1.0), np.nan)
    # for c2 < 0 that form cancels; the other one does not
    with np.errstate(divide="ignore", invalid="ignore"):
        u = np.where((discriminant > 0) & (c2 < 0) & (c3 != 0), (root - c2) / (3 * c3), u)
    bend = np.where(discriminant > 0, 2 * root, np.nan)
    return np.where(bend > 0, u, np.nan), bend


def _newton(coefficients: Array, start: Array) -> tuple[Array, Array]:
    k = np.arange(coefficients.shape[-1])
    first = (coefficients * k)[..., 1:]
    second = (first * k[:-1])[..., 1:]
    u = np.broadcast_to(start, coefficients.shape[:-1]).astype(float)
    step = np.full_like(u, np.nan)
    for _ in range(16):
        bend = polynomial(u, second)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.where(bend > 0, polynomial(u, first) / bend, np.nan)
        u = u - np.clip(step, -0.3, 0.3)
    bend = polynomial(u, second)
    settled = np.abs(step) < 1e-6
    return np.where(settled, u, np.nan), np.where(settled, bend, np.nan)
