"""How fast is it going, and how long will it take?

Counts steps on the host and asks the device for its losses once a second, so that watching a training
does not slow it down.
"""

from __future__ import annotations

import time

from etastar.train.engine import StepResult
from etastar.train.progress import Progress, Reporter
from etastar.train.spec import TrainSpec


class Pace:
    """Turns steps into progress reports."""

    def __init__(self, spec: TrainSpec, reporter: Reporter, *, interval: float = 1.0) -> None:
        self._spec = spec
        self._reporter = reporter
        self._interval = interval
        self._done = 0
        self._total = 0
        self._since = time.monotonic()
        self._steps_since = 0

    def plan(self, steps_left: int) -> None:
        """Say how many steps remain; called when a horizon begins."""
        self._total = self._done + steps_left

    def took_step(self, segment: str, step: int, stop: int, result: StepResult) -> None:
        """Count one step, and report if the interval has passed."""
        self._done += 1
        self._steps_since += 1
        if self._done == 1 and result.loss.is_cuda:
            self._say_first(result)
            return
        if time.monotonic() - self._since < self._interval:
            return
        losses = tuple(result.loss.tolist())  # waits for the device: the clock is read after it
        now = time.monotonic()
        pace = (now - self._since) / self._steps_since
        tokens = self._spec.batch_tokens * len(self._spec.lrs)
        self._since, self._steps_since = now, 0
        self._reporter.progress(
            Progress(
                segment=segment,
                step=step,
                stop=stop,
                done=self._done,
                total=self._total,
                tokens_per_second=tokens / pace,
                seconds_left=(self._total - self._done) * pace,
                lrs=self._spec.lrs,
                losses=losses,
                alive=tuple(result.alive.tolist()),
            )
        )

    def _say_first(self, result: StepResult) -> None:
        """The first step compiles: say how long, and keep it out of the pace."""
        result.loss.tolist()  # waits for the device
        self._reporter.message(f"first step after {time.monotonic() - self._since:.1f} s, compiling included")
        self._since, self._steps_since = time.monotonic(), 0
