"""After each horizon, which learning rates go on, and which begin?

Rounds: all learning rates of a sweep reach a horizon, the rule (`etastar.design.adaptive`) looks at their
decayed losses, and the next round follows. Stacks that differ in their seed alone share one decision. A
decision is written down before it is acted on, and found again by a later launch, so that rounds repeat.
What stops is packed out (the rest goes on from its own rows of the checkpoint); what begins starts at step 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from etastar.design.adaptive import Decision, decide
from etastar.launch.study import StackRecord, Study
from etastar.records import content_id
from etastar.store import Journal, read_runs
from etastar.store.journal import BadLine, scan_lines

FOLDER = "decisions"


def sweep_of(record: StackRecord) -> str:
    """The name of the sweep that a stack belongs to: all but its seed."""
    content = record.spec.trunk_content(data_identity=record.corpus)
    more = {"lrs": list(record.spec.lrs), "horizons": list(record.spec.horizons), "schedule": record.spec.schedule}
    return content_id({**content, "seed": None} | more)


@dataclass
class Rounds:
    """The decisions of one study, made and remembered."""

    study: Study
    say: Callable[[str], None] = print
    decides: bool = True  # else what is not decided yet stays open

    def __post_init__(self) -> None:
        self._journal = Journal(self.study.path, writer="adaptive", folder=FOLDER)
        self._made: dict[tuple[str, int, int], dict[str, Any]] = {}
        for event in decisions(self.study.path):
            self._made.setdefault((event["sweep"], event["horizon"], event["round"]), event)

    def wanted(self, record: StackRecord, there: set[str]) -> dict[float, tuple[int, ...]]:
        """Learning rates of a stack and the horizons asked of each, as far as the rounds have come."""
        sweep = sweep_of(record)
        seeds = [other for other in self.study.stacks if sweep_of(other) == sweep]
        horizons = tuple(sorted(record.spec.horizons))
        active = list(record.spec.lrs)
        asked: dict[float, tuple[int, ...]] = {}
        for index, horizon in enumerate(horizons):
            number = 0
            while True:
                asked |= dict.fromkeys(active, horizons[: index + 1])
                runs = {s.run_id(lr, h) for s in seeds for lr in active for h in horizons[: index + 1]}
                if not self.decides and (sweep, horizon, number) not in self._made:
                    return asked | dict.fromkeys(active, horizons)  # as far as is known
                if not runs <= there:
                    return asked if self.decides else asked | dict.fromkeys(active, horizons)
                made = self._decision(sweep, seeds, horizon, number, active, horizons[index + 1 :], there)
                active = [lr for lr in active if lr not in made["stop"]]
                active += sorted(lr for lr in made["add"] if lr not in active)
                number += 1
                if not made["add"]:
                    break
        return asked

    def _decision(
        self,
        sweep: str,
        seeds: list[StackRecord],
        horizon: int,
        number: int,
        active: list[float],
        later: tuple[int, ...],
        there: set[str],
    ) -> dict[str, Any]:
        key = (sweep, horizon, number)
        if key not in self._made:
            rows = read_runs(self.study.path)
            lrs = set(active) | {lr for s in seeds for lr in s.spec.lrs}
            up_to = [h for h in seeds[0].spec.horizons if h <= horizon]
            mine = {s.run_id(lr, h) for s in seeds for lr in lrs for h in up_to} & there
            table = rows.filter(pa.array([run in mine for run in rows["run"].to_pylist()]))
            decision = decide(table, lrs=active, horizon=horizon, next_horizons=later, planned_lrs=seeds[0].spec.lrs)
            self._made[key] = self._keep(key, seeds[0].name, decision)
        return self._made[key]

    def _keep(self, key: tuple[str, int, int], name: str, decision: Decision) -> dict[str, Any]:
        content: dict[str, Any] = {
            "sweep": key[0],
            "horizon": key[1],
            "round": key[2],
            "stack": name,
            "stop": list(decision.stop),
            "add": list(decision.add),
            "reasons": list(decision.reasons),
            "status": decision.status.value,
        }
        self._journal.write("decided", **content)
        changed = [f"stops 2^{math.log2(lr):g}" for lr in decision.stop]
        changed += [f"adds 2^{math.log2(lr):g}" for lr in decision.add]
        self.say(f"{name} after {key[1]} steps: {', '.join(changed) or 'no change'} ({'; '.join(decision.reasons)})")
        return content

    def close(self) -> None:
        """Close the file of decisions."""
        self._journal.close()


def decisions(study: Path) -> list[dict[str, Any]]:
    """All decisions of a study, by time."""
    found = [event for path in sorted((study / FOLDER).glob("*.jsonl")) for event in scan_lines(path)]
    made = [event for event in found if not isinstance(event, BadLine) and event.get("event") == "decided"]
    return sorted(made, key=lambda event: event["time"])


def expected_cells(study: Study, record: StackRecord, there: set[str]) -> dict[float, tuple[int, ...]]:
    """All cells of the plan; where the adaptive rule has decided, what its decisions leave. Decides nothing."""
    if decisions(study.path):
        return Rounds(study, say=lambda _: None, decides=False).wanted(record, there)
    return dict.fromkeys(record.spec.lrs, record.spec.horizons)
