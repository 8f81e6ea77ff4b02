"""What mean η_eff will a constant-LR AdamW run of T steps have? In closed form.

Integrating η_eff(t) = ηU/W_t over the paper's W_t² = W_∞² + (W_0² − W_∞²)e^{−2ηλt} gives

    (1/T) ∫₀ᵀ η_eff dt = (ηU / W_∞) · [1 + (2 / kT) · ln((W_∞ + W_T) / (W_∞ + W_0))],   k = 2ηλ,

which is exact for the paper's transient and costs one logarithm, so a whole world of runs is one
array expression. Warm-up and decay are ramps: they contribute half of the η_eff at their flat end.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def mean_eff_lr_constant(
    lr: ArrayLike, steps: ArrayLike, *, weight_decay: float, beta1: float, norm_ratio: ArrayLike
) -> Array:
    """Mean η_eff of `steps` steps at constant `lr`; `norm_ratio` is W_0 / U."""
    eta, t, w0 = (np.asarray(v, dtype=float) for v in (lr, steps, norm_ratio))
    corr = (1 + beta1) / (1 - beta1)
    if weight_decay == 0:
        # ∫ dt / sqrt(corr·t + W0²/η²U²): the λ = 0 law, integrated
        start = (w0 / eta) ** 2
        return 2 * (np.sqrt(corr * t + start) - np.sqrt(start)) / (corr * t)
    k = 2 * eta * weight_decay
    w_inf = np.sqrt(eta / (2 * weight_decay) * corr)
    w_end = _weight_norm(eta, t, weight_decay, corr, w0)
    # log1p keeps the digits where the norm has hardly moved (kT → 0)
    return eta / w_inf * (1 + 2 / (k * t) * np.log1p((w_end - w0) / (w_inf + w0)))


def mean_eff_lr_wsd(
    lr: ArrayLike,
    steps: ArrayLike,
    *,
    warmup_steps: float,
    decay_steps: float,
    weight_decay: float,
    beta1: float,
    norm_ratio: ArrayLike,
) -> tuple[Array, Array]:
    """(mean over all steps, mean over the plateau) of η_eff for a WSD run of `steps` steps."""
    eta, total, w0 = (np.asarray(v, dtype=float) for v in (lr, steps, norm_ratio))
    flat = total - warmup_steps - decay_steps
    plateau = mean_eff_lr_constant(eta, flat, weight_decay=weight_decay, beta1=beta1, norm_ratio=w0)
    corr = (1 + beta1) / (1 - beta1)
    last = eta / _weight_norm(eta, flat, weight_decay, corr, w0)
    ramps = 0.5 * warmup_steps * eta / w0 + 0.5 * decay_steps * last
    return (flat * plateau + ramps) / total, plateau


def _weight_norm(eta: Array, t: Array, weight_decay: float, corr: float, w0: Array) -> Array:
    """W_t / U of the paper's approximate solution, both for λ > 0 and λ = 0."""
    if weight_decay == 0:
        return np.sqrt(eta**2 * corr * t + w0**2)
    shrink = np.exp(-2 * eta * weight_decay * t)
    growth = -np.expm1(-2 * eta * weight_decay * t)
    return np.sqrt(eta / (2 * weight_decay) * corr * growth + w0**2 * shrink)
