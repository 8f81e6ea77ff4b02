"""What would a study look like if we knew its law? Synthetic worlds with a known optimum.

A `World` says where the optimal learning rate lies at every (N, D), what a wrong one costs, and how
noisy a measurement is; a `Grid` says which cells are measured. `simulate` draws a runs table from both, and
`simulate_trajectories` what its trunks would have logged, were the theory of the weight norm exact.
Tests, demos, coverage benchmarks and planning use it; the estimators never look inside.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field

from etastar.errors import SpecError
from etastar.records import conform_runs, conform_trajectories
from etastar.scale import gpt_params, gpt_params_nonembedding
from etastar.theory.horizon import mean_eff_lr_wsd
from etastar.theory.recursion import run_recursion
from etastar.theory.schedules import Schedule

Array = NDArray[np.float64]

PAPER_WIDTHS = (256, 512, 768, 1024, 1536, 2048)
REFERENCE_PARAMS = 100e6
REFERENCE_TOKENS = 10e9


class Straight(enum.StrEnum):
    """The quantity whose optimum is log-linear in D and N."""

    EFF_LR = "eff_lr"
    LR = "lr"
    NEITHER = "neither"


class Shape(enum.StrEnum):
    """How the loss rises with z, the log2 distance from the optimum."""

    CUBIC = "cubic"
    LINEX = "linex"
    TWO_SIDED = "two-sided"
    QUADRATIC = "quadratic"


class World(BaseModel):
    """A law, a loss around it, and its noise. Every field is a dial."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    straight: Straight = Straight.EFF_LR
    shape: Shape = Shape.CUBIC
    # log2 optimum at the reference scale, and its slopes per octave of D and of N
    log2_eff_lr: float = -8.9
    log2_lr: float = -10.5
    slope_tokens: float | None = Field(default=None, description="default: -0.55 for η_eff, -1.0 for η")
    slope_params: float = -0.15
    bend_tokens: float = 0.0
    # loss = base_loss + model_loss·N^-model_power + data_loss·D^-data_power + excess(z)
    base_loss: float = 1.69
    model_loss: float = 406.4
    model_power: float = 0.34
    data_loss: float = 410.7
    data_power: float = 0.28
    curvature: float = Field(default=0.031, gt=0, description="excess loss per octave² at the optimum")
    asymmetry: float = Field(default=0.5, ge=0, description="how much faster the loss rises below it")
    # noise in loss: common to a seed, per trunk (shared along D), per branch; growth per octave above η*
    seed_noise: float = Field(default=0.0, ge=0)
    trunk_noise: float = Field(default=0.0, ge=0)
    branch_noise: float = Field(default=0.0, ge=0)
    noise_growth: float = 0.0
    diverges_above: float | None = Field(default=None, description="octaves of LR above the optimum")
    # the optimizer that maps η to η_eff: adamh holds the norm, so that η_eff(t) is η(t)
    optimizer: Literal["adamw", "adam", "adamh"] = "adamw"
    weight_decay: float = Field(default=0.1, ge=0)
    beta1: float = Field(default=0.95, ge=0, lt=1)
    norm_ratio: float = Field(default=0.15, gt=0, description="W₀ / U, initial weight norm over update norm")
    batch_tokens: float = Field(default=512 * 1024, gt=0)
    warmup_steps: int = Field(default=1000, ge=0)
    decay_steps: int = Field(default=5000, ge=0)

    def steps(self, tokens: ArrayLike) -> Array:
        """T = D / B."""
        return np.asarray(tokens, dtype=float) / self.batch_tokens

    @property
    def ramps(self) -> int:
        """Steps of warm-up and decay."""
        return self.warmup_steps + self.decay_steps

    @property
    def decay(self) -> float:
        """λ as it acts: AdamW's alone."""
        return self.weight_decay if self.optimizer == "adamw" else 0.0

    def eff_lr(self, lr: ArrayLike, tokens: ArrayLike) -> tuple[Array, Array]:
        """(mean, plateau) η_eff of a run: the paper's AdamW transient under WSD, or AdamH's own η."""
        steps = self.steps(tokens)
        if self.optimizer == "adamh":
            rate, share = np.broadcast_arrays(np.asarray(lr, float), 1 - 0.5 * self.ramps / steps)
            return rate * share, rate.copy()
        return mean_eff_lr_wsd(
            lr,
            steps,
            warmup_steps=self.warmup_steps,
            decay_steps=self.decay_steps,
            weight_decay=self.decay,
            beta1=self.beta1,
            norm_ratio=self.norm_ratio,
        )

    def log2_lr_of(self, log2_eff_lr: ArrayLike, tokens: ArrayLike) -> Array:
        """The η whose run has this mean η_eff, by bisection of a monotone map."""
        target, tokens = np.broadcast_arrays(np.asarray(log2_eff_lr, float), np.asarray(tokens, float))
        # η·λ stays below 1, else one step would erase the weight
        top = float(np.log2(0.9 / self.decay)) if self.decay > 0 else 10.0
        low, high = np.full(target.shape, -40.0), np.full(target.shape, min(top, 10.0))
        for _ in range(60):
            middle = 0.5 * (low + high)
            below = np.log2(self.eff_lr(2.0**middle, tokens)[0]) < target
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return 0.5 * (low + high)

    def _law(self, at_reference: float, params: ArrayLike, tokens: ArrayLike) -> Array:
        # slopes with which the quantity that is not straight bends visibly over the paper's grid
        usual = -1.0 if self.straight is Straight.LR else -0.55
        slope = usual if self.slope_tokens is None else self.slope_tokens
        d = np.log2(np.asarray(tokens, float) / REFERENCE_TOKENS)
        n = np.log2(np.asarray(params, float) / REFERENCE_PARAMS)
        return at_reference + slope * d + self.slope_params * n + self.bend_tokens * d**2

    def log2_optimal_lr(self, params: ArrayLike, tokens: ArrayLike) -> Array:
        """log2 η*(D, N), exact."""
        if self.straight is Straight.LR:
            return self._law(self.log2_lr, params, tokens)
        return self.log2_lr_of(self._law(self.log2_eff_lr, params, tokens), tokens)

    def log2_optimal_eff_lr(self, params: ArrayLike, tokens: ArrayLike) -> Array:
        """log2 η_eff*(D, N), exact."""
        if self.straight is Straight.LR:
            return np.log2(self.eff_lr(2.0 ** self.log2_optimal_lr(params, tokens), tokens)[0])
        return self._law(self.log2_eff_lr, params, tokens)

    def floor(self, params: ArrayLike, tokens: ArrayLike) -> Array:
        """The loss at the optimum: L0 + A·N^-a + B·D^-b."""
        model = self.model_loss * np.asarray(params, float) ** -self.model_power
        data = self.data_loss * np.asarray(tokens, float) ** -self.data_power
        return self.base_loss + model + data

    def loss(self, lr: ArrayLike, params: ArrayLike, tokens: ArrayLike) -> Array:
        """The noiseless loss of a run."""
        if self.straight is Straight.LR:
            z = np.log2(np.asarray(lr, float)) - self.log2_optimal_lr(params, tokens)
        else:
            z = np.log2(self.eff_lr(lr, tokens)[0]) - self.log2_optimal_eff_lr(params, tokens)
        return self.floor(params, tokens) + excess(z, self.shape, self.curvature, self.asymmetry)


def excess(z: ArrayLike, shape: Shape, curvature: float, asymmetry: float) -> Array:
    """Loss above the optimum's at log2 distance z; curvature·z² near it, steeper below it."""
    z = np.asarray(z, dtype=float)
    return _SHAPES[shape](z, curvature, asymmetry)


def _cubic(z: Array, q: float, s: float) -> Array:
    # s scales the cubic term so that the turning point, z = 2/(3·0.12·s), stays off the usual grids
    return q * z**2 - 0.12 * s * q * z**3


def _linex(z: Array, q: float, s: float) -> Array:
    if s == 0:
        return q * z**2
    return 2 * q / s**2 * (np.exp(-s * z) + s * z - 1)


def _two_sided(z: Array, q: float, s: float) -> Array:
    # the curvature itself slides from q(1 + s) far below to q(1 − s/2) far above, within an octave
    return q * z**2 * (1 + 0.25 * s - 0.75 * s * np.tanh(z))


_SHAPES: dict[Shape, Callable[[Array, float, float], Array]] = {
    Shape.CUBIC: _cubic,
    Shape.LINEX: _linex,
    Shape.TWO_SIDED: _two_sided,
    Shape.QUADRATIC: lambda z, q, _: q * z**2,
}


class Grid(BaseModel):
    """Which cells are measured. The default is the paper's: 6 N × 39 D × 10 LRs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    widths: tuple[int, ...] = PAPER_WIDTHS
    tokens: tuple[float, ...] = tuple(2.5e9 * k for k in range(2, 41))
    log2_lrs: tuple[float, ...] = tuple(float(p) for p in range(-16, -6))
    seeds: int = Field(default=1, ge=1)
    missing: float = Field(default=0.0, ge=0, lt=1, description="share of cells that were never run")


def simulate(world: World, grid: Grid, *, seed: int = 0) -> pa.Table:
    """Draw a runs table: every cell of the grid, with the world's noise, gaps and divergences."""
    shortest = world.ramps
    if min(grid.tokens) / world.batch_tokens <= shortest:
        raise SpecError(
            f"tokens {min(grid.tokens):.4g} are {min(grid.tokens) / world.batch_tokens:.0f} steps, "
            f"not more than warm-up + decay ({shortest})",
            hint="raise the smallest tokens, or lower warmup_steps, decay_steps or batch_tokens",
        )
    rng = np.random.default_rng(seed)
    shape = (grid.seeds, len(grid.widths), len(grid.log2_lrs), len(grid.tokens))
    params = np.array([gpt_params(w) for w in grid.widths], float)[None, :, None, None]
    log2_lr = np.array(grid.log2_lrs)[None, None, :, None]
    tokens = np.array(grid.tokens)[None, None, None, :]
    lr = 2.0**log2_lr
    above = log2_lr - world.log2_optimal_lr(params, tokens)
    scale = 2.0 ** (world.noise_growth * np.maximum(above, 0))
    noise = (
        world.seed_noise * rng.standard_normal((grid.seeds, len(grid.widths), 1, len(grid.tokens)))
        + world.trunk_noise * scale * rng.standard_normal((*shape[:3], 1))
        + world.branch_noise * scale * rng.standard_normal(shape)
    )
    loss = world.loss(lr, params, tokens) + noise
    if world.diverges_above is not None:
        loss = np.where(above > world.diverges_above, np.nan, loss)
    mean_eff, plateau_eff = world.eff_lr(lr, tokens)
    kept = rng.random(shape) >= grid.missing
    return conform_runs(_rows(world, grid, shape, kept, loss, mean_eff, plateau_eff)).table


def _rows(
    world: World, grid: Grid, shape: tuple[int, ...], kept: NDArray[np.bool_], loss: Array, mean: Array, plateau: Array
) -> pa.Table:
    s, w, l, d = (index[kept] for index in np.indices(shape))
    widths = np.array(grid.widths)
    diverged = ~np.isfinite(loss[kept])

    def spread(values: Array) -> Array:
        return np.where(diverged, np.nan, np.broadcast_to(values, shape)[kept])

    names = [_trunk(world, int(widths[wi]), grid.log2_lrs[li], si) for si, wi, li in zip(s, w, l, strict=True)]
    steps = np.rint(world.steps(np.array(grid.tokens)[d])).astype(np.int64)
    columns: dict[str, Any] = {
        "params": np.array([gpt_params(x) for x in grid.widths], float)[w],
        "tokens": np.array(grid.tokens)[d],
        "lr": 2.0 ** np.array(grid.log2_lrs)[l],
        "loss": loss[kept],
        "mean_eff_lr": pa.array(spread(mean), mask=diverged),
        "plateau_eff_lr": pa.array(spread(plateau), mask=diverged),
        "params_nonembedding": np.array([gpt_params_nonembedding(x) for x in grid.widths], float)[w],
        "optimizer": [world.optimizer] * len(names),
        "weight_decay": np.full(len(names), world.decay),
        "beta1": np.full(len(names), world.beta1),
        "batch_tokens": np.full(len(names), world.batch_tokens),
        "schedule": ["wsd" if world.decay_steps else "constant"] * len(names),
        "steps": steps,
        "warmup_steps": np.full(len(names), world.warmup_steps),
        "decay_steps": np.full(len(names), world.decay_steps),
        "seed": s.astype(np.int64),
        "trunk": names,
        "run": [f"{name}-t{step}" for name, step in zip(names, steps, strict=True)],
    }
    return pa.table(columns)


def _trunk(world: World, width: int, log2_lr: float, seed: int) -> str:
    optimizer = "" if world.optimizer == "adamw" else f"{world.optimizer}-"
    return f"{optimizer}w{width}-lr{log2_lr:g}-s{seed}"


# matrices of the first layer, and W₀ of each over the world's own
_MATRICES = {"blocks.0.q": 1.0, "blocks.0.v": 0.8, "blocks.0.out": 1.4, "blocks.0.up": 1.15}


def simulate_trajectories(world: World, grid: Grid, *, logged: int = 250) -> pa.Table:
    """What the first seed's trunks log if the theory is exact: ‖w‖, ‖u‖, ⟨u, w⟩ and η_eff by the recursion.

    Norms are of a matrix of width × width with ‖u‖ of 0.2 an entry; W₀ follows from `norm_ratio`.
    """
    steps = int(np.rint(world.steps(max(grid.tokens)))) - world.decay_steps
    schedule = Schedule(kind="constant", steps=steps, warmup_steps=world.warmup_steps)
    # evenly, as trainers log, and more often at first
    at = np.concatenate([np.linspace(0, steps - 1, logged), np.geomspace(1, steps - 1, logged // 4)])
    at = np.unique(np.rint(at)).astype(np.int64)
    lr = 2.0 ** np.array(grid.log2_lrs)
    parts = []
    for name, ratio in _MATRICES.items():
        held = world.optimizer == "adamh"
        found = run_recursion(
            schedule, lr=lr, weight_decay=world.decay, beta1=world.beta1, weight_norm0=ratio * world.norm_ratio,
            update_norm=1.0,
        )  # fmt: skip
        rates = schedule.factors()[at][:, None] * lr
        norm = np.full_like(rates, ratio * world.norm_ratio) if held else found.weight_norm[at]
        dot = np.zeros_like(rates) if held else found.update_dot_weight[at]
        eff = rates if held else found.eff_lr[at]
        parts += [
            {
                "run": [_trunk(world, width, x, 0)] * len(at),
                "step": at,
                "weight": [name] * len(at),
                "weight_norm": 0.2 * width * norm[:, k],
                "update_norm": np.full(len(at), 0.2 * width),
                "update_dot_weight": (0.2 * width) ** 2 * dot[:, k],
                "eff_lr": eff[:, k],
            }
            for width in grid.widths
            for k, x in enumerate(grid.log2_lrs)
        ]
    return conform_trajectories(pa.concat_tables([pa.table(part) for part in parts])).table
