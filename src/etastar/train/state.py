"""What must be kept to go on exactly where training stopped?

Parameters, moments, radii, the running sums of η_eff and the watch over divergence. The data position and
the schedule follow from the step alone, and nothing random is drawn after the initial weights, so there
is no generator to save.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from etastar.errors import SpecError
from etastar.train.divergence import Watch
from etastar.train.model import MATRICES, init_params
from etastar.train.optim import OptimizerState
from etastar.train.spec import TrainSpec
from etastar.train.statistics import Tally


@dataclass(frozen=True)
class TrainState:
    """All tensors of a stack in training; their storage stays, their values change in place."""

    params: dict[str, Tensor]
    shadow: dict[str, Tensor]  # copies in the products' type, which the step keeps equal; empty where it is the same
    optimizer: OptimizerState
    tally: Tally
    watch: Watch

    @classmethod
    def fresh(
        cls, spec: TrainSpec, *, device: torch.device, dtype: torch.dtype, compute: torch.dtype | None = None
    ) -> TrainState:
        """The state before step 0; matrix products are taken in `compute`."""
        stack = len(spec.lrs)
        params = init_params(spec.model, stack=stack, seed=spec.seed, device=device, dtype=dtype)
        return cls(
            params=params,
            shadow=_shadow(params, compute or dtype),
            optimizer=OptimizerState.fresh(spec, params),
            tally=Tally.zeros(stack, device),
            watch=Watch.fresh(stack, device),
        )

    def leaves(self) -> dict[str, Tensor]:
        """What the forward pass reads and gradients are taken to: a matrix's copy where it has one."""
        return self.params | {name: copy for name, copy in self.shadow.items() if name in MATRICES}

    def table(self) -> Tensor:
        """The embedding as the head's matrix, in the products' type."""
        return self.shadow.get("embed", self.params["embed"]).detach()

    @torch.no_grad()
    def refresh(self) -> None:
        """Make the copies equal to the parameters again."""
        for name, copy in self.shadow.items():
            copy.copy_(self.params[name])

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a checkpoint keeps, by name; copies are made anew."""
        groups: dict[str, Mapping[str, Tensor]] = {
            "param": self.params,
            "first": self.optimizer.first,
            "second": self.optimizer.second,
            "radius": self.optimizer.radius,
            "tally": self.tally.tensors(),
            "watch": self.watch.tensors(),
        }
        return {f"{group}.{name}": x.detach() for group, named in groups.items() for name, x in named.items()}

    def load(self, tensors: Mapping[str, Tensor], *, where: str) -> None:
        """Take over saved values; a set of other names or shapes is refused before anything changes."""
        own = self.tensors()
        for name in sorted(own.keys() ^ tensors.keys()):
            raise SpecError(f"{where}: its tensor {name} does not fit this spec", hint="use another --out folder")
        for name, mine in own.items():
            saved = tensors[name]
            if saved.shape != mine.shape or saved.dtype != mine.dtype:
                raise SpecError(
                    f"{where}: {name} is {saved.dtype} {tuple(saved.shape)}, the spec's is {mine.dtype} "
                    f"{tuple(mine.shape)}",
                    hint="train with the precision and sizes of the checkpoint, or use another --out folder",
                )
        for name, mine in own.items():
            mine.copy_(tensors[name])
        self.refresh()


def _shadow(params: dict[str, Tensor], compute: torch.dtype) -> dict[str, Tensor]:
    """Copies of the matrices, which gradients are taken to, and of the embedding, which the head reads."""
    if params["embed"].dtype == compute:
        return {}
    return {name: params[name].detach().to(compute).requires_grad_(name in MATRICES) for name in (*MATRICES, "embed")}
