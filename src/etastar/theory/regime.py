"""In which regime is a run, how does log η follow log η_eff there, and may an η law be drawn straight?

Three regimes at a constant LR. Before equilibrium and with W near W₀, η_eff ∝ η: slope
d log η/d log η_eff = 1. In equilibrium η_eff ∝ √η: slope 2. Between them, where updates have outgrown
W₀ but decay has not yet balanced them (W₀ ≪ W_t ≪ W_∞), η_eff(t) is nearly the same for every η, as
without weight decay: the slope exceeds 2 and may be large. The paper names the first two. A slope
below 1 means that decay, stronger at larger η, shrinks a W₀ above W_∞.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from etastar.errors import SpecError
from etastar.scale import format_lr
from etastar.theory.coarse import coarse_run
from etastar.theory.dynamics import approx_weight_norm_squared, decay_time
from etastar.theory.letters import Floats, correlation_factor, decay_per_step
from etastar.theory.planned import MatricesAt, PlannedRun, mean_eff_lr

_STEP = 0.05  # octaves to either side, for slopes
_EARLY, _LATE = 0.3, 3.0  # relaxations below and above which a run is before or in equilibrium


class Regime(enum.StrEnum):
    """What governs the weight norm over the run."""

    PRE_EQUILIBRIUM = "pre-equilibrium"  # W stays near W₀: η_eff ∝ η
    GROWTH = "growth"  # W has outgrown W₀, decay is not felt yet: η_eff hardly depends on η
    TRANSITION = "transition"
    EQUILIBRIUM = "equilibrium"  # η_eff ∝ √η
    FIXED_NORM = "fixed norm"  # AdamH, MuonH: η_eff = η


@dataclass(frozen=True)
class Diagnosis:
    """One LR of a planned run."""

    lr: float
    decay_time: float  # 1/(2ηλ) in steps; inf without decay
    relaxations: float  # T / (2ηλ)⁻¹
    timescale: float  # 1/(ηλT): AdamW's averaging time as a fraction of the run
    slope: float  # d log η / d log mean η_eff
    mean_eff_lr: float
    norm_ratio: float  # ‖w_T‖/‖w₀‖, mean over matrices
    regime: Regime
    words: str


def local_slope(lr: ArrayLike, *, run: PlannedRun, matrices: MatricesAt) -> Floats:
    """d log η / d log mean η_eff at each LR, by a central difference over a tenth of an octave."""
    lr = np.asarray(lr, float)
    ends = np.stack((lr * 2.0**-_STEP, lr * 2.0**_STEP))
    low, high = mean_eff_lr(ends, run=run, matrices=matrices)
    rise = np.log2(high / low)
    return np.where(rise > 1e-9, 2.0 * _STEP / np.where(rise > 1e-9, rise, 1.0), np.inf)


def closed_form_slope(
    t: ArrayLike,
    *,
    lr: ArrayLike,
    weight_decay: ArrayLike,
    beta1: ArrayLike,
    weight_norm0: ArrayLike,
    update_norm: ArrayLike,
    independent_decay: bool = False,
) -> Floats:
    """d log η / d log η_eff(t) of equation (adamw_efflr): 1/(1 − ½·d log W²/d log η).

    With x = 2ηλt and W² = A(1−e^{−x}) + W₀²e^{−x}, A = κηU²/(2λ):
    dW²/d log η = A(1−e^{−x}) + x·e^{−x}·(A − W₀²), and 2·(W² − W₀²e^{−x}) where δ does not carry η.
    """
    delta = decay_per_step(lr, weight_decay, independent_decay=independent_decay)
    x = 2.0 * delta * np.asarray(t, float)
    moved = correlation_factor(beta1) * np.square(np.asarray(lr, float) * np.asarray(update_norm, float))
    squared = approx_weight_norm_squared(
        t,
        lr=lr,
        weight_decay=weight_decay,
        beta1=beta1,
        weight_norm0=weight_norm0,
        update_norm=update_norm,
        independent_decay=independent_decay,
    )
    kept = np.square(np.asarray(weight_norm0, float)) * np.exp(-x)
    grown = squared - kept
    if independent_decay:  # noqa: SIM108 (each case has its reason)
        change = 2.0 * grown
    else:
        # x·A·e^{−x} = moved·t·e^{−x}: finite as λ → 0
        change = grown + moved * np.asarray(t, float) * np.exp(-x) - x * kept
    rest = 1.0 - 0.5 * change / squared
    return np.where(rest > 1e-12, 1.0 / np.where(rest > 1e-12, rest, 1.0), np.inf)


def diagnose(lr: ArrayLike, *, run: PlannedRun, matrices: MatricesAt | None) -> tuple[Diagnosis, ...]:
    """Regime, timescales, slope and words of every LR; hyperball optimizers need no matrices."""
    lrs = np.atleast_1d(np.asarray(lr, float))
    if run.optimizer.fixes_norm:
        return tuple(_fixed(float(one), run) for one in lrs)
    if matrices is None:
        raise SpecError(
            f"no weight norms to diagnose {run.optimizer} with: it does not fix them",
            hint="calibrate on a trunk's trajectories, or type W₀, U and β₁ by hand (typed_matrices)",
        )
    slopes = local_slope(lrs, run=run, matrices=matrices)
    means = mean_eff_lr(lrs, run=run, matrices=matrices)
    ratios = _norm_ratio(lrs, run, matrices)
    times = decay_time(lrs, run.decay, independent_decay=run.independent_decay)
    out = []
    for one, slope, mean, ratio, tau in zip(lrs, slopes, means, ratios, times, strict=True):
        relaxations = run.steps / tau
        regime = _regime(float(relaxations), float(ratio))
        scale = 2.0 / relaxations if relaxations > 0 else np.inf
        out.append(
            Diagnosis(
                lr=float(one),
                decay_time=float(tau),
                relaxations=float(relaxations),
                timescale=float(scale),
                slope=float(slope),
                mean_eff_lr=float(mean),
                norm_ratio=float(ratio),
                regime=regime,
                words=_WORDS[regime],
            )
        )
    return tuple(out)


def trust_in_words(swept: tuple[Diagnosis, ...], target: Diagnosis) -> str:
    """May a straight η law, fitted on the swept runs, be carried to the target? By slopes alone.

    A straight η_eff law is a straight η law where the slope stays the same. For the size of the bend see
    `bend`, which needs the law.
    """
    slopes = np.array([one.slope for one in swept])
    if target.regime is Regime.FIXED_NORM:
        return "yes: under a hyperball optimizer η and η_eff are one quantity"
    middle = float(np.median(slopes))
    change = float(np.log2(target.slope / middle)) if np.isfinite(target.slope) else np.inf
    spread = float(np.log2(slopes.max() / slopes.min())) if np.isfinite(slopes).all() else np.inf
    if max(abs(change), spread) < 0.1:
        return f"yes: d log η/d log η_eff is {middle:.2f} in the sweep and {target.slope:.2f} at the target"
    where = f"{slopes.min():.2f} … {slopes.max():.2f} in the sweep and {target.slope:.2f} at the target"
    if max(abs(change), spread) < 0.4:
        return f"with care: d log η/d log η_eff is {where}: a straight η_eff law makes η bend a little"
    return f"no: d log η/d log η_eff is {where}: a straight η_eff law makes η bend; extrapolate η_eff and invert"


def _fixed(lr: float, run: PlannedRun) -> Diagnosis:
    """A hyperball optimizer: mean η_eff is η times the schedule's mean."""
    return Diagnosis(
        lr=lr,
        decay_time=np.inf,
        relaxations=0.0,
        timescale=np.inf,
        slope=1.0,
        mean_eff_lr=lr * float(run.factors().mean()),
        norm_ratio=1.0,
        regime=Regime.FIXED_NORM,
        words=_WORDS[Regime.FIXED_NORM],
    )


def _norm_ratio(lr: Floats, run: PlannedRun, matrices: MatricesAt) -> Floats:
    """‖w_T‖/‖w₀‖, the mean over matrices."""
    some = matrices(lr) if callable(matrices) else matrices
    walked = coarse_run(
        run.factors()[some.start_step :],
        lr=lr[:, None],
        weight_decay=run.decay,
        beta1=some.beta1,
        weight_norm0=some.weight_norm0,
        update_norm=some.update_norm,
        independent_decay=run.independent_decay,
    )
    first = some.weight_norm0 if some.first_weight_norm is None else some.first_weight_norm
    return np.mean(walked.final_weight_norm / first, axis=-1)


def _regime(relaxations: float, ratio: float) -> Regime:
    if relaxations >= _LATE:
        return Regime.EQUILIBRIUM
    if relaxations > _EARLY:
        return Regime.TRANSITION
    return Regime.GROWTH if ratio > 2.0 else Regime.PRE_EQUILIBRIUM


_WORDS = {
    Regime.PRE_EQUILIBRIUM: "the norm is still near its start: η_eff moves with η",
    Regime.GROWTH: "updates have outgrown the start and decay is not felt: η_eff hardly depends on η",
    Regime.TRANSITION: "the norm is on its way to equilibrium: the slope changes with η and with the horizon",
    Regime.EQUILIBRIUM: "growth and decay balance: η_eff moves with √η",
    Regime.FIXED_NORM: "the norm is held fixed: η_eff is η",
}


def describe(one: Diagnosis) -> str:
    """A diagnosis in one line."""
    return (
        f"lr {format_lr(one.lr)}: {one.regime} ({one.relaxations:.2g} decay times), slope {one.slope:.2f}: {one.words}"
    )
