"""Would the suites notice? Thirty planted bugs, each of which must make its test fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from counts import OUT, Table
from layer import HERE, SOURCE
from mutants import MUTANTS, Mutant

from etastar.store import DamagedPartError, checked_part, write_runs

# what was caught is kept, so that a gate that was stopped goes on; a mutant or function that changes is planted again
KEPT = OUT / "gate" / "caught.json"
COUNTS = {"STATES": "400", "FLIPS": "600", "CUTS": "30", "KILLS": "20", "SERVERS": "1"}


def test_every_mutant_still_applies() -> None:
    assert len(MUTANTS) >= 30
    for name, mutant in MUTANTS.items():
        compile(mutant.source(), name, "exec")


def test_a_mutant_that_does_not_apply_is_an_error() -> None:
    with pytest.raises(LookupError, match="write it anew"):
        Mutant("etastar.store.disk:flush_folder", "no such words", "pass", "").source()


def test_a_part_is_checked_page_by_page(tmp_path: Path) -> None:
    """A flip in a page of data is seen by the page's own checksum, not only by the digest over all."""
    rows = [{"params": 1e6, "tokens": 1e7, "lr": 0.1 + k, "loss": k / 7, "run": f"r{k}"} for k in range(500)]
    path = write_runs(tmp_path, pa.Table.from_pylist(rows), "a")
    content, said = bytearray(path.read_bytes()), set()
    for place in range(200, 1500, 40):
        damaged = bytearray(content)
        damaged[place] ^= 4
        path.write_bytes(damaged)
        try:
            checked_part(path)
        except DamagedPartError as error:
            said.add(error.reason)
    assert any("CRC" in reason for reason in said), said


class Gate:
    """The process that plants."""

    def __init__(self) -> None:
        counts = {f"ETASTAR_FAULTS_{name}": value for name, value in COUNTS.items()}
        environment = {**os.environ, **counts, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "gate.py")], env=environment, cwd=HERE.parents[1],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def ends(self, name: str | None, test: str) -> int:
        """pytest's exit code: 0 passed, 1 failed."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, test]) + "\n")
        self._process.stdin.flush()
        return int(self._line())

    def close(self) -> None:
        """Let it go."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    found = Gate()
    yield found
    found.close()


@pytest.mark.faults
def test_the_suites_catch_every_planted_bug(gate: Gate) -> None:
    with Table(11, "Mutation gate", goal="30 of 30 planted bugs are caught", is_full=True) as table:
        chosen = os.environ.get("ETASTAR_FAULTS_MUTANTS")
        wanted = {name: m for name, m in MUTANTS.items() if not chosen or chosen in name}
        known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
        wanted_now = {name: m for name, m in wanted.items() if known.get(name) != m.fingerprint()}
        tests = sorted({mutant.caught_by for mutant in wanted_now.values()})
        broken = [test for test in tests if gate.ends(None, test) != 0]
        missed = []
        for name, mutant in wanted_now.items():
            code = gate.ends(name, mutant.caught_by)
            print(f"{name}: {'caught' if code == 1 else f'NOT CAUGHT ({code})'}", flush=True)
            if code == 1 and mutant.caught_by not in broken:
                known[name] = mutant.fingerprint()
                KEPT.parent.mkdir(parents=True, exist_ok=True)
                KEPT.write_text(json.dumps(known, indent=2))
            else:
                missed.append(name)
        table.add(planted=len(wanted), caught=len(wanted) - len(missed), missed=", ".join(missed) or "none",
                  tests_that_fail_without_a_bug=", ".join(broken) or "none")  # fmt: skip
        assert not broken
        assert not missed
