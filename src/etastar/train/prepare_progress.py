"""How does a user see that a preparation goes on, and when it will end?

A bar where rich and a terminal are at hand; off a terminal, a plain line every few seconds.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol

from etastar.scale import format_number

_PLAIN_SECONDS = 5.0


class Progress(Protocol):
    """What a preparation tells: a sentence at a time, and how far it is."""

    def note(self, sentence: str) -> None:
        """Say one thing."""
        ...

    def advance(self, *, done: int, total: int, tokens: int) -> None:
        """`done` of `total` input bytes (0: unknown) have become `tokens` tokens in all."""
        ...

    def close(self) -> None:
        """Take the display down."""
        ...


class SilentProgress:
    """Says nothing."""

    def note(self, sentence: str) -> None: ...

    def advance(self, *, done: int, total: int, tokens: int) -> None: ...

    def close(self) -> None: ...


class PlainProgress:
    """Lines on standard error, the progress at most every five seconds."""

    def __init__(self) -> None:
        self._start = 0.0
        self._last = 0.0

    def note(self, sentence: str) -> None:
        print(sentence, file=sys.stderr, flush=True)

    def advance(self, *, done: int, total: int, tokens: int) -> None:
        now = time.monotonic()
        if not self._start:  # what came before the first tokens says nothing of their pace
            self._start = self._last = now
        if now - self._last < _PLAIN_SECONDS:
            return
        self._last = now
        share = f"{100 * done / total:.0f} % of the input, " if total else ""
        seconds = (now - self._start) * (total - done) / done if done else 0.0
        left = f", about {seconds:.0f} s left" if total else ""
        self.note(f"{share}{format_number(tokens)} tokens{left}")

    def close(self) -> None: ...


class BarProgress:
    """A rich progress bar on standard error."""

    def __init__(self, rich_progress: Any, rich_console: Any) -> None:
        self._console = rich_console.Console(stderr=True)
        self._bar = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(),
            rich_progress.TaskProgressColumn(),
            rich_progress.TimeRemainingColumn(),
            console=self._console,
        )
        self._task = self._bar.add_task("preparing", total=None)
        self._bar.start()

    def note(self, sentence: str) -> None:
        self._bar.console.print(sentence, markup=False, highlight=False)

    def advance(self, *, done: int, total: int, tokens: int) -> None:
        described = f"{format_number(tokens)} tokens"
        self._bar.update(self._task, completed=done, total=total or None, description=described)

    def close(self) -> None:
        self._bar.stop()


def progress_display() -> Progress:
    """A bar on a terminal, lines elsewhere."""
    if sys.stderr.isatty():
        try:
            import rich.console
            import rich.progress

            return BarProgress(rich.progress, rich.console)
        except ImportError:
            pass
    return PlainProgress()
