"""Which values may η, λ, β₁ and t take, and what are δ, α and κ made of them?

δ = η·λ (torch's AdamW) or δ = λ (a decay independent of η) is the decay of one step, α = 1 − δ;
κ = (1+β₁)/(1−β₁) is the correlation factor. A β₁ that reproduces a measured κ may stand wherever
β₁ does; it may then be negative.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from etastar.errors import SpecError

Floats = NDArray[np.float64]


def decay_per_step(lr: ArrayLike, weight_decay: ArrayLike, *, independent_decay: bool = False) -> Floats:
    """δ = η·λ, or δ = λ where the decay does not carry the LR; w shrinks by α = 1 − δ a step."""
    lr, weight_decay = np.asarray(lr, float), np.asarray(weight_decay, float)
    expect(lr, np.isfinite(lr) & (lr > 0), "lr", "a finite number above zero")
    expect(weight_decay, np.isfinite(weight_decay) & (weight_decay >= 0), "weight_decay", "zero or above")
    delta = np.broadcast_to(weight_decay, np.broadcast_shapes(lr.shape, weight_decay.shape)).astype(float)
    if not independent_decay:
        delta = lr * weight_decay
    name = "weight_decay" if independent_decay else "lr · weight_decay"
    expect(delta, delta < 1, name, "below 1, else one step erases the weight")
    return delta


def correlation_factor(beta1: ArrayLike, delta: ArrayLike = 0.0) -> Floats:
    """κ = (1 + α·β₁)/(1 − α·β₁): by how much correlated updates outgrow independent ones (α = 1 − δ)."""
    beta1 = checked_beta1(beta1)
    product = (1.0 - np.asarray(delta, float)) * beta1
    return (1.0 + product) / (1.0 - product)


def beta1_of_factor(factor: ArrayLike) -> Floats:
    """The β₁ whose κ = (1+β₁)/(1−β₁) is the given one: β₁ = (κ−1)/(κ+1). κ < 1 gives a negative one."""
    factor = np.asarray(factor, float)
    expect(factor, np.isfinite(factor) & (factor > 0), "correlation factor", "a finite number above zero")
    return (factor - 1.0) / (factor + 1.0)


def checked_steps(t: ArrayLike) -> Floats:
    t = np.asarray(t, float)
    expect(t, t >= 0, "t", "a step number, zero or above")
    return t


def checked_beta1(beta1: ArrayLike) -> Floats:
    beta1 = np.asarray(beta1, float)
    expect(beta1, np.abs(beta1) < 1, "beta1", "between −1 and 1")
    return beta1


def kept_and_added(t: Floats, delta: Floats) -> tuple[Floats, Floats]:
    """α^{2t} and Σ_{i<t} α^{2i}, without cancellation however small δ is; at δ = 0 they are 1 and t."""
    exponent = 2.0 * t * np.log1p(-delta)
    safe = np.where(delta > 0, delta * (2.0 - delta), 1.0)
    return np.exp(exponent), np.where(delta > 0, -np.expm1(exponent) / safe, t)


def expect_decay(delta: Floats) -> None:
    if np.any(delta == 0):
        raise SpecError(
            "weight_decay: 0 has no equilibrium: the weight norm grows as √t for ever",
            hint="ask for a norm or η_eff at a step t (the λ = 0 law), or give a weight decay above zero",
        )


def expect(values: Floats, good: NDArray[np.bool_] | np.bool_, name: str, expected: str) -> None:
    if not np.all(good):
        wrong = np.broadcast_to(values, np.shape(good))[~np.asarray(good)]
        raise SpecError(f"{name}: {wrong.flat[0]:.6g} is not {expected}", hint=f"give {name} as {expected}")
