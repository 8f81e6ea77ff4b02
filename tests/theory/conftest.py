"""A stochastic recursion with exactly the correlations that the theory assumes, in many dimensions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest


@dataclass(frozen=True)
class Walk:
    """Measured on one simulated matrix at every step, before the step."""

    weight_norm: np.ndarray
    update_norm: np.ndarray
    update_dot_weight: np.ndarray
    eff_lr: np.ndarray


def simulate_walk(
    factors: np.ndarray,
    *,
    lr: float,
    weight_decay: float,
    beta1: float,
    weight_norm0: float,
    update_norm: float,
    dimension: int = 4000,
    seed: int = 0,
    independent_decay: bool = False,
    profile: np.ndarray | None = None,
) -> Walk:
    """w ← (1−δ)w − ηu with u an AR(1) process: ⟨u_t, u_t'⟩ = U²·β₁^|t−t'| in expectation."""
    random = np.random.default_rng(seed)
    w = random.standard_normal(dimension)
    w *= weight_norm0 / np.linalg.norm(w)
    scale = update_norm / np.sqrt(dimension)
    u = scale * random.standard_normal(dimension)
    rows = np.empty((len(factors), 4))
    for t, factor in enumerate(factors):
        rate = lr * factor
        delta = weight_decay * (factor if independent_decay else rate)
        sized = u if profile is None else profile[t] * u
        after = (1.0 - delta) * w - rate * sized
        before_norm, after_norm = np.linalg.norm(w), np.linalg.norm(after)
        rows[t] = (
            before_norm,
            np.linalg.norm(sized),
            sized @ w,
            np.linalg.norm(after / after_norm - w / before_norm),
        )
        w = after
        u = beta1 * u + scale * np.sqrt(1.0 - beta1**2) * random.standard_normal(dimension)
    return Walk(*rows.T)


@pytest.fixture(scope="session")
def walk():
    """The simulator, as a fixture so that no test imports another test's module."""
    return simulate_walk
