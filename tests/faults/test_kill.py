"""Does a kill -9 at any instant of a trunk or a branch cost a bit, a row, or the run?"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from counts import SEED, Table, counted
from layer import KILL_AFTER, KILL_BEFORE, Server, Servers
from tiny import differences

from etastar.store.verify import verify_files

WAYS = ("one_stack", "in_pieces")


def _kill_through(server: Server, folder: Path, reference: Path, seed: int, kills: int) -> dict[str, int]:
    """Studies that are killed over and over until they are done; half the kills at a moment, half at a file call."""
    rng = random.Random(seed)
    seen: dict[str, int] = dict.fromkeys(("kills", "studies", "at a file call", "wrong", "stuck", "left over"), 0)
    span, calls = {}, {}
    for way in WAYS:
        done = server.ask(way, watch=folder / "timed", study=str(folder / f"timed-{way}"))
        span[way], calls[way] = done["seconds"], max(done["calls"], 1)
    while seen["kills"] < kills:
        study, way = folder / f"study{seen['studies']}", rng.choice(WAYS)
        seen["studies"] += 1
        code = -9
        for _ in range(200):
            if seen["kills"] < kills and rng.random() < 0.5:
                at = (rng.randrange(calls[way]), rng.choice((KILL_BEFORE, KILL_AFTER)), 0, 0)
                code = server.ask(way, watch=study, strike=at, study=str(study))["code"]
                seen["at a file call"] += code == -9
            else:
                after = rng.uniform(0, span[way]) if seen["kills"] < kills else None
                code = server.ask(way, kill_after=after, study=str(study))["code"]
            if code != -9:
                break
            seen["kills"] += 1
        said = [f"ended with {code}"] if code else differences(study, reference)
        said += [str(problem) for problem in verify_files(study) if problem.wrong]
        # a claim's own leftover is a minute's matter: a younger one may be in use
        left = [p for p in study.rglob(".*") if p.is_file() and ".lease-" not in p.name] if not said else []
        if said or left:
            print(f"seed {seed}, study {study}: {said} {left}")
        seen["stuck"] += code != 0
        seen["wrong"] += bool(said)
        seen["left over"] += len(left)
        if not said:
            shutil.rmtree(study)
    return seen


def test_kill_9_costs_nothing(servers: Servers, reference: Path, tmp_path: Path, full: bool) -> None:
    kills = counted("kills", full=2000, quick=12, is_full=full)
    share = 25 if full else kills
    rounds = range(-(-kills // share))
    with Table(1, "Kill -9", goal="2,000 kills: same bits, no row lost or twice", is_full=full) as table:
        folders = [tmp_path / str(k) for k in rounds]
        found = servers.map(
            lambda server, k: _kill_through(server, folders[k], reference, SEED * 10_000 + k, share), rounds
        )
        total = {name: sum(one.get(name, 0) for one in found) for name in found[0]}
        table.add(**total)
        assert total["kills"] >= kills
        assert total["at a file call"] > 0
        assert total["wrong"] == total["stuck"] == 0
        assert total["left over"] == 0
