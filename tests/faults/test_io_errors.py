"""What if any single write, sync or rename of a sweep fails, comes short, or all do from then on?"""

from __future__ import annotations

import random
import shutil
import warnings
from pathlib import Path
from typing import Any

from counts import SEED, Table, counted
from layer import ERRORS, FAIL, SHORT, TORN, Server, Servers
from power import read_log
from tiny import differences

from etastar.store import read_events
from etastar.store.verify import verify_files

CHANGES = ("create", "write", "sync", "rename", "link", "unlink", "mkdir", "cut", "refused")
FAULTS: dict[str, tuple[int, int, int]] = {
    "ENOSPC": (FAIL, ERRORS["ENOSPC"], 0),
    "EIO": (FAIL, ERRORS["EIO"], 0),
    "short write": (SHORT, 0, 0),
    "torn write": (TORN, ERRORS["ENOSPC"], 0),
    "disk full for good": (FAIL, ERRORS["ENOSPC"], 1),
}


def _places(server: Server, folder: Path, count: int, rng: random.Random) -> tuple[Path, int, list[tuple[int, str]]]:
    """The undisturbed sweep, its calls, and call numbers with a fault each: half of them calls that are no writes.

    With a count that is large enough, every call with every fault that it can have.
    """
    log, study = folder / "log", folder / "counted" / "study"
    folder.mkdir()
    done = server.ask("sweep", watch=folder / "counted", log=log, study=str(study), seeds=1)
    assert done["code"] == 0, done
    kinds = [call.op for call in read_log(log) if call.op in CHANGES]
    assert len(kinds) == done["calls"]
    calls = [
        (k, fault)
        for k, op in enumerate(kinds)
        for fault in FAULTS
        if fault not in ("short write", "torn write") or op == "write"
    ]
    names = [place for place in calls if kinds[place[0]] != "write"]
    writes = [place for place in calls if kinds[place[0]] == "write"]
    rng.shuffle(names)
    rng.shuffle(writes)
    half = max(count // 2, count - len(writes))
    return study, len(kinds), names[:half] + writes[: count - min(half, len(names))]


def _strike(server: Server, folder: Path, swept: Path, place: tuple[int, str]) -> dict[str, Any]:
    call, fault = place
    kind, error, for_good = FAULTS[fault]
    root = folder / f"{call}-{fault.replace(' ', '-')}"
    study = root / "study"
    root.mkdir(parents=True)
    first = server.ask("sweep", watch=root, strike=(call, kind, error, for_good), study=str(study), seeds=1)
    said = []
    if first["code"] not in (0, 2):
        said.append(f"ended with {first['code']}: {first.get('error', '')[-600:]}")
    again = server.ask("sweep", study=str(study), seeds=1) if first["code"] or not first["finished"] else first
    if again["code"] or not again["finished"]:
        said.append(f"does not go on: {again}")
    else:
        said += differences(study, swept)
        said += [str(problem) for problem in verify_files(study) if problem.wrong]
    if not said:
        shutil.rmtree(root)
    whole = first["code"] == 0 and first["finished"]
    return {"said": [f"call {call}, {fault}: {one}" for one in said], "completed": whole}


def test_an_error_of_any_call_is_told_and_the_sweep_goes_on(servers: Servers, tmp_path: Path, full: bool) -> None:
    count = counted("io_errors", full=1_000_000, quick=8, is_full=full)
    rng = random.Random(SEED)
    goal = "every write, sync and rename of one small sweep, each with ENOSPC, EIO, a short write"
    with Table(3, "I/O errors", goal=goal, is_full=full) as table:
        with servers.one() as server:
            swept, calls, places = _places(server, tmp_path / "count", count, rng)
        found = servers.map(lambda server, place: _strike(server, tmp_path, swept, place), places)
        wrong = [said for one in found for said in one["said"]]
        completed = sum(one["completed"] for one in found)
        table.add(file_calls=calls, faults=len(found), completed_at_once=completed, ended_with_a_clean_error=len(found) - completed,
                  wrong=len(wrong))  # fmt: skip
        assert not wrong, "\n".join(wrong[:5])
        assert len(found) >= min(count, 3 * calls)


def test_a_line_that_failed_never_spoils_the_next(servers: Servers, tmp_path: Path, full: bool) -> None:
    """Every call of a journal of five lines, with every fault: exactly the acknowledged lines are read."""
    with Table(3, "I/O errors, journal", goal="every call, each fault", is_full=full) as table, servers.one() as server:
        whole = server.ask("stubborn_journal", watch=tmp_path / "whole", study=str(tmp_path / "whole"), events=5)
        assert whole["acknowledged"] == list(range(5))
        wrong, tried, failed = [], 0, 0
        single = {name: fault for name, fault in FAULTS.items() if not fault[2]}
        for call in range(whole["calls"]):
            for name, fault in single.items():
                study = tmp_path / f"{call}-{name.replace(' ', '-')}"
                done = server.ask("stubborn_journal", watch=study, strike=(call, *fault), study=str(study), events=5)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = {event["index"] for event in read_events(study)}
                tried += 1
                failed += len(done.get("acknowledged", [])) < 5
                if done["code"] or not set(done["acknowledged"]) <= found:
                    wrong.append(f"call {call}, {name}: {done}, read {sorted(found)}")
        table.add(faults=tried, lines_refused=failed, wrong=len(wrong))
        assert not wrong, "\n".join(wrong[:5])
        assert failed > 0
