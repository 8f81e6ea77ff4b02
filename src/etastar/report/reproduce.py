"""How does everything that a study shows come out of it in one go? Figures, Table 1 and RESULTS.md.

The parts are independent, and each is a process's work: on two cores figures are drawn while strategies are tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from etastar.estimate.cells import EffColumn
from etastar.report.figures import FIGURES
from etastar.report.figures.files import Outcome, write_figure
from etastar.report.results import headline, transfer
from etastar.report.results.claim import Claim
from etastar.report.results.page import Parts, claims, markdown
from etastar.report.view import read_study


@dataclass(frozen=True)
class Done:
    """A part that is finished: which, and the files it wrote."""

    part: str
    outcomes: tuple[Outcome, ...] = ()


def reproduce(study: Path, out: Path, command: str, formats: tuple[str, ...], jobs: int) -> Iterator[Done]:
    """Write `out`/figures and `out`/RESULTS.md; yields parts as they finish."""
    (out / "figures").mkdir(parents=True, exist_ok=True)
    # not forked: a forked child of a process with threads may hang
    with ProcessPoolExecutor(max_workers=jobs, mp_context=get_context("spawn")) as pool:
        shown = pool.submit(_claims_and_figures, study, out / "figures", formats)
        told = {column: pool.submit(_cuts, study, column) for column in headline.MEANS.values()}
        tried = pool.submit(_trials, study)
        names: dict[Future, str] = {shown: "claims and figures", tried: "strategies by budget"}
        names |= {future: f"recommendations from short runs, by {column.value}" for column, future in told.items()}
        for future in as_completed(names):
            found = future.result()
            yield Done(names[future], tuple(found[1]) if future is shown else ())
    made = Parts({column: one.result() for column, one in told.items()}, tried.result(), shown.result()[0])
    (out / "RESULTS.md").write_text(markdown(read_study(study), command, made), encoding="utf-8")
    yield Done("RESULTS.md")


def _cuts(study: Path, column: EffColumn) -> tuple[headline.Cut, ...]:
    return headline.cuts(read_study(study), column)


def _trials(study: Path) -> tuple[transfer.Trial, ...]:
    return transfer.trials(read_study(study))


def _claims_and_figures(study: Path, folder: Path, formats: tuple[str, ...]) -> tuple[tuple[Claim, ...], list[Outcome]]:
    """Together, because both look at the same evaluation and calibration, which a view computes once."""
    view = read_study(study)
    return claims(view), [write_figure(figure, view, folder, formats) for figure in FIGURES]
