"""Does a preparation that was killed, or ran out of disk, go on to the same bytes?"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from corpora import as_jsonl, contents, some_documents, some_tokens, write_tokens

from etastar.errors import InputError
from etastar.train.data import Corpus
from etastar.train.prepare import PrepareConfig, prepare
from etastar.train.prepare_progress import PlainProgress
from etastar.train.prepare_writer import locked

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
