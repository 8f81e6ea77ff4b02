"""Do all formats give the same corpus, does kill -9 change a byte, is bad input said in one line?"""

from __future__ import annotations

import gzip
import json
import lzma
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import etastar
from etastar.cli.data import data_app
from etastar.errors import InputError
from etastar.train import corpus_default, prepare_tokenizer
from etastar.train.corpus_shards import read_manifest, verify
from etastar.train.data import Corpus
from etastar.train.prepare import PrepareConfig, main, prepare
from etastar.train.prepare_progress import PlainProgress
from etastar.train.prepare_writer import locked


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


def write_tokens(path: Path, tokens: np.ndarray, dtype: str = "<u2") -> Path:
    raw = tokens.astype(dtype).tobytes()
    path.write_bytes(lzma.compress(raw) if path.suffix == ".xz" else raw)
    return path


def some_tokens(count: int, seed: int = 0, vocab: int = 500) -> np.ndarray:
    tokens = np.random.default_rng(seed).integers(1, vocab, count)
    tokens[::97] = 0
    return tokens


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

PREPARE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from etastar.train import prepare as room, prepare_pass, prepare_pieces, prepare_writer
prepare_pass._GROUP, prepare_pieces._PIECE, prepare_writer._BUFFER = 300, 128, 200
left = int(sys.argv[1])
def deadly(call):
    def wrapped(*arguments):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments)
    return wrapped
os.fsync, os.replace, os.truncate = deadly(os.fsync), deadly(os.replace), deadly(os.truncate)
settings = room.PrepareConfig.model_validate_json(sys.argv[2])
room.prepare(settings, commit_seconds=0.0)
"""


def start(config: PrepareConfig, *, die_at: int) -> int:
    """Prepare in a process that kills itself with SIGKILL at its n-th sync, rename or cut (0: never)."""
    arguments = [sys.executable, "-c", PREPARE_AND_DIE, str(die_at), config.model_dump_json()]
    return subprocess.run(arguments, check=False).returncode


def survive(config: PrepareConfig, deaths: list[int]) -> None:
    for die_at in deaths:
        code = start(config, die_at=die_at)
        assert code in (0, -signal.SIGKILL)
        if code == 0:
            break
        with pytest.raises(InputError):
            Corpus.open(config.out)
    assert start(config, die_at=0) == 0


def token_config(tmp_path: Path, out: str) -> PrepareConfig:
    if not (tmp_path / "b.u16.xz").exists():
        write_tokens(tmp_path / "a.u16", some_tokens(1500))
        write_tokens(tmp_path / "b.u16.xz", some_tokens(1000, 1))
    inputs = (str(tmp_path / "a.u16"), str(tmp_path / "b.u16.xz"))
    return PrepareConfig(inputs=inputs, out=tmp_path / out, vocab=500, shard_tokens=700, validation_every=3)


def test_killed_and_started_again_gives_the_same_bytes(tmp_path: Path) -> None:
    """One folder, killed at eight moments: the first sync, mid-shard, between files, near the end."""
    undisturbed, killed = token_config(tmp_path, "undisturbed"), token_config(tmp_path, "killed")
    assert start(undisturbed, die_at=0) == 0
    survive(killed, [1, 2, 5, 9, 13, 3, 17, 6])
    assert contents(killed.out) == contents(undisturbed.out)


@pytest.mark.slow
def test_killed_at_every_moment(tmp_path: Path) -> None:
    undisturbed = token_config(tmp_path, "undisturbed")
    assert start(undisturbed, die_at=0) == 0
    moment, code = 0, -signal.SIGKILL
    while code != 0:
        moment += 1
        killed = token_config(tmp_path, f"killed {moment}")
        code = start(killed, die_at=moment)
        assert start(killed, die_at=0) == 0
        assert contents(killed.out) == contents(undisturbed.out)
    assert moment > 20


def test_text_with_a_trained_bpe_survives_too(tmp_path: Path) -> None:
    """The tokenizer is trained in two processes (killed before it was kept) and comes out the same."""
    source = as_jsonl(tmp_path / "a.jsonl", some_documents())
    undisturbed, killed = (
        PrepareConfig(inputs=(str(source),), out=tmp_path / out, train_bpe=400, shard_tokens=1000)
        for out in ("undisturbed", "killed")
    )
    assert start(undisturbed, die_at=0) == 0
    survive(killed, [3, 14])
    assert contents(killed.out) == contents(undisturbed.out)


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    config = token_config(tmp_path, "c")
    limited = """
import resource, sys
from etastar.train import prepare as room, prepare_pass, prepare_pieces, prepare_writer
from etastar.errors import EtastarError
prepare_pass._GROUP, prepare_pieces._PIECE, prepare_writer._BUFFER = 300, 128, 200
resource.setrlimit(resource.RLIMIT_FSIZE, (1200, 1200))
try:
    room.prepare(room.PrepareConfig.model_validate_json(sys.argv[1]), commit_seconds=0.0)
except EtastarError as error:
    print(error); sys.exit(2)
"""
    done = subprocess.run(
        [sys.executable, "-c", limited, config.model_dump_json()], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "train-00000.u16 cannot be written: File too large" in done.stdout
    prepare(config)
    undisturbed = token_config(tmp_path, "undisturbed")
    prepare(undisturbed)
    assert contents(config.out) == contents(undisturbed.out)


def test_a_second_call_finds_it_made_and_other_settings_are_refused(tmp_path: Path) -> None:
    config = token_config(tmp_path, "c")
    first = prepare(config)
    before = contents(config.out)
    assert prepare(config).identity == first.identity
    with pytest.raises(InputError, match="already holds a corpus of other inputs"):
        prepare(config.model_copy(update={"validation_every": 5}))
    assert contents(config.out) == before


def test_a_second_start_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = token_config(tmp_path, "c")
    assert start(config, die_at=12) == -signal.SIGKILL
    reached = json.loads((config.out / "unfinished.json").read_text())["documents"]
    assert reached > 0
    prepare(config, progress=PlainProgress())
    assert capsys.readouterr().err == f"going on after {reached} documents\n"


def test_an_unfinished_corpus_of_other_inputs_is_refused(tmp_path: Path) -> None:
    config = token_config(tmp_path, "c")
    assert start(config, die_at=9) == -signal.SIGKILL
    before = contents(config.out)
    with pytest.raises(InputError, match="unfinished corpus of other inputs"):
        prepare(config.model_copy(update={"shard_tokens": 100}))
    assert contents(config.out) == before


def test_two_preparations_of_one_folder_exclude_each_other(tmp_path: Path) -> None:
    config = token_config(tmp_path, "c")
    with locked(config.out, wait=False), pytest.raises(InputError, match="by another process"):
        prepare(config)
    prepare(config)


def test_a_foreign_folder_is_not_touched(tmp_path: Path) -> None:
    config = token_config(tmp_path, "c")
    config.out.mkdir()
    (config.out / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match=r"not empty: it holds thesis\.tex"):
        prepare(config)
    assert contents(config.out) == {"thesis.tex": b"precious"}


# --- the command line ---------------------------------------------------------------------------


@pytest.fixture
def bad_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    documents = some_documents(5)
    as_jsonl(tmp_path / "good.jsonl", documents)
    as_jsonl(tmp_path / "body.jsonl", documents, column="body")
    as_parquet(tmp_path / "good.parquet", documents)
    as_text(tmp_path / "one", documents[:1])
    (tmp_path / "broken.jsonl").write_text('{"text": "fine"}\n{"text": ')
    (tmp_path / "list.jsonl").write_text("[1, 2]\n")
    (tmp_path / "number.jsonl").write_text('{"text": 5}\n')
    (tmp_path / "latin.txt").write_bytes("déjà".encode("latin-1"))
    (tmp_path / "half.parquet").write_bytes((tmp_path / "good.parquet").read_bytes()[:-20])
    (tmp_path / "picture.png").write_bytes(b"png")
    (tmp_path / "empty").mkdir()
    write_tokens(tmp_path / "good.u16", some_tokens(1000))
    write_tokens(tmp_path / "half.u16.xz", some_tokens(1000))
    packed = (tmp_path / "half.u16.xz").read_bytes()
    (tmp_path / "half.u16.xz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "odd.u16").write_bytes(b"\0\0\1")
    (tmp_path / "no.json").write_text("{}")
    (tmp_path / "strange.json").write_text('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["x", "y"]]}}')
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        ("nowhere.txt", "nowhere.txt is neither a file nor a folder", "check the path"),
        ("HuggingFaceFW/fineweb", "neither a file nor a folder", "write hf:HuggingFaceFW/fineweb"),
        ("picture.png", "picture.png: unknown kind of file", ".parquet"),
        ("empty", "empty holds no readable files", ".jsonl"),
        ("body.jsonl --train-bpe 300", "body.jsonl, line 1: no column 'text'", "there are id, body"),
        ("good.parquet --train-bpe 300 --column body", "no column 'body'", "there are id, text"),
        ("broken.jsonl --train-bpe 300", "broken.jsonl, line 2: not JSON", "one JSON object a line"),
        ("list.jsonl --train-bpe 300", "list.jsonl, line 1: not a JSON object", "one JSON object"),
        ("number.jsonl --train-bpe 300", "column 'text' holds int, expected text", "--column"),
        ("latin.txt --train-bpe 300", "latin.txt, line 1: not UTF-8", "UTF-8"),
        ("half.parquet --train-bpe 300", "half.parquet cannot be read", "whole Parquet"),
        ("half.u16.xz --vocab 500", "half.u16.xz cannot be unpacked", "fetch it again"),
        ("odd.u16 --vocab 500", "odd.u16 ends inside a token", "truncated"),
        ("good.u16", "vocabulary of the token files is not known", "--vocab N"),
        ("good.u16 --vocab 300", "vocabulary is 300", "--tokenizer"),
        ("good.u16 --vocab 500 --document-start 500", "outside the vocabulary of 500", "id of a token"),
        ("good.u16 --train-bpe 300", "--train-bpe needs text", "--vocab N"),
        ("good.u16 good.jsonl", "cannot be mixed", "one or the other"),
        ("good.jsonl --train-bpe 300 --tokenizer gpt2", "exclude each other", "one of them"),
        ("good.jsonl --train-bpe 12", "--train-bpe 12 is below 257", "256 bytes"),
        ("good.jsonl --train-bpe many", "--train-bpe: cannot read 'many'", "write 707M"),
        ("good.jsonl --train-bpe 300 --max-tokens 0", "--max-tokens 0", "--help"),
        ("good.jsonl --train-bpe 300 --validation-every 1", "--validation-every 1", "--help"),
        ("good.jsonl --tokenizer no.json", "no.json is not a tokenizer.json", "tokenizers"),
        ("good.jsonl --tokenizer gone.json", "gone.json is not a file", "gpt2"),
        ("good.jsonl --tokenizer strange.json --document-start 0", "strange.json cannot be used", "valid"),
        ("good.jsonl --tokenizer strange.json", "strange.json has none of the tokens", "--document-start"),
        ("one --train-bpe 300", "leave no validation tokens", "--separator"),
    ],
)
def test_bad_input_is_one_line_and_a_hint(bad_inputs: Path, arguments: str, message: str, hint: str) -> None:
    before = {path.name for path in bad_inputs.iterdir()}
    result = CliRunner().invoke(data_app, ["prepare", *arguments.split(), "--out", "corpus"])
    assert result.exit_code == 2
    error, hinted = [line for line in result.stderr.splitlines() if not line.startswith("training a BPE")][-2:]
    assert error.startswith("error: ")
    assert message in error
    assert hinted.startswith("hint: ")
    assert hint in hinted
    assert {path.name for path in bad_inputs.iterdir()} == before, "nothing half-written"


def test_prepare_then_info_on_the_command_line(bad_inputs: Path) -> None:
    runner = CliRunner()
    made = runner.invoke(data_app, ["prepare", "good.jsonl", "--train-bpe", "300", "--out", "corpus"])
    assert made.exit_code == 0, made.stderr
    identity = Corpus.open("corpus").identity
    assert identity in made.stdout
    shown = runner.invoke(data_app, ["info", "corpus", "--verify"])
    assert shown.exit_code == 0
    assert identity in shown.stdout
    assert "every shard matches its sha256" in shown.stdout
    shard = bad_inputs / "corpus" / "train-00000.u16"
    raw = bytearray(shard.read_bytes())
    raw[5] ^= 1
    shard.write_bytes(raw)
    assert runner.invoke(data_app, ["info", "corpus"]).exit_code == 0
    damaged = runner.invoke(data_app, ["info", "corpus", "--verify"])
    assert damaged.exit_code == 2
    assert "train-00000.u16 has changed" in damaged.stderr
    shard.write_bytes(raw[:-1])
    truncated = runner.invoke(data_app, ["info", "corpus"])
    assert truncated.exit_code == 2
    assert truncated.stderr.startswith(f"error: corpus corpus is damaged: train-00000.u16 has {len(raw) - 1} bytes")


def test_the_module_does_the_same_without_typer(bad_inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bad_inputs / "lines.txt").write_text("\n\n".join(some_documents(6)))
    arguments = ["lines.txt", "--separator", r"\n\n", "--train-bpe", "300", "--out", "corpus"]
    assert main(arguments) == 0
    assert Corpus.open("corpus").identity in capsys.readouterr().out
    assert read_manifest(Path("corpus")).documents == 6
    assert main(["good.u16", "--out", "other"]) == 2
    assert capsys.readouterr().err.startswith("error: the vocabulary of the token files is not known\nhint: ")


def test_the_hub_out_of_reach_is_one_line(bad_inputs: Path) -> None:
    source = str(Path(etastar.__file__).parents[1])
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(bad_inputs / "hub"), "PYTHONPATH": source}
    command = [sys.executable, "-m", "etastar.train.prepare", "good.jsonl", "--out", "corpus"]
    done = subprocess.run(command, env=offline, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "tokenizer 'gpt2' cannot be fetched from the Hugging Face hub" in done.stderr
    assert "hint: give a tokenizer.json with --tokenizer FILE, or train one with --train-bpe" in done.stderr
    assert "Traceback" not in done.stderr


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
