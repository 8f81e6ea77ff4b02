"""Is a bad input one line and a hint, and does the command line do what the function does?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from corpora import as_jsonl, as_parquet, as_text, some_documents, some_tokens, write_tokens
from typer.testing import CliRunner

import etastar
from etastar.cli.data import data_app
from etastar.train.corpus_shards import read_manifest
from etastar.train.data import Corpus
from etastar.train.prepare import main


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
