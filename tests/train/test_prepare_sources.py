"""Data sets of the hub, and the corpus that every machine has."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from corpora import as_jsonl, some_documents
from test_prepare_resume import start

from etastar.errors import InputError
from etastar.train import corpus_default, prepare_tokenizer
from etastar.train.corpus_shards import read_manifest, verify
from etastar.train.prepare import PrepareConfig, prepare


@pytest.mark.slow
def test_hub_data_sets_stream_like_files(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    folder = tmp_path / "data"
    folder.mkdir()
    as_jsonl(folder / "train.jsonl", some_documents())
    configs = [
        PrepareConfig(inputs=(name,), out=tmp_path / out, train_bpe=300)
        for name, out in ((f"hf:{folder}", "hub"), (str(folder / "train.jsonl"), "file"))
    ]
    assert start(configs[0], die_at=12) == -signal.SIGKILL
    assert prepare(configs[0]).identity == prepare(configs[1]).identity
    with pytest.raises(InputError, match=r"hf:.*cannot be read"):
        prepare(configs[0].model_copy(update={"hub_split": "absent", "out": tmp_path / "absent"}))


def test_without_the_package_datasets_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match="needs the package datasets"):
        prepare(PrepareConfig(inputs=("hf:some/set",), out=tmp_path / "c", train_bpe=300))


# --- the default corpus -------------------------------------------------------------------------


def test_default_corpus_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "lib"
    (library / "site-packages").mkdir(parents=True)
    (library / "site-packages" / "other.py").write_text("not_ours = 1\n" * 100)
    (library / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\nx = '\xe9'\n")
    for number, document in enumerate(some_documents(8)):
        (library / f"m{number}.py").write_text(document)
    monkeypatch.setattr(corpus_default.sysconfig, "get_paths", lambda: {"stdlib": str(library)})
    monkeypatch.setenv("ETASTAR_CACHE", str(tmp_path / "cache"))
    first = corpus_default.default_corpus(vocab=300)
    assert read_manifest(Path(first.name)).documents == 8
    assert Path(first.name).is_relative_to(tmp_path / "cache")
    monkeypatch.setattr(corpus_default, "standard_library_files", None)
    assert corpus_default.default_corpus(vocab=300).identity == first.identity


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ETASTAR_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert corpus_default.cache_folder() == Path("/somewhere/etastar")


def test_the_standard_library_is_there() -> None:
    files = corpus_default.standard_library_files()
    assert 5e6 < sum(path.stat().st_size for path in files) < 60e6
    assert not any("site-packages" in path.parts for path in files)
    assert any(path.name == "argparse.py" for path in files)


@pytest.mark.slow
def test_the_real_default_corpus(tmp_path: Path) -> None:
    corpus = corpus_default.default_corpus(cache=tmp_path)
    assert corpus.vocab == 4096
    assert corpus.tokens > 2_000_000
    assert corpus.validation_tokens > 50_000
    verify(Path(corpus.name), read_manifest(Path(corpus.name)))


def test_the_tokenizer_sample_is_spread_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare_tokenizer, "_SAMPLE_CHARACTERS", 1000)
    monkeypatch.setattr(prepare_tokenizer, "_SAMPLE_READ", 100_000)
    sample = prepare_tokenizer.spread_sample(f"{i:010d}" for i in range(3200))
    kept = [int(text) for text in sample]
    assert 50 <= len(kept) <= 100
    assert kept[-1] > 3000
    assert len(set(np.diff(kept))) == 1
