"""How are the three sums of every weight formed: ‖x‖², ⟨x, y⟩ and ‖y‖²?

x is a weight and y its step, or the direction of its step. `PlainSums` takes them with PyTorch's operations over lists of
tensors, in the batch's own buffer; it serves everywhere and is the reference. On CUDA `kernel.KernelSums`
reads everything once. `sums_for` is the one place that picks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

import torch
from torch import Tensor

from etastar.monitor.workspace import Batch, Workspace, fill, foreach, local, pick

Tensors = Sequence[Tensor | None]  # one a weight


@dataclass(frozen=True)
class Moments:
    """What Adam's direction is made of: m / (√v + floor), with one floor a weight."""

    first: Tensors
    second: Tensors
    floor: Tensor


class Sums(Protocol):
    """Adds up batch by batch; `result` gives (3, weights) in float64 and begins anew."""

    def steps(self, batch: Batch, after: Tensors) -> None:
        """x is in the batch, y = after − x."""
        ...

    def directions(self, batch: Batch, after: Tensors) -> None:
        """y is in the batch, x = after."""
        ...

    def adam(self, batch: Batch, moments: Moments, after: Tensors) -> None:
        """y is Adam's direction, x = after; the batch is a mere workspace."""
        ...

    def result(self) -> Tensor:
        """The sums of every weight."""
        ...


class PlainSums:
    """Sums by lists of tensors; what is in a batch is lost."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._totals = self._zeros()

    def _zeros(self) -> tuple[Tensor, Tensor, Tensor]:
        space = self._workspace
        return space.zeros(), space.zeros(), space.zeros()

    def steps(self, batch: Batch, after: Tensors) -> None:
        """⟨x, y⟩ = −⟨−y, x + y⟩ − ‖y‖², formed in place."""
        before_sq, dot, step_sq = self._totals
        now = pick(batch, after)
        against, moved = self._workspace.zeros(), self._workspace.zeros()
        batch.add_squares(before_sq)
        foreach._foreach_sub_(batch.views, now)  # −y
        batch.add_squares(moved)
        foreach._foreach_mul_(batch.views, now)
        batch.add_sums(against)
        step_sq.add_(moved)
        dot.sub_(against).sub_(moved)

    def directions(self, batch: Batch, after: Tensors) -> None:
        """y², then y·x, then x in the buffer."""
        after_sq, dot, direction_sq = self._totals
        batch.add_squares(direction_sq)
        multiply(batch, after)
        batch.add_sums(dot)
        fill(batch, after)
        batch.add_squares(after_sq)

    def adam(self, batch: Batch, moments: Moments, after: Tensors) -> None:
        """The direction into the buffer first."""
        fill(batch, moments.second)
        batch.flat.sqrt_()
        batch.rows.add_(moments.floor[batch.owners].to(batch.rows)[:, None])
        batch.flat.reciprocal_()
        batch.clear_padding()
        multiply(batch, moments.first)
        self.directions(batch, after)

    def result(self) -> Tensor:
        """The sums of every weight."""
        done, self._totals = torch.stack(self._totals), self._zeros()
        return done


def multiply(batch: Batch, tensors: Tensors) -> None:
    """Multiply the batch by the blocks' parts of these tensors; where there is none, by zero."""
    pairs = list(zip(batch.views, pick(batch, tensors), strict=True))
    missing = [view for view, tensor in pairs if tensor is None]
    if missing:
        foreach._foreach_zero_(missing)
    present = [(view, tensor) for view, tensor in pairs if tensor is not None]
    if present:
        foreach._foreach_mul_([view for view, _ in present], [tensor for _, tensor in present])


def sums_for(workspace: Workspace) -> Sums:
    """The kernels where they serve: all weights on one CUDA device, dense, fp32 or narrower, and triton there."""
    weights = [local(weight.param) for weight in workspace.watched]
    serve = (
        all(w.is_cuda and w.is_contiguous() and w.dtype != torch.float64 for w in weights)
        and len({w.device for w in weights}) == 1
        and find_spec("triton") is not None
    )
    if not serve:
        return PlainSums(workspace)
    from etastar.monitor.kernel import KernelSums

    return KernelSums(workspace)
