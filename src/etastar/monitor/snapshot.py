"""What was the step, by looking before and after?

A copy of the watched weights is taken before the optimizer's step into a buffer that is allocated once;
afterwards the difference, its square and its product with the weight are formed in that same buffer. It
works for every optimizer and sees what really happened, rounding included. It costs one fp32 copy.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from etastar.monitor.watch import Watched
from etastar.monitor.workspace import Workspace, fill, foreach, local, pick


class Snapshot:
    """‖w‖², ⟨w, Δ⟩ and ‖Δ‖² of every watched weight from a copy."""

    def __init__(self, watched: Sequence[Watched]) -> None:
        self.workspace = Workspace(watched, keep=True)
        self._taken = False

    def before(self) -> None:
        """Copy the weights."""
        weights = self._weights()
        for batch in self.workspace.batches:
            fill(batch, weights)
        self._taken = True

    def after(self) -> Tensor | None:
        """Local sums (3, weights) in float64; None where no copy was taken before this step."""
        if not self._taken:
            return None
        self._taken = False
        weights = self._weights()
        weight_sq, against, step_sq = (self.workspace.zeros() for _ in range(3))
        for batch in self.workspace.batches:
            now = pick(batch, weights)
            batch.add_squares(weight_sq)
            foreach._foreach_sub_(batch.views, now)  # −Δ
            batch.add_squares(step_sq)
            foreach._foreach_mul_(batch.views, now)  # −Δ·w_{t+1}
            batch.add_sums(against)
        # ⟨w_t, Δ⟩ = ⟨w_{t+1}, Δ⟩ − ‖Δ‖²
        return torch.stack([weight_sq, -against - step_sq, step_sq])

    def _weights(self) -> list[Tensor]:
        return [local(weight.param.detach()) for weight in self.workspace.watched]
