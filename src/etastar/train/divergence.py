"""Which models of the stack have diverged, and which only had a spike?

A model diverges when its loss or gradient is not finite, or when its smoothed training loss stays above
ln(vocabulary), the loss of knowing nothing, for 100 steps after warm-up. It is then frozen and the others
go on. A model that never got below that line and sits no higher than it started is merely slow (a tiny
learning rate): it is not diverged. An excursion that ends before its 100 steps is a spike: counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor

PATIENCE = 100  # steps above the line
MARGIN = 0.25  # nats above its first loss: a model that has learned nothing yet wobbles by less
SMOOTHING = 0.98  # of the running mean of the training loss: some 50 steps


@dataclass(frozen=True)
class Watch:
    """What is known of each model, (K,) each, on the device and changed in place."""

    alive: Tensor
    diverged_step: Tensor  # −1: alive
    smoothed: Tensor  # exponential mean, not yet divided by `weight`
    weight: Tensor
    first_loss: Tensor
    learned: Tensor  # has the smoothed loss been below the line?
    above: Tensor  # steps in a row above the line
    spikes: Tensor

    @classmethod
    def fresh(cls, stack: int, device: torch.device) -> Watch:
        """All alive, nothing seen."""

        def filled(value: float | bool | int, dtype: torch.dtype) -> Tensor:
            return torch.full((stack,), value, dtype=dtype, device=device)

        return cls(
            alive=filled(True, torch.bool),
            diverged_step=filled(-1, torch.int64),
            smoothed=filled(0.0, torch.float64),
            weight=filled(0.0, torch.float64),
            first_loss=filled(math.inf, torch.float64),
            learned=filled(False, torch.bool),
            above=filled(0, torch.int64),
            spikes=filled(0, torch.int64),
        )

    def see(self, loss: Tensor, grad_norm: Tensor, *, step: Tensor, after_warmup: Tensor, vocab: int) -> None:
        """Take in one step's losses and gradient norms, before the update is applied."""
        line = math.log(vocab)
        loss = loss.double()
        finite = loss.isfinite() & grad_norm.isfinite()
        counted = self.alive & finite
        self.first_loss.copy_(torch.where(counted & (self.weight == 0), loss, self.first_loss))
        self.smoothed.copy_(torch.where(counted, SMOOTHING * self.smoothed + (1 - SMOOTHING) * loss, self.smoothed))
        self.weight.copy_(torch.where(counted, SMOOTHING * self.weight + (1 - SMOOTHING), self.weight))
        mean = self.smoothed / self.weight.clamp_min(1e-12)
        self.learned.logical_or_(counted & (mean < line))
        risen = self.learned | (mean > self.first_loss + MARGIN)
        high = counted & (mean > line) & risen & (after_warmup > 0)
        self.spikes.add_((counted & ~high & (self.above > 0)).long())
        self.above.copy_(torch.where(high, self.above + 1, torch.zeros_like(self.above)))
        falls = self.alive & (~finite | (self.above >= PATIENCE))
        self.diverged_step.copy_(torch.where(falls, step.long(), self.diverged_step))
        self.alive.logical_and_(~falls)

    def tensors(self) -> dict[str, Tensor]:
        """By name, for a checkpoint."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
