"""The report as Markdown: the same numbers, for a pull request or a terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence

from etastar import __version__
from etastar.report.headline import Headline
from etastar.report.section import Section
from etastar.report.tables import Table
from etastar.report.words import percent_words, power_words, sentence_words

_SPECIAL = re.compile(r"([\\`*_\[\]#|~])")


def build_markdown(sections: Sequence[Section], *, headline: int = 0) -> str:
    """All sections, the opening one's answer first."""
    opening = sections[headline]
    parts = [_answer(opening, "#")]
    for section in sections:
        parts.append(f"## {text(section.title)}")
        if section.intro:
            parts.append(text(section.intro))
        if section is not opening:
            parts.append(_answer(section, "###"))
        parts += _body(section)
    return "\n\n".join(part for part in parts if part) + f"\n\nMade by etastar {__version__}.\n"


def text(value: str) -> str:
    """What a user typed, without its power over Markdown or HTML."""
    flat = " ".join(value.split())
    return _SPECIAL.sub(r"\\\1", flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def _answer(section: Section, mark: str) -> str:
    head = section.headline
    if head is None:
        return f"{mark} No learning rate yet\n\n{text(section.waiting)}"
    target = str(head.target)
    if head.log2_lr is None:
        lines = [f"{mark} No recommendation for {target}", text(sentence_words(head.abstained or ""))]
        lines += ["\n".join(f"- {text(one.name)}: {text(one.value)}" for one in head.reasons)] if head.reasons else []
    else:
        lines = [f"{mark} Learning rate {head.lr} ({power_words(head.log2_lr)}) for {target}", _numbers(head)]
        lines.append(text(sentence_words(head.why)))
    if head.outcome:
        lines.append(text(head.outcome))
    if head.doubts:
        lines.append(
            "Doubts:\n\n" + "\n".join(f"- {text(sentence_words(d.sentence))} (`{d.code}`)" for d in head.doubts)
        )
    if head.would_help:
        lines.append(
            "Runs that would help:\n\n" + "\n".join(f"- {text(sentence_words(one))}" for one in head.would_help)
        )
    facts = [*head.facts, *head.conditions, *head.others]
    based = "\n".join(f"- {text(f.name)}: {text(f.value)}{f' ({text(f.note)})' if f.note else ''}" for f in facts)
    lines.append(f"Based on {text(section.title)}, {text(head.group)}:\n\n{based}")
    return "\n\n".join(lines)


def _numbers(head: Headline) -> str:
    safe = head.safe.words if head.safe else "none"
    ecr = percent_words(head.expected_ecr) if head.expected_ecr is not None else "unknown"
    interval = head.interval.words if head.interval else "–"
    return (
        f"| {head.level:.0%} interval | safe range (extra compute ≤ 2 %) | expected extra compute |\n|---|---|---|\n"
        f"| {interval} | {safe} | {ecr} |"
    )


def _body(section: Section) -> list[str]:
    parts: list[str] = []
    if section.progress:
        parts += ["### Progress", text(section.progress.words), table_text(section.progress.stacks)]
    if section.strategies:
        parts += ["### Strategies", table_text(section.strategies), *(table_text(t) for t in section.tables)]
    absent = [f"- {text(p.title)}: {text(sentence_words(p.missing))}" for p in section.plots if not p.views]
    if absent:
        parts += ["### Figures that this study cannot supply", "\n".join(absent)]
    if section.cells:
        parts += ["### Cells", table_text(section.cells)]
    if section.plan and section.plan.price and section.plan.stacks:
        parts += [
            "### Plan and cost",
            text(section.plan.words),
            table_text(section.plan.price),
            table_text(section.plan.stacks),
        ]
    elif section.plan:
        parts += ["### Plan and cost", text(section.plan.problem)]
    if section.theory:
        said = [
            *section.theory.sentences,
            *([f"No diagnosis: {section.theory.reason}."] if section.theory.reason else []),
        ]
        tables = [t for t in (section.theory.regimes, section.theory.calibration) if t]
        parts += ["### What the theory says", "\n\n".join(text(one) for one in said), *(table_text(t) for t in tables)]
        parts.append(text(section.theory.calibration_note))
    if section.provenance:
        values = "\n".join(f"- {text(name)}: {text(value)}" for name, value in section.provenance.values)
        notes = "\n".join(f"- {text(note)}" for note in section.provenance.notes)
        parts += ["### Provenance", values, notes]
    if section.runs:
        shared = ", ".join(f"{text(name)} {text(value)}" for name, value in section.runs.shared)
        parts += ["### Runs", f"All runs: {shared}." if shared else "", table_text(section.runs.table)]
        if section.runs.table.left_out:
            parts.append(f"{section.runs.table.left_out:,} more rows are in the study.")
    return parts


def table_text(table: Table) -> str:
    """A table with its caption above."""
    heads = [text(c.label or c.name) for c in table.columns]
    lines = [f"| {' | '.join(heads)} |", "|" + "".join("---:|" if c.numeric else "---|" for c in table.columns)]
    lines += [f"| {' | '.join(text(value) for value in row)} |" for row in table.spelled()]
    return f"{text(table.caption)}\n\n" + "\n".join(lines)
