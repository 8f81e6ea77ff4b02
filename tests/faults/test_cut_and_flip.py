"""Is a file that was cut or has a flipped bit seen as such, and is everything else still read?"""

from __future__ import annotations

import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from counts import SEED, Table, counted
from layer import KILL_BEFORE, Server, Servers
from tiny import tables

from etastar.errors import EtastarError
from etastar.launch.check import verify_plan
from etastar.launch.study import open_study, read_record
from etastar.store import Journal, read_events
from etastar.store.journal import BadLine, scan_lines
from etastar.store.parts import read_part
from etastar.train.checkpoint import CheckpointFolder

LAST = 4096  # a file is cut at every offset of its last so many bytes
Verdict = str  # "same", "named", or what is wrong


def _named(work: Callable[[], Any]) -> tuple[Any, bool]:
    """A result, and whether a warning was given on the way."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        return work(), bool(said)


def _part(path: Path) -> Callable[[], Verdict]:
    whole = read_part(path)
    assert whole is not None

    def look() -> Verdict:
        found, named = _named(lambda: read_part(path))
        if found is None:
            return "named" if named else "left out in silence"
        return "same" if found.equals(whole) else "other values were believed"

    return look


def _checkpoint(path: Path) -> Callable[[], Verdict]:
    folder = CheckpointFolder(path.parent, stack_id=path.parent.name)
    (mark,) = (mark for mark in folder.marks() if mark.file == path.name)
    whole = folder.load(mark)
    assert whole

    def look() -> Verdict:
        found, named = _named(lambda: folder.load(mark))
        if found is None:
            return "named" if named else "left out in silence"
        same = found.keys() == whole.keys() and all(torch.equal(found[name], whole[name]) for name in whole)
        return "same" if same else "other tensors were believed"

    return look


def _journal(path: Path) -> Callable[[], Verdict]:
    study = path.parents[1]
    whole = read_events(study)
    lines = path.read_bytes().split(b"\n")

    def look() -> Verdict:
        now = path.read_bytes().split(b"\n")
        events, named = _named(lambda: read_events(study))
        if any(event not in whole for event in events):
            return "another event was believed"
        # a line that is as it was must be read, whatever stands before it; a joined pair counts as two damaged ones
        untouched = sum(line in lines and bool(line) for line in now)
        if len(events) < untouched:
            return "an undamaged line is hidden"
        if len(events) == len(whole):
            return "same"
        torn = [bad for bad in scan_lines(path) if isinstance(bad, BadLine)]
        cut = len(now) <= len(lines) and not torn  # cut between two lines: nothing is left to name
        return "named" if named or torn or cut else "left out in silence"

    return look


def _plan(path: Path) -> Callable[[], Verdict]:
    study = path.parent
    whole = open_study(study).plan

    def look() -> Verdict:
        named = any(problem.file == "plan.yaml" for problem in verify_plan(study))
        try:
            same = open_study(study).plan == whole
        except EtastarError:
            return "named"
        return "named" if named else ("same" if same else "another plan was believed")

    return look


def _record(path: Path) -> Callable[[], Verdict]:
    study, whole = path.parents[1], read_record(path.parents[1], path.stem)

    def look() -> Verdict:
        try:
            found = read_record(study, path.stem)
        except EtastarError as error:
            return "named" if path.name in str(error) else f"an error that does not name it: {error}"
        keep = {"data_identity": ""}
        same = found.spec.trunk_content(**keep) == whole.spec.trunk_content(**keep) and found.spec.lrs == whole.spec.lrs
        return "same" if same else "another specification was believed"

    return look


KINDS: dict[str, tuple[str, Callable[[Path], Callable[[], Verdict]]]] = {
    "journal": ("journal/*.jsonl", _journal),
    "plan": ("plan.yaml", _plan),
    "specification": ("specs/*.yaml", _record),
    "runs part": ("runs/*.parquet", _part),
    "trajectories part": ("trajectories/*.parquet", _part),
    "checkpoint": ("checkpoints/*/*.safetensors", _checkpoint),
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_damage_is_named_and_never_believed(swept: Path, tmp_path: Path, kind: str, full: bool) -> None:
    flips = counted("flips", full=10_000, quick=60, is_full=full)
    flips = -(-flips // len(KINDS)) if full else flips
    cuts = counted("cuts", full=LAST, quick=25, is_full=full)
    study = tmp_path / "study"
    shutil.copytree(swept, study)
    pattern, looker = KINDS[kind]
    path = max(study.glob(pattern), key=lambda p: p.stat().st_size)
    if kind == "journal":  # long enough to have 4 kB
        path = _long_journal(study)
    content, look, rng = path.read_bytes(), looker(path), random.Random(f"{SEED} {kind}")
    seen = {"cuts": 0, "flips": 0, "named": 0, "same": 0}
    wrong: list[str] = []

    def judge(what: str, damaged: bytes) -> None:
        path.write_bytes(damaged)
        verdict = look()
        seen[what] += 1
        if verdict in ("named", "same"):
            seen[verdict] += 1
        else:
            wrong.append(f"{what}: {verdict} ({len(damaged)} bytes)")

    with Table(
        4, f"Truncate and flip, {kind}", goal="every offset of the last 4 kB; 10,000 flips", is_full=full
    ) as table:
        assert look() == "same"
        offsets = range(max(len(content) - LAST, 0), len(content))
        for length in offsets if cuts >= len(offsets) else rng.sample(offsets, cuts):
            judge("cuts", content[:length])
        for _ in range(flips):
            place = rng.randrange(len(content))
            judge("flips", content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :])
        table.add(**seen, wrong=len(wrong))
        assert not wrong, "\n".join(wrong[:8])
        assert seen["named"] > 0


def _long_journal(study: Path) -> Path:
    journal = Journal(study, writer="long")
    for index in range(60):
        journal.write("tick", index=index, text='ä quoted " text', value=index / 7)
    journal.close()
    return journal.path


def _damage_and_go_on(server: Server, folder: Path, reference: Path, seed: int) -> list[str]:
    """Kill a training somewhere, spoil one of its files, start it again."""
    rng, study = random.Random(seed), folder / str(seed)
    server.ask("one_stack", watch=study, strike=(rng.randrange(150, 600), KILL_BEFORE, 0, 0), study=str(study))
    files = sorted([*study.glob("checkpoints/*/*.safetensors"), *study.glob("runs/*.parquet")])
    if not files:
        return ["nothing to spoil"]
    victim = rng.choice(files)
    content = bytearray(victim.read_bytes())
    if rng.random() < 0.5:
        del content[rng.randrange(len(content)) :]
    else:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    victim.write_bytes(content)
    done = server.ask("one_stack", study=str(study))
    if done["code"]:
        return [f"{victim.name}: ended with {done['code']}: {done.get('error')}"]
    same = tables(study)[0].equals(tables(reference)[0])
    shutil.rmtree(study)
    return [] if same else [f"{victim.name}: other rows"]


def test_the_last_good_state_is_used(servers: Servers, reference: Path, tmp_path: Path, full: bool) -> None:
    count = counted("spoilt", full=200, quick=4, is_full=full)
    with Table(4, "Truncate and flip, then go on", goal="the previous good state is used", is_full=full) as table:
        seeds = range(SEED * 100_000, SEED * 100_000 + count)
        found = servers.map(lambda server, seed: _damage_and_go_on(server, tmp_path, reference, seed), seeds)
        wrong = [said for one in found for said in one if said != "nothing to spoil"]
        spoilt = sum(one != ["nothing to spoil"] for one in found)
        table.add(studies=len(found), files_spoilt=spoilt, wrong=len(wrong))
        assert not wrong, "\n".join(wrong[:5])
        assert spoilt > 0
