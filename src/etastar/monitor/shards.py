"""Which sums of sharded weights must be added up over ranks?

A DTensor's local shard holds some of the matrix's elements, so sums over them are partial: they are added
over every mesh dimension that the weight is sharded along, and over no other (replicas hold the same).
Plain tensors, DDP's included, need nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from etastar.errors import InputError
from etastar.monitor.watch import Watched


class ShardSums:
    """The all-reduces that make local sums whole."""

    def __init__(self, watched: Sequence[Watched], device: torch.device) -> None:
        kinds: dict[tuple[Any, ...], list[int]] = {}
        for index, weight in enumerate(watched):
            if hasattr(weight.param, "placements"):
                kinds.setdefault((weight.param.device_mesh, weight.param.placements), []).append(index)  # type: ignore[attr-defined]
        self._steps: list[tuple[Any, Tensor | None]] = []
        for (mesh, placements), members in kinds.items():
            where = None if len(members) == len(watched) else torch.tensor(members, device=device)
            for dimension, placement in enumerate(placements):
                if placement.is_partial():
                    raise InputError(
                        f"{watched[members[0]].name} is a DTensor of partial sums",
                        hint="monitor its optimizer's shards",
                    )
                if not placement.is_replicate() and mesh.size(dimension) > 1:
                    self._steps.append((mesh.get_group(dimension), where))

    def __bool__(self) -> bool:
        return bool(self._steps)

    def complete(self, sums: Tensor) -> Tensor:
        """Local sums (…, weights) → sums over whole tensors; a collective where weights are sharded."""
        for group, where in self._steps:
            if where is None:
                dist.all_reduce(sums, group=group)
            else:
                part = sums.index_select(-1, where)
                dist.all_reduce(part, group=group)
                sums.index_copy_(-1, where, part)
        return sums


def is_first_rank() -> bool:
    """Whether this process writes: rank 0, or the only one."""
    return not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0
