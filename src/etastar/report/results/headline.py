"""For what share of a target-scale sweep does etastar name a good learning rate, and what would others have said?

One seed at the target's own N, every third horizon up to a cut, asked as a user would ask (`answer`): the recommended
learning rate against the optimum of all seeds at the largest cell. Beside it what a user would do instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from etastar.estimate.cells import EffColumn, Quantity
from etastar.laws.loglinear import Axis
from etastar.laws.published import STEP_LAW
from etastar.predict.budget import sweep_cost
from etastar.predict.strategies import predict_strategy
from etastar.report.results.claim import signed
from etastar.report.results.seeds import Truth, main_rows, one_seed, seeds_of, truth_of
from etastar.report.view import StudyView, block_of

NEAR, CHEAP = 0.15, 0.02  # octaves, ECR
EVERY = 3  # horizons are about 1.15 apart: every third is a factor of 1.5
MEANS = {
    "η_eff averaged over all steps, as the paper does": EffColumn.MEAN,
    "η_eff averaged between warm-up and decay": EffColumn.PLATEAU,
}
SMALLEST, LARGEST = 0.25, 0.8  # cuts, as shares of the target's D


@dataclass(frozen=True)
class Said:
    """One seed's answer."""

    error: float | None
    ecr: float | None
    inside: bool  # the 90 % interval meets the truth's
    words: str


@dataclass(frozen=True)
class Cut:
    """All seeds, having trained so far."""

    share: float  # of the target's D
    horizons: int
    true_cost: float  # of one seed, over a sweep of one seed at the target
    said: tuple[Said, ...]

    @property
    def near(self) -> bool:
        """Every seed's answer is within 0.15 octave."""
        return all(one.error is not None and abs(one.error) <= NEAR for one in self.said)

    @property
    def cheap(self) -> bool:
        """Every seed's answer costs below 2 %."""
        return all(one.ecr is not None and one.ecr < CHEAP for one in self.said)


@dataclass(frozen=True)
class Rival:
    """What a user would do instead."""

    name: str
    error: float | None
    ecr: float | None
    true_cost: float
    remark: str = ""


def cuts(view: StudyView, column: EffColumn) -> tuple[Cut, ...]:
    """The answer from every cut, shortest first; none where the largest cell has no optimum."""
    truth, view = truth_of(view), view.with_eff_lr(column)
    if truth is None:
        return ()
    tokens = block_of(view.main, truth.target.params).tokens
    inside = [d for d in tokens if SMALLEST <= d / truth.target.tokens <= LARGEST]
    return tuple(_cut(view, truth, tokens[tokens <= cut][::-1][::EVERY]) for cut in inside[::2])


def _cut(view: StudyView, truth: Truth, chosen: np.ndarray) -> Cut:
    rows = main_rows(view)
    rows = rows.filter(pc.field("params") == truth.target.params)
    rows = rows.filter(pc.field("tokens").isin(chosen.tolist()))
    steps = int(max(rows["steps"].to_pylist()))
    said, cost = [], 0.0
    for seed in seeds_of(view, truth.target.params):
        one = one_seed(view, seed, rows, steps=steps)
        found = one.answer(one.main, truth.target).recommended
        cost = sweep_cost(one.main, [(truth.target.params, float(d)) for d in chosen], truth.target).true_ratio
        if found is None:
            said.append(Said(None, None, False, "abstains"))
            continue
        low, high = found.log2_interval
        meets = low <= truth.log2_interval[1] and high >= truth.log2_interval[0]
        how = f"{found.axis.value}, {'inverted' if found.inverted else found.quantity.value}"
        said.append(Said(truth.error(found.log2_lr), truth.ecr(found.log2_lr), meets, how))
    return Cut(float(chosen.max()) / truth.target.tokens, len(chosen), cost, tuple(said))


def rivals(view: StudyView, truth: Truth) -> tuple[Rival, ...]:
    """Raw η along N, Step Law's formula, the smallest model's optimum."""
    one = one_seed(view, seeds_of(view, truth.target.params)[0])
    lr = one.estimates(one.main)[Quantity.LR]
    smaller = np.flatnonzero((lr.params < truth.target.params) & (lr.tokens == truth.target.tokens) & lr.usable)
    found = []
    evidence = one.evidence(one.main)
    along = predict_strategy(evidence, Axis.MODEL, Quantity.LR, truth.target, lr.params < truth.target.params * 0.99)
    cells = [(float(lr.params[k]), truth.target.tokens) for k in smaller]
    if along.log2_lr is not None:
        cost = sweep_cost(one.main, cells, truth.target).true_ratio
        found.append(
            _rival("raw η along N", along.log2_lr, truth, cost, f"{len(cells)} smaller sizes at the target's D")
        )
    if len(smaller):
        k = int(smaller[0])
        cost = sweep_cost(one.main, cells[:1], truth.target).true_ratio
        found.append(_rival("the smallest model's optimum", float(lr.log2_values[k]), truth, cost))
    rows = main_rows(view)
    body = rows.filter(pc.field("params") == truth.target.params)["params_nonembedding"].to_pylist()[0]
    batch = view.main.conditions.get("batch_tokens")
    said = STEP_LAW.lr(
        params=truth.target.params,
        tokens=truth.target.tokens,
        params_nonembedding=body,
        batch_tokens=batch if isinstance(batch, float) else None,
    )
    if said.lr is not None:
        remark = "outside the range it was fitted on" if said.flags else ""
        found.append(_rival("Step Law's formula", float(np.log2(said.lr)), truth, 0.0, remark))
    return tuple(found)


def _rival(name: str, log2_lr: float, truth: Truth, cost: float, remark: str = "") -> Rival:
    price = truth.ecr(log2_lr)
    return Rival(name, truth.error(log2_lr), price, cost, remark or ("" if price is not None else "outside the sweep"))


def lines(view: StudyView, by_mean: Mapping[EffColumn, tuple[Cut, ...]]) -> tuple[str, list[str]]:
    """(the sentences, the tables) as Markdown, from the cuts with each mean of η_eff."""
    truth = truth_of(view)
    if truth is None:
        return "The largest cell has no interior optimum: nothing to predict.", []
    sentences, table = [], []
    for name, column in MEANS.items():
        found = by_mean[column]
        sentences.append(f"With {name}, {_sentence(found)}")
        table += [f"With {name}:", "", *_rows(found), ""]
    blur = 0.5 * (truth.log2_interval[1] - truth.log2_interval[0])
    sentences.append(f"The truth's own 90 % interval is ±{blur:.2f} octave.")
    table += ["| instead | error (octaves) | ECR | true cost | remark |", "|---|---|---|---|---|"]
    for one in rivals(view, truth):
        price = "–" if one.ecr is None else f"{one.ecr:.1%}"
        error = "–" if one.error is None else signed(one.error, digits=2)
        table.append(f"| {one.name} | {error} | {price} | {one.true_cost:.0%} | {one.remark} |")
    return " ".join(sentences), table


def _rows(found: tuple[Cut, ...]) -> list[str]:
    table = [
        "| longest run, of the target's D | horizons | true cost | error by seed (octaves) | ECR by seed | "
        "intervals that hold it |",
        "|---|---|---|---|---|---|",
    ]
    for cut in found:
        errors = ", ".join("abstains" if s.error is None else signed(s.error, digits=2) for s in cut.said)
        prices = ", ".join("–" if s.ecr is None else f"{s.ecr:.2%}" for s in cut.said)
        held = f"{sum(s.inside for s in cut.said)} of {len(cut.said)}"
        table.append(f"| {cut.share:.0%} | {cut.horizons} | {cut.true_cost:.0%} | {errors} | {prices} | {held} |")
    return table


def _sentence(found: tuple[Cut, ...]) -> str:
    """The smallest cut from which every larger one is good, too."""
    near, cheap = (_lasting(found, of) for of in ("near", "cheap"))
    of_sweep = "of a target-scale sweep's true cost on"
    first = (
        f"extra compute stays below {CHEAP:.0%} for every seed from {cheap.true_cost:.0%} {of_sweep}"
        if cheap is not None
        else f"no cut keeps the extra compute below {CHEAP:.0%} for every seed"
    )
    second = (
        f"the learning rate is within {NEAR} octave for every seed from {near.true_cost:.0%} on"
        if near is not None
        else f"no cut brings every seed within {NEAR} octave"
    )
    return f"{first}, and {second}."


def _lasting(found: tuple[Cut, ...], of: str) -> Cut | None:
    good = None
    for cut in reversed(found):
        if not getattr(cut, of):
            break
        good = cut
    return good
