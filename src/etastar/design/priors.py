"""In which worlds might a plan be carried out? Draws from what is known before a single run.

The optimum lies near the middle of the planned grid, give or take an octave; it falls with D, in η or in η_eff
or in neither exactly; loss curves have several shapes, and noise of the size that published sweeps show.
`etastar.design.study` replaces these draws by what a study of the user's own says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from etastar.design.draw import RoughWorld
from etastar.errors import InputError
from etastar.plan.study_plan import StudyPlan
from etastar.plan.training import Training
from etastar.predict.backtest import PRIOR_BEND
from etastar.simulate import REFERENCE_PARAMS, REFERENCE_TOKENS, Shape, Straight, World

CENTRE_SD = 0.75  # octaves: how well a planned grid is centred on the optimum of its own cells
NORM_FIXED = ("adamh", "muonh")  # optimizers whose learning rate is the effective one


@dataclass(frozen=True)
class Centre:
    """The cell about which a world's law is written: the middle of the plan, or of a study."""

    params: float
    tokens: float
    log2_lr: float  # η* there


def conditions(plan: StudyPlan) -> dict[str, Any]:
    """The dials of a world that the plan's own training fixes."""
    training, content = plan.training_of(plan.stacks[0]), plan.content_of(plan.stacks[0])
    optimizer = content.get("optimizer", {})
    kind = optimizer.get("kind", "adamw")
    decay = optimizer.get("weight_decay")
    return {
        "weight_decay": float((0.1 if kind == "adamw" else 0.0) if decay is None else decay),
        "beta1": float(optimizer.get("beta1", 0.95)),
        "batch_tokens": float(training.batch_tokens),
        "warmup_steps": training.warmup_steps,
        "decay_steps": int(training.decay_of(max(plan.stacks[0].horizons))),
    }


def measures_eff_lr(plan: StudyPlan) -> bool:
    """Does η_eff tell more than η? Not where the optimizer holds the norm, nor without a plateau."""
    content = plan.content_of(plan.stacks[0])
    schedule = plan.training_of(plan.stacks[0]).schedule
    return content.get("optimizer", {}).get("kind", "adamw") not in NORM_FIXED and schedule != "cosine"


def prior_worlds(plan: StudyPlan, count: int, *, seed: int = 0) -> list[World]:
    """So many worlds, drawn once from the priors: every plan for the same target should be tried in the same."""
    rng = np.random.default_rng([seed, 1])
    return [_prior_world(plan, rng) for _ in range(count)]


def _prior_world(plan: StudyPlan, rng: np.random.Generator) -> World:
    straight = Straight.EFF_LR if measures_eff_lr(plan) and rng.random() < 0.6 else Straight.LR
    in_eff = straight is Straight.EFF_LR
    shape = list(Shape)[rng.integers(len(Shape))]
    dials: dict[str, Any] = conditions(plan) | {
        "straight": straight,
        "shape": shape,
        # an octave of η is about half an octave of η_eff, so the same valley bends more there
        "curvature": float(np.exp(rng.normal(np.log(0.05 if in_eff else 0.03), 0.5))),
        "asymmetry": float(rng.uniform(0.1, 0.5)),
        "trunk_noise": log_uniform(rng, 3e-4, 3e-3),
        "branch_noise": log_uniform(rng, 3e-4, 3e-3),
        "seed_noise": log_uniform(rng, 3e-4, 3e-3),
        "noise_growth": float(rng.uniform(0.0, 0.3)),
        "diverges_above": float(rng.uniform(3.0, 6.0)) if rng.random() < 0.3 else None,
        "norm_ratio": float(np.exp(rng.normal(np.log(0.15), 0.4))),
        "slope_params": float(rng.uniform(-0.5, 0.0)),
    }
    # η_eff* ∝ D^-0.2 … D^-0.6 and η* ∝ D^-0.2 … D^-1: what published sweeps and the paper's show
    slope = float(rng.uniform(-0.6, -0.2) if in_eff else rng.uniform(-1.0, -0.2))
    bend = float(rng.normal(0.0, PRIOR_BEND))
    where = centre_of(plan, float(rng.normal(0.0, CENTRE_SD)))
    return anchored(dials, plan.training_of(plan.stacks[0]), where, slope=slope, bend=bend)


def centre_of(plan: StudyPlan, off: float = 0.0) -> Centre:
    """The middle of the plan's cells, with η* `off` octaves from the middle of its grid."""
    cells = [(s, h) for s in plan.stacks for h in s.horizons]
    tokens = [h * plan.batch_tokens_of(s) for s, h in cells]
    params = [plan.params_of(s) for s, _ in cells]
    log2_lrs = np.log2([lr for s in plan.stacks for lr in s.lrs])
    middle = 0.5 * float(log2_lrs.min() + log2_lrs.max())
    return Centre(float(np.exp(np.mean(np.log(params)))), float(np.exp(np.mean(np.log(tokens)))), middle + off)


def anchored(dials: dict[str, Any], training: Training, where: Centre, *, slope: float, bend: float) -> World:
    """A world whose η* at the centre is the one given, with the slope and the bend about that centre."""
    d0 = float(np.log2(where.tokens / REFERENCE_TOKENS))
    n0 = float(np.log2(where.params / REFERENCE_PARAMS))
    # a + s·d + b·d² about d0: the slope at the reference makes up for the bend on the way
    tilt = slope - 2 * bend * d0
    world = RoughWorld(**dials, slope_tokens=tilt, bend_tokens=bend)
    here = world.model_copy(update={"decay_steps": int(training.decay_of(where.tokens / training.batch_tokens))})
    value = where.log2_lr
    if world.straight is not Straight.LR:
        value = float(np.log2(here.eff_lr(2.0**where.log2_lr, where.tokens)[0]))
    reference = value - (tilt * d0 + world.slope_params * n0 + bend * d0**2)
    name = "log2_lr" if world.straight is Straight.LR else "log2_eff_lr"
    return world.model_copy(update={name: reference})


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """Between `low` and `high`, alike in every octave."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def target_of(plan: StudyPlan) -> tuple[float, float]:
    """(N, D) that the plan is for."""
    if plan.target is None:
        raise InputError("the plan names no target", hint="write target: {params: 707M, tokens: 100B} into it")
    return plan.target.params, plan.target.tokens
