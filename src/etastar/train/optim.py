"""By which rule does each parameter of the stack move?

This is the one place that says it:

    parameters                 rule                                                     learning rate
    matrices of the blocks     the spec's: AdamW, Adam, AdamH or MuonH                   the stack's (K,)
    token and position tables  AdamW beside AdamW, else Adam without decay               embedding.lr, fixed
    norm gains                 Adam without decay; they have no η_eff                    the stack's (K,)

All learning rates are multiplied by the schedule's factor. Everything is written over stacked tensors
with a (K,) vector of rates; `moved` is the arithmetic of one tensor, and `train/kernel_step.py` the same
in one visit to memory. No step reads a value back to the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from etastar.errors import SpecError
from etastar.train.model import EMBEDDINGS, GAINS, MATRICES, weight_names
from etastar.train.orthogonal import orthogonalized
from etastar.train.schedule import lr_factor, on_plateau
from etastar.train.spec import ScheduleSpec, TrainSpec
from etastar.train.statistics import step_statistics


@dataclass(frozen=True)
class Rule:
    """How one parameter moves."""

    direction: Literal["adam", "muon"]
    hyperball: bool  # the step and the weight keep the norm R = ‖W₀‖ (AdamH, MuonH)
    own_lr: float | None  # None: the stack's learning rates
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    independent_decay: bool


def rule_for(spec: TrainSpec, name: str) -> Rule:
    """The rule of the parameter `name`."""
    main, embedding = spec.optimizer, spec.embedding
    if name in EMBEDDINGS:
        return Rule(
            "adam",
            hyperball=False,
            own_lr=embedding.lr,
            beta1=embedding.beta1,
            beta2=embedding.beta2,
            eps=embedding.eps,
            weight_decay=spec.embedding_decay,
            independent_decay=False,
        )
    matrix = name not in GAINS
    return Rule(
        "muon" if matrix and main.kind == "muonh" else "adam",
        hyperball=matrix and main.kind in ("adamh", "muonh"),
        own_lr=None,
        beta1=main.beta1,
        beta2=main.beta2,
        eps=main.eps,
        weight_decay=main.decay_rate if matrix else 0.0,
        independent_decay=main.decay == "independent",
    )


@dataclass(frozen=True)
class OptimizerState:
    """Moments of every parameter, and the radii that hyperball rules keep; changed in place."""

    first: dict[str, Tensor]
    second: dict[str, Tensor]
    radius: dict[str, Tensor]

    @classmethod
    def fresh(cls, spec: TrainSpec, params: dict[str, Tensor]) -> OptimizerState:
        """Zero moments; R = ‖W₀‖ of every matrix under AdamH and MuonH, refused where it is zero."""
        first, second, radius = {}, {}, {}
        for name, weight in params.items():
            rule = rule_for(spec, name)
            first[name] = torch.zeros_like(weight, requires_grad=False)
            if rule.direction == "adam":
                second[name] = torch.zeros_like(weight, requires_grad=False)
            if rule.hyperball:
                radius[name] = _norm(weight.detach())
                _refuse_zero(spec, name, radius[name])
        return cls(first, second, radius)


def _refuse_zero(spec: TrainSpec, name: str, radius: Tensor) -> None:
    zero = (radius[0].flatten() == 0).nonzero()
    if len(zero):
        where = weight_names(spec.model, name)[int(zero[0, 0])]
        raise SpecError(
            f"{where} starts at zero, and {spec.optimizer.kind} keeps every matrix at its initial norm",
            hint="initialise it to something else, or train with adamw",
        )


# Columns of a segment's table: all that changes from step to step and is not a tensor of the state.
FACTOR, PLATEAU, BIAS1, BIAS2, EMBED_BIAS1, EMBED_BIAS2, AFTER_WARMUP, STEP = range(8)


def step_table(spec: TrainSpec, *, start: int, stop: int, horizon: int | None, device: torch.device) -> Tensor:
    """Schedule factor and bias corrections of steps start … stop−1, (steps, 8) float64 on the device."""
    schedule: ScheduleSpec = spec.schedule
    main, embedding = spec.optimizer, spec.embedding
    betas = (main.beta1, main.beta2, embedding.beta1, embedding.beta2)
    rows = [
        [
            lr_factor(schedule, step, horizon),
            float(on_plateau(schedule, step, horizon)),
            *(1 - beta ** (step + 1) for beta in betas),
            float(step >= schedule.warmup_steps),
            float(step),
        ]
        for step in range(start, stop)
    ]
    return torch.tensor(rows, dtype=torch.float64, device=device)


def moved(
    rule: Rule,
    weight: Tensor,
    grad: Tensor,
    first: Tensor,
    second: Tensor | None,
    radius: Tensor | None,
    lr: Tensor,
    decay: Tensor,
    bias1: Tensor,
    bias2: Tensor,
) -> tuple[Tensor, Tensor]:
    """One tensor's direction u_t and new value w_{t+1}; the moments change in place.

    `lr` and `decay` (the share of w_t that decay takes off) broadcast against the weight.
    """
    first.lerp_(grad, 1 - rule.beta1)
    if rule.direction == "muon":
        # Nesterov's look-ahead, then the nearest (semi-)orthogonal matrix.
        update = orthogonalized(torch.lerp(grad, first, rule.beta1))
    else:
        assert second is not None
        second.mul_(rule.beta2).addcmul_(grad, grad, value=1 - rule.beta2)
        update = (first / bias1) / ((second / bias2).sqrt() + rule.eps)
    if radius is None:
        return update, weight - (lr * update + decay * weight)
    ball = radius[..., None, None]
    away = weight - lr * ball * (update / _norm(update)[..., None, None].clamp_min(1e-30))
    return update, away * (ball / _norm(away)[..., None, None])


def optimizer_step(
    rules: dict[str, Rule],
    params: dict[str, Tensor],
    grads: dict[str, Tensor],
    state: OptimizerState,
    lrs: Tensor,
    row: Tensor,
    alive: Tensor,
    clip_scale: Tensor | None,
    shadow: dict[str, Tensor],
) -> Tensor:
    """Move every parameter of every living model, and its copy in `shadow`; statistics of all matrices, (K, matrices, 6).

    A frozen model keeps its parameters bit for bit: its step is chosen away, not multiplied by zero,
    because NaN·0 is NaN.
    """
    statistics = []
    for name, weight in params.items():
        rule = rules[name]
        shape = (-1,) + (1,) * (weight.ndim - 1)
        rate = row[FACTOR] * (lrs if rule.own_lr is None else torch.full_like(lrs, rule.own_lr))
        decay = rule.weight_decay * (row[FACTOR].expand_as(rate) if rule.independent_decay else rate)
        raw = grads[name].to(weight.dtype)
        grad = raw if clip_scale is None else raw * clip_scale.view(shape).to(weight.dtype)
        bias1, bias2 = (row[EMBED_BIAS1], row[EMBED_BIAS2]) if name in EMBEDDINGS else (row[BIAS1], row[BIAS2])
        update, new = moved(
            rule,
            weight,
            grad,
            state.first[name],
            state.second.get(name),
            state.radius.get(name),
            rate.to(weight.dtype).view(shape),
            decay.to(weight.dtype).view(shape),
            bias1.to(weight.dtype),
            bias2.to(weight.dtype),
        )
        new = torch.where(alive.view(shape), new, weight)
        if name in MATRICES:
            seen = step_statistics(weight, raw, update, new - weight)
            statistics.append(seen.stacked().flatten(1, 2))
        weight.copy_(new)
        if name in shadow:
            shadow[name].copy_(new)
    return torch.cat(statistics, dim=1)


def matrix_names(spec: TrainSpec) -> list[str]:
    """The matrices in the order of `optimizer_step`'s statistics."""
    return [weight for name in MATRICES for weight in weight_names(spec.model, name)]


def gradient_norms(grads: dict[str, Tensor]) -> Tensor:
    """‖g‖ of each whole model, (K,); not finite where any gradient of that model is not."""
    wide = {torch.bfloat16: torch.float32}
    squares = [grad.flatten(1).to(wide.get(grad.dtype, grad.dtype)).square().sum(1).double() for grad in grads.values()]
    return torch.stack(squares).sum(0).sqrt()


def clip_scales(norms: Tensor, limit: float) -> Tensor:
    """min(1, limit/‖g‖) of each model; torch's clip_grad_norm_, per model of the stack."""
    return (limit / (norms + 1e-6)).clamp_max(1.0)


def _norm(matrices: Tensor) -> Tensor:
    return torch.linalg.vector_norm(matrices, dim=(-2, -1))
