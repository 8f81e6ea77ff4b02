"""Does a study hold what its plan asks for? The half of `etastar verify` that reads plan and specifications."""

from __future__ import annotations

import math
from pathlib import Path

from etastar.errors import EtastarError
from etastar.launch.adaptive import expected_cells
from etastar.launch.study import RunIndex, StackRecord, Study, as_launched, open_study, read_record
from etastar.store.verify import Problem


def verify_plan(folder: Path) -> list[Problem]:
    """Specifications that are not what their name says, and cells of the plan without a row."""
    found: list[Problem] = []
    for path in sorted((folder / "specs").glob("*.yaml")):
        try:
            read_record(folder, path.stem)
        except EtastarError as error:
            found.append(Problem(f"specs/{path.name}", error.message.removeprefix(f"{path}: ")))
    if not (folder / "plan.yaml").is_file():
        found.append(Problem("plan.yaml", "there is none: cells cannot be counted", wrong=False))
        return found
    try:
        study = open_study(folder)
    except EtastarError as error:
        return [*found, Problem("plan.yaml", error.message.removeprefix(f"{folder / 'plan.yaml'}: "))]
    if (same := as_launched(folder)) is None:
        said = "carries no digest: written by hand or by an earlier version, or cut short"
        found.append(Problem("plan.yaml", said, wrong=False))
    elif not same:
        found.append(Problem("plan.yaml", "is not what was launched: it was changed by hand, or is damaged"))
    there = RunIndex(folder).there()
    for record in study.stacks:
        found += _missing(study, record, there)
    return found


def _missing(study: Study, record: StackRecord, there: set[str]) -> list[Problem]:
    wanted = expected_cells(study, record, there)
    cells = [(lr, h) for lr, horizons in wanted.items() for h in horizons]
    absent = [(lr, h) for lr, h in cells if record.run_id(lr, h) not in there]
    if not absent:
        return []
    shown = ", ".join(f"2^{math.log2(lr):g} × {h}" for lr, h in absent[:6]) + (" …" if len(absent) > 6 else "")
    return [Problem(f"stack {record.name}", f"{len(absent)} of {len(cells)} cells have no row: {shown}")]
