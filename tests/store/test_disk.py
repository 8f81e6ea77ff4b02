"""Is what fails told in words, and does nothing that failed spoil what comes after?"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from etastar.errors import InputError
from etastar.store import Journal, acquire, read_events, write_atomically
from etastar.store.disk import make_folder
from etastar.store.verify import verify_files


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot be written"):
        write_atomically(tmp_path / "file" / "below" / "a", lambda path: path.write_text("y") and None)
    with pytest.raises(InputError, match="cannot be written"):
        Journal(tmp_path / "file", writer="w").write("tick")


def test_every_new_folder_is_synced_in_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), sync(fd))[1])
    make_folder(tmp_path)
    synced.clear()
    make_folder(tmp_path / "a" / "b" / "c")
    assert synced == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")]


def test_a_folder_of_one_that_was_killed_is_synced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have died between the making and the sync."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    synced: list[str] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), sync(fd))[1])
    make_folder(tmp_path / "a" / "b")
    assert synced[-2:] == [str(tmp_path), str(tmp_path / "a")]
    synced.clear()
    make_folder(tmp_path / "a" / "b")
    assert synced == []
    (tmp_path / "a" / "b").rename(tmp_path / "old")
    (tmp_path / "a" / "b").mkdir()  # another one of the same name
    make_folder(tmp_path / "a" / "b")
    assert synced == [str(tmp_path / "a")]


def test_a_write_that_comes_short_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
    journal = Journal(tmp_path, writer="w")
    for index in range(3):
        journal.write("tick", index=index)
    journal.close()
    assert [event["index"] for event in read_events(tmp_path)] == [0, 1, 2]


def test_a_flipped_digit_in_a_line_is_not_believed(tmp_path: Path) -> None:
    journal = Journal(tmp_path, writer="w")
    journal.write("evaluated", loss=3.25)
    journal.write("evaluated", loss=4.5)
    journal.close()
    journal.path.write_bytes(journal.path.read_bytes().replace(b"3.25", b"3.75"))
    with pytest.warns(UserWarning, match="line 1 is not JSON or not what was written"):
        assert [event["loss"] for event in read_events(tmp_path)] == [4.5]
    assert [problem.wrong for problem in verify_files(tmp_path)] == [True]


def test_lines_without_a_checksum_are_read(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "old.jsonl").write_text(json.dumps({"time": 1.0, "event": "tick"}) + "\n")
    assert read_events(tmp_path) == [{"time": 1.0, "event": "tick"}]


def test_what_a_killed_taker_left_goes_once_it_is_old(tmp_path: Path) -> None:
    old, young = tmp_path / ".trunk.lease-000001.aa.tmp", tmp_path / ".trunk.lease-000001.bb.tmp"
    for path in (old, young):
        path.write_text("{}")
    then = time.time() - 1000
    os.utime(old, (then, then))
    acquire(tmp_path, "trunk").release()
    assert not old.exists()
    assert young.exists()
