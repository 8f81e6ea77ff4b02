"""How do two studies become one without losing or doubling a row?

Rows are compared by run (and step and matrix): equal ones are kept once, contradicting ones stop the merge
before anything is written. The merged study is built beside its place and renamed into it. Checkpoints stay
where they are.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from etastar.errors import InputError
from etastar.store.disk import flush_folder, inside, make_folder, only_inside, write_atomically
from etastar.store.parts import checked_part, parts, write_runs, write_trajectories
from etastar.store.verify import same_values


@dataclass(frozen=True)
class Merged:
    """What came together."""

    study: Path
    runs: int
    equal: int  # rows that more than one study had
    notes: tuple[str, ...]


def merge_studies(sources: Sequence[Path], target: Path) -> Merged:
    """Merge studies into a new folder; a contradiction is an `InputError` that names the run."""
    for source in sources:
        if not source.is_dir():
            raise InputError(f"{source}: no such folder", hint="give folders of studies")
    if len(sources) < 2:
        raise InputError(f"{len(sources)} study is given, merging needs two", hint="etastar merge A B --to C")
    if target.exists():
        raise InputError(f"--to {target}: is there already", hint="name a folder that does not exist")
    building = target.with_name(f".{target.name}.{secrets.token_hex(6)}.merging")
    try:
        make_folder(building)
        runs, equal = _merge_runs(sources, building)
        _merge_trajectories(sources, building)
        notes = _copy_rest(sources, building)
        os.rename(building, target)
        # all in it was synced file by file; without this a power cut takes the whole study's name
        flush_folder(target.parent)
    except OSError as error:
        raise InputError(f"--to {target}: cannot be made ({error.strerror})", hint="name another folder") from None
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(building, ignore_errors=True)
    return Merged(target, runs, equal, tuple(notes))


def _write_text(path: Path, text: str) -> None:
    write_atomically(path, lambda to: to.write_text(text, encoding="utf-8"))


def _free(folder: Path, kind: str, part: str) -> str:
    """A part's name, with a number behind it where another study has used it."""
    name, number = part, 1
    while (folder / kind / f"{name}.parquet").exists():
        number += 1
        name = f"{part}.{number}"
    return name


def _merge_runs(sources: Sequence[Path], building: Path) -> tuple[int, int]:
    seen: dict[str, tuple[Path, dict[str, object]]] = {}
    total = equal = 0
    for source in sources:
        for path in parts(source, "runs"):
            table = checked_part(path)
            fresh = []
            for row in table.to_pylist():
                run = row["run"]
                if run is not None and run in seen:
                    other, before = seen[run]
                    if not same_values(before, row):
                        _contradiction(str(run), other, path, before, row)
                    equal += 1
                    fresh.append(False)
                    continue
                if run is not None:
                    seen[run] = (path, row)
                fresh.append(True)
            kept = table.filter(pa.array(fresh, pa.bool_()))
            if kept.num_rows:
                write_runs(building, kept, _free(building, "runs", path.stem))
                total += kept.num_rows
    return total, equal


def _contradiction(run: str, one: Path, two: Path, left: dict[str, object], right: dict[str, object]) -> None:
    differing = sorted(k for k in left.keys() | right.keys() if not same_values({k: left.get(k)}, {k: right.get(k)}))
    first = differing[0]
    raise InputError(
        f"run {run}: {one} has {first} {left.get(first)}, {two} has {right.get(first)}",
        hint="they are the same run with other results (another device or packing?): keep one of them",
    )


_KEY = ("run", "step", "weight")


def _merge_trajectories(sources: Sequence[Path], building: Path) -> None:
    """Rows of runs that only one study has are copied; of shared ones, equal rows are kept once."""
    seen: dict[tuple[object, ...], tuple[Path, dict[str, object]]] = {}
    runs_of = [_runs_in(source) for source in sources]
    shared = {run for i, runs in enumerate(runs_of) for j in range(i) for run in runs & runs_of[j]}
    for source in sources:
        for path in parts(source, "trajectories"):
            table = checked_part(path)
            common = [run in shared for run in table["run"].to_pylist()]
            keep = [True] * table.num_rows
            rows = table.filter(pa.array(common, pa.bool_())).to_pylist() if any(common) else []
            places = [index for index, is_shared in enumerate(common) if is_shared]
            for index, row in zip(places, rows, strict=True):
                key = (*(row[name] for name in _KEY), row["val_loss"] is None)
                if key in seen:
                    if not same_values(seen[key][1], row):
                        _contradiction(str(row["run"]), seen[key][0], path, seen[key][1], row)
                    keep[index] = False
                else:
                    seen[key] = (path, row)
            kept = table.filter(pa.array(keep, pa.bool_()))
            if kept.num_rows:
                write_trajectories(building, kept, _free(building, "trajectories", path.stem))


def _runs_in(source: Path) -> set[str]:
    return {run for path in parts(source, "trajectories") for run in set(checked_part(path)["run"].to_pylist())}


def _copy_rest(sources: Sequence[Path], building: Path) -> list[str]:
    """Specifications by id, journals and decisions (every writer has its own names), plans."""
    notes: list[str] = []
    plans: dict[str, str] = {}
    for source in sources:
        for pattern in ("specs/*.yaml", "journal/*.jsonl", "decisions/*.jsonl", "plans/*.yaml", "logs/*.log"):
            for path in only_inside(sorted(source.glob(pattern)), source):
                goal = building / path.relative_to(source)
                if not goal.exists():
                    write_atomically(goal, partial(shutil.copyfile, path))
        if (source / "plan.yaml").is_file() and inside(source / "plan.yaml", source):
            plans[str(source)] = (source / "plan.yaml").read_text(encoding="utf-8")
    if len(set(plans.values())) == 1:
        _write_text(building / "plan.yaml", next(iter(plans.values())))
    elif plans:
        for index, text in enumerate(plans.values()):
            _write_text(building / "plans" / f"merged-{index}.yaml", text)
        notes.append("the plans differ: they are under plans/, and the merged study has none of its own")
    if any((source / "checkpoints").is_dir() for source in sources):
        notes.append("checkpoints were not copied: unfinished runs go on in the studies they began in")
    return notes
