"""Does a large study go through fit and predict in bounded memory, and does the live page stay up when asked a lot?"""

from __future__ import annotations

import http.client
import json
import shutil
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
import json, sys, time
import pyarrow as pa, pyarrow.compute as pc
from pathlib import Path
from etastar.simulate import Grid, World, simulate, simulate_trajectories
from etastar.store import write_runs, write_trajectories
study, runs, rows = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
began, world, paper = time.monotonic(), World(), Grid()
seeds = -(-runs // (len(paper.widths) * len(paper.tokens) * len(paper.log2_lrs)))
table = simulate(world, Grid(seeds=seeds))
for width in paper.widths:
    write_runs(study, table.filter(pc.starts_with(table["trunk"], f"w{width}-")), f"w{width}")
trunks = seeds * len(paper.widths) * len(paper.log2_lrs)
written = 0
for width in paper.widths:
    logged = simulate_trajectories(world, Grid(widths=(width,)), logged=round(rows / trunks / 4 / 1.15))
    for seed in range(seeds):
        names = pc.replace_substring_regex(logged["run"], "s0$", f"s{seed}")
        part = logged.set_column(0, "run", names)
        write_trajectories(study, part, f"w{width}-s{seed}")
        written += part.num_rows
print(json.dumps({"runs": table.num_rows, "rows": written, "seconds": time.monotonic() - began}))
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
    """The paper's grid over and over: what `fit`, `predict` and `report` take grows no faster than the study."""
    runs = counted("runs", full=100_000, quick=0, is_full=True)
    rows = counted("trajectory_rows", full=50_000_000, quick=0, is_full=True)
    goal = "100,000 runs and 50M trajectory rows; under 4 GB; growth at most linear"
    target = ("--params", "707M", "--tokens", "200B")
    verbs = {"fit": (), "predict": target, "report": (*target, "--out", str(tmp_path / "report.html"))}
    seconds: dict[tuple[str, int], float] = {}
    with Table(10, "Load, large study", goal=goal, is_full=True) as table:
        for share in (4, 1):
            study, name = tmp_path / f"study{share}", "a quarter" if share == 4 else "whole"
            made = _python(SCRIPT, str(study), str(runs // share), str(rows // share))
            assert made.returncode == 0, made.stderr[-2000:]
            there = json.loads(made.stdout)
            table.add(**{f"runs, {name}": there["runs"], f"trajectory rows, {name}": there["rows"]})
            for verb, options in verbs.items():
                found = _command(verb, str(study), *options)
                seconds[verb, share] = found["seconds"]
                table.add(**{f"{verb}, {name}": f"{found['seconds']:.1f} s, {found['MB']:.0f} MB"})
                assert found["MB"] < 4096
            shutil.rmtree(study)
        table.add(page_MB=round((tmp_path / "report.html").stat().st_size / 1e6, 1))
        for verb in verbs:
            assert seconds[verb, 1] < 1.25 * 4 * seconds[verb, 4], f"{verb} grows faster than the study"


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
