"""How are tokens read that were made elsewhere?

A `.u16` or `.u32` file, packed or not, is a bare stream of little-endian tokens; every token is
checked against the vocabulary, and documents are found by the token that starts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from pathlib import Path

import numpy as np

from etastar.errors import InputError
from etastar.train.prepare_sources import Reading, Source, opened

_PIECE = 1 << 20


def read_pieces(source: Source, reading: Reading, *, skip: int = 0) -> Iterator[np.ndarray]:
    """Tokens of a .u16 or .u32 file: whole documents where they are to be split, else fixed pieces."""
    pieces = _token_blocks(source, reading)
    if source.role == "split":
        pieces = _documents_of(pieces, reading.document_start)
    yield from islice(pieces, skip, None)


def _token_blocks(source: Source, reading: Reading) -> Iterator[np.ndarray]:
    kind = np.dtype("<u4" if ".u32" in Path(source.name).suffixes[-2:] else "<u2")
    position = 0
    with opened(source) as (raw, stream):
        while block := stream.read(_PIECE * kind.itemsize):
            source.done = raw.tell()
            if len(block) % kind.itemsize:
                raise InputError(
                    f"{source.name} ends inside a token (of {kind.itemsize} bytes)",
                    hint="the file is truncated or of another type: fetch it again",
                )
            tokens = np.frombuffer(block, kind)
            if tokens.max() >= reading.vocab:
                at = int(np.argmax(tokens >= reading.vocab))
                raise InputError(
                    f"{source.name}: token {tokens[at]} at position {position + at}, "
                    f"vocabulary is {reading.vocab}",
                    hint="give the tokenizer the file was made with (--tokenizer) or its size (--vocab)",
                )
            position += len(tokens)
            yield tokens


def _documents_of(blocks: Iterable[np.ndarray], start: int) -> Iterator[np.ndarray]:
    pending: list[np.ndarray] = []
    for block in blocks:
        edges = np.flatnonzero(block == start)
        if not edges.size:
            pending.append(block)
            continue
        if pending or edges[0]:
            yield np.concatenate([*pending, block[: edges[0]]])
        yield from (block[a:b] for a, b in pairwise(edges.tolist()))
        pending = [block[edges[-1] :]]
    if pending:
        yield np.concatenate(pending)
