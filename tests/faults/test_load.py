"""Does a large study go through fit and predict in bounded memory, and does the live page stay up when asked a lot?"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from counts import Table, counted
from layer import SOURCE

from etastar.report.serve import Live, make_server
from reported import small_section

# in a process of its own: its peak memory is what is measured
SCRIPT = """
import json, resource, sys, time
import numpy as np, pyarrow as pa
from pathlib import Path
from etastar.records import runs_table
from etastar.simulate import Grid, World, simulate
from etastar.store import write_runs, write_trajectories
study, runs, rows = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
began, made, table = time.monotonic(), 0, None
seed = 0
while made < runs:
    table = simulate(World(), Grid(), seed=seed)
    names = pa.array([f"s{seed}-{k}" for k in range(table.num_rows)])
    table = table.set_column(table.column_names.index("run"), "run", names)
    table = table.set_column(table.column_names.index("seed"), "seed", pa.array(np.full(table.num_rows, seed)))
    write_runs(study, table, f"part-{seed:05d}")
    made += table.num_rows
    seed += 1
rng = np.random.default_rng(0)
for part in range(-(-rows // 500_000)):
    n = min(500_000, rows - part * 500_000)
    columns = {"run": pa.array([f"s0-{part}"] * n), "step": np.arange(n), "eff_lr": rng.random(n)}
    write_trajectories(study, pa.table(columns), f"part-{part:05d}-0-{n}")
print(json.dumps({"runs": made, "seconds": time.monotonic() - began}))
"""
MEASURED = """
import json, resource, sys, time
from etastar.cli import main
began = time.monotonic()
try:
    main()
except SystemExit as ended:
    code = ended.code or 0
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print("@@" + json.dumps({"code": code, "seconds": time.monotonic() - began, "MB": peak}), file=sys.stderr)
"""


def _python(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin", "HOME": "/tmp"}
    return subprocess.run(
        [sys.executable, "-c", text, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
    )


def _command(*arguments: str) -> dict[str, float]:
    done = _python(MEASURED, *arguments)
    assert "@@" in done.stderr, done.stderr[-2000:]
    found = json.loads(done.stderr.rpartition("@@")[2])
    assert found["code"] == 0, done.stderr[-2000:]
    return found


@pytest.mark.faults
def test_a_large_study_in_bounded_memory(tmp_path: Path) -> None:
    runs = counted("runs", full=20_000, quick=0, is_full=True)
    rows = counted("trajectory_rows", full=2_000_000, quick=0, is_full=True)
    goal = "100,000 runs and 50M trajectory rows; under 4 GB; linear"
    with Table(10, "Load, large study", goal=goal, is_full=True) as table:
        sizes = {"a quarter": 4, "whole": 1}
        for name, share in sizes.items():
            study = tmp_path / name.replace(" ", "")
            made = _python(SCRIPT, str(study), str(runs // share), str(rows // share))
            assert made.returncode == 0, made.stderr[-2000:]
            table.add(**{f"runs, {name}": json.loads(made.stdout)["runs"], f"trajectory rows, {name}": rows // share})
            for verb in (("fit", str(study)), ("predict", str(study), "--params", "707M", "--tokens", "200B")):
                found = _command(*verb)
                table.add(
                    **{
                        f"{verb[0]} seconds, {name}": round(found["seconds"], 1),
                        f"{verb[0]} MB, {name}": round(found["MB"]),
                    }
                )
                assert found["MB"] < 4096


@contextmanager
def _serving() -> Iterator[int]:
    section = small_section()
    live = Live(stamp=lambda: 0, sections=lambda: [section], progress=lambda: None, every=3)
    server = make_server("127.0.0.1", 0)
    server.live = live
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    live.close()


def test_the_live_page_stays_up(full: bool) -> None:
    seconds = counted("serve_seconds", full=60, quick=2, is_full=full)
    rate = counted("serve_rate", full=200, quick=50, is_full=full)
    with Table(10, "Load, live page", goal="200 requests/s for a minute", is_full=full) as table, _serving() as port:
        lock, answered, failed, longest = threading.Lock(), [0], [0], [0.0]
        began = time.monotonic()

        def ask(worker: int, workers: int) -> None:
            for k in range(worker, rate * seconds, workers):
                time.sleep(max(began + k / rate - time.monotonic(), 0))
                start = time.monotonic()
                try:
                    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                    connection.request("GET", ("/status.json", "/data.json", "/")[k % 3])
                    good = connection.getresponse().status == 200
                    connection.close()
                except OSError:
                    good = False
                with lock:
                    answered[0] += good
                    failed[0] += not good
                    longest[0] = max(longest[0], time.monotonic() - start)

        threads = [threading.Thread(target=ask, args=(k, 8)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - began
        table.add(
            answered=answered[0],
            failed=failed[0],
            a_second=round(answered[0] / took, 1),
            longest_seconds=round(longest[0], 2),
        )
        assert failed[0] == 0
        assert answered[0] == rate * seconds
