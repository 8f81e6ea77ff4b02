"""Does a study survive the death of any of its processes, at any moment, wherever it runs?

Every round launches a study of 2 widths × 6 learning rates × 4 horizons on one executor, kills one process
with SIGKILL at a random moment (a worker, the launcher, a Ray task's process, a Slurm job's process, or
requeues a Slurm job), lets the launcher go on or launches again, and compares with the undisturbed study:
every row once, every bit equal. Prints one line a round with its seed, then the counts.

    python bench/faults_launch.py --rounds 30 --seed 0 [--on local,inline,ray,slurm]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / "launch"), str(Path(__file__).parents[1] / "src")]

from studies import LocalSlurm, command, environment, tables, two_widths, undisturbed, write  # noqa: E402

from etastar.store.verify import verify_files  # noqa: E402

Victims = dict[str, list[int]]


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


def start(plan: str, study: Path, executor: str) -> subprocess.Popen[bytes]:
    arguments = command("launch", plan, "--out", str(study), "--on", executor)
    with (study.parent / f"{study.name}.log").open("ab") as log:
        return subprocess.Popen(arguments, env=environment(), stdout=log, stderr=log, start_new_session=True)


def strike(study: Path, rng: random.Random) -> str | None:
    """Kill one process of the study; None if there was none."""
    there = processes(study)
    jobs = _slurm_jobs() if "slurm job" in there else []
    roles = sorted(there) + (["requeue"] if jobs else [])
    if not roles:
        return None
    weights = [len(there.get(role, jobs)) for role in roles]
    (role,) = rng.choices(roles, weights)
    if role == "requeue":
        subprocess.run(["scontrol", "requeue", rng.choice(jobs)], capture_output=True, check=False)
        return "slurm requeue"
    with contextlib.suppress(ProcessLookupError):
        os.kill(rng.choice(sorted(there[role])), signal.SIGKILL)
    return role


def _slurm_jobs() -> list[str]:
    done = subprocess.run(["squeue", "-h", "-r", "-t", "R", "-o", "%i"], capture_output=True, text=True, check=False)
    return sorted(done.stdout.split())


def one_round(number: int, seed: int, executor: str, folder: Path, reference: Path, span: float) -> bool:
    rng = random.Random(seed)
    study = folder / f"round{number}"
    plan = write(two_widths(), folder / "plan.yaml")
    launcher = start(plan, study, executor)
    moment = rng.uniform(0.0, span)
    time.sleep(moment)
    struck = strike(study, rng) or "nobody (too late)"
    launches = 1
    code = launcher.wait(timeout=600)
    if struck == "launcher" and code == 0:
        struck = "nobody (too late)"  # it had ended by itself
    while code != 0 and launches < 6:
        launches += 1
        code = start(plan, study, executor).wait(timeout=600)
    time.sleep(0.5)
    left = sum(len(pids) for pids in processes(study).values())
    problems = [str(p) for p in verify_files(study) if p.wrong]
    mine, theirs = tables(study), tables(reference)
    runs = mine[0]["run"].to_pylist()
    lost, twice = theirs[0].num_rows - len(set(runs)), len(runs) - len(set(runs))
    equal = mine[0].equals(theirs[0]) and mine[1].equals(theirs[1])
    good = lost == twice == left == 0 and equal and not problems
    print(
        f"{number:5d}  {seed:6d}  {executor:8s}  {struck:18s}  {moment:6.2f}  {launches:8d}  {lost:4d}  {twice:5d}  "
        f"{'yes' if equal else 'NO':5s}  {left:4d}  {'; '.join(problems)}",
        flush=True,
    )
    if good:
        shutil.rmtree(study)
    return good and "too late" not in struck


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--on", default="local,inline,ray,slurm")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    executors = given.on.split(",")
    slurm = LocalSlurm(folder / "slurm-here")
    if "slurm" in executors and not slurm.start():
        print(f"slurm does not run here: {slurm.reason}")
        executors.remove("slurm")
    bad = struck = number = 0
    try:
        reference = undisturbed(two_widths(), folder / "reference")
        spans = {name: _span(name, folder, reference) for name in executors}
        print("undisturbed seconds: " + ", ".join(f"{name} {span:.1f}" for name, span in spans.items()))
        print("round    seed  executor  killed              second  launches  lost  twice  equal  left  problems")
        while struck < given.rounds and number < 3 * given.rounds:
            executor = executors[number % len(executors)]
            seed = given.seed + number
            hit = one_round(number, seed, executor, folder, reference, spans[executor])
            survived = not (folder / f"round{number}").exists()
            bad += not survived
            struck += hit or not survived
            number += 1
    finally:
        if "slurm" in executors:
            slurm.stop()
    print(f"{struck} kills, {struck - bad} studies equal to the undisturbed one, {bad} not")
    if not bad:
        shutil.rmtree(folder)
    else:
        print(f"kept: {folder}")
    return 1 if bad else 0


def _span(executor: str, folder: Path, reference: Path) -> float:
    study = folder / f"undisturbed-{executor}"
    began = time.monotonic()
    code = start(write(two_widths(), folder / "plan.yaml"), study, executor).wait(timeout=600)
    span = time.monotonic() - began
    if code or not all(a.equals(b) for a, b in zip(tables(study), tables(reference), strict=True)):
        raise SystemExit(f"{executor}: the undisturbed launch is not the reference (exit code {code})")
    return span


if __name__ == "__main__":
    sys.exit(main())
