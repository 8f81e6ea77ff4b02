"""What mean η_eff will a planned run have, before it is trained?

`PlannedRun` is what the user chose (schedule, λ, optimizer), `Matrices` what the network brings (W₀, U
and β₁ or a fitted stand-in, a matrix each). Only W₀/U matters for η_eff, so both may be given as RMS
per entry. The mean is over all steps, warm-up and decay included, and unweighted over matrices.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field

from etastar.errors import SpecError
from etastar.theory.coarse import coarse_run
from etastar.theory.dynamics import approx_weight_norm_squared, equilibrium_weight_norm, update_dot_weight
from etastar.theory.letters import Floats, correlation_factor, decay_per_step, expect
from etastar.theory.recursion import run_recursion
from etastar.theory.schedules import Schedule, factors_of


class Optimizer(enum.StrEnum):
    """How the norm of a matrix is governed: by decay against growth, or held fixed (hyperball)."""

    ADAMW = "adamw"
    ADAM = "adam"
    ADAMH = "adamh"
    MUONH = "muonh"

    @property
    def fixes_norm(self) -> bool:
        """Does the optimizer hold ‖w‖ at ‖w₀‖, so that η_eff(t) is η(t) itself?"""
        return self in (Optimizer.ADAMH, Optimizer.MUONH)


class PlannedRun(BaseModel):
    """What the user will type, but for the LR."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    schedule: Schedule | np.ndarray  # or any array of η(t)/η, one a step
    weight_decay: float = Field(default=0.1, ge=0)
    independent_decay: bool = False
    optimizer: Optimizer = Optimizer.ADAMW

    def factors(self) -> Floats:
        """η(t)/η of every step."""
        return factors_of(self.schedule)

    @property
    def steps(self) -> int:
        """T, the decay included."""
        return self.schedule.steps if isinstance(self.schedule, Schedule) else len(self.schedule)

    @property
    def decay(self) -> float:
        """λ as it acts: plain Adam has none."""
        return 0.0 if self.optimizer is Optimizer.ADAM else self.weight_decay


@dataclass(frozen=True, kw_only=True)
class Matrices:
    """W, U and β₁ of each matrix: numbers, or arrays whose last axis is the matrices.

    Axes before it are LRs (a calibrated network's U and κ depend on the LR). With `start_step` the norm
    is that before this step, known from a trunk, `head_eff_lr` is the mean η_eff of the steps before, and
    `first_weight_norm` the norm before step 0.
    """

    weight_norm0: Floats
    update_norm: Floats
    beta1: Floats
    start_step: int = 0
    head_eff_lr: Floats | None = None
    first_weight_norm: Floats | None = None

    def __post_init__(self) -> None:
        arrays = [np.atleast_1d(np.asarray(getattr(self, name), float)) for name in _FIELDS]
        for name, array in zip(_FIELDS, np.broadcast_arrays(*arrays), strict=True):
            good = np.abs(array) < 1 if name == "beta1" else np.isfinite(array) & (array > 0)
            expect(array, good, name, "between −1 and 1" if name == "beta1" else "a finite number above zero")
            object.__setattr__(self, name, array)


_FIELDS = ("weight_norm0", "update_norm", "beta1")
MatricesAt = Matrices | Callable[[Floats], Matrices]  # or a function of an array of LRs, (K,) → (K, matrices)


def noise_update_rms(beta1: float) -> float:
    """RMS of Adam's update when gradients are noise: √((1−β₁)/(1+β₁)); 0.16 at β₁ = 0.95.

    Signal raises it (0.2–0.4 is usual). It is the default where no U was measured; κU² is then 1 an entry.
    """
    return float(1.0 / np.sqrt(correlation_factor(beta1)))


def typed_matrices(*, beta1: float, init_std: float = 0.02, update_rms: float | None = None) -> Matrices:
    """One matrix from values typed by hand, as RMS per entry (only their ratio matters)."""
    rms = noise_update_rms(beta1) if update_rms is None else update_rms
    return Matrices(weight_norm0=np.array(init_std), update_norm=np.array(rms), beta1=np.array(beta1))


def mean_eff_lr(lr: ArrayLike, *, run: PlannedRun, matrices: MatricesAt, exact: bool = False) -> Floats:
    """Mean η_eff of the planned run at each LR: over all steps and over the matrices.

    Hyperball optimizers move ŵ by η(t) itself, so theirs is η times the schedule's mean. `exact` walks
    every step (0.3 s for 10 LRs × 200k steps and one matrix); the default is within 0.2 % of it.
    """
    lr = np.asarray(lr, float)
    if run.optimizer.fixes_norm:
        return lr * run.factors().mean()
    flat = lr.reshape(-1)
    some = matrices(flat) if callable(matrices) else matrices
    return _walked_mean(flat, np.full(len(flat), run.decay), run, some, exact).reshape(lr.shape)


def mean_eff_lr_by_decay(
    weight_decay: Floats, *, lr: float, run: PlannedRun, matrices: Matrices, exact: bool = False
) -> Floats:
    """The same at one LR for an array of λ instead of the run's own."""
    return _walked_mean(np.full(len(weight_decay), float(lr)), weight_decay, run, matrices, exact)


def _walked_mean(lr: Floats, weight_decay: Floats, run: PlannedRun, some: Matrices, exact: bool) -> Floats:
    factors, start = run.factors(), some.start_step
    if start >= len(factors):
        raise SpecError(
            f"steps: a run of {len(factors)} steps ends before step {start}, where the calibration starts",
            hint="calibrate on a shorter part of the trunk, or from step 0",
        )
    walk = run_recursion if exact else coarse_run
    lr, weight_decay = lr[:, None], weight_decay[:, None]
    walked = walk(
        factors[start:],
        lr=lr,
        weight_decay=weight_decay,
        beta1=some.beta1,
        weight_norm0=some.weight_norm0,
        update_norm=some.update_norm,
        update_dot_weight0=_steady_dot(lr, weight_decay, factors[start], run, some) if start else 0.0,
        independent_decay=run.independent_decay,
    )
    mean = walked.mean_eff_lr
    if start and some.head_eff_lr is not None:
        mean = (start * some.head_eff_lr + (len(factors) - start) * mean) / len(factors)
    return mean.mean(axis=-1)


def _steady_dot(lr: Floats, weight_decay: Floats, factor: float, run: PlannedRun, matrices: Matrices) -> Floats:
    """⟨u, w⟩ of a run that has gone on for a while: the limit of equation (correlation).

    Far beyond the calibrated LRs the norm carried on may be too small for it: |⟨u, w⟩| is held at W·U.
    """
    dot = update_dot_weight(
        None,
        lr=factor * lr,
        weight_decay=factor * weight_decay if run.independent_decay else weight_decay,
        beta1=matrices.beta1,
        update_norm=matrices.update_norm,
        independent_decay=run.independent_decay,
    )
    most = matrices.weight_norm0 * matrices.update_norm
    return np.clip(dot, -most, most)


def constant_lr_mean_eff_lr(
    steps: ArrayLike,
    *,
    lr: ArrayLike,
    weight_decay: ArrayLike,
    beta1: ArrayLike,
    weight_norm0: ArrayLike,
    update_norm: ArrayLike,
    independent_decay: bool = False,
) -> Floats:
    """(1/T)·∫₀ᵀ η_eff dt of equation (adamw_efflr), in closed form:

    η_eff(∞)·[1 + ln((W_∞ + W_T)/(W_∞ + W₀))/(δT)], δ = ηλ; at λ = 0 it is 2(W_T − W₀)/(κηUT).
    """
    t, w0 = np.asarray(steps, float), np.asarray(weight_norm0, float)
    expect(t, t > 0, "steps", "above zero")
    delta = decay_per_step(lr, weight_decay, independent_decay=independent_decay)
    moved = np.asarray(lr, float) * np.asarray(update_norm, float)
    growth = correlation_factor(beta1) * moved**2
    squared = approx_weight_norm_squared(
        t,
        lr=lr,
        weight_decay=weight_decay,
        beta1=beta1,
        weight_norm0=w0,
        update_norm=update_norm,
        independent_decay=independent_decay,
    )
    final = np.sqrt(squared)
    decays = delta * t > 1e-9  # below it the norm has not felt the decay to nine digits
    safe = np.where(decays, delta, 1.0)
    settled = np.sqrt(growth / (2.0 * safe))
    # W_T − W₀ from W_T² − W₀², so that a norm that has hardly moved keeps its digits
    change = np.where(decays, (settled**2 - w0**2) * -np.expm1(-2.0 * safe * t), growth * t) / (final + w0)
    with_decay = moved / settled * (1.0 + np.log1p(change / (settled + w0)) / (safe * t))
    return np.where(decays, with_decay, 2.0 * moved * change / (growth * t))


def equilibrium_of(lr: ArrayLike, *, run: PlannedRun, matrices: Matrices) -> Floats:
    """W_∞ of each matrix at each LR, shape lr.shape + (matrices,)."""
    return equilibrium_weight_norm(
        lr=np.asarray(lr, float)[..., None],
        weight_decay=run.decay,
        beta1=matrices.beta1,
        update_norm=matrices.update_norm,
        independent_decay=run.independent_decay,
    )
