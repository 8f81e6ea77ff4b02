"""Does a file of tensors hold what was written? Its header carries a digest of everything else in it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

MARK = "0" * 64  # where the digest will stand
_CHUNK = 1 << 22


class DamagedTensorsError(Exception):
    """A file that does not hold what was written; the text says why."""


class NoDigestError(DamagedTensorsError):
    """A file that cannot be judged."""


def check_tensors(path: Path) -> None:
    """Compare the digest with the bytes, before anything in the file is believed."""
    with path.open("rb") as file:
        size = path.stat().st_size
        first = file.read(8)
        length = int.from_bytes(first, "little")
        if not 2 <= length <= size - 8:
            raise DamagedTensorsError("shorter than its header")
        text = file.read(length)
        try:
            header = json.loads(text)
        except (ValueError, RecursionError):
            raise DamagedTensorsError("its header cannot be read") from None
        metadata = header.get("__metadata__") if isinstance(header, dict) else None
        written = metadata.get("digest") if isinstance(metadata, dict) else None
        if not isinstance(written, str) or len(written) != len(MARK) or not written.isascii():
            raise NoDigestError("has no digest")
        digest = hashlib.sha256(first + text.replace(written.encode(), MARK.encode(), 1))
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != written:
        raise DamagedTensorsError("its content is not what was written")
