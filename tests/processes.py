"""Two processes that train together, in the environment that torchrun gives its workers."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def two_processes(work: Callable[[int], object]) -> None:
    """Fork two, each with its rank; both must end well."""
    port = str(free_port())
    children = []
    for rank in range(2):
        child = os.fork()
        if child == 0:
            os.environ |= {"WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_RANK": str(rank)}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            code = 1
            try:
                work(rank)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
