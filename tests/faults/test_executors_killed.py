"""Do whole launches survive the death of any of their processes? What bench/faults_launch.py does, counted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from counts import SEED, Table, counted

ROOT = Path(__file__).parents[2]


@pytest.mark.faults
def test_launches_survive_kills() -> None:
    rounds = counted("launches", full=20, quick=0, is_full=True)
    executors = os.environ.get("ETASTAR_FAULTS_ON", "local,inline")
    goal = "identical stores on local, Ray and Slurm; the launcher killed 200 times"
    with Table(6, "Executors", goal=goal, is_full=True) as table:
        command = [
            sys.executable,
            str(ROOT / "bench" / "faults_launch.py"),
            "--rounds",
            str(rounds),
            "--seed",
            str(SEED),
        ]
        done = subprocess.run([*command, "--on", executors], capture_output=True, text=True, check=False, cwd=ROOT)
        print(done.stdout[-6000:], done.stderr[-2000:])
        last = re.search(r"(\d+) kills, (\d+) studies equal to the undisturbed one, (\d+) not", done.stdout)
        assert last is not None
        launchers = len(re.findall(r"  launcher  ", done.stdout))
        table.add(executors=executors, kills=int(last[1]), equal=int(last[2]), differing=int(last[3]),
                  of_these_the_launcher=launchers)  # fmt: skip
        assert done.returncode == 0
        assert int(last[1]) >= rounds
