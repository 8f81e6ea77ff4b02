"""A forked process under the file layer: start it, strike it, hear how it ended."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"

FAIL, SHORT, KILL_BEFORE, KILL_AFTER, TORN = range(5)
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO}

T = TypeVar("T")


def library() -> Path:
    """The compiled layer; the test is skipped, aloud, where there is no C compiler or no preloading."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("the file layer did not run: it needs Linux and a C compiler")
    source = HERE / "layer.c"
    name = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    built = Path(tempfile.gettempdir()) / f"etastar-layer-{os.getuid()}-{name}.so"
    if not built.exists():
        fresh = built.with_name(f"{built.name}.{os.getpid()}")
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", fresh, source, "-ldl", "-lpthread"], check=True)
        fresh.replace(built)
    return built


class Server:
    """One fork server."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "LD_PRELOAD": str(library())}
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "server.py")],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", "the fork server did not start"

    def ask(self, job: str, *, watch: Path | None = None, log: Path | None = None, strike: Any = None,
            kill_after: float | None = None, **arguments: Any) -> dict[str, Any]:  # fmt: skip
        """Do a job in a fork; `strike` is (call number, kind, errno, for good)."""
        order: dict[str, Any] = {"job": job, "arguments": arguments}
        if watch is not None:
            order |= {"watch": str(watch), "log": str(log) if log else None, "strike": strike}
        if kill_after is not None:
            order["kill_after"] = kill_after
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """Let it go."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


class Servers:
    """As many fork servers as there are cores, or one."""

    def __init__(self, count: int) -> None:
        with ThreadPoolExecutor(count) as pool:
            self.all = list(pool.map(lambda _: Server(), range(count)))
        self._free: queue.Queue[Server] = queue.Queue()
        for server in self.all:
            self._free.put(server)

    @contextmanager
    def one(self) -> Iterator[Server]:
        """A server of one's own for a while."""
        server = self._free.get()
        try:
            yield server
        finally:
            self._free.put(server)

    def map(self, work: Callable[[Server, Any], T], items: Iterable[Any]) -> list[T]:
        """Work on every item, each with a server of its own."""

        def run(item: Any) -> T:
            with self.one() as server:
                return work(server, item)

        with ThreadPoolExecutor(len(self.all)) as pool:
            return list(pool.map(run, items))

    def close(self) -> None:
        """Let them go."""
        for server in self.all:
            server.close()
