"""What would this plan measure in this world? A runs table for exactly the plan's cells.

`simulate.simulate` draws full grids of the paper's models; a plan has its own models, seeds, learning rates and
horizons, and those of one trunk share its noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import Field

from etastar.plan.study_plan import StackPlan, StudyPlan
from etastar.plan.training import Training
from etastar.records import content_id, runs_table
from etastar.simulate import World


class RoughWorld(World):
    """A world whose losses no smooth curve follows: real sweeps are rough, and the same way at every D."""

    roughness: float = Field(default=0.0, ge=0, description="standard deviation, as a share of a run's loss gap")


def simulate_plan(world: World, plan: StudyPlan, *, seed: int = 0, with_eff_lr: bool = True) -> pa.Table:
    """Draw the results of every run of a plan, with the world's noise and divergences."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    optima = _optima(world, plan)
    for stack in plan.stacks:
        rows += _stack_rows(world, plan, stack, optima, rng, with_eff_lr)
    return runs_table(rows)


def _optima(world: World, plan: StudyPlan) -> dict[tuple[int, int], float]:
    """log2 η* by (N, horizon): all cells of one decay in one go, because each is a search."""
    by_decay: dict[float, dict[tuple[int, int], float]] = {}
    for stack in plan.stacks:
        training = plan.training_of(stack)
        for horizon in stack.horizons:
            cells = by_decay.setdefault(training.decay_of(horizon), {})
            cells[training.params, horizon] = float(horizon * training.batch_tokens)
    training = plan.training_of(plan.stacks[0])
    found: dict[tuple[int, int], float] = {}
    for cells in by_decay.values():
        here = at_horizon(world, training, next(iter(cells))[1])
        values = here.log2_optimal_lr([n for n, _ in cells], list(cells.values()))
        found |= {cell: float(value) for cell, value in zip(cells, values, strict=True)}
    return found


def at_horizon(world: World, training: Training, horizon: float) -> World:
    """The world under the plan's own batch and schedule; a decay fraction differs by horizon."""
    return world.model_copy(
        update={
            "batch_tokens": float(training.batch_tokens),
            "warmup_steps": training.warmup_steps,
            "decay_steps": int(training.decay_of(horizon)),
        }
    )


def _stack_rows(
    world: World,
    plan: StudyPlan,
    stack: StackPlan,
    optima: dict[tuple[int, int], float],
    rng: np.random.Generator,
    with_eff_lr: bool,
) -> list[dict[str, Any]]:
    training, content = plan.training_of(stack), plan.content_of(stack)
    lrs = np.array(stack.lrs)
    trunk = world.trunk_noise * rng.standard_normal(len(lrs))
    rough = _roughness(world, training.params, stack.lrs)
    rows = []
    for horizon in sorted(stack.horizons):
        here = at_horizon(world, training, horizon)
        tokens = float(horizon * training.batch_tokens)
        above = np.log2(lrs) - optima[training.params, horizon]
        growth = 2.0 ** (world.noise_growth * np.maximum(above, 0))
        noise = growth * (trunk + world.branch_noise * rng.standard_normal(len(lrs)))
        floor = here.floor(training.params, tokens)
        gap = here.loss(lrs, training.params, tokens) - floor
        loss = floor + gap * (1 + rough) + noise + world.seed_noise * rng.standard_normal()
        if world.diverges_above is not None:
            loss = np.where(above > world.diverges_above, np.nan, loss)
        mean, plateau = here.eff_lr(lrs, tokens)
        for k, lr in enumerate(stack.lrs):
            good = with_eff_lr and np.isfinite(loss[k])
            name = f"{stack.name}-{np.log2(lr):.4f}"
            rows.append(
                {
                    "params": float(training.params),
                    "tokens": tokens,
                    "lr": lr,
                    "loss": float(loss[k]),
                    "mean_eff_lr": float(mean[k]) if good else None,
                    "plateau_eff_lr": float(plateau[k]) if good else None,
                    "optimizer": _optimizer(content),
                    "weight_decay": world.weight_decay,
                    "beta1": world.beta1,
                    "batch_tokens": float(training.batch_tokens),
                    "schedule": training.schedule,
                    "steps": horizon,
                    "warmup_steps": training.warmup_steps,
                    "decay_steps": here.decay_steps,
                    "seed": stack.seed,
                    "trunk": name,
                    "run": f"{name}-t{horizon}",
                }
            )
    return rows


def _roughness(world: World, params: int, lrs: tuple[float, ...]) -> np.ndarray:
    """One draw a (world, N, learning rate), whatever the stack, the seed and the horizon."""
    share = world.roughness if isinstance(world, RoughWorld) else 0.0
    if share == 0:
        return np.zeros(len(lrs))
    key = int(content_id(world.model_dump(mode="json")), 16) % 2**32
    draws = [np.random.default_rng([key, params, round(1e6 * (64 + np.log2(lr)))]).standard_normal() for lr in lrs]
    return np.maximum(share * np.array(draws), -1.0)


def _optimizer(content: dict[str, Any]) -> str:
    part = content.get("optimizer", {})
    return str(part.get("kind", "adamw")) if isinstance(part, dict) else "adamw"
