"""What must a machine be able to do for a study to run on it? The contract of all executors.

An executor starts workers, says which of them have ended, and stops them. It never says whether a task is
done: the store alone knows that. So a lost answer, a lost node or a lost launcher costs time and no rows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from etastar.errors import InputError
from etastar.launch.graph import Task


@dataclass(frozen=True)
class Ended:
    """A worker that no longer runs. `code` is its `Exit`; None: it was killed or lost."""

    task: str
    code: int | None
    reason: str = ""


class Executor(Protocol):
    """Runs tasks somewhere. All methods return at once, but for `cancel`, which waits for workers to save."""

    name: str

    def submit(self, tasks: Sequence[Task]) -> None:
        """Take tasks on; they run now or when there is room."""

    def poll(self) -> list[Ended]:
        """Tasks that have ended since the last call."""
        ...

    def running(self) -> set[str]:
        """Tasks that were taken on and have not ended, as far as is known."""
        ...

    def cancel(self, *, grace: float) -> None:
        """Ask every worker to save and end; after `grace` seconds end it outright. None is running then."""

    def close(self) -> None:
        """Let go of whatever is held; workers that the cluster owns go on."""


class ExecutorOptions(BaseModel):
    """What can be set of an executor: `--option NAME=VALUE`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def read(cls, executor: str, given: Mapping[str, Any]) -> Self:
        """Check what was typed; a misspelt name lists the allowed ones."""
        try:
            return cls.model_validate(dict(given))
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"])
            known = ", ".join(f"{key}={_shown(field.default)}" for key, field in cls.model_fields.items()) or "none"
            if first["type"] == "extra_forbidden":
                said = f"{executor} has no option {name!r}"
            else:
                said = f"option {name}: {str(first['input'])[:40]!r}: {first['msg'].lower()}"
            raise InputError(said, hint=f"options of {executor} are {known}") from None


def _shown(default: Any) -> str:
    return "…" if default is None else str(default)


def worker_environment() -> dict[str, str]:
    """The environment of a worker: this one, and this checkout of etastar on its path."""
    source = str(Path(__file__).parents[2])
    before = os.environ.get("PYTHONPATH", "")
    paths = [source, *(p for p in before.split(os.pathsep) if p and p != source)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


def log_of(study: Path, task: str) -> Path:
    """Where a worker's output goes."""
    path = study / "logs" / f"{task}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def last_words(study: Path, task: str) -> str:
    """The last line of a worker's log that says something, for the reason of a failure."""
    try:
        text = log_of(study, task).read_text(encoding="utf-8", errors="replace")[-4000:]
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    said = (errors or lines or [""])[-1]
    return "".join(c if c.isprintable() else " " for c in said)[:200]
