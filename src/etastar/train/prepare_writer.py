"""How are shards written so that kill -9 at any moment costs seconds and changes no byte?

Tokens are appended to open shards; now and then the files are synced and a journal notes how long
they are and which documents they hold. A second start cuts every file back to the journal and goes
on from there. Shards end at fixed token counts, so the bytes do not depend on where it was killed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from etastar.errors import InputError
from etastar.train.corpus_shards import JOURNAL, Shard, little_endian, scan

_BUFFER = 1 << 20


class SplitState(BaseModel):
    """What is safely on disk of one split: closed shards, and tokens of the open one."""

    model_config = ConfigDict(frozen=True)

    closed: tuple[Shard, ...] = ()
    open_tokens: int = 0


class Journal(BaseModel):
    """What is safely on disk: of which inputs, up to which document of which source."""

    model_config = ConfigDict(frozen=True)

    fingerprint: str
    source: int = 0
    item: int = 0
    documents: int = 0
    empty_documents: int = 0
    train: SplitState = SplitState()
    validation: SplitState = SplitState()

    @property
    def is_new(self) -> bool:
        """Nothing has been made safe yet."""
        return self.source == 0 and self.item == 0


class SplitWriter:
    """Appends tokens to the shards of one split."""

    def __init__(self, folder: Path, split: str, *, dtype: str, shard_tokens: int, state: SplitState) -> None:
        self._folder, self._split, self._dtype = folder, split, dtype
        self._kind = little_endian(dtype)
        self._shard_tokens = shard_tokens
        self._closed = list(state.closed)
        self._open_tokens = state.open_tokens
        self._buffer: list[np.ndarray] = []
        self._buffered = 0
        self._cut_back()

    @property
    def tokens(self) -> int:
        """Tokens taken so far, buffered ones included."""
        return sum(shard.tokens for shard in self._closed) + self._open_tokens + self._buffered

    def _path(self, index: int) -> Path:
        return self._folder / f"{self._split}-{index:05d}.u{8 * self._kind.itemsize}"

    def _cut_back(self) -> None:
        """Drop what was written after the journal."""
        here = self._path(len(self._closed))
        expected = self._open_tokens * self._kind.itemsize
        size = here.stat().st_size if here.exists() else 0
        if size < expected:
            raise InputError(
                f"{here} has {size} bytes, the journal says {expected}",
                hint=f"remove {self._folder} and prepare it afresh",
            )
        if here.exists():
            os.truncate(here, expected)
        for later in self._folder.glob(f"{self._split}-*.u*"):
            if later.name > here.name:
                later.unlink()

    def add(self, tokens: np.ndarray) -> None:
        """Take tokens; whole buffers go to disk."""
        self._buffer.append(tokens)
        self._buffered += len(tokens)
        if self._buffered >= _BUFFER:
            self._flush()

    def _flush(self) -> None:
        if not self._buffer:
            return
        pending = np.concatenate(self._buffer).astype(self._kind)
        self._buffer, self._buffered = [], 0
        while len(pending):
            piece = pending[: self._shard_tokens - self._open_tokens]
            pending = pending[len(piece) :]
            path = self._path(len(self._closed))
            with written(path), path.open("ab") as file:
                file.write(piece.tobytes())
            self._open_tokens += len(piece)
            if self._open_tokens == self._shard_tokens:
                self._close()

    def _close(self) -> None:
        path = self._path(len(self._closed))
        sync(path)
        digest, _ = scan(path, self._dtype)
        self._closed.append(Shard(file=path.name, tokens=self._open_tokens, sha256=digest))
        self._open_tokens = 0

    def settle(self) -> SplitState:
        """Everything taken so far, on disk."""
        self._flush()
        if self._open_tokens:
            sync(self._path(len(self._closed)))
        return SplitState(closed=tuple(self._closed), open_tokens=self._open_tokens)

    def finish(self) -> tuple[Shard, ...]:
        """Close the last shard, short as it may be."""
        self._flush()
        if self._open_tokens:
            self._close()
        return tuple(self._closed)


@contextmanager
def written(path: Path) -> Iterator[None]:
    """A full disk or a read-only folder, said in one line."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="make room or choose another --out; the same command goes on from what is there",
        ) from error


def sync(path: Path) -> None:
    """Wait until the file's bytes are on disk."""
    with written(path), path.open("rb+") as file:
        os.fsync(file.fileno())


def replace(path: Path, text: str) -> None:
    """Write a small file whole or not at all."""
    beside = path.with_name(f"{path.name}.new")
    with written(path):
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)


def read_journal(folder: Path) -> Journal | None:
    """The journal of an unfinished preparation, if there is one."""
    path = folder / JOURNAL
    if not path.exists():
        return None
    try:
        return Journal.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise InputError(
            f"{path} is not a journal of `etastar data prepare`",
            hint=f"remove {folder} and prepare it afresh",
        ) from error


@contextmanager
def locked(folder: Path, *, wait: bool) -> Iterator[None]:
    """One preparation a folder; the system lets go of the lock when a process dies."""
    with written(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # no such locks on Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    except BlockingIOError as error:
        raise InputError(
            f"{folder} is being prepared by another process", hint="wait for it, or choose another --out"
        ) from error
    finally:
        os.close(handle)
