"""What may be said of a claim? One of four verdicts, by a rule that stands beside the figure."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Verdict(enum.Enum):
    """The outcome for one claim."""

    SUPPORTED = "supported"
    INDISTINCT = "not distinguishable"
    CONTRADICTED = "contradicted"
    UNTESTED = "not tested"


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, tested. `rule` says what would have decided it otherwise."""

    title: str
    paper: str
    ours: tuple[str, ...]
    rule: str
    verdict: Verdict


def untested(title: str, paper: str, reason: str) -> Claim:
    """A claim that this study's runs cannot speak to."""
    return Claim(title, paper, (reason,), "", Verdict.UNTESTED)


def by_interval(low: float, high: float, *, claimed_sign: int) -> Verdict:
    """An effect of a claimed sign, by the interval around it."""
    if low <= 0 <= high:
        return Verdict.INDISTINCT
    return Verdict.SUPPORTED if (low > 0) == (claimed_sign > 0) else Verdict.CONTRADICTED


def signed(value: float, interval: tuple[float, float] | None = None, digits: int = 3) -> str:
    """ "+0.012 [−0.003, +0.027]" with a true minus sign."""
    text = f"{value:+.{digits}f}"
    if interval is not None:
        text += f" [{interval[0]:+.{digits}f}, {interval[1]:+.{digits}f}]"
    return text.replace("-", "−")
