"""What happened in a study, while it happens? Append-only lines of JSON, a file of its own for every writer.

No two processes ever write one file, so nothing needs a lock, and two writers at once lose nothing. A line
is written in one go and flushed to disk before `write` returns. A kill can tear the last line of a file
alone: `read_events` drops it in silence, and names any other line that is not JSON or fails its checksum.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import time
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etastar.store.disk import cannot_write, flush_folder, make_folder, only_inside

FOLDER = "journal"


class Journal:
    """One writer's file; it is made with the first event."""

    def __init__(self, study: str | Path, *, writer: str, folder: str = FOLDER) -> None:
        host = re.sub(r"[^A-Za-z0-9-]", "_", socket.gethostname())[:40]
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        name = f"{stamp}-{writer}-{host}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
        self.path = Path(study) / folder / name
        self._file: int | None = None

    def write(self, event: str, **content: Any) -> None:
        """Append one event with the time; it is on disk when this returns."""
        text = json.dumps({"time": time.time(), "event": event, **content}, allow_nan=False)
        try:
            if self._file is None:
                make_folder(self.path.parent)
                self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
                # the file's name is content of its folder: unsynced, a power cut takes the file and all its lines
                flush_folder(self.path.parent)
            _write_all(self._file, _with_checksum(text))
            # `write` promises that the line is on disk; until here it is in the kernel's memory alone
            os.fsync(self._file)
        except OSError as error:
            # Half a line may be there. What is written next goes into a file of its own, or it would stand on the
            # torn line and be lost with it.
            with contextlib.suppress(OSError):
                self.close()
            self.path = self.path.with_name(f"{self.path.stem[:-8]}{secrets.token_hex(4)}.jsonl")
            raise cannot_write(self.path.parent, error) from None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            descriptor, self._file = self._file, None
            os.close(descriptor)


def _write_all(descriptor: int, line: bytes) -> None:
    """A write may come short without an error."""
    while line:
        line = line[os.write(descriptor, line) :]


_CHECK = ', "check": "'  # the last entry of a line: a checksum of all before it


def _with_checksum(text: str) -> bytes:
    """A flipped digit is still JSON: without a checksum it would be believed."""
    start = text[:-1]
    return f'{start}{_CHECK}{zlib.crc32(start.encode()):08x}"}}\n'.encode()


def _checked(line: bytes, *, has_checksum: bool) -> bool:
    """Does a line hold what was written? Files of earlier versions have no checksums and are taken as they are."""
    start, found, check = line.rpartition(_CHECK.encode())
    return check == b'%08x"}' % zlib.crc32(start) if found else not has_checksum


@dataclass(frozen=True)
class BadLine:
    """A line that is no event."""

    path: Path
    number: int
    torn: bool  # the last line, without its end: a kill leaves such


def read_events(study: str | Path) -> list[dict[str, Any]]:
    """Every event of every writer, by time; a damaged line is named in a warning and left out."""
    events: list[dict[str, Any]] = []
    for found in scan(study):
        if isinstance(found, BadLine):
            if not found.torn:
                warnings.warn(
                    f"{found.path}: line {found.number} is not JSON or not what was written, and is left out",
                    stacklevel=2,
                )
        else:
            events.append(found)
    return sorted(events, key=lambda event: event["time"])


def scan(study: str | Path) -> Iterator[dict[str, Any] | BadLine]:
    """Events and bad lines, file by file."""
    for path in only_inside(sorted((Path(study) / FOLDER).glob("*.jsonl")), Path(study)):
        yield from scan_lines(path)


def scan_lines(path: Path) -> Iterator[dict[str, Any] | BadLine]:
    """Events and bad lines of one file of JSON lines."""
    try:
        content = path.read_bytes()
    except OSError:
        yield BadLine(path, 0, torn=False)
        return
    lines, has_checksum = content.split(b"\n"), _CHECK.encode() in content
    for number, line in enumerate(lines, start=1):
        last = number == len(lines)
        if not line and last:
            return
        try:
            event = json.loads(line) if _checked(line, has_checksum=has_checksum) else None
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict) or not isinstance(event.get("time"), (int, float)) or "event" not in event:
            yield BadLine(path, number, torn=last)
        else:
            event.pop("check", None)
            yield event
