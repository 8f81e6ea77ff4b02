"""How do the weight norm and the effective learning rate of one matrix evolve at a constant LR?

The paper's Section 5 and its appendix, one function an equation, for arrays of any broadcastable shape.
The step is w_{t+1} = α·w_t − η·u_t with α = 1 − δ, where δ = η·λ (torch's AdamW) or δ = λ (decay
independent of η). The two assumptions: ‖u_t‖ = U, and ⟨u_t, u_t'⟩ = U²·β₁^|t−t'|.

The letters: t step, η `lr`, λ `weight_decay`, β₁ `beta1`, W₀ `weight_norm0`, U `update_norm`,
c = ⟨u, w⟩, κ = (1+β₁)/(1−β₁) the correlation factor, δ the decay of one step. A β₁ that reproduces a
measured κ (`beta1_of_factor`) may stand wherever β₁ does; it may then be negative.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from etastar.theory.letters import (
    Floats,
    checked_beta1,
    checked_steps,
    correlation_factor,
    decay_per_step,
    expect_decay,
    kept_and_added,
)


def update_dot_weight(
    t: ArrayLike | None,
    *,
    lr: ArrayLike,
    weight_decay: ArrayLike,
    beta1: ArrayLike,
    update_norm: ArrayLike,
    independent_decay: bool = False,
) -> Floats:
    """⟨u_t, w_t⟩ = −η·U²·Σ_{i<t} α^{t−1−i}·β₁^{t−i} = −η·β₁·U²·(1 − (αβ₁)^t)/(1 − αβ₁).

    Equation (correlation) of the appendix; t = None gives its limit −η·β₁·U²/(1 − αβ₁). The starting
    weight is taken as uncorrelated with every update.
    """
    lr = np.asarray(lr, float)
    product = (1.0 - decay_per_step(lr, weight_decay, independent_decay=independent_decay)) * checked_beta1(beta1)
    limit = -lr * checked_beta1(beta1) * np.square(np.asarray(update_norm, float)) / (1.0 - product)
    return limit if t is None else limit * (1.0 - np.power(product, checked_steps(t)))


def next_weight_norm_squared(
    weight_norm_squared: ArrayLike,
    *,
    lr: ArrayLike,
    weight_decay: ArrayLike,
    beta1: ArrayLike,
    update_norm: ArrayLike,
    independent_decay: bool = False,
) -> Floats:
    """W²_{t+1} = α²·W²_t + η²·(1+αβ₁)/(1−αβ₁)·U²: one step of the closed recursion."""
    delta = decay_per_step(lr, weight_decay, independent_decay=independent_decay)
    growth = np.square(np.asarray(lr, float) * np.asarray(update_norm, float))
    return (1.0 - delta) ** 2 * np.asarray(weight_norm_squared, float) + growth * correlation_factor(beta1, delta)


def weight_norm_squared(
    t: ArrayLike,
    *,
    lr: ArrayLike,
    weight_decay: ArrayLike,
    beta1: ArrayLike,
    weight_norm0: ArrayLike,
    update_norm: ArrayLike,
    independent_decay: bool = False,
) -> Floats:
    """W²_t = η²/(1−α²)·(1+αβ₁)/(1−αβ₁)·U²·(1−α^{2t}) + W₀²·α^{2t}, exact for the closed recursion.

    At λ = 0 it is the linear growth W²_t = η²·κ·U²·t + W₀².
    """
    delta = decay_per_step(lr, weight_decay, independent_decay=independent_decay)
    growth = np.square(np.asarray(lr, float) * np.asarray(update_norm, float)) * correlation_factor(beta1, delta)
    kept, added = kept_and_added(checked_steps(t), delta)
    return growth * added + np.square(np.asarray(weight_norm0, float)) * kept


def weight_norm_squared_two_state(
    t: ArrayLike,
    *,
    lr: ArrayLike,
    weight_decay: ArrayLike,
    beta1: ArrayLike,
    weight_norm0: ArrayLike,
    update_norm: ArrayLike,
    independent_decay: bool = False,
) -> Floats:
    """W²_t with the build-up of the correlation from c₀ = 0: the exact solution of the pair
    W² ← α²W² + η²U² − 2αηc, c ← β₁(αc − ηU²) at a constant η.

    With c_t = c_∞(1 − (αβ₁)^t) the sum of the second term is geometric:
    W²_t = [`weight_norm_squared`] + 2αη·c_∞·α^{t−1}·(α^t − β₁^t)/(α − β₁).
    """
    lr, beta1, t = np.asarray(lr, float), checked_beta1(beta1), checked_steps(t)
    alpha = 1.0 - decay_per_step(lr, weight_decay, independent_decay=independent_decay)
    steady = weight_norm_squared(
        t,
        lr=lr,
        weight_decay=weight_decay,
        beta1=beta1,
        weight_norm0=weight_norm0,
        update_norm=update_norm,
        independent_decay=independent_decay,
    )
    limit = -lr * beta1 * np.square(np.asarray(update_norm, float)) / (1.0 - alpha * beta1)
    gap = np.where(alpha == beta1, 1.0, alpha - beta1)
    # α = β₁ is the removable singularity: (α^t − β₁^t)/(α − β₁) → t·α^{t−1}
    ratio = np.where(
        alpha == beta1, t * np.power(alpha, np.maximum(t - 1.0, 0.0)), (np.power(alpha, t) - beta1**t) / gap
    )
    return steady + 2.0 * lr * limit * np.power(alpha, t) * ratio


def approx_weight_norm_squared(
    t: ArrayLike,
    *,
    lr: ArrayLike,
    weight_decay: ArrayLike,
    beta1: ArrayLike,
    weight_norm0: ArrayLike,
    update_norm: ArrayLike,
    independent_decay: bool = False,
) -> Floats:
    """W²_t ≈ η/(2λ)·κ·U²·(1 − e^{−2ηλt}) + W₀²·e^{−2ηλt}: equation (wt_with_wd), for ηλ ≪ 1.

    λ → 0 is its own limit, η²κU²t + W₀², and costs no digits. With a decay independent of η the decay
    time is 1/(2λ) and the first factor η²/(2λ).
    """
    t = checked_steps(t)
    delta = decay_per_step(lr, weight_decay, independent_decay=independent_decay)
    growth = np.square(np.asarray(lr, float) * np.asarray(update_norm, float)) * correlation_factor(beta1)
    safe = np.where(delta > 0, delta, 1.0)
    added = np.where(delta > 0, -np.expm1(-2.0 * safe * t) / (2.0 * safe), t)
    return growth * added + np.square(np.asarray(weight_norm0, float)) * np.exp(-2.0 * delta * t)


def equilibrium_weight_norm(
    *,
    lr: ArrayLike,
    weight_decay: ArrayLike,
    beta1: ArrayLike,
    update_norm: ArrayLike,
    independent_decay: bool = False,
    exact: bool = False,
) -> Floats:
    """W_∞ = U·√(η/(2λ)·κ); `exact` keeps the ηλ-corrections: W_∞² = η²U²/(1−α²)·(1+αβ₁)/(1−αβ₁)."""
    delta = decay_per_step(lr, weight_decay, independent_decay=independent_decay)
    expect_decay(delta)
    factor = correlation_factor(beta1, delta if exact else 0.0)
    loss = delta * (2.0 - delta) if exact else 2.0 * delta
    return np.asarray(lr, float) * np.asarray(update_norm, float) * np.sqrt(factor / loss)


def equilibrium_eff_lr(
    *, lr: ArrayLike, weight_decay: ArrayLike, beta1: ArrayLike, independent_decay: bool = False
) -> Floats:
    """η_eff(∞) = √(2ηλ·(1−β₁)/(1+β₁)): the equilibrium regime, where log η = 2·log η_eff + const."""
    delta = decay_per_step(lr, weight_decay, independent_decay=independent_decay)
    expect_decay(delta)
    return np.sqrt(2.0 * delta / correlation_factor(beta1))


def pre_equilibrium_eff_lr(*, lr: ArrayLike, weight_norm0: ArrayLike, update_norm: ArrayLike) -> Floats:
    """η_eff = η·U/W₀: the regime t ≪ 1/(2ηλ) while W has not moved, where log η = log η_eff + const."""
    return np.asarray(lr, float) * np.asarray(update_norm, float) / np.asarray(weight_norm0, float)


def no_decay_asymptote(t: ArrayLike, *, beta1: ArrayLike) -> Floats:
    """η_eff(t) ~ √((1−β₁)/(1+β₁)/t) at λ = 0 and large t: the same curve for every large η."""
    return 1.0 / np.sqrt(correlation_factor(beta1) * checked_steps(t))


def decay_time(lr: ArrayLike, weight_decay: ArrayLike, *, independent_decay: bool = False) -> Floats:
    """1/(2ηλ), in steps; infinite at λ = 0. η = 2⁻¹⁶ and λ = 0.1 give the paper's 327,680."""
    delta = decay_per_step(lr, weight_decay, independent_decay=independent_decay)
    safe = np.where(delta > 0, delta, 1.0)
    return np.where(delta > 0, 0.5 / safe, np.inf)


def eff_lr_of_step(
    weight_norm_squared: ArrayLike,
    update_dot_weight: ArrayLike,
    *,
    lr: ArrayLike,
    delta: ArrayLike,
    update_norm: ArrayLike,
) -> Floats:
    """η_eff = ‖ŵ_{t+1} − ŵ_t‖ of one step w' = (1−δ)w − ηu, from W², c = ⟨u,w⟩ and U alone.

    With Δ = −δw − ηu, A = ‖w‖, B = ‖w'‖: B − A = (2⟨w,Δ⟩ + ‖Δ‖²)/(A + B) and
    η_eff² = (‖Δ‖² − (B−A)²)/(A·B). It equals the paper's √(2(1 − αW_t/W_{t+1} + η·c/(W_t·W_{t+1})))
    and, unlike it, does not subtract numbers near one. NaN where |c| > W·U, which no vectors have.
    """
    squared, dot = np.asarray(weight_norm_squared, float), np.asarray(update_dot_weight, float)
    lr, delta, norm = np.asarray(lr, float), np.asarray(delta, float), np.asarray(update_norm, float)
    along = -delta * squared - lr * dot
    step = delta**2 * squared + 2.0 * delta * lr * dot + (lr * norm) ** 2
    grown = squared + 2.0 * along + step
    possible = (grown > 0) & (dot**2 <= squared * norm**2 * (1 + 1e-12))
    before, after = np.sqrt(squared), np.sqrt(np.where(possible, grown, 1.0))
    radial = (2.0 * along + step) / (before + after)
    return np.where(possible, np.sqrt(np.maximum(step - radial**2, 0.0) / (before * after)), np.nan)


def exact_eff_lr(
    t: ArrayLike,
    *,
    lr: ArrayLike,
    weight_decay: ArrayLike,
    beta1: ArrayLike,
    weight_norm0: ArrayLike,
    update_norm: ArrayLike,
    independent_decay: bool = False,
) -> Floats:
    """η_eff(t) = √(2(1 − α·W_t/W_{t+1} − η²β₁/(1−αβ₁)·U²/(W_t·W_{t+1}))) with the exact W_t.

    Computed by `eff_lr_of_step` with c at its limit, as the paper has it: NaN at the first steps of a
    weight so small (W₀ < ηβ₁U/(1−αβ₁)) that the limit cannot have been reached.
    """
    return eff_lr_of_step(
        weight_norm_squared(
            t,
            lr=lr,
            weight_decay=weight_decay,
            beta1=beta1,
            weight_norm0=weight_norm0,
            update_norm=update_norm,
            independent_decay=independent_decay,
        ),
        update_dot_weight(
            None,
            lr=lr,
            weight_decay=weight_decay,
            beta1=beta1,
            update_norm=update_norm,
            independent_decay=independent_decay,
        ),
        lr=lr,
        delta=decay_per_step(lr, weight_decay, independent_decay=independent_decay),
        update_norm=update_norm,
    )


def approx_eff_lr(
    t: ArrayLike,
    *,
    lr: ArrayLike,
    weight_decay: ArrayLike,
    beta1: ArrayLike,
    weight_norm0: ArrayLike,
    update_norm: ArrayLike,
    independent_decay: bool = False,
) -> Floats:
    """η_eff(t) ≈ η·U/W_t with W_t of equation (wt_with_wd): equation (adamw_efflr), and at λ = 0
    equation (adam_nowd_efflr), 1/√(κ·t + W₀²/(η²U²)).

    Written through W_t, not through W₀²/W_∞² − 1, so that λ → 0 costs no digits.
    """
    squared = approx_weight_norm_squared(
        t,
        lr=lr,
        weight_decay=weight_decay,
        beta1=beta1,
        weight_norm0=weight_norm0,
        update_norm=update_norm,
        independent_decay=independent_decay,
    )
    return np.asarray(lr, float) * np.asarray(update_norm, float) / np.sqrt(squared)
