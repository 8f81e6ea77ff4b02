"""Does a study survive what may befall any of its processes, at any moment, wherever it runs?

Every round launches a small study on one executor and strikes it, up to `--strikes` times, at random moments:
SIGKILL, SIGTERM or SIGUSR2 to a worker, a Ray task or a Slurm job; SIGKILL or SIGTERM to the launcher, which is
then started again; a second launcher beside the first; a Slurm job requeued, once or twice in a row. Then the
study is launched until it is done and compared with the undisturbed one: every row once, every bit equal, no task
given out twice by one launcher, no process left. Prints one line a round with its seed, then the counts.

    python bench/faults_launch.py --strikes-in-all 30 --seed 0 [--on local,inline,ray,slurm] [--only kill-launcher]
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / "launch"), str(Path(__file__).parents[1] / "src")]

from studies import LocalSlurm, command, environment, small, tables, undisturbed, write  # noqa: E402

from etastar.store import read_events  # noqa: E402
from etastar.store.verify import verify_files  # noqa: E402

Victims = dict[str, list[int]]

SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "usr2": signal.SIGUSR2}
LAUNCHER = ["kill-launcher", "term-launcher", "launch-twice"]
FAULTS = {
    "inline": LAUNCHER,
    "local": ["kill-worker", "term-worker", "usr2-worker", *LAUNCHER],
    "ray": ["kill-worker", "term-worker", "usr2-worker", "kill-ray task", *LAUNCHER],
    "slurm": ["kill-worker", "term-worker", "usr2-worker", "kill-slurm job", "requeue", "requeue-twice", *LAUNCHER],
}
PATIENCE = 20.0  # seconds that workers get to notice that their launcher is gone


def processes(study: Path) -> Victims:
    """Who works for this study now, by role."""
    found: Victims = {}
    parents: set[int] = set()
    tasks: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if line.startswith("ray::etastar_task"):
            tasks.append(int(entry.name))
        role = None
        if str(study) in line and "etastar.launch.worker" in line:
            role = "worker"
            parents.add(parent)
        elif str(study) in line and "submitit.core._submit" in line and "srun" not in line and "bash" not in line:
            role = "slurm job"
        elif str(study) in line and "from etastar.cli" in line:
            role = "launcher"
        if role is not None:
            found.setdefault(role, []).append(int(entry.name))
    mine = [pid for pid in tasks if pid in parents]  # Ray may be running for others too
    return found | ({"ray task": mine} if mine else {})


@dataclass
class Round:
    """One study, its launcher, and what was done to it."""

    study: Path
    plan: str
    executor: str
    rng: random.Random
    struck: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    launches: int = 0

    def start(self) -> subprocess.Popen[bytes]:
        """A launcher; what it says goes beside the study."""
        self.launches += 1
        arguments = command("launch", self.plan, "--out", str(self.study), "--on", self.executor)
        with (self.study.parent / f"{self.study.name}.log").open("ab") as log:
            return subprocess.Popen(arguments, env=environment(), stdout=log, stderr=log, start_new_session=True)

    def strike(self, fault: str, launcher: subprocess.Popen[bytes]) -> bool:
        """Do it; False where nobody was there to strike."""
        if fault == "launch-twice":
            second = self.start()
            if second.wait(timeout=300) == 0 and launcher.poll() is None:
                self.problems.append("two launchers at once")
            return True
        if fault.startswith("requeue"):
            jobs = _slurm_jobs()
            for job in jobs[:1] * (2 if fault == "requeue-twice" else 1):
                subprocess.run(["scontrol", "requeue", job], capture_output=True, check=False)
            return bool(jobs)
        what, role = fault.split("-")
        there = processes(self.study).get(role, [])
        if role == "launcher":
            there = [launcher.pid] if launcher.poll() is None else []
        if not there:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.rng.choice(sorted(there)), SIGNALS[what])
        return True

    def run(self, faults: list[str], strikes: int, span: float) -> int:
        """Launch, strike, launch again; the last launcher's exit code."""
        launcher = self.start()
        for _ in range(strikes):
            with contextlib.suppress(subprocess.TimeoutExpired):
                launcher.wait(timeout=self.rng.uniform(0.2, span))
            if launcher.poll() is not None:
                break
            fault = self.rng.choice(faults)
            if self.strike(fault, launcher):
                self.struck.append(fault)
            if fault.endswith("launcher"):
                launcher.wait(timeout=120)
                if self.executor in ("local", "inline") and self.rng.random() < 0.5:
                    self.expect_nobody("without their launcher")
                launcher = self.start()
        code = launcher.wait(timeout=600)
        while code != 0 and self.launches < 40:
            code = self.start().wait(timeout=600)
        return code

    def expect_nobody(self, when: str) -> None:
        """No process of the study is there, at the latest in a while."""
        end = time.monotonic() + PATIENCE
        while (left := sum(len(pids) for pids in processes(self.study).values())) and time.monotonic() < end:
            time.sleep(0.1)
        if left:
            self.problems.append(f"{left} processes {when}")


def given_out_twice(study: Path) -> int:
    """Tasks that a launcher submitted again though it had not heard of their end."""
    twice = 0
    out: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for event in read_events(study):
            kind, task = event["event"], event.get("task", "")
            if kind == "launched":
                out = set()  # a new launcher: claims, not memory, keep it from its predecessor's work
            elif kind == "submitted":
                twice += task in out
                out.add(task)
            elif kind in ("lost", "done", "failed", "busy", "stopped", "finished"):
                out.discard(task)
    return twice


def _slurm_jobs() -> list[str]:
    done = subprocess.run(["squeue", "-h", "-r", "-t", "R", "-o", "%i"], capture_output=True, text=True, check=False)
    return sorted(done.stdout.split())


def one_round(one: Round, faults: list[str], strikes: int, reference: Path, span: float) -> list[str]:
    """What is wrong after a round; empty if nothing."""
    code = one.run(faults, strikes, span)
    one.expect_nobody("left")
    problems = one.problems + [str(problem) for problem in verify_files(one.study) if problem.wrong]
    problems += [f"exit code {code}"] if code else []
    twice = given_out_twice(one.study)
    problems += [f"{twice} tasks given out twice"] if twice else []
    mine, theirs = tables(one.study), tables(reference)
    runs = mine[0]["run"].to_pylist()
    problems += [f"{len(runs) - len(set(runs))} rows twice"] if len(runs) > len(set(runs)) else []
    problems += [] if all(a.equals(b) for a, b in zip(mine, theirs, strict=True)) else ["other rows"]
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strikes-in-all", type=int, default=30)
    parser.add_argument("--strikes", type=int, default=3, help="at most so many a study")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--on", default="local,inline,ray,slurm")
    parser.add_argument(
        "--only", default="", help="faults to choose from, by commas; default: all that an executor has"
    )
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    executors = given.on.split(",")
    slurm = LocalSlurm(folder / "slurm-here")
    if "slurm" in executors and not slurm.start():
        print(f"slurm does not run here: {slurm.reason}")
        executors.remove("slurm")
    only = set(given.only.split(",")) if given.only else {fault for some in FAULTS.values() for fault in some}
    counts: collections.Counter[str] = collections.Counter()
    by_executor: collections.Counter[str] = collections.Counter()
    bad = number = 0
    try:
        plan = write(small(), folder / "plan.yaml")
        reference = undisturbed(small(), folder / "reference")
        spans = {name: _span(name, plan, folder, reference) for name in executors}
        print("undisturbed seconds: " + ", ".join(f"{name} {span:.1f}" for name, span in spans.items()))
        print("round    seed  executor  launches  struck", flush=True)
        while sum(counts.values()) < given.strikes_in_all and number < 3 * given.strikes_in_all:
            executor, seed = executors[number % len(executors)], given.seed + number
            one = Round(folder / f"round{number}", plan, executor, random.Random(seed))
            faults = [fault for fault in FAULTS[executor] if fault in only]
            problems = one_round(one, faults, given.strikes, reference, spans[executor])
            counts.update(one.struck)
            by_executor[executor] += len(one.struck)
            said = f"  {'; '.join(problems)}" if problems else ""
            print(
                f"{number:5d}  {seed:6d}  {executor:8s}  {one.launches:8d}  {', '.join(one.struck) or '-'}{said}",
                flush=True,
            )
            bad += bool(problems)
            if not problems:
                shutil.rmtree(one.study)
            number += 1
    finally:
        if "slurm" in executors:
            slurm.stop()
    print(json.dumps({"studies": number, "differing": bad, "faults": counts, "executors": by_executor}))
    if not bad:
        shutil.rmtree(folder)
    else:
        print(f"kept: {folder}")
    return 1 if bad else 0


def _span(executor: str, plan: str, folder: Path, reference: Path) -> float:
    one = Round(folder / f"undisturbed-{executor}", plan, executor, random.Random(0))
    began = time.monotonic()
    code = one.start().wait(timeout=600)
    span = time.monotonic() - began
    if code or not all(a.equals(b) for a, b in zip(tables(one.study), tables(reference), strict=True)):
        raise SystemExit(f"{executor}: the undisturbed launch is not the reference (exit code {code})")
    return span


if __name__ == "__main__":
    sys.exit(main())
