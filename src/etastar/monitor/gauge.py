"""What did one call of the optimizer do to the watched weights, and what is the mean so far?

All of it on the device: the host waits for nothing here but for what `means` and `statistics` hand out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from etastar.monitor.describe import main_group
from etastar.monitor.pace import PeakLr, at_hand
from etastar.monitor.reading import statistics
from etastar.monitor.reconstruct import Reconstruct
from etastar.monitor.rules import decoupled, rate_factors
from etastar.monitor.scalars import GroupVectors
from etastar.monitor.shards import ShardSums
from etastar.monitor.snapshot import Snapshot
from etastar.monitor.watch import Watched
from etastar.monitor.workspace import MemoryUse, local
from etastar.train.statistics import StepStatistics, Tally, effective_lr

Mode = Literal["snapshot", "reconstruct"]


@dataclass(frozen=True)
class Measured:
    """One call: (‖w‖², ⟨w, Δ⟩, ‖Δ‖²) and η_eff of every weight, and whether it was a step at all, (1,)."""

    sums: Tensor
    eff_lr: Tensor
    taken: Tensor


class Gauge:
    """Measures calls of one optimizer and keeps the tally of η_eff."""

    def __init__(self, optimizer: torch.optim.Optimizer, watched: Sequence[Watched], mode: Mode) -> None:
        self._optimizer = optimizer
        self._watched = tuple(watched)
        device = local(watched[0].param).device
        self._device = device
        self._vectors = GroupVectors(watched, device)
        self._factors = rate_factors(optimizer, watched, device)
        self._shards = ShardSums(watched, device)
        self._source = Snapshot(watched) if mode == "snapshot" else Reconstruct(optimizer, watched, self._vectors)
        self._main = main_group(watched)
        self._always = torch.ones(1, dtype=torch.bool, device=device)
        self._flags = torch.tensor([0.0, 1.0], dtype=torch.float64, device=device)
        self.tally = Tally.zeros(1, device)
        self.peak = PeakLr()

    def before(self) -> None:
        """The optimizer is about to step."""
        self._source.before()

    def after(self) -> Measured | None:
        """It has stepped; None where that began before the monitor was there."""
        sums = self._source.after()
        if sums is None:
            return None
        weight_sq, dot, step_sq = sums = self._shards.complete(sums)
        # a weight that is no longer finite has no η_eff, not one of zero
        eff_lr = effective_lr(weight_sq, dot, step_sq) + 0 * (weight_sq + step_sq)
        lr = self.lr
        taken = self._taken(lr)
        rose, at_peak = self.peak.see(lr)
        if rose:
            self.tally.plateau.zero_()
            self.tally.plateau_steps.zero_()
        self.tally.add(eff_lr[None], alive=taken, on_plateau=self._flags[int(at_peak)])
        return Measured(sums, eff_lr, taken)

    def _taken(self, lr: float | Tensor | None) -> Tensor:
        """Not every call is a step.

        Fused optimizers are told inside that a gradient overflowed, and do nothing; distributed checkpoints call a
        fresh optimizer with zero gradients at rate 0, to have its state made.
        """
        overflow = getattr(self._optimizer, "found_inf", None)
        taken = self._always if overflow is None else (overflow.to(self._device, non_blocking=True) == 0).view(1)
        return taken & (self._grad_squares().sum() != 0) if at_hand(lr) == 0 else taken

    def _grad_squares(self) -> Tensor:
        """‖g‖² of every weight, as the step saw it; after the step's own sums, whose buffer it takes."""
        grads = [None if w.param.grad is None else local(w.param.grad) for w in self._watched]
        return self._shards.complete(self._source.workspace.squares(grads))

    def statistics(self, measured: Measured) -> StepStatistics:
        """All six of every weight, while the gradients of the step are still there."""
        return statistics(measured.sums, measured.eff_lr, self._grad_squares(), *self._rates())

    def _rates(self) -> tuple[Tensor | None, Tensor | None]:
        """Rate and decay share of every weight in Δ = −s·w − r·u; None for an optimizer that is not known."""
        groups = self._optimizer.param_groups
        apart = {g: decoupled(self._optimizer, groups[g]) for g in self._vectors.slices}
        if any(known is None for known in apart.values()):
            return None, None
        lr = self._vectors.option("lr", groups, "lr")
        decay = {g: float(groups[g]["weight_decay"]) * bool(apart[g]) for g in self._vectors.slices}
        share = lr * self._vectors.vector("decay beside the update", decay)
        return (lr if self._factors is None else lr * self._factors), share

    @property
    def lr(self) -> float | Tensor | None:
        """The main group's learning rate now, where it has one."""
        return self._optimizer.param_groups[self._main].get("lr")

    @property
    def memory(self) -> MemoryUse:
        """What the buffers take."""
        return self._source.workspace.memory()
