"""`etastar demo`: a real study answered, then a sweep of your own machine's, on one page.

First the shipped study: its largest cell predicted from the small ones, and how far off that was. Then a sweep is
trained on this CPU, on text that every machine has, and joins the page. Started again, it goes on where it was.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from etastar.cli.report import fitted_part
from etastar.cli.train import train_spec
from etastar.estimate.cells import EffColumn, Quantity
from etastar.report.outcome import outcome_words
from etastar.report.page import write_report
from etastar.report.section import Section, study_section, waiting_section
from etastar.report.view import StudyView, block_of, read_study
from etastar.scale import Scale, format_number
from etastar.shipped import shipped_path

SHIPPED = "mini"
SEEN = 0.5  # share of the largest D up to which the laws see the widest model
FURTHER = 4.0  # the live sweep is asked about this many times its longest D


def demo_command(
    out: Annotated[Path, typer.Option("--out", help="Folder for report.html and the live study.")] = Path("out/demo"),
    live: Annotated[bool, typer.Option("--live/--no-live", help="Train the sweep on this CPU too.")] = True,
) -> None:
    """Predict the largest cell of a real study from its small ones, then train a sweep here; both in report.html.

    Takes a minute or so for the first part and a few for the second; the page is there after the first. Stop it at any
    moment: the same command goes on.
    """
    console, began = Console(highlight=False, soft_wrap=True), time.monotonic()
    page = out / "report.html"
    out.mkdir(parents=True, exist_ok=True)
    console.print(f"[bold]1. The shipped study[/] ({SHIPPED}: real runs, trained on an H200)")
    shipped = _shipped_section(console)
    write_report([shipped, *([waiting_section("Your own sweep", "it is being trained")] if live else [])], page)
    console.print(f"   {escape(str(page))} after {time.monotonic() - began:.0f} s; open it in a browser\n")
    if not live:
        return
    console.print(
        "[bold]2. A sweep of your own[/]: twelve learning rates in one stack, on the text of Python's library"
    )
    began = time.monotonic()
    if not train_spec(shipped_path(SHIPPED).parent / "demo.yaml", out / "live"):
        raise typer.Exit(3)
    write_report([shipped, _live_section(out / "live", console)], page)
    console.print(f"   trained and added to {escape(str(page))} after {time.monotonic() - began:.0f} s")


def _shipped_section(console: Console) -> Section:
    # its decay has a fixed length, which pulls the mean over all steps down where D is small
    whole = read_study(shipped_path(SHIPPED), where="optimizer = 'adamw'", eff_column=EffColumn.PLATEAU)
    params = whole.main.blocks[-1].params
    longest = float(block_of(whole.main, params).tokens[-1])
    target = Scale(params, longest)
    seen = fitted_part(whole, f"params < {params} or tokens <= {SEEN * longest}")
    best = seen.answer(seen.main, target).recommended
    outcome = outcome_words(whole, target, best)
    console.print(
        f"   asked: {format_number(params)} parameters × {format_number(longest)} tokens, from smaller models and "
        f"from runs of at most {format_number(SEEN * longest)} tokens at that size"
    )
    _say(console, seen, target)
    console.print(f"   {escape(outcome)}")
    return study_section(seen, target, title="The shipped study", outcome=outcome, folder=shipped_path(SHIPPED))


def _live_section(study: Path, console: Console) -> Section:
    view = read_study(study)
    for optimum in view.estimates(view.main)[Quantity.LR].optima:
        said = "no optimum" if optimum.value is None else f"{optimum.value:.3g} (2^{optimum.log2_value:.2f})"
        console.print(f"   η* at D = {format_number(optimum.tokens)}: {said}, {optimum.status.value}")
    block = view.main.blocks[-1]
    target = Scale(block.params, FURTHER * float(block.tokens[-1]))
    console.print(f"   asked: the same model on {format_number(target.tokens)} tokens")
    _say(console, view, target)
    return study_section(view, target, title="Your own sweep", folder=study)


def _say(console: Console, view: StudyView, target: Scale) -> None:
    found = view.answer(view.main, target)
    if found.recommended is None:
        console.print(f"   no answer: {escape(found.abstained or '')}. Abstaining is an answer, too.")
        return
    low, high = (2.0**end for end in found.recommended.log2_interval)
    console.print(
        f"   learning rate [bold]{2.0**found.recommended.log2_lr:.3g}[/], {view.options.level:.0%} interval "
        f"{low:.3g} … {high:.3g}; doubts: {', '.join(flag.value for flag in found.recommended.flags) or 'none'}"
    )
