"""What was the step, by computing it again from the optimizer's state?

After the step memory holds w_{t+1} and all that the step was made of. With w_{t+1} = (1 − s)·w_t − r·d (see
`rules`), three sums of w_{t+1} and d give the rest, in float64 and without cancellation:

    w_t = (w_{t+1} + r·d) / (1 − s)        Δ = −s·w_t − r·d

No copy of the weights is kept: the workspace is one batch, whatever the model's size. What is measured is the step
as computed, before it was rounded into the weight; in fp32 the two agree to a part in a million.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from etastar.errors import InputError
from etastar.monitor.rules import needs_grad, rule_for
from etastar.monitor.scalars import GroupVectors
from etastar.monitor.sums import Moments, sums_for
from etastar.monitor.watch import Watched
from etastar.monitor.workspace import Workspace, local


class Reconstruct:
    """‖w‖², ⟨w, Δ⟩ and ‖Δ‖² of every watched weight from the optimizer's state."""

    def __init__(self, optimizer: torch.optim.Optimizer, watched: Sequence[Watched], vectors: GroupVectors) -> None:
        self._optimizer = optimizer
        self._rule = rule_for(optimizer, watched, vectors)
        self.workspace = Workspace(watched, keep=False)
        self._sums = sums_for(self.workspace)
        self._had_grad = [False] * len(watched)
        self._called = False

    def before(self) -> None:
        """Note which weights will move; nothing is copied."""
        self._had_grad = [weight.param.grad is not None for weight in self.workspace.watched]
        self._called = True

    def after(self) -> Tensor | None:
        """Local sums (3, weights) in float64; None where the step began before the monitor was attached."""
        if not self._called:
            return None
        self._called = False
        watched = self.workspace.watched
        # a closure computes gradients inside the step, a trainer may drop them there: either tells a moved weight
        moved = [had or weight.param.grad is not None for had, weight in zip(self._had_grad, watched, strict=True)]
        self._refuse_lost_gradients(moved)
        weights: list[Tensor | None] = [local(weight.param.detach()) for weight in watched]
        move = self._rule()
        for batch in self.workspace.batches:
            if isinstance(move.direction, Moments):
                self._sums.adam(batch, move.direction, weights)
            else:
                move.direction(batch)
                self._sums.directions(batch, weights)
        scale, share = move.scale, move.share
        if not all(moved):
            stood = torch.tensor([not m for m in moved], device=scale.device)
            scale, share = scale.masked_fill(stood, 0.0), share.masked_fill(stood, 0.0)
        after_sq, dot, direction_sq = self._sums.result()
        return _before_the_step(after_sq, dot, direction_sq, scale, share)

    def _refuse_lost_gradients(self, moved: Sequence[bool]) -> None:
        groups = self._optimizer.param_groups
        for weight, went in zip(self.workspace.watched, moved, strict=True):
            if went and weight.param.grad is None and needs_grad(self._optimizer, groups[weight.group]):
                raise InputError(
                    f"mode='reconstruct': the gradient of {weight.name} was gone after the step, and the rule needs it",
                    hint="use mode='snapshot', or set gradients to zero after optimizer.step()",
                )


def _before_the_step(after_sq: Tensor, dot: Tensor, direction_sq: Tensor, scale: Tensor, share: Tensor) -> Tensor:
    """(‖w_t‖², ⟨w_t, Δ⟩, ‖Δ‖²) from ‖w_{t+1}‖², ⟨w_{t+1}, d⟩ and ‖d‖²."""
    kept = 1 - share
    move_dot, move_sq = scale * dot, scale.square() * direction_sq
    weight_sq = (after_sq + 2 * move_dot + move_sq) / kept.square()
    weight_dot_move = (move_dot + move_sq) / kept
    step_sq = share.square() * weight_sq + 2 * share * weight_dot_move + move_sq
    return torch.stack([weight_sq, -share * weight_sq - weight_dot_move, step_sq])
