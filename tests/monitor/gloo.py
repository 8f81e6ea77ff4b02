"""Two processes with a process group, as a user's trainer has one before the monitor comes."""

from __future__ import annotations

from collections.abc import Callable

import torch.distributed as dist

from processes import two_processes


def two_with_gloo(work: Callable[[int], None]) -> None:
    """Each does the work with its rank."""

    def grouped(rank: int) -> None:
        dist.init_process_group("gloo")
        work(rank)
        dist.destroy_process_group()

    two_processes(grouped)
