"""Which measured trajectories may the theory be calibrated on, for each model size?

A trunk's rows carry its name; a run without a trunk (a cosine, or a foreign one) carries its own. What
a calibration may see ends where the longest run it may know of left the trunk, so that a back-test
looks no further than its cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from etastar.errors import InputError
from etastar.predict.logged import LoggedRows
from etastar.predict.settings import RunSettings
from etastar.records import RunStatus
from etastar.theory.network import Calibration, calibrate
from etastar.theory.trajectories import Trajectory, trajectories_of

WINDOW_WHOLE = 2 / 3  # of a whole run that has no trunk, fitted on; of a trunk, the theory's own choice


@dataclass(frozen=True)
class Path:
    """One LR at one N: its matrices, and the horizons (steps) whose runs finished on it."""

    lr: float
    matrices: tuple[Trajectory, ...]
    horizons: frozenset[int]
    shared: bool  # a constant-LR trunk, not a whole run with its own schedule

    def reaches(self, stop: int) -> bool:
        """Is the path logged up to (nearly) this step?"""
        return all(one.step[-1] >= 0.95 * stop and (one.step < stop).sum() >= 24 for one in self.matrices)


Paths = Mapping[float, tuple[Path, ...]]  # by N


def paths_of(runs: pa.Table, trajectories: LoggedRows) -> Paths:
    """Match a group's runs (conformed) with their trajectories; one path for each N and LR, the first seed's."""
    named = trajectories.names
    found: dict[tuple[float, float], list[_Candidate]] = {}
    for row in runs.select(_KNOWN).to_pylist():
        # a branch's own rows are its decay alone: where the trunk is there, they are not looked at
        shared = row["trunk"] in named and row["trunk"] != row["run"]
        name = row["trunk"] if shared else row["run"]
        if row["status"] == RunStatus.FINISHED.value and row["steps"] and name in named:
            key = (float(row["params"]), float(np.round(np.log2(row["lr"]), 6)))
            found.setdefault(key, []).append(_Candidate(row["seed"] or 0, name, int(row["steps"]), shared))
    if not found:
        raise InputError(
            "the trajectories name no run or trunk of the runs table",
            hint="their column `run` must hold the runs table's `trunk` or `run`",
        )
    chosen = {key: _choose(rows) for key, rows in found.items()}
    measured = trajectories_of(trajectories.of({one.name for one in chosen.values()}))
    paths: dict[float, list[Path]] = {}
    for (params, log2_lr), one in sorted((key, one) for key, one in chosen.items() if one.name in measured):
        own = found[params, log2_lr]
        horizons = frozenset(row.steps for row in own if (row.seed, row.name) == (one.seed, one.name))
        paths.setdefault(params, []).append(Path(2.0**log2_lr, measured[one.name], horizons, one.shared))
    return {params: tuple(some) for params, some in paths.items()}


class _Candidate(NamedTuple):
    """A run whose trajectory may stand for its N and LR."""

    seed: int
    name: str
    steps: int
    shared: bool


_KNOWN = ["params", "lr", "seed", "run", "trunk", "steps", "status"]


def _choose(rows: list[_Candidate]) -> _Candidate:
    """The lowest seed's trunk; without one, its longest run."""
    seed = min(row.seed for row in rows)
    return max((row for row in rows if row.seed == seed), key=lambda row: (row.shared, row.steps))


def calibrated(paths: tuple[Path, ...], settings: RunSettings, beta1: float, longest: int) -> Calibration | str:
    """Calibrate one N's network on what runs of at most `longest` steps passed; a reason where it cannot."""
    shared = all(path.shared for path in paths)
    if shared:
        stop = longest - settings.decay_of(longest)
        usable = [path for path in paths if path.reaches(stop)]
        run = settings.trunk(stop)
    else:
        stop = max((max(path.horizons) for path in paths if max(path.horizons) <= longest), default=0)
        usable = [path for path in paths if stop in path.horizons and path.reaches(stop)]
        run = settings.planned(stop * settings.batch_tokens) if stop else None
    if not usable or run is None:
        return "no trajectory reaches the length of the runs that may be seen"
    names = [one.weight for one in usable[0].matrices]
    usable = [path for path in usable if [one.weight for one in path.matrices] == names]
    try:
        return calibrate(
            [(path.lr, path.matrices) for path in usable],
            run=run,
            beta1=beta1,
            fit_stop=stop,
            window=None if shared else WINDOW_WHOLE,
            warmup_steps=round(settings.warmup_steps),
        )
    except InputError as error:
        return error.message
