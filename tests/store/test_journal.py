"""Do two writers at once lose nothing, and is a torn line harmless?"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from etastar.store import Journal, read_events
from etastar.store.verify import verify_files


def _write(folder: Path, writer: int, count: int) -> None:
    journal = Journal(folder, writer="w")
    for index in range(count):
        journal.write("tick", writer=writer, index=index)


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(tmp_path, k, 50)) for k in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    seen = [(event["writer"], event["index"]) for event in read_events(tmp_path)]
    assert sorted(seen) == [(k, index) for k in range(4) for index in range(50)]
    assert len(list((tmp_path / "journal").iterdir())) == 4


def test_a_killed_writer_loses_no_line_that_was_written(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writer = context.Process(target=_write, args=(tmp_path, 0, 10**6))
    writer.start()
    while not list(tmp_path.rglob("*.jsonl")):
        time.sleep(0.01)
    time.sleep(0.2)
    assert writer.pid is not None
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    indexes = [event["index"] for event in read_events(tmp_path)]
    assert indexes == list(range(len(indexes)))
    assert len(indexes) > 0


def test_torn_and_damaged_lines(tmp_path: Path) -> None:
    journal = Journal(tmp_path, writer="w")
    for index in range(3):
        journal.write("tick", index=index)
    journal.close()
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole[:-5])
    assert [event["index"] for event in read_events(tmp_path)] == [0, 1]  # silently
    (note,) = verify_files(tmp_path)
    assert not note.wrong
    lines = whole.split(b"\n")
    journal.path.write_bytes(b"\n".join([lines[0], b"{nonsense", *lines[2:]]))
    with pytest.warns(UserWarning, match="line 2 is not JSON"):
        assert [event["index"] for event in read_events(tmp_path)] == [0, 2]
    (problem,) = verify_files(tmp_path)
    assert problem.wrong
    assert "line 2" in problem.what


def test_what_json_has_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        Journal(tmp_path, writer="w").write("tick", loss=float("nan"))
