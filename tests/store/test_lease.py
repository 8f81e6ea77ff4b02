"""Does one process at a time hold a claim, and is a dead one's claim taken over?"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from etastar.store import HeldError, LostError, acquire, holder
from etastar.store import lease as lease_module


def test_a_claim_is_held_by_one(tmp_path: Path) -> None:
    lease = acquire(tmp_path, "trunk")
    with pytest.raises(HeldError, match=f"process {os.getpid()} on"):
        acquire(tmp_path, "trunk")
    acquire(tmp_path, "branch").release()  # another name is another claim
    said = holder(tmp_path, "trunk")
    assert said is not None
    assert said["pid"] == os.getpid()
    lease.release()
    assert holder(tmp_path, "trunk") is None
    acquire(tmp_path, "trunk").release()
    assert [p.name for p in tmp_path.glob("trunk*")] == ["trunk.lease-000002"]


def _hold(folder: Path, ready: object) -> None:
    acquire(folder, "trunk")
    ready.set()  # type: ignore[attr-defined]
    time.sleep(60)


def test_a_killed_holder_on_this_machine_is_followed_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    child = context.Process(target=_hold, args=(tmp_path, ready))
    child.start()
    assert ready.wait(20)
    with pytest.raises(HeldError):
        acquire(tmp_path, "trunk")
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    lease = acquire(tmp_path, "trunk", wait=5)  # not yet waited for: it is a zombie
    child.join()
    lease.check()
    lease.release()


def test_a_process_number_that_another_has_now_is_no_holder(tmp_path: Path) -> None:
    lease = acquire(tmp_path, "trunk")
    content = json.loads(lease.path.read_text()) | {"born": "1"}
    lease.path.write_text(json.dumps(content))
    assert holder(tmp_path, "trunk") is None


def _foreign(folder: Path, age: float) -> Path:
    """A claim from another machine, last touched so many seconds ago."""
    lease = acquire(folder, "trunk")
    lease._stop.set()
    lease.path.write_text(json.dumps(lease.content | {"machine": "elsewhere", "host": "elsewhere"}))
    then = time.time() - age
    os.utime(lease.path, (then, then))
    return lease.path


def test_a_claim_from_elsewhere_holds_while_it_is_touched(tmp_path: Path) -> None:
    path = _foreign(tmp_path, age=lease_module.STALE_AFTER - 20)
    with pytest.raises(HeldError, match="on elsewhere"):
        acquire(tmp_path, "trunk")
    os.utime(path, (0, 0))
    mine = acquire(tmp_path, "trunk")
    assert mine.generation == 2
    assert not path.exists()
    mine.release()


def test_an_owner_that_comes_back_notices(tmp_path: Path) -> None:
    first = acquire(tmp_path, "trunk")
    first._stop.set()
    first.path.write_text(json.dumps(first.content | {"machine": "elsewhere"}))
    os.utime(first.path, (0, 0))
    second = acquire(tmp_path, "trunk")
    second.check()
    with pytest.raises(LostError, match="took over"):
        first.check()
    second.release()


def _race(folder: Path, gate: object, won: object) -> None:
    gate.wait()  # type: ignore[attr-defined]
    try:
        lease = acquire(folder, "trunk")
    except HeldError:
        return
    with won.get_lock():  # type: ignore[attr-defined]
        won.value += 1  # type: ignore[attr-defined]
    time.sleep(1.0)
    lease.check()


@pytest.mark.parametrize("stale", [False, True])
def test_of_many_takers_one_wins(tmp_path: Path, stale: bool) -> None:
    if stale:
        _foreign(tmp_path, age=1e6)
    context = multiprocessing.get_context("fork")
    gate, won = context.Event(), context.Value("i", 0)
    racers = [context.Process(target=_race, args=(tmp_path, gate, won)) for _ in range(8)]
    for racer in racers:
        racer.start()
    gate.set()
    for racer in racers:
        racer.join()
    assert won.value == 1
    assert all(racer.exitcode == 0 for racer in racers)


def test_damaged_claim_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "trunk.lease-000004").write_text("{half")
    lease = acquire(tmp_path, "trunk")
    assert lease.generation == 5
    lease.release()
