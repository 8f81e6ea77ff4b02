"""What lies in a corpus folder, and is it whole?

A corpus folder holds raw little-endian token files (shards), `manifest.json` with each shard's
length and sha256, and, where known, the tokenizer. The manifest is written last and at once, so
a folder without one is unfinished. Sizes are checked at every opening, contents by `verify`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from etastar.errors import InputError

MANIFEST = "manifest.json"
JOURNAL = "unfinished.json"
TOKENIZER = "tokenizer.json"
_BLOCK = 1 << 22


class Shard(BaseModel):
    """One token file: name inside the folder, tokens, sha256 of its bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str = Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$")
    tokens: int = Field(gt=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Manifest(BaseModel):
    """The table of contents of a corpus folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["etastar corpus 1"] = "etastar corpus 1"
    dtype: Literal["uint16", "uint32"]
    vocab: int = Field(gt=0, le=1 << 32)
    document_start: int = Field(ge=0)
    train: tuple[Shard, ...]
    validation: tuple[Shard, ...]
    documents: int = Field(default=0, ge=0)
    empty_documents: int = Field(default=0, ge=0)
    tokenizer: str | None = None
    prepared_from: dict[str, object] = Field(default_factory=dict)

    @property
    def identity(self) -> str:
        """A hash of the tokens and the vocabulary, not of where they came from or when."""
        content = {
            "vocab": self.vocab,
            "document_start": self.document_start,
            "train": [(shard.tokens, shard.sha256) for shard in self.train],
            "validation": [(shard.tokens, shard.sha256) for shard in self.validation],
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def little_endian(dtype: str) -> np.dtype:
    """The on-disk type: little-endian on every machine."""
    return np.dtype(dtype).newbyteorder("<")


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of a corpus folder."""
    path = folder / MANIFEST
    if not path.is_file():
        if (folder / JOURNAL).is_file():
            raise InputError(
                f"{folder} is an unfinished corpus",
                hint="run the same `etastar data prepare` again: it goes on from where it stopped",
            )
        what = "holds no manifest.json" if folder.is_dir() else "is not a folder"
        raise InputError(
            f"{folder} {what}", hint="make a corpus with `etastar data prepare ... --out FOLDER`"
        )
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InputError(
            f"{path}: {where}: {first['msg']}",
            hint="the manifest is damaged or of another version: prepare the corpus again",
        ) from error


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """Refuse a folder with missing, truncated or over-long shards; all of them are named."""
    width = little_endian(manifest.dtype).itemsize
    problems = []
    for shard in (*manifest.train, *manifest.validation):
        path, expected = folder / shard.file, shard.tokens * width
        if not path.is_file():
            problems.append(f"{shard.file} is missing")
        elif (size := path.stat().st_size) != expected:
            problems.append(f"{shard.file} has {size} bytes, not {expected}")
    _refuse(folder, problems)


def verify(folder: Path, manifest: Manifest) -> None:
    """Read every shard whole: sha256 as in the manifest, every token below the vocabulary."""
    check_sizes(folder, manifest)
    problems = []
    for shard in (*manifest.train, *manifest.validation):
        digest, highest = scan(folder / shard.file, manifest.dtype)
        if digest != shard.sha256:
            problems.append(f"{shard.file} has changed (sha256 {digest[:12]}…, not {shard.sha256[:12]}…)")
        if highest >= manifest.vocab:
            problems.append(f"{shard.file} holds token {highest}, vocabulary is {manifest.vocab}")
    _refuse(folder, problems)


def scan(path: Path, dtype: str) -> tuple[str, int]:
    """sha256 and highest token of one shard file, in blocks."""
    digest, highest = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            highest = max(highest, int(np.frombuffer(block, little_endian(dtype)).max()))
    return digest.hexdigest(), highest


def _refuse(folder: Path, problems: list[str]) -> None:
    if problems:
        listed = "; ".join(problems[:8]) + (f"; and {len(problems) - 8} more" if len(problems) > 8 else "")
        raise InputError(
            f"corpus {folder} is damaged: {listed}",
            hint="copy the folder again or prepare it again with `etastar data prepare`",
        )


class TokenStream:
    """Shards read as one long sequence of tokens; a window may lie across two of them."""

    def __init__(self, parts: list[np.ndarray], names: list[str]) -> None:
        self._parts = parts
        self._names = names
        self._ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
        self.tokens = int(self._ends[-1]) if parts else 0

    @classmethod
    def map(cls, folder: Path, shards: tuple[Shard, ...], dtype: str) -> TokenStream:
        """Memory-map the shards of one split."""
        kind = little_endian(dtype)
        paths = [folder / shard.file for shard in shards]
        # plain views: slicing an np.memmap itself costs more than the copy of a window
        parts = [np.memmap(path, kind, mode="r").view(np.ndarray) for path in paths]
        return cls(parts, [str(path) for path in paths])

    def windows(self, starts: np.ndarray, length: int) -> np.ndarray:
        """`length` tokens from each start, as int64 rows."""
        rows = np.empty((len(starts), length), dtype=np.int64)
        first_parts = np.searchsorted(self._ends, starts, side="right")
        for row, start, part in zip(rows, starts.tolist(), first_parts.tolist(), strict=True):
            offset = start - (int(self._ends[part - 1]) if part else 0)
            piece = self._parts[part][offset : offset + length]
            row[: len(piece)] = piece
            filled = len(piece)
            while filled < length:
                part += 1
                piece = self._parts[part][: length - filled]
                row[filled : filled + len(piece)] = piece
                filled += len(piece)
        return rows

    def name_at(self, position: int) -> str:
        """The shard that holds this token of the stream."""
        return self._names[int(np.searchsorted(self._ends, position, side="right"))]
