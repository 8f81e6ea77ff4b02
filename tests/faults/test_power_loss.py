"""Is what was acknowledged there after a power cut at any moment, whatever the disk had not yet been told to keep?"""

from __future__ import annotations

import hashlib
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from counts import SEED, Table, counted
from layer import KILL_BEFORE, Server, Servers
from power import Call, Disk, read_log


def _calls(server: Server, folder: Path, job: str, rng: random.Random, **arguments: Any) -> tuple[Path, list[Call]]:
    """The calls of a study that was killed once on its way and then went on to its end."""
    study, log = folder / "watched" / "study", folder / "log"
    study.parent.mkdir(parents=True)
    whole = server.ask(job, watch=folder / "count", study=str(folder / "count" / "study"), **arguments)
    assert whole["code"] == 0, whole
    strike = (rng.randrange(whole["calls"]), KILL_BEFORE, 0, 0)
    assert server.ask(job, watch=study.parent, log=log, strike=strike, study=str(study), **arguments)["code"] == -9
    assert server.ask(job, watch=study.parent, log=log, study=str(study), **arguments)["code"] == 0
    return study.parent, list(read_log(log))


def _states(root: Path, calls: list[Call], folder: Path, count: int, rng: random.Random) -> list[dict[str, Any]]:
    """Crash states at moments where something was at stake, each once."""
    disk = Disk(root)
    at_stake = []
    for index, call in enumerate(calls):
        disk.apply(call)
        if disk.unsafe():
            at_stake.append(index)
    # most calls are writes; the narrow places are around changes of names
    weights = [1 if calls[index].op == "write" else 12 for index in at_stake]
    wanted = sorted(rng.choices(at_stake, weights, k=count))
    disk, found, seen = Disk(root), [], set()
    for index, call in enumerate(calls):
        disk.apply(call)
        while wanted and wanted[0] == index:
            wanted.pop(0)
            into = folder / f"state{len(found)}"
            disk.cut(into, rng)
            print_of = _fingerprint(into)
            if (print_of, len(disk.acknowledged)) in seen:
                shutil.rmtree(into)
                continue
            seen.add((print_of, len(disk.acknowledged)))
            found.append({"folder": into, "acknowledged": list(disk.acknowledged), "at": index})
    return found


def _fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(str(path.relative_to(folder)).encode() + (path.read_bytes() if path.is_file() else b"/"))
    return digest.hexdigest()


@pytest.mark.parametrize("job", ["one_stack", "in_pieces", "journal", "rewrite"])
def test_no_acknowledged_row_is_lost(servers: Servers, reference: Path, tmp_path: Path, job: str, full: bool) -> None:
    states = counted("states", full=5000, quick=24, is_full=full)
    share = states // {"one_stack": 2, "in_pieces": 4, "journal": 8, "rewrite": 8}[job]
    if full and job in ("journal", "rewrite"):
        share = max(share, 200)  # cheap, and the narrow places are few
    arguments: dict[str, Any] = {"journal": {"events": 12}, "rewrite": {"versions": 5}}.get(job, {})
    with Table(2, f"Power loss, {job}", goal="5,000 crash states in all", is_full=full) as table:
        wrong: list[str] = []
        done = at_stake = studies = acknowledged = 0
        while done < share:
            rng = random.Random(f"{SEED} {job} {studies}")
            folder = tmp_path / str(studies)
            studies += 1
            with servers.one() as server:
                root, calls = _calls(server, folder, job, rng, **arguments)
            found = _states(root, calls, folder, min(share - done, 250), rng)
            at_stake += len(calls)

            def judge(server: Server, state: dict[str, Any]) -> list[str]:
                study = state["folder"] / "study"
                if not study.is_dir() and not state["acknowledged"]:
                    study.mkdir()
                given: dict[str, Any] = {"study": str(study), "acknowledged": state["acknowledged"]}
                if job == "rewrite":
                    said = server.ask("judge_version", **given)
                else:
                    resume = "" if job == "journal" else job
                    said = server.ask("judge", reference=str(reference), resume=resume, **given)
                problems = said.get("wrong", []) if said["code"] == 0 else [said.get("error", str(said["code"]))]
                if not problems:
                    shutil.rmtree(state["folder"])
                return [f"{state['folder']}, cut at call {state['at']}: {problem}" for problem in problems]

            wrong += [said for one in servers.map(judge, found) for said in one]
            done += max(len(found), 1)
            acknowledged += sum(len(state["acknowledged"]) for state in found)
            shutil.rmtree(root)
        table.add(crash_states=done, studies=studies, file_calls=at_stake, acknowledgements=acknowledged,
                  lost_or_wrong=len(wrong))  # fmt: skip
        assert not wrong, "\n".join(wrong[:5])
        assert acknowledged > 0
