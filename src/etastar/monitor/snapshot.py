"""What was the step, by looking before and after?

A copy of the watched weights is taken before the optimizer's step into a buffer that is allocated once, and
compared with them afterwards. It works for every optimizer and sees what really happened, rounding included. It
costs one fp32 copy.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from etastar.monitor.sums import sums_for
from etastar.monitor.watch import Watched
from etastar.monitor.workspace import Workspace, fill, local


class Snapshot:
    """‖w‖², ⟨w, Δ⟩ and ‖Δ‖² of every watched weight from a copy."""

    def __init__(self, watched: Sequence[Watched]) -> None:
        self.workspace = Workspace(watched, keep=True)
        self._sums = sums_for(self.workspace)
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
        for batch in self.workspace.batches:
            self._sums.steps(batch, weights)
        return self._sums.result()

    def _weights(self) -> list[Tensor]:
        return [local(weight.param.detach()) for weight in self.workspace.watched]
