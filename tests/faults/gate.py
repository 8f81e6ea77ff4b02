"""Run tests with a bug planted: a process with everything imported that forks one pytest a line.

A line of standard input is JSON: the mutant's name (or null, for the suites as they are) and the test. Answers the
exit code of pytest.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "train")]
torch.set_num_threads(1)

import jobs  # noqa: E402, F401 (loads the engine before the forks)
import mutants  # noqa: E402


def child(name: str | None, test: str) -> None:
    """Plant, test, end; never returns."""
    code = 99
    try:
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        if name is not None:
            mutants.MUTANTS[name].plant()
            os.environ["ETASTAR_MUTANT"] = name
        with tempfile.TemporaryDirectory() as out:
            os.environ["ETASTAR_FAULTS_OUT"] = out
            chosen = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "--basetemp", f"{out}/tests"]
            code = int(pytest.main([*chosen, "-m", "faults or not faults", str(HERE.parents[1] / test)]))
    finally:
        os._exit(code)


def main() -> None:
    """Serve until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    answers.write("ready\n")
    for line in sys.stdin:
        name, test = json.loads(line)
        pid = os.fork()
        if pid == 0:
            child(name, test)
        answers.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n")


if __name__ == "__main__":
    main()
