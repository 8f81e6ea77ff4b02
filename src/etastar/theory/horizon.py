"""What mean η_eff will a WSD run of T steps have, without stepping through it?

The plateau has a closed form (`planned.constant_lr_mean_eff_lr`); warm-up and decay are ramps and
contribute half of the η_eff at their flat end. So a whole world of runs is one array expression:
synthetic worlds and the map from η_eff back to η use it. `recursion.run_recursion` is the exact one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from etastar.theory.dynamics import approx_weight_norm_squared
from etastar.theory.planned import constant_lr_mean_eff_lr

Array = NDArray[np.float64]


def mean_eff_lr_wsd(
    lr: ArrayLike,
    steps: ArrayLike,
    *,
    warmup_steps: float,
    decay_steps: ArrayLike,
    weight_decay: float,
    beta1: float,
    norm_ratio: ArrayLike,
    independent_decay: bool = False,
) -> tuple[Array, Array]:
    """(mean over all steps, mean over the plateau) of η_eff; `norm_ratio` is W₀ / U."""
    eta, total, w0 = (np.asarray(v, dtype=float) for v in (lr, steps, norm_ratio))
    decay = np.asarray(decay_steps, dtype=float)
    flat = total - warmup_steps - decay
    run = {"lr": eta, "weight_decay": weight_decay, "beta1": beta1, "weight_norm0": w0, "update_norm": 1.0}
    plateau = constant_lr_mean_eff_lr(flat, **run, independent_decay=independent_decay)
    last = eta / np.sqrt(approx_weight_norm_squared(flat, **run, independent_decay=independent_decay))
    ramps = 0.5 * warmup_steps * eta / w0 + 0.5 * decay * last
    return (flat * plateau + ramps) / total, plateau
