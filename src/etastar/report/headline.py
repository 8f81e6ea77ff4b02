"""What does the first screen say? The learning rate to type, how sure it is, what it rests on, and every doubt.

Or, where the runs carry no answer: that there is none, why, and which runs would change it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from etastar.estimate.cells import Group, Quantity
from etastar.predict.choice import is_twin
from etastar.predict.recommend import Answer, Recommendation
from etastar.report.suggest import runs_that_would_help
from etastar.report.view import StudyView, training_of
from etastar.report.words import (
    lr_words,
    octave_words,
    percent_words,
    prediction_words,
    strategy_words,
    value_words,
)
from etastar.scale import Scale, format_number


@dataclass(frozen=True)
class Doubt:
    """A flag with its sentence."""

    code: str
    sentence: str


@dataclass(frozen=True)
class Fact:
    """A named value of the first screen; `note` says how it is counted."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Span:
    """A range of learning rates on the ruler, in log2 η."""

    low: float
    high: float

    @property
    def words(self) -> str:
        """ "4.67e-05 … 5.77e-05"."""
        return f"{lr_words(2.0**self.low)} … {lr_words(2.0**self.high)}"


@dataclass(frozen=True)
class Ruler:
    """The picture beside the number: positions in percent of a log2 axis."""

    ticks: tuple[tuple[float, str], ...]  # where, and which power of two
    point: float
    interval: tuple[float, float]  # left, width
    safe: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class Headline:
    """The first screen of one study."""

    target: Scale
    group: str  # how the runs were trained
    log2_lr: float | None = None
    level: float = 0.9
    interval: Span | None = None
    safe: Span | None = None
    expected_ecr: float | None = None
    strategy: str = ""
    why: str = ""
    facts: tuple[Fact, ...] = ()
    conditions: tuple[Fact, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    abstained: str | None = None
    reasons: tuple[Fact, ...] = ()  # of the strategies, where none has an answer
    would_help: tuple[str, ...] = ()
    others: tuple[Fact, ...] = ()  # what the other groups of the study say
    outcome: str = ""  # what is known of the truth, where it is

    @property
    def lr(self) -> str:
        """The number to type."""
        return lr_words(None if self.log2_lr is None else 2.0**self.log2_lr)

    @property
    def ruler(self) -> Ruler | None:
        """Interval and safe range around the number; None without an answer."""
        if self.log2_lr is None or self.interval is None:
            return None
        spans = [self.interval, *([self.safe] if self.safe else [])]
        low, high = min(s.low for s in spans), max(s.high for s in spans)
        margin = max(0.15 * (high - low), 0.1)
        low, high = low - margin, high + margin

        def at(x: float) -> float:
            return round(100 * (x - low) / (high - low), 2)

        def bar(span: Span) -> tuple[float, float]:
            return at(span.low), round(at(span.high) - at(span.low), 2)

        return Ruler(
            ticks=tuple((at(x), f"{x:.{digits}f}".replace("-", "−")) for x, digits in _ticks(low, high)),
            point=at(self.log2_lr),
            interval=bar(self.interval),
            safe=bar(self.safe) if self.safe else None,
        )


def headline(
    view: StudyView, target: Scale, *, settings: object = None, group: Group | None = None, outcome: str = ""
) -> Headline:
    """The first screen for one group of a study (by default its main one)."""
    chosen = group or view.main
    found = view.answer(chosen, target, settings)  # type: ignore[arg-type]
    level = view.options.level
    base = {
        "target": target,
        "group": training_of(chosen),
        "level": level,
        "would_help": runs_that_would_help(view, chosen, found),
        "others": _others(view, chosen, target),
        "outcome": outcome,
    }
    best = found.recommended
    if best is None:
        reasons = _reasons(found)
        said = "No strategy has cells enough for this target" if reasons else found.abstained
        return Headline(**base, abstained=said, reasons=reasons, facts=_study_facts(view, chosen))
    return Headline(
        **base,
        log2_lr=best.log2_lr,
        interval=Span(*best.log2_interval),
        safe=None if best.safe_range is None else Span(*best.safe_range),
        expected_ecr=best.expected_ecr,
        strategy=strategy_words(best.axis, best.quantity, inverted=best.inverted),
        why=_why(found, best),
        facts=(*_answer_facts(found, best), *_study_facts(view, chosen)),
        conditions=tuple(
            Fact(name.replace("_", " "), value_words(v)) for name, v in best.conditions.items() if v is not None
        ),
        doubts=tuple(Doubt(flag.value, flag.sentence) for flag in best.flags),
    )


def _answer_facts(found: Answer, best: Recommendation) -> tuple[Fact, ...]:
    chosen = next(
        k
        for k, p in enumerate(found.predictions)
        if (p.axis, p.quantity, p.inverted) == (best.axis, best.quantity, best.inverted)
    )
    prediction, tested = found.predictions[chosen], found.backtests[chosen]
    missed = octave_words(tested.rms_lr_error) if tested.trials else "not tested"
    return (
        Fact(
            "Strategy",
            prediction_words(prediction),
            f"{prediction.cells} optima" + (f"; η by the {prediction.source}" if prediction.source else ""),
        ),
        Fact("Back-test error", missed, f"{len(tested.trials)} held-out cells" if tested.trials else "too few cells"),
        Fact(
            "Price of the runs",
            f"β = {percent_words(best.cost.budget_ratio, 1)}",
            f"as the paper counts; really {percent_words(best.cost.true_ratio, 1)} of a sweep of "
            f"{best.cost.learning_rates:.0f} learning rates at the target ({best.cost.flop:.3g} FLOP)",
        ),
        Fact(
            "Cheapest η",
            lr_words(None if best.log2_lr_min_ecr is None else 2.0**best.log2_lr_min_ecr),
            "the smallest expected extra compute" if best.log2_lr_min_ecr is not None else "a miss has no price here",
        ),
    )


def _reasons(found: Answer) -> tuple[Fact, ...]:
    """Why each strategy is silent, each reason once; empty where one has spoken."""
    if any(p.log2_lr is not None for p in found.predictions):
        return ()
    by_reason: dict[str, list[str]] = {}
    for p in found.predictions:
        if not (p.inverted and p.log2_value is None):  # the same axis has said it already
            by_reason.setdefault(p.reason or "no reason was given", []).append(prediction_words(p))
    return tuple(Fact("; ".join(names), reason) for reason, names in by_reason.items())


def _study_facts(view: StudyView, group: Group) -> tuple[Fact, ...]:
    runs = sum(int(np.isfinite(b.seeds).sum()) for b in group.blocks)
    diverged = sum(int(b.diverged.sum()) for b in group.blocks)
    cells = sum(len(b.tokens) for b in group.blocks)
    usable = int(view.estimates(group)[Quantity.LR].usable.sum())
    seeds = max(len(b.seeds) for b in group.blocks)
    tokens = [float(d) for b in group.blocks for d in (b.tokens[0], b.tokens[-1])]
    sizes = [b.params for b in group.blocks]
    ended = [f"{diverged} diverged cells" if diverged else "", f"{group.crashed} crashed" if group.crashed else ""]
    repeats = "one seed" if seeds == 1 else f"up to {seeds} seeds a cell"
    return (
        Fact("Runs", f"{runs:,}", ", ".join([repeats, *(p for p in ended if p)])),
        Fact("Cells (N, D)", f"{cells}", f"{usable} with an optimum inside the sweep"),
        Fact("Scales", f"N = {_range(sizes)}, D = {_range(tokens)}"),
    )


def _range(values: list[float]) -> str:
    low, high = min(values), max(values)
    return format_number(low) if low == high else f"{format_number(low)} … {format_number(high)}"


def _why(found: Answer, best: Recommendation) -> str:
    """By what the strategy was chosen: its back-test beside the others'."""
    asked = (best.axis, best.quantity, best.inverted)
    said = list(found.predictions)
    tested = {
        (p.axis, p.quantity, p.inverted): (prediction_words(p), t)
        for k, (p, t) in enumerate(zip(said, found.backtests, strict=True))
        if p.log2_lr is not None and not is_twin(said, k)
    }
    name, own = tested.pop(asked)
    if not own.trials:
        return f"{name} has the narrowest interval; there are too few cells to back-test any strategy"
    others = sorted((t.rms_lr_error or 0.0, len(t.trials), words) for words, t in tested.values() if t.trials)
    against = ", against " + ", ".join(f"{error:.2f} ({words}, on {n})" for error, n, words in others) if others else ""
    return (
        f"{name} has the smallest error expected at the target, its back-test and the distance counted in. On "
        f"{len(own.trials)} held-out cells it missed by {octave_words(own.rms_lr_error)}{against}"
    )


def _others(view: StudyView, chosen: Group, target: Scale) -> tuple[Fact, ...]:
    """What groups that were trained differently say; none is recommended over another."""
    said = []
    for group in view.groups:
        if group is chosen:
            continue
        best = view.answer(group, target).recommended
        words = "no recommendation" if best is None else lr_words(2.0**best.log2_lr)
        note = "" if best is None else f"{view.options.level:.0%} interval {Span(*best.log2_interval).words}"
        said.append(Fact(training_of(group), words, note))
    return tuple(said)


def _ticks(low: float, high: float) -> list[tuple[float, int]]:
    """Round powers of two inside the range, at most six: (log2, decimals)."""
    step = next((s for s in (0.05, 0.1, 0.25, 0.5, 1.0, 2.0) if (high - low) / s <= 6), 4.0)
    digits = 0 if step >= 1 else 1 if step in (0.1, 0.5) else 2
    first = math.ceil(low / step)
    return [(k * step, digits) for k in range(first, math.floor(high / step) + 1)]
