"""How does a person follow a training?

A `Reporter` receives what happens; `PlainReporter` writes lines, for logs and for bare machines.
"""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass, field
from typing import Protocol, TextIO


@dataclass(frozen=True)
class Progress:
    """Where a stack stands."""

    segment: str  # "trunk" or "branch T"
    step: int
    stop: int  # the segment's last step
    done: int  # steps taken of all that this call will take
    total: int
    tokens_per_second: float  # of all models together
    seconds_left: float | None  # at the present pace
    lrs: tuple[float, ...]
    losses: tuple[float, ...]
    alive: tuple[bool, ...]

    @property
    def fraction(self) -> float:
        """Share of the steps taken."""
        return self.done / max(self.total, 1)


@dataclass(frozen=True)
class Cell:
    """One evaluated learning rate."""

    lr: float
    loss: float
    mean_eff_lr: float | None
    status: str


class Reporter(Protocol):
    """Receives what happens during training."""

    def message(self, text: str) -> None:
        """A sentence worth reading."""

    def progress(self, progress: Progress) -> None:
        """Called every second or so."""

    def evaluated(self, horizon: int, cells: list[Cell]) -> None:
        """A branch is finished and recorded."""


@dataclass
class PlainReporter:
    """Lines on a stream, at most one every `interval` seconds."""

    stream: TextIO = field(default_factory=lambda: sys.stdout)
    interval: float = 10.0
    _last: float = -math.inf

    def message(self, text: str) -> None:
        """Print a sentence."""
        print(text, file=self.stream, flush=True)

    def progress(self, progress: Progress) -> None:
        """Print where the stack stands, if the interval has passed."""
        now = time.monotonic()
        if now - self._last < self.interval:
            return
        self._last = now
        shown = " ".join(
            f"2^{math.log2(lr):g}:{loss:.3f}" if alive else f"2^{math.log2(lr):g}:diverged"
            for lr, loss, alive in zip(progress.lrs, progress.losses, progress.alive, strict=True)
        )
        self.message(
            f"{progress.segment} step {progress.step}/{progress.stop} "
            f"({progress.fraction:.0%}, {eta_text(progress)} left) "
            f"{progress.tokens_per_second:,.0f} tokens/s | {shown}"
        )

    def evaluated(self, horizon: int, cells: list[Cell]) -> None:
        """Print one line a learning rate."""
        self.message(f"evaluated after {horizon} steps:")
        for cell in cells:
            eff = f"{cell.mean_eff_lr:.3e}" if cell.mean_eff_lr is not None else "-"
            mark = "" if cell.status == "finished" else f"  {cell.status}"
            self.message(f"  lr 2^{math.log2(cell.lr):<6g} loss {cell.loss:.4f}  mean η_eff {eff}{mark}")


def eta_text(progress: Progress) -> str:
    """Time left at the present pace, as 1h02m, 3m20s or 45s."""
    if progress.seconds_left is None:
        return "?"
    seconds = round(progress.seconds_left)
    if seconds >= 3600:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"
    return f"{seconds // 60}m{seconds % 60:02d}s" if seconds >= 60 else f"{seconds}s"
