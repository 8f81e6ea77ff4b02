"""What happened in a study, while it happens? Append-only lines of JSON, a file of its own for every writer.

No two processes ever write one file, so nothing needs a lock, and two writers at once lose nothing. A line
is written in one go and flushed to disk before `write` returns. A kill can tear the last line of a file
alone: `read_events` drops it in silence, and names any other line that is not JSON.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etastar.errors import InputError

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
        line = json.dumps({"time": time.time(), "event": event, **content}, allow_nan=False) + "\n"
        try:
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
            os.write(self._file, line.encode())
            os.fsync(self._file)
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be written ({error.strerror})", hint="check the study's disk"
            ) from None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


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
                warnings.warn(f"{found.path}: line {found.number} is not JSON and is left out", stacklevel=2)
        else:
            events.append(found)
    return sorted(events, key=lambda event: event["time"])


def scan(study: str | Path) -> Iterator[dict[str, Any] | BadLine]:
    """Events and bad lines, file by file."""
    for path in sorted((Path(study) / FOLDER).glob("*.jsonl")):
        yield from scan_lines(path)


def scan_lines(path: Path) -> Iterator[dict[str, Any] | BadLine]:
    """Events and bad lines of one file of JSON lines."""
    try:
        content = path.read_bytes()
    except OSError:
        yield BadLine(path, 0, torn=False)
        return
    lines = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        last = number == len(lines)
        if not line and last:
            return
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict) or not isinstance(event.get("time"), (int, float)) or "event" not in event:
            yield BadLine(path, number, torn=last)
        else:
            yield event
