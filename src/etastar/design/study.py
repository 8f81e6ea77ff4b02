"""In which worlds may a study of the user's own have been run? Draws around its law, its losses and its noise.

Every draw takes one redraw of the optima (so that errors along a trunk stay together), lays a line through it, bends
it by as much as a law may bend, and takes shape and noise from the fits. What the study cannot tell
(asymmetry far out, the slope along an axis that it did not vary) comes from the priors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from etastar.design.priors import Centre, anchored, conditions, log_uniform, measures_eff_lr, target_of
from etastar.errors import InputError
from etastar.estimate.cells import EffColumn, Group, Quantity
from etastar.estimate.estimates import Estimates, Options, estimate_group
from etastar.estimate.noise import Noise, sigma_scales
from etastar.estimate.weights import FitChoice, settle
from etastar.laws.loglinear import Axis, cell_weights
from etastar.laws.loss import fit_loss_law
from etastar.plan.study_plan import StudyPlan
from etastar.predict.backtest import PRIOR_BEND, backtest
from etastar.predict.convert import Conditions, TransientMap, fit_map
from etastar.predict.points import same_params
from etastar.predict.strategies import Evidence
from etastar.scale import Scale
from etastar.simulate import Shape, Straight, World

Array = NDArray[np.float64]
ERROR_FLOOR = 0.05  # octaves: below this, two back-tests are equally good
DATA_POWER = 0.28  # Chinchilla's exponent, where the study does not pin down its own


@dataclass(frozen=True)
class StudyLaw:
    """One quantity's optima as a linear law of log2 D and, where it varies, log2 N."""

    quantity: Quantity
    redraws: Array  # (B, p): intercept at the centre and slopes
    curvature: Array  # per cell, excess loss an octave²
    weight: float  # how far the back-test believes in it


def worlds_from(group: Group, plan: StudyPlan, count: int, *, seed: int = 0) -> list[World]:
    """So many worlds that a study's group might come from, under the plan's own training settings."""
    found = estimate_group(group, Options(replicates=max(count, 100), seed=seed))
    lr = found[Quantity.LR]
    cells = np.flatnonzero(lr.usable)
    if len(cells) < 2 or np.ptp(np.log2(lr.tokens[cells])) < 1e-6:
        raise InputError(
            f"the study has {len(cells)} cells with an optimum inside their sweep, not two of different D",
            hint="leave --from out: the plan is then judged in worlds drawn from priors",
        )
    target = Scale(*target_of(plan))
    centre = (float(np.mean(np.log2(lr.tokens[cells]))), float(np.mean(np.log2(lr.params[cells]))))
    evidence = Evidence(group, found)
    laws = [
        law
        for quantity in ([Quantity.LR, Quantity.EFF_LR] if measures_eff_lr(plan) else [Quantity.LR])
        if quantity in found and (law := _law(evidence, found[quantity], centre, target)) is not None
    ]
    rng = np.random.default_rng([seed, 2])
    rough = settle(list(group.blocks), FitChoice()).misfit[Quantity.LR]
    dials = conditions(plan) | _loss_dials(lr, target) | _map_dials(group, target) | {"roughness": rough}
    scales = sigma_scales(lr.noise, count, rng) if lr.noise is not None else np.ones(count)
    shares = np.array([law.weight for law in laws])
    worlds = []
    for index in range(count):
        law = laws[int(rng.choice(len(laws), p=shares / shares.sum()))]
        worlds.append(_draw(plan, laws[0], law, index, centre, dials, lr.noise, float(scales[index]), rng))
    return worlds


def _law(evidence: Evidence, estimates: Estimates, centre: tuple[float, float], target: Scale) -> StudyLaw | None:
    cells = np.flatnonzero(estimates.usable)
    d = np.log2(estimates.tokens[cells]) - centre[0]
    n = np.log2(estimates.params[cells]) - centre[1]
    if len(cells) < 2 or np.ptp(d) < 1e-6:
        return None
    columns = [np.ones(len(cells)), d]
    if np.ptp(n) > 1e-6 and len(cells) >= 4:
        columns.append(n)
    root = np.sqrt(cell_weights(estimates)[cells])
    operator = np.linalg.pinv(np.column_stack(columns) * root[:, None]) * root
    values = estimates.replicates[:, cells]
    # centred on the answer, as predictions are: the redraws' own mean carries the bias of the fit twice
    values = values - values.mean(axis=0) + estimates.log2_values[cells]
    redraws = values @ operator.T
    if len(columns) == 2:
        redraws = np.column_stack([redraws, np.full(len(redraws), np.nan)])
    bends = np.array([estimates.optima[k].curvature for k in cells])
    axis = Axis.DATA if same_params(estimates, target.params) is not None else Axis.JOINT
    tested = backtest(evidence, axis, estimates.quantity, target)
    weight = 1.0 / ((tested.rms_lr_error or 0.0) ** 2 + ERROR_FLOOR**2)
    return StudyLaw(estimates.quantity, redraws, 0.5 * bends[np.isfinite(bends) & (bends > 0)], weight)


def _draw(
    plan: StudyPlan,
    lr_law: StudyLaw,
    law: StudyLaw,
    index: int,
    centre: tuple[float, float],
    dials: dict[str, Any],
    noise: Noise | None,
    sigma_scale: float,
    rng: np.random.Generator,
) -> World:
    row = index % len(law.redraws)
    slope_params = float(law.redraws[row, 2])
    middle = float(np.median(law.curvature)) if len(law.curvature) else 0.03
    own = {
        "straight": Straight.LR if law.quantity is Quantity.LR else Straight.EFF_LR,
        "shape": list(Shape)[rng.integers(len(Shape))],
        "asymmetry": float(rng.uniform(0.1, 0.5)),
        "curvature": float(rng.choice(law.curvature)) if len(law.curvature) else middle,
        "trunk_noise": noise.trunk * sigma_scale if noise is not None else log_uniform(rng, 3e-4, 3e-3),
        "branch_noise": noise.branch * sigma_scale if noise is not None else log_uniform(rng, 3e-4, 3e-3),
        "slope_params": slope_params if np.isfinite(slope_params) else float(rng.uniform(-0.5, 0.0)),
    }
    where = Centre(2.0 ** centre[1], 2.0 ** centre[0], float(lr_law.redraws[row, 0]))
    bend = float(rng.normal(0.0, PRIOR_BEND))
    training = plan.training_of(plan.stacks[0])
    return anchored(dials | own, training, where, slope=float(law.redraws[row, 1]), bend=bend)


def _loss_dials(lr: Estimates, target: Scale) -> dict[str, Any]:
    """How the optimal loss falls with D, of the size nearest the target's: only that makes an ECR."""
    usable = np.flatnonzero(lr.usable)
    sizes = np.unique(lr.params[usable])
    nearest = sizes[np.argmin(np.abs(np.log2(sizes / target.params)))]
    members = usable[lr.params[usable] == nearest]
    law = fit_loss_law(lr.tokens[members], [lr.optima[k].loss for k in members])
    if law is None:
        return {}
    if law.identified:
        amplitude = law.amplitude * law.reference**law.gamma
        return {"base_loss": law.floor, "model_loss": 0.0, "data_loss": amplitude, "data_power": law.gamma}
    longest = float(lr.tokens[members].max())
    amplitude = -law.slope / DATA_POWER * longest**DATA_POWER
    lowest = float(min(lr.optima[k].loss for k in members))
    floor = lowest - amplitude * longest**-DATA_POWER
    return {"base_loss": floor, "model_loss": 0.0, "data_loss": amplitude, "data_power": DATA_POWER}


def _map_dials(group: Group, target: Scale) -> dict[str, Any]:
    """W₀/U and the correlation that the study's own η_eff show, where the transient describes them."""
    if not group.has_eff_lr:
        return {}
    block = min(group.blocks, key=lambda b: abs(np.log2(b.params / target.params)))
    rows = np.ones(len(block.tokens), dtype=bool)
    found = fit_map(block, Conditions.of(group, EffColumn.MEAN), rows)
    if not isinstance(found, TransientMap):
        return {}
    corr = 2.0**found.log2_correlation
    return {"norm_ratio": 2.0**found.log2_norm_ratio, "beta1": (corr - 1) / (corr + 1)}
