"""Small corpora, in every format, and what came out of a preparation."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import numpy as np

from etastar.train.corpus_shards import read_manifest


def some_documents(count: int = 40, seed: int = 0) -> list[str]:
    """Documents of words with line breaks, accents and a spelled-out special token."""
    rng = np.random.default_rng(seed)
    words = [
        "the",
        "of",
        "learning",
        "rate",
        "norm",
        "é",
        "∇",
        "naïve",
        "<|endoftext|>",
        "東京",
        "\n",
        "\r\n",
    ]
    return [f"document {i}: " + " ".join(rng.choice(words, rng.integers(5, 80))) for i in range(count)]


def as_text(folder: Path, documents: list[str]) -> Path:
    folder.mkdir()
    for number, document in enumerate(documents):
        (folder / f"{number:04d}.txt").write_bytes(document.encode())
    return folder


def as_jsonl(path: Path, documents: list[str], column: str = "text") -> Path:
    path.write_text("".join(json.dumps({"id": 1, column: one}) + "\n" for one in documents))
    return path


def as_parquet(path: Path, documents: list[str]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": range(len(documents)), "text": documents}), path, row_group_size=7)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a corpus folder, byte for byte."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def tokens_of(folder: Path, split: str) -> np.ndarray:
    manifest = read_manifest(folder)
    parts = [np.fromfile(folder / s.file, manifest.dtype) for s in getattr(manifest, split)]
    return np.concatenate(parts)


def documents_of(folder: Path, split: str) -> list[str]:
    """Back from tokens to text."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokens = tokens_of(folder, split)
    starts = np.flatnonzero(tokens == 0)
    assert starts[0] == 0
    return [tokenizer.decode(part[1:].tolist()) for part in np.split(tokens, starts[1:])]


def write_tokens(path: Path, tokens: np.ndarray, dtype: str = "<u2") -> Path:
    raw = tokens.astype(dtype).tobytes()
    path.write_bytes(lzma.compress(raw) if path.suffix == ".xz" else raw)
    return path


def some_tokens(count: int, seed: int = 0, vocab: int = 500) -> np.ndarray:
    tokens = np.random.default_rng(seed).integers(1, vocab, count)
    tokens[::97] = 0
    return tokens
