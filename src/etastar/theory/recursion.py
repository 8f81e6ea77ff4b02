"""What are ‖w‖ and η_eff at every step of a run whose LR follows any schedule?

The pair of states, with c = ⟨u, w⟩, c₀ = 0, α_t = 1 − δ_t:

    W² ← α_t²·W² + η_t²·U_t² − 2·α_t·η_t·c        c ← β₁·(α_t·c − η_t·U_t²)·U_{t+1}/U_t

Both are linear, so they are solved by blocks of time in vector operations instead of step by step.
`run_recursion` gives every step; for a mean over a long run and many matrices see `coarse`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from etastar.errors import SpecError
from etastar.theory.dynamics import eff_lr_of_step
from etastar.theory.letters import Floats, decay_per_step
from etastar.theory.schedules import Schedule, factors_of

_CHUNK_CELLS = 1_000_000  # steps × columns at a time: bounds the working memory near 100 MB


@dataclass(frozen=True)
class Recursion:
    """The states before each step (the last row: after the run) and η_eff of each step.

    Axis 0 is time; the others are the broadcast shape of the inputs (LRs, matrices, …).
    """

    weight_norm_squared: Floats  # (T + 1, …)
    update_dot_weight: Floats  # (T + 1, …)
    eff_lr: Floats  # (T, …)

    @property
    def weight_norm(self) -> Floats:
        """‖w_t‖, t = 0 … T."""
        return np.sqrt(self.weight_norm_squared)

    @property
    def mean_eff_lr(self) -> Floats:
        """Mean of η_eff(t) over all steps (equation efflr_avg_over_t)."""
        return self.eff_lr.mean(axis=0)


def run_recursion(
    schedule: Schedule | Floats,
    *,
    lr: ArrayLike,
    weight_decay: ArrayLike,
    beta1: ArrayLike,
    weight_norm0: ArrayLike,
    update_norm: ArrayLike,
    update_profile: Floats | None = None,
    update_dot_weight0: ArrayLike = 0.0,
    independent_decay: bool = False,
) -> Recursion:
    """Every step of the two-state recursion, for all broadcast columns at once.

    `update_profile` multiplies `update_norm` step by step (shape (T,) or (T, …)): a measured U(t) is
    `update_norm=1, update_profile=U`. `update_dot_weight0` continues a run from a known c. The decay of
    step t is η_t·λ; with `independent_decay` it is λ times the schedule's factor, whatever the peak LR.
    """
    factors = factors_of(schedule)
    columns = np.broadcast_arrays(
        *(np.asarray(x, float) for x in (lr, weight_decay, beta1, weight_norm0, update_norm, update_dot_weight0))
    )
    shape = columns[0].shape
    profile = _profile(update_profile, len(factors), shape)
    flat = [column.reshape(-1) for column in columns]
    states = [np.empty((len(factors) + extra, flat[0].size)) for extra in (1, 1, 0)]
    width = max(1, _CHUNK_CELLS // len(factors))
    for start in range(0, flat[0].size, width):
        some = slice(start, start + width)
        part = profile if profile.shape[1] == 1 else profile[:, some]
        solved = _solve(factors, part, tuple(column[some] for column in flat), independent_decay)
        for state, values in zip(states, solved, strict=True):
            state[:, some] = values
    return Recursion(*(state.reshape(state.shape[:1] + shape) for state in states))


def linear_scan(factor: Floats, added: Floats, start: Floats) -> Floats:
    """x_{t+1} = factor_t·x_t + added_t from x_0 = start: all T + 1 states, shape (T + 1, columns).

    Time is cut into about √T blocks. Each is solved from zero, all blocks at once; then the carries run
    from block to block. Nothing is divided, so long products may underflow to zero without harm.
    """
    steps, columns = added.shape
    length = max(1, int(np.sqrt(steps)))
    blocks = -(-steps // length)
    product = _blocked(np.broadcast_to(factor, added.shape), blocks, length, fill=1.0)
    value = _blocked(added, blocks, length, fill=0.0)
    for j in range(1, length):
        value[j] += product[j] * value[j - 1]
        product[j] *= product[j - 1]
    carry = np.empty((blocks, columns))
    carry[0] = start
    for k in range(1, blocks):
        carry[k] = value[-1, k - 1] + product[-1, k - 1] * carry[k - 1]
    value += product * carry
    states = np.empty((steps + 1, columns))
    states[0] = start
    states[1:] = value.transpose(1, 0, 2).reshape(blocks * length, columns)[:steps]
    return states


def _solve(
    factors: Floats, profile: Floats, columns: tuple[Floats, ...], independent_decay: bool
) -> tuple[Floats, Floats, Floats]:
    lr, weight_decay, beta1, weight_norm0, update_norm, dot0 = columns
    delta = factors[:, None] * decay_per_step(lr, weight_decay, independent_decay=independent_decay)
    alpha = 1.0 - delta
    rate = factors[:, None] * lr
    norm = profile * update_norm
    # the direction decorrelates by β₁ a step while the length goes from U_t to U_{t+1}
    stretch = np.ones_like(profile)
    stretch[:-1] = profile[1:] / profile[:-1]
    dot = linear_scan(beta1 * alpha * stretch, -beta1 * rate * norm**2 * stretch, dot0)
    squared = linear_scan(alpha**2, (rate * norm) ** 2 - 2.0 * alpha * rate * dot[:-1], weight_norm0**2)
    return squared, dot, eff_lr_of_step(squared[:-1], dot[:-1], lr=rate, delta=delta, update_norm=norm)


def _blocked(values: Floats, blocks: int, length: int, *, fill: float) -> Floats:
    """(T, columns) → (length, blocks, columns), contiguous: position within a block comes first."""
    padded = np.full((blocks * length, values.shape[1]), fill)
    padded[: len(values)] = values
    return np.ascontiguousarray(padded.reshape(blocks, length, -1).transpose(1, 0, 2))


def _profile(given: Floats | None, steps: int, shape: tuple[int, ...]) -> Floats:
    """The update profile as (T, 1) or (T, columns)."""
    if given is None:
        return np.ones((steps, 1))
    profile = np.asarray(given, float)
    if profile.shape[:1] != (steps,):
        raise SpecError(
            f"update_profile: an array of shape {profile.shape} is not one value a step",
            hint=f"the schedule has {steps} steps: give U(t) for each",
        )
    if not (np.isfinite(profile).all() and (profile > 0).all()):
        raise SpecError("update_profile: a value is not a finite number above zero", hint="give ‖u_t‖ > 0")
    if profile.ndim == 1:
        return profile[:, None]
    return np.broadcast_to(profile, (steps, *shape)).reshape(steps, -1)
