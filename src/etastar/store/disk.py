"""How does a file get to disk so that neither a kill nor a power cut leaves half of it?

A kill ends a process between two calls; what the kernel has been told stays. A power cut is worse: of what was
not synced, any part may be there and any part not, in any order. So three different things are synced, each for
a reason of its own that stands beside it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

from etastar.errors import InputError


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file, flush it to disk, rename it to `path`; on failure leave nothing."""
    # no process number: on a shared disk two machines may have the same
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        make_folder(path.parent)
        try:
            write(temporary)
            # Content before name: without this a power cut may keep the rename and lose the bytes, and the file
            # of yesterday is replaced by one that is empty or half zeros.
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            # One step for every onlooker: they see the old file or the new one, whole. Removing the old one first
            # would leave a moment with neither.
            temporary.replace(path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        flush_folder(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from None


def flush_folder(folder: Path) -> None:
    """Names are content of their folder: until that is synced a power cut can bring the old name back, or none."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_ON_DISK: set[tuple[str, int, int]] = set()  # folders whose names this process has synced


def make_folder(folder: Path) -> None:
    """A folder with its parents, all their names on disk: without its name a power cut takes all that is in it.

    One that is there is synced too, once a process: whoever made it may have been killed before it could.
    """
    folder = folder.absolute()
    unsure = []
    while folder != folder.parent and (not folder.is_dir() or _identity(folder) not in _ON_DISK):
        unsure.append(folder)
        folder = folder.parent
    for one in reversed(unsure):
        fresh = not one.is_dir()
        if fresh:
            one.mkdir(exist_ok=True)
        # what we may not write to, or what is another disk's root, no process of ours has made
        if fresh or (os.access(one.parent, os.W_OK) and one.stat().st_dev == one.parent.stat().st_dev):
            with contextlib.nullcontext() if fresh else contextlib.suppress(PermissionError):
                flush_folder(one.parent)
        _ON_DISK.add(_identity(one))


def _identity(folder: Path) -> tuple[str, int, int]:
    found = folder.stat()
    return str(folder), found.st_dev, found.st_ino


def cannot_write(path: Path, error: OSError) -> InputError:
    """What the user is told of a write that failed."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return InputError(
            f"{path}: no space left on the disk; what was written before is intact",
            hint="free some space and run the same command again: it goes on from the last checkpoint",
        )
    return InputError(
        f"{path}: cannot be written ({error.strerror or error})", hint="check the disk and the --out folder"
    )


def inside(path: Path, folder: Path) -> bool:
    """Does a file of a folder lie in it, links followed? A study from elsewhere may hold links to anything."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a circle of links
        return False


def only_inside(paths: Iterable[Path], folder: Path) -> list[Path]:
    """Paths without those that lead out of the folder, which a warning names."""
    kept, out = [], []
    for path in paths:
        (kept if inside(path, folder) else out).append(path)
    for path in out:
        warnings.warn(f"{path} is a link out of {folder} and is left out", stacklevel=3)
    return kept
