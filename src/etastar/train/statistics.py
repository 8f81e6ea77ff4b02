"""How far does one optimizer step turn a weight matrix?

η_eff = ‖ŵ_{t+1} − ŵ_t‖ with ŵ = w/‖w‖. As √(2 − 2cos) it loses every digit in fp32 at small learning
rates, so it is taken from sums that do not cancel. With Δ = w_{t+1} − w_t, A = ‖w_t‖, B = ‖w_{t+1}‖:

    B − A = (2⟨w, Δ⟩ + ‖Δ‖²) / (A + B)        η_eff² = (‖Δ‖² − (B − A)²) / (A·B)

Sums run over the last two dimensions, one matrix each; what comes before (stack, layer, part) stays.
The module stands alone, so that another training loop can measure the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

STATISTICS = ("weight_norm", "grad_norm", "step_norm", "update_norm", "update_dot_weight", "eff_lr")


@dataclass(frozen=True)
class StepStatistics:
    """Of every matrix at one step, in float64; the fields are the trajectories table's columns."""

    weight_norm: Tensor
    grad_norm: Tensor
    step_norm: Tensor
    update_norm: Tensor
    update_dot_weight: Tensor
    eff_lr: Tensor

    def stacked(self) -> Tensor:
        """All six along a new last dimension, in the order of `STATISTICS`."""
        return torch.stack([getattr(self, field.name) for field in fields(self)], dim=-1)


def effective_lr(weight_sq: Tensor, weight_dot_step: Tensor, step_sq: Tensor) -> Tensor:
    """η_eff from ‖w‖², ⟨w, Δ⟩ and ‖Δ‖², in float64, without cancellation."""
    weight_sq, weight_dot_step, step_sq = (x.double() for x in (weight_sq, weight_dot_step, step_sq))
    growth = 2 * weight_dot_step + step_sq  # B² − A²
    before = weight_sq.sqrt()
    after = (weight_sq + growth).clamp_min(0).sqrt()
    stretch = growth / (before + after)
    turned_sq = (step_sq - stretch.square()).clamp_min(0)
    return torch.where(step_sq > 0, (turned_sq / (before * after)).sqrt(), torch.zeros_like(step_sq))


def step_statistics(weight: Tensor, grad: Tensor, update: Tensor, step: Tensor) -> StepStatistics:
    """Statistics of one step `step` = w_{t+1} − w_t from `weight` = w_t, for matrices in the last two dims.

    `update` is the optimizer's direction u_t before the learning rate.
    """
    weight_sq, step_sq = _dot(weight, weight), _dot(step, step)
    return StepStatistics(
        weight_norm=weight_sq.sqrt(),
        grad_norm=_dot(grad, grad).sqrt(),
        step_norm=step_sq.sqrt(),
        update_norm=_dot(update, update).sqrt(),
        update_dot_weight=_dot(update, weight),
        eff_lr=effective_lr(weight_sq, _dot(weight, step), step_sq),
    )


def _dot(left: Tensor, right: Tensor) -> Tensor:
    # The sum in the tensors' own type is pairwise, good to 1e-6; only what follows could cancel.
    return (left * right).sum(dim=(-2, -1)).double()


@dataclass(frozen=True)
class Tally:
    """Running sums of η_eff over every step, per model: updated in place on the device, never read there.

    `total` and `plateau` sum over steps the mean over matrices; `steps` and `plateau_steps` count them.
    A frozen model's sums stand still. All are float64 of shape (K,).
    """

    total: Tensor
    plateau: Tensor
    steps: Tensor
    plateau_steps: Tensor

    @classmethod
    def zeros(cls, stack: int, device: torch.device) -> Tally:
        """An empty tally of K models."""
        return cls(*(torch.zeros(stack, dtype=torch.float64, device=device) for _ in range(4)))

    def add(self, eff_lr: Tensor, *, alive: Tensor, on_plateau: Tensor) -> None:
        """Count one step: η_eff of every matrix (K, matrices), who is alive (K,), 1 or 0 for the plateau."""
        counted = alive.double()
        mean = torch.where(alive, eff_lr.mean(dim=1), torch.zeros_like(counted))
        self.total.add_(mean)
        self.steps.add_(counted)
        self.plateau.add_(mean * on_plateau)
        self.plateau_steps.add_(counted * on_plateau)

    def tensors(self) -> dict[str, Tensor]:
        """By name, for a checkpoint."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def means(self) -> tuple[Tensor, Tensor]:
        """Mean over all steps and over the plateau; NaN where no step was counted."""
        return self.total / self.steps, self.plateau / self.plateau_steps
