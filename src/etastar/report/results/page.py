"""RESULTS.md: every claim with its figure and verdict, the headline, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass

from etastar.estimate.cells import EffColumn, Quantity
from etastar.report.results import dynamics, headline, laws, transfer
from etastar.report.results.claim import Claim
from etastar.report.results.seeds import main_rows, seeds_of
from etastar.report.view import StudyView, training_of
from etastar.scale import format_number


@dataclass(frozen=True)
class Parts:
    """What a page is made of; each part can be another process's work."""

    cuts: dict[EffColumn, tuple[headline.Cut, ...]]
    trials: tuple[transfer.Trial, ...]
    claims: tuple[Claim, ...]  # all but that of the axes, which is read off the trials


def parts_of(view: StudyView) -> Parts:
    """Every part, one after another."""
    cuts = {column: headline.cuts(view, column) for column in headline.MEANS.values()}
    return Parts(cuts, transfer.trials(view), claims(view))


def claims(view: StudyView) -> tuple[Claim, ...]:
    """Every claim but that of the axes."""
    return (
        laws.straighter(view),
        laws.bend(view),
        laws.foreseen(view),
        transfer.quantities(view),
        transfer.proportion(view),
        dynamics.regimes(view),
        dynamics.theory_fit(view),
        dynamics.no_decay(view),
        laws.adamh(view),
        dynamics.spread(view),
        dynamics.degrees(view),
    )


def markdown(view: StudyView, command: str, made: Parts) -> str:
    """The whole page; the same study gives the same bytes."""
    tested = (*made.claims[:3], transfer.axes(view, made.trials), *made.claims[3:])
    sentence, tables = headline.lines(view, made.cuts)
    parts = [
        f"# Results: {view.name}",
        f"Written by `{command}`. The paper's claims on the runs of this study; nothing here was typed by hand.",
        "\n".join(_runs(view)),
        "## Headline",
        sentence[0].upper() + sentence[1:],
        "One seed at the target's own N, every third horizon up to a cut, asked as a user would ask; errors against "
        "the optimum of all seeds at the largest cell. True cost: what the runs took, trunks paid once, over the same "
        "learning rates swept at the target.",
        "\n".join(tables),
        "## Claims",
        "\n".join(["| claim | verdict |", "|---|---|", *(f"| {c.title} | **{c.verdict.value}** |" for c in tested)]),
        *(_section(claim) for claim in tested),
        "## All strategies by budget",
        "The paper's training sets, one seed at a time, at the largest test cell: along D the shortest horizon and the "
        "one that spends the rest of β; along N the smaller sizes at the target's D. Straight laws, as the paper has them.",
        "\n".join(transfer.table(made.trials)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(claim: Claim) -> str:
    body = "\n".join(f"- {line}" for line in claim.ours)
    rule = f"\n\nRule: {claim.rule}." if claim.rule else ""
    return f"### {claim.title}: {claim.verdict.value}\nThe paper: {claim.paper}.\n\n{body}{rule}"


def _runs(view: StudyView) -> list[str]:
    lines = ["| training | N | horizons | D | learning rates | seeds |", "|---|---|---|---|---|---|"]
    for group in view.groups:
        for block in group.blocks:
            seeds = len(seeds_of(view, block.params)) if group is view.main else len(block.seeds)
            lines.append(
                f"| {training_of(group)} | {format_number(block.params)} | {len(block.tokens)} | "
                f"{format_number(block.tokens[0])} … {format_number(block.tokens[-1])} | {len(block.log2_lr)} | {seeds} |"
            )
    finished = sum(status == "finished" for status in view.table["status"].to_pylist())
    lines += [
        "",
        f"{finished} of {view.table.num_rows} runs finished; {main_rows(view).num_rows} of them are in the main group.",
    ]
    statuses = [o.status.value for group in view.groups for o in view.estimates(group)[Quantity.LR].optima]
    interior = sum(status == "INTERIOR" for status in statuses)
    lines.append(f"{interior} of {len(statuses)} optima are INTERIOR; others enter no law.")
    return lines
