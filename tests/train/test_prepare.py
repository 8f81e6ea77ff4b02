"""Does a corpus hold every document of its source once, whatever format it came in?"""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
from corpora import as_jsonl, as_parquet, as_text, documents_of, some_documents, some_tokens, tokens_of, write_tokens

from etastar.train.corpus_shards import read_manifest, verify
from etastar.train.prepare import PrepareConfig, prepare


def test_formats_give_the_same_corpus_and_the_text_comes_back(tmp_path: Path) -> None:
    documents = some_documents()
    jsonl = as_jsonl(tmp_path / "a.jsonl", documents)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(jsonl.read_bytes()))
    (tmp_path / "c.jsonl.xz").write_bytes(lzma.compress(jsonl.read_bytes()))
    (tmp_path / "d.txt").write_bytes("\n====\n".join(documents).encode())
    as_text(tmp_path / "texts", documents)
    as_parquet(tmp_path / "e.parquet", documents)
    identities = set()
    for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl.xz", "d.txt", "texts", "e.parquet"):
        out = tmp_path / f"corpus of {name}"
        corpus = prepare(
            PrepareConfig(
                inputs=(str(tmp_path / name),),
                out=out,
                train_bpe=300,
                validation_every=10,
                separator="\n====\n" if name == "d.txt" else None,
            )
        )
        identities.add(corpus.identity)
        verify(out, read_manifest(out))
        assert documents_of(out, "train") == [one for i, one in enumerate(documents) if i % 10 != 1]
        assert documents_of(out, "validation") == documents[1::10]
    assert len(identities) == 1


def test_empty_documents_are_left_out_and_counted(tmp_path: Path) -> None:
    documents = some_documents(10)
    sparse = [entry for one in documents for entry in (one, "")]
    full, holes = (
        PrepareConfig(inputs=(str(as_jsonl(tmp_path / f"{name}.jsonl", docs)),), out=tmp_path / name, train_bpe=300)
        for name, docs in (("full", documents), ("holes", sparse))
    )
    assert prepare(full).identity == prepare(holes).identity
    assert read_manifest(tmp_path / "holes").empty_documents == 10


def test_token_files_pass_unchanged(tmp_path: Path) -> None:
    first, second, held_out = some_tokens(5000), some_tokens(3001, 1), some_tokens(700, 2)
    corpus = prepare(
        PrepareConfig(
            inputs=(
                str(write_tokens(tmp_path / "train-0.u16.xz", first)),
                str(write_tokens(tmp_path / "train-1.u32", second, "<u4")),
            ),
            validation=(str(write_tokens(tmp_path / "val.u16", held_out)),),
            out=tmp_path / "corpus",
            vocab=500,
            shard_tokens=2048,
        )
    )
    assert (corpus.tokens, corpus.validation_tokens, corpus.vocab) == (8001, 700, 500)
    np.testing.assert_array_equal(tokens_of(tmp_path / "corpus", "train"), np.concatenate([first, second]))
    np.testing.assert_array_equal(tokens_of(tmp_path / "corpus", "validation"), held_out)
    manifest = read_manifest(tmp_path / "corpus")
    assert [shard.tokens for shard in manifest.train] == [2048, 2048, 2048, 1857]
    assert manifest.documents == sum(int((part == 0).sum()) for part in (first, second, held_out))


def test_token_files_are_split_by_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etastar.train.prepare_pieces._PIECE", 50)  # documents lie across reads
    tokens = some_tokens(1000)
    source = write_tokens(tmp_path / "all.u16", tokens)
    prepare(PrepareConfig(inputs=(str(source),), out=tmp_path / "c", vocab=500, validation_every=4))
    documents = np.split(tokens, np.flatnonzero(tokens == 0)[1:])
    held_out = [one for i, one in enumerate(documents) if i % 4 == 1]
    np.testing.assert_array_equal(tokens_of(tmp_path / "c", "validation"), np.concatenate(held_out))
    assert len(tokens_of(tmp_path / "c", "train")) + sum(map(len, held_out)) == 1000


def test_max_tokens_is_exact(tmp_path: Path) -> None:
    source = as_jsonl(tmp_path / "a.jsonl", some_documents())
    corpus = prepare(PrepareConfig(inputs=(str(source),), out=tmp_path / "c", train_bpe=300, max_tokens=1234))
    assert corpus.tokens == 1234


# --- killed and started again -------------------------------------------------------------------
