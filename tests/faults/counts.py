"""How many faults are planted, and what was counted?

`counted(item, name, full, quick)` gives the count of a test: `quick` in the default run, `full` under
`make faults`; ETASTAR_FAULTS_NAME sets it, ETASTAR_FAULTS_SEED the seed. `Table` keeps the result of every test as
JSON under out/faults/, from which `python -m tests.faults.report` writes docs/reliability.md.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

OUT = Path(os.environ.get("ETASTAR_FAULTS_OUT", Path(__file__).parents[2] / "out" / "faults"))
SEED = int(os.environ.get("ETASTAR_FAULTS_SEED", "0"))


def counted(name: str, *, full: int, quick: int, is_full: bool) -> int:
    """The count to reach."""
    return int(os.environ.get(f"ETASTAR_FAULTS_{name.upper()}", full)) if is_full else quick


class Table:
    """The counts of one test of the suite; written when it ends, whether it holds or not."""

    def __init__(self, item: int, name: str, *, goal: str, is_full: bool) -> None:
        self.item, self.name, self.goal, self.is_full = item, name, goal, is_full
        self.rows: dict[str, Any] = {}
        self.began = time.monotonic()

    def __enter__(self) -> Table:
        print(f"{self.name}: seed {SEED}")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        content = {
            "item": self.item, "name": self.name, "goal": self.goal, "seed": SEED, "held": kind is None,
            "counts": self.rows, "seconds": round(time.monotonic() - self.began, 1),
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
        }  # fmt: skip
        print(json.dumps(content))
        if self.is_full:  # the quick share proves nothing worth a page
            OUT.mkdir(parents=True, exist_ok=True)
            slug = self.name.lower().replace(" ", "-").replace(",", "").replace("/", "")
            (OUT / f"{self.item:02d}-{slug}.json").write_text(json.dumps(content, indent=2), encoding="utf-8")

    def add(self, **counts: int | float | str) -> None:
        """Set figures; the last value of a name stays."""
        self.rows |= {name.replace("_", " "): value for name, value in counts.items()}
