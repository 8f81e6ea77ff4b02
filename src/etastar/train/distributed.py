"""How is one stack shared by several processes (torchrun)?

With at least as many learning rates as ranks, each rank trains its own slice of the stack: nothing is
exchanged. With fewer, every rank holds the whole stack and a share of each batch, and gradients are summed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist

from etastar.errors import SpecError
from etastar.train.spec import TrainSpec


@dataclass(frozen=True)
class Share:
    """What this process does of the whole."""

    rank: int = 0
    ranks: int = 1
    data_parallel: bool = False  # else the stack is split (or there is one process)

    @property
    def writes(self) -> bool:
        """Does this process write its stack's checkpoints and rows?"""
        return self.rank == 0 or not self.data_parallel

    @property
    def batch_ranks(self) -> int:
        """By how many processes a batch is shared."""
        return self.ranks if self.data_parallel else 1

    @property
    def batch_rank(self) -> int:
        """Which share of a batch is this process's."""
        return self.rank if self.data_parallel else 0

    def wait(self) -> None:
        """Wait for the other processes of a shared batch (a file that one wrote is then there for all)."""
        if self.data_parallel:
            dist.barrier()

    def agree(self, flag: bool) -> bool:
        """True on every process of a shared batch if it is true on any."""
        if not self.data_parallel:
            return flag
        vote = torch.tensor([float(flag)], device="cuda" if dist.get_backend() == "nccl" else "cpu")
        dist.all_reduce(vote)
        return bool(vote.item() > 0)


def divide(spec: TrainSpec, *, rank: int, ranks: int) -> tuple[TrainSpec, Share]:
    """This rank's spec (its slice of the learning rates, or all of them) and its share."""
    stack = len(spec.lrs)
    if ranks == 1:
        return spec, Share()
    if stack >= ranks:
        bounds = [stack * index // ranks for index in range(ranks + 1)]
        mine = spec.lrs[bounds[rank] : bounds[rank + 1]]
        return spec.model_copy(update={"lrs": mine}), Share(rank, ranks, data_parallel=False)
    if spec.batch_sequences % ranks:
        raise SpecError(
            f"batch_sequences: {spec.batch_sequences} sequences cannot be shared by {ranks} processes",
            hint=f"take a multiple of {ranks}, or as many processes as divide it",
        )
    return spec, Share(rank, ranks, data_parallel=True)


@contextmanager
def process_group(device: str) -> Iterator[tuple[int, int, str]]:
    """(rank, ranks, device) as torchrun set them; (0, 1, device) without it."""
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks == 1:
        yield 0, 1, device
        return
    cuda = device in ("auto", "cuda") and torch.cuda.is_available()
    if cuda:
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        yield dist.get_rank(), ranks, device
    finally:
        dist.destroy_process_group()
