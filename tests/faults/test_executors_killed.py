"""Do whole launches survive the death of any of their processes? What bench/faults_launch.py does, counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from counts import SEED, Table, counted

ROOT = Path(__file__).parents[2]


def _strike(strikes: int, *arguments: str) -> tuple[int, dict[str, Any]]:
    script = str(ROOT / "bench" / "faults_launch.py")
    command = [sys.executable, script, "--strikes-in-all", str(strikes), "--seed", str(SEED), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    print(done.stdout[-8000:], done.stderr[-2000:])
    found = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert found, "no counts"
    return done.returncode, json.loads(found[-1])


@pytest.mark.faults
def test_launchers_may_be_killed() -> None:
    strikes = counted("launchers", full=200, quick=0, is_full=True)
    goal = "the launcher killed 200 times: no task given out twice, no process left, the same store"
    with Table(6, "Executors, the launcher", goal=goal, is_full=True) as table:
        code, found = _strike(strikes, "--on", "local", "--only", "kill-launcher", "--strikes", "6")
        table.add(launchers_killed=found["faults"]["kill-launcher"], studies=found["studies"],
                  differing=found["differing"])  # fmt: skip
        assert code == 0
        assert found["faults"]["kill-launcher"] >= strikes


@pytest.mark.faults
def test_launches_survive_every_fault() -> None:
    strikes = counted("launches", full=100, quick=0, is_full=True)
    executors = os.environ.get("ETASTAR_FAULTS_ON", "local,inline,ray,slurm")
    goal = "identical stores under SIGTERM, SIGUSR2, kill, double launch, double requeue on local, Ray and Slurm"
    with Table(6, "Executors, every fault", goal=goal, is_full=True) as table:
        code, found = _strike(strikes, "--on", executors)
        table.add(**found["faults"])
        table.add(**{f"on {name}": count for name, count in found["executors"].items()})
        table.add(studies=found["studies"], differing=found["differing"])
        assert code == 0
        assert sum(found["faults"].values()) >= strikes
