"""What does a tracker know of a run? One plain form that every reader yields, before anything is interpreted.

A raw run is a configuration with dotted names, metric series as (step, time, value), how the run ended as far
as its tracker says, and what went wrong while reading. What it all means is the business of `meaning`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from etastar.records import RunStatus

MOST_KEYS = 20_000  # of a configuration: YAML aliases can make a small file a huge tree
DEEPEST = 32
LARGEST_STEP = 2**62
LONGEST_TEXT = 16 * 2**20  # bytes of JSON or YAML that are parsed at once
# Trackers count calls of `log`; the optimizer's step is one of these where a row holds it
STEP_METRICS = ("trainer/global_step", "train/global_step", "global_step", "iter", "iteration", "train/step", "step")
# Our own monitor counts steps itself; its metrics share rows with the user's, whose steps may count otherwise
MONITOR, MONITOR_STEP = "etastar/", "etastar/step"


@dataclass
class Series:
    """One metric over steps, in the order in which it was written."""

    steps: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    rewritten: int = 0  # points that a restart wrote again, or left behind

    def add(self, step: int, time: float, value: float) -> None:
        """Append a point; where steps go back, the run was restarted and the later write wins."""
        if self.steps and step <= self.steps[-1]:
            keep = len(self.steps)
            while keep and self.steps[keep - 1] >= step:
                keep -= 1
            same = keep == len(self.steps) - 1 and self.steps[keep] == step and _equal(self.values[keep], value)
            self.rewritten += 0 if same else len(self.steps) - keep
            del self.steps[keep:], self.times[keep:], self.values[keep:]
        self.steps.append(step)
        self.times.append(time)
        self.values.append(value)

    @property
    def last(self) -> float:
        """The value at the last step."""
        return self.values[-1]


def _equal(left: float, right: float) -> bool:
    return left == right or (math.isnan(left) and math.isnan(right))


@dataclass
class RawRun:
    """One run as its tracker wrote it."""

    id: str
    name: str
    source: str  # the file or folder it was read from
    config: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Series] = field(default_factory=dict)
    status: RunStatus | None = None  # None: the tracker does not say
    problems: list[str] = field(default_factory=list)  # what could not be read
    notes: list[str] = field(default_factory=list)
    own_step: int | None = None  # the optimizer's step of the last row that held one

    def add(self, name: str, step: int, time: float, value: float) -> None:
        """One point of one metric; a step that no table can hold is left out, and named once."""
        if abs(step) >= LARGEST_STEP:
            said = f"{self.source}: {name} at a step beyond 2^62 is left out"
            self.problems += [said] if said not in self.problems else []
            return
        self.metrics.setdefault(name, Series()).add(step, time, value)

    @property
    def last_step(self) -> int:
        """The last step at which anything was logged."""
        return max((series.steps[-1] for series in self.metrics.values() if series.steps), default=0)


@dataclass(frozen=True)
class Gathered:
    """What a reader found in a source: runs, and trouble that belongs to no run."""

    kind: str  # "W&B run files", …
    runs: tuple[RawRun, ...]
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def flatten(content: Any, *, into: dict[str, Any] | None = None, prefix: str = "", depth: int = 0) -> dict[str, Any]:
    """Nested mappings → dotted names. Lists of plain values stay lists; what is too deep or too much is left out."""
    found = {} if into is None else into
    if isinstance(content, Mapping):
        for key, value in content.items():
            if len(found) >= MOST_KEYS or depth >= DEEPEST:
                break
            flatten(value, into=found, prefix=f"{prefix}.{key}" if prefix else str(key), depth=depth + 1)
    elif prefix and (content is None or isinstance(content, (bool, int, float, str))):
        found[prefix] = content
    elif prefix and isinstance(content, Sequence) and not isinstance(content, (bytes, str)) and len(content) <= 64:
        found[prefix] = [v if isinstance(v, (bool, int, float, str)) or v is None else str(v)[:200] for v in content]
    return found


def number(value: Any) -> float | None:
    """A number as trackers write it: plain, or as the texts "NaN", "Infinity", "-Infinity"."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str) and value in ("NaN", "nan", "Infinity", "-Infinity", "inf", "-inf"):
        return float(value.lower().replace("infinity", "inf"))
    return None


def whole(value: Any, default: int) -> int:
    """A step as trackers write it; the default where it is no finite number."""
    found = number(value)
    return default if found is None or not math.isfinite(found) else int(found)


def log_row(run: RawRun, row: Mapping[str, Any], step: int, time: float) -> None:
    """One call of a tracker's `log`: all its numbers, at the optimizer's step where the row holds it."""
    own = next((v for name in STEP_METRICS if (v := number(row.get(name))) is not None), None)
    if own is not None and math.isfinite(own) and own >= 0 and own == int(own):
        run.own_step = int(own)
    step = step if run.own_step is None else run.own_step  # a row without it belongs to the one before
    ours = whole(row.get(MONITOR_STEP), step)
    for name, value in row.items():
        if name not in (*STEP_METRICS, MONITOR_STEP) and (found := number(value)) is not None:
            run.add(name, ours if name.startswith(MONITOR) else step, time, found)


def printable(text: str) -> str:
    """Text without what terminals obey and tables cannot hold: control characters, halves of characters."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def cleaned(run: RawRun) -> RawRun:
    """The same run with names and texts that can be shown and kept."""
    config = {
        printable(name): printable(value) if isinstance(value, str) else value for name, value in run.config.items()
    }
    metrics = {printable(name): series for name, series in run.metrics.items()}
    texts = {"id": printable(run.id), "name": printable(run.name), "source": printable(run.source)}
    lists = {"problems": [*map(printable, run.problems)], "notes": [*map(printable, run.notes)]}
    return replace(run, config=config, metrics=metrics, **texts, **lists)


def combine(parts: Iterable[RawRun]) -> RawRun:
    """Files of one run, in the order in which they were written: the later one wins."""
    first, *rest = parts
    for part in rest:
        first.config.update(part.config)
        for name, series in part.metrics.items():
            for point in zip(series.steps, series.times, series.values, strict=True):
                first.add(name, *point)
            first.metrics[name].rewritten += series.rewritten
        first.status = part.status
        first.name = part.name or first.name
        first.problems += part.problems
        first.notes += part.notes
    return first


def relative(path: Path, root: Path) -> str:
    """A path as the user would name it: below the source, or its own name."""
    inside = path.relative_to(root) if path.is_relative_to(root) else Path(path.name)
    return str(inside) if str(inside) != "." else path.resolve().name
