"""Who works here, and is it still alive? A claim on a folder that holds on a network file system.

No flock: NFS servers lose, ignore or fake it. A claim is a small file `NAME.lease-GENERATION`; a new one is
made by a hard link, which a server grants to one asker alone, and the holder is whoever has the highest
generation. Nothing is ever renamed over somebody else's claim, so two takers cannot both believe they won.

A holder on this machine is alive while its process is. One elsewhere touches its file every few seconds;
a claim untouched for `STALE_AFTER` seconds of the *server's* clock is taken over, and its owner, should it
come back, notices before it writes again.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etastar.errors import InputError
from etastar.store.disk import make_folder

BEAT_EVERY = 5.0  # seconds between touches
STALE_AFTER = 60.0  # seconds without a touch, on the server's clock
_POLL = 0.25


class HeldError(InputError):
    """Another process holds the claim."""


class LostError(InputError):
    """The claim was taken over while its owner was away."""


def _machine() -> str:
    """This boot of this machine, and this view of its processes (containers number theirs anew)."""
    parts = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id",):
        with contextlib.suppress(OSError):
            parts.append(Path(path).read_text(encoding="ascii").strip())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return "/".join(parts)


def _born(pid: int) -> str | None:
    """When a process of this machine started, in the kernel's ticks; None if there is none that runs."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
        try:  # a system without /proc: existence is all that can be asked
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            return ""
        return ""
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else fields[19]


@dataclass
class Lease:
    """A held claim; give it back with `release`."""

    folder: Path
    name: str
    generation: int
    content: dict[str, Any]
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def path(self) -> Path:
        """Its file."""
        return _path(self.folder, self.name, self.generation)

    def check(self) -> None:
        """Raise `LostError` if somebody has taken over since: nothing must be written then."""
        newest = max(_generations(self.folder, self.name), default=0)
        if newest != self.generation:
            raise LostError(
                f"{self.folder}: another process took over the claim on {self.name} while this one was away",
                hint="nothing of this process is lost or mixed in; look at `etastar status`",
            )

    def release(self) -> None:
        """Say that the work is over. The file stays, so that generations never repeat."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()  # a thread that wakes up while Python shuts down can abort the process
        with contextlib.suppress(OSError):
            temporary = _write_beside(self.path, self.content | {"released": True})
            temporary.replace(self.path)

    def keep_alive(self) -> None:
        """Touch the file now and then, in a thread, until it is released."""
        self._thread = threading.Thread(target=self._beat, daemon=True, name=f"lease {self.name}")
        self._thread.start()

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_EVERY):
            with contextlib.suppress(OSError):
                os.utime(self.path)


def acquire(folder: Path, name: str, *, wait: float = 0.0) -> Lease:
    """Claim `name` in a folder, waiting so many seconds for another holder; `HeldError` if it stays."""
    deadline = time.monotonic() + wait
    while True:
        try:
            make_folder(folder)  # checkpoints will stand in it: it must outlive a power cut
            lease = _try(folder, name)
        except OSError as error:
            raise InputError(f"{folder}: cannot be written ({error.strerror})", hint="check the --out folder") from None
        if lease is not None:
            lease.keep_alive()
            return lease
        if time.monotonic() >= deadline:
            held = holder(folder, name) or {}
            who = f" (process {held['pid']} on {held['host']})" if "pid" in held and "host" in held else ""
            raise HeldError(
                f"{folder}: another process{who} is at work here ({name})",
                hint="wait for it, or use another --out folder",
            )
        time.sleep(_POLL)


def holder(folder: Path, name: str) -> dict[str, Any] | None:
    """What the living holder of a claim says of itself, or None."""
    newest = max(_generations(folder, name), default=0)
    return _alive(folder, name, newest) if newest else None


def _try(folder: Path, name: str) -> Lease | None:
    newest = max(_generations(folder, name), default=0)
    if newest and _alive(folder, name, newest) is not None:
        return None
    content: dict[str, Any] = {
        "host": socket.gethostname(),
        "machine": _machine(),
        "pid": os.getpid(),
        "born": _born(os.getpid()),
        "nonce": secrets.token_hex(8),
    }
    target = _path(folder, name, newest + 1)
    temporary = _write_beside(target, content)
    try:
        with contextlib.suppress(FileExistsError):
            os.link(temporary, target)
        # A server may lose its answer to a link that it made: the file's content says whose it is.
        mine = (_read(target) or {}).get("nonce") == content["nonce"]
    finally:
        temporary.unlink(missing_ok=True)
    if not mine:
        return None
    generations = _generations(folder, name)
    if max(generations, default=0) != newest + 1:  # an old listing: others are further
        target.unlink(missing_ok=True)
        return None
    for old in generations:
        if old <= newest:
            _path(folder, name, old).unlink(missing_ok=True)
    _sweep(target)
    return Lease(folder=folder, name=name, generation=newest + 1, content=content)


def _sweep(mine: Path) -> None:
    """Remove what killed takers of this claim left beside it; a younger file may be in use."""
    stem = mine.name.rpartition("-")[0]
    for path in mine.parent.glob(f".{stem}-*"):
        with contextlib.suppress(OSError):
            if mine.stat().st_mtime - path.stat().st_mtime > STALE_AFTER:
                path.unlink(missing_ok=True)


def _alive(folder: Path, name: str, generation: int) -> dict[str, Any] | None:
    path = _path(folder, name, generation)
    content = _read(path)
    if content is None or content.get("released"):
        return None
    if content.get("machine") == _machine():
        born = _born(int(content.get("pid", 0)))
        return content if born is not None and born == content.get("born") else None
    return content if _age(path) < STALE_AFTER else None


def _age(path: Path) -> float:
    """Seconds since the last touch, both moments on the file server's clock."""
    probe = path.with_name(f".{path.name}.{secrets.token_hex(6)}.probe")
    try:
        probe.touch()
        with path.open("rb") as file:  # opening asks the server again; a bare stat may be hours old
            return probe.stat().st_mtime - os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        return float("inf")
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EROFS):  # a reader who may not write: its own clock must do
            return time.time() - path.stat().st_mtime
        raise
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)


def _path(folder: Path, name: str, generation: int) -> Path:
    return folder / f"{name}.lease-{generation:06d}"


def _generations(folder: Path, name: str) -> list[int]:
    pattern = re.compile(re.escape(name) + r"\.lease-(\d+)$")
    try:
        found = [pattern.match(entry) for entry in os.listdir(folder)]
    except FileNotFoundError:
        return []
    return [int(match[1]) for match in found if match]


def _write_beside(target: Path, content: dict[str, Any]) -> Path:
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(json.dumps(content))
            file.flush()
            # Content before name, as ever. The name itself is not synced: no claim needs to outlive a power cut,
            # which ends its holder too.
            os.fsync(file.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    return temporary


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
