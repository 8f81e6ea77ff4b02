"""What has been counted? `python -m tests.faults.report` writes docs/reliability.md from the results of `make faults`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

ITEMS = {
    1: ("Kill -9", "2,000 kills", "kills", "A trunk and its branches are killed with SIGKILL, half of the times at a "
        "random moment and half of them right before or after a random file call, and started again until they are "
        "done. No loss may differ in a bit, no row be lost or there twice, no run be stuck."),
    2: ("Power loss", "5,000 crash states", "crash states", "Every file call of a study that was killed once and went "
        "on is recorded below Python. At random calls the power is cut: of what was not synced any part is kept, "
        "dropped, torn or overtaken by a later one. Acknowledged rows and lines must be there, and the study must go "
        "on to the undisturbed one's bits. What each sync and rename is for stands beside it in `store/disk.py`."),
    3: ("I/O errors", "every file call of a sweep", "faults", "One file call of a sweep fails with ENOSPC or EIO, comes "
        "short or torn, or the disk stays full from there on. The sweep completes or ends with an error in words; the "
        "next one equals the undisturbed study."),
    4: ("Truncate and flip", "every offset of the last 4 kB, 10,000 flips", "cuts, flips, files spoilt", "Files are cut "
        "at every offset of their last 4 kB and bits are flipped all over. Damage is named or changes nothing; nothing "
        "else is believed. Damaged checkpoints and rows are made anew."),
    5: ("Concurrent writers", "16 × 1,000 rows, 100 killed", "acknowledged", "Processes write rows and journal lines "
        "into one study while some are killed."),
    6: ("Executors", "200 launchers killed; every fault on local, Ray, Slurm", "launchers killed, on local, on inline, "
        "on ray, on slurm", "`bench/faults_launch.py`: whole launches on every executor, struck by SIGKILL, SIGTERM and "
        "SIGUSR2 to workers, tasks and jobs, by a second launcher, by requeues, by the death of the launcher."),
    7: ("Branches", "200 (step, decay) pairs", "pairs", "Decay branches of random trunks, stopped and resumed on the "
        "way, against runs that took every step in one go; on CUDA with `execution.deterministic`."),
    8: ("Hostile files", "a million mutations", "files", "Mutated files through every reader, in processes of their own "
        "that may crash: no exception but the project's own, no hang, bounded memory. An AST test says that no source "
        "file loads a pickle."),
    9: ("Paths and pages", "1,000 paths, 500 payloads", "paths, payloads", "Traversal paths against the live page; links "
        "out of a study or a folder of logs; script payloads in every text field of a study, through the report in a "
        "real Chromium."),
    10: ("Load", "100,000 runs, 50M rows, under 4 GB; 200 requests/s", "runs, whole; answered", "A simulated study, large, "
        "through `fit`, `predict` and `report`; the live page under a minute of requests."),
    11: ("Mutation gate", "30 of 30", "caught", "Planted bugs (tests/faults/mutants.py), each of which must make a named "
        "test fail."),
}  # fmt: skip


def page(results: list[dict[str, Any]]) -> str:
    """The results as Markdown."""
    lines = [
        "# Reliability: what was broken on purpose, and counted",
        "",
        "`make faults` plants the faults, `python -m tests.faults.report` writes this page from what it found. "
        "Counts and seed are set with `ETASTAR_FAULTS_*` (see `tests/faults/counts.py`); a quick share of every suite "
        "is part of `make test`.",
        "",
        *_summary(results),
    ]
    for item, (title, _, _, words) in ITEMS.items():
        mine = [result for result in results if result["item"] == item]
        lines += [f"## {item}. {title}", "", words, ""]
        if not mine:
            lines += ["Not run.", ""]
            continue
        lines += ["| suite | goal | counted | held | seed | seconds | date |", "|---|---|---|---|---|---|---|"]
        for result in mine:
            counts = "; ".join(f"{name} {_number(value)}" for name, value in result["counts"].items())
            held = "yes" if result["held"] else "**no**"
            cells = [result["name"], result["goal"], counts, held, result["seed"], result["seconds"], result["date"]]
            lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def _summary(results: list[dict[str, Any]]) -> list[str]:
    """What was counted of every item, in one table."""
    lines = ["| | suite | goal | reached | held |", "|---|---|---|---|---|"]
    for item, (title, goal, names, _) in ITEMS.items():
        mine = [result for result in results if result["item"] == item]
        reached = []
        for name in names.split("; ") if ";" in names else names.split(", "):
            found = [one["counts"][name] for one in mine if name in one["counts"]]
            if found:
                reached.append(f"{name} {_number(sum(found))}")
        held = ("yes" if all(result["held"] for result in mine) else "**no**") if mine else "not run"
        lines.append(f"| {item} | {title} | {goal} | {'; '.join(reached) or '–'} | {held} |")
    return [*lines, ""]


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)


def main() -> int:
    """Write the page; 1 where nothing has been counted."""
    found = sorted((ROOT / "out" / "faults").glob("*.json"))
    results = [json.loads(path.read_text(encoding="utf-8")) for path in found]
    if not results:
        print("out/faults holds no results: run `make faults` first", file=sys.stderr)
        return 1
    text = page(results)
    (ROOT / "docs" / "reliability.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
