"""Which axis, which quantity, at which budget? Errors and extra compute at the largest test cell, seed by seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from etastar.estimate.cells import Quantity
from etastar.laws.loglinear import Axis
from etastar.predict.budget import data_pairs, model_sets
from etastar.predict.evaluate import cost_of, predict_from
from etastar.predict.evidence import Evidence
from etastar.report.figures import ecr, r2_ood
from etastar.report.figures.missing import Missing
from etastar.report.results.claim import Claim, Verdict, signed, untested
from etastar.report.results.seeds import Truth, one_seed, seeds_of, truth_of
from etastar.report.view import StudyView, block_of
from etastar.scale import format_number

BUDGETS = (0.3, 0.4, 0.5, 0.6, 0.75, 0.9)
SETUPS = (
    ("D, η_eff", Axis.DATA, Quantity.EFF_LR, False),
    ("D, η", Axis.DATA, Quantity.LR, False),
    ("D, η_eff inverted", Axis.DATA, Quantity.EFF_LR, True),
    ("N, η_eff", Axis.MODEL, Quantity.EFF_LR, False),
    ("N, η", Axis.MODEL, Quantity.LR, False),
)
PROPORTIONAL = (0.8, 1.25)  # of the exponent of ECR in 1 − R²_OOD


@dataclass(frozen=True)
class Trial:
    """One setup at one budget: an error and an ECR a seed, where it said anything."""

    setup: str
    budget_ratio: float
    errors: tuple[float, ...]  # octaves of η
    ecrs: tuple[float, ...]
    true_cost: float | None  # of one seed, over a sweep at the target
    reason: str | None = None

    @property
    def error(self) -> float | None:
        """Mean |error| over seeds."""
        return float(np.mean(np.abs(self.errors))) if self.errors else None


def trials(view: StudyView) -> tuple[Trial, ...]:
    """The paper's training sets at a few budgets (and at those of the model axis), at the largest test cell."""
    truth = truth_of(view)
    if truth is None:
        return ()
    views = [one_seed(view, seed) for seed in seeds_of(view, truth.target.params)]
    evidences = [one.evidence(one.main) for one in views]
    sizes = model_sets([b.params for b in view.main.blocks], truth.target.params)
    found = []
    for beta in sorted({*BUDGETS, *(b for b, _ in sizes)}):
        sets = {Axis.DATA: _pair(view, truth, beta), Axis.MODEL: _sizes(sizes, beta, truth)}
        for name, axis, quantity, inverted in SETUPS:
            chosen = sets[axis]
            if chosen is not None:
                found.append(_trial(name, beta, evidences, axis, quantity, truth, chosen, inverted))
    return tuple(found)


def axes(view: StudyView, found: tuple[Trial, ...]) -> Claim:
    """D against N at the budgets that N can spend."""
    title = "extrapolating along D beats extrapolating along N at equal budget"
    paper = "at equal β the D-axis predicts the target's optimum better than the N-axis"
    truth = truth_of(view)
    along = {(t.setup, t.budget_ratio): t for t in found}
    lines, verdicts = [], set()
    for trial in found:
        other = along.get((f"D,{trial.setup[2:]}", trial.budget_ratio))
        if not trial.setup.startswith("N") or other is None or trial.error is None or other.error is None:
            continue
        lines.append(
            f"β = {trial.budget_ratio:.1%}, {trial.setup[3:]}: |error| {other.error:.2f} octave along D at {_cost(other)} true "
            f"cost, {trial.error:.2f} along N at {_cost(trial)}"
        )
        assert truth is not None
        blur = 0.5 * (truth.log2_interval[1] - truth.log2_interval[0])
        apart = abs(other.error - trial.error) > blur
        verdicts.add(
            Verdict.INDISTINCT
            if not apart
            else Verdict.SUPPORTED
            if other.error < trial.error
            else Verdict.CONTRADICTED
        )
    if not lines:
        return untested(title, paper, "no two smaller sizes were trained at the target's D")
    rule = "decided where the errors differ by more than half the truth's own interval"
    return Claim(title, paper, tuple(lines), rule, verdicts.pop() if len(verdicts) == 1 else Verdict.INDISTINCT)


def quantities(view: StudyView) -> Claim:
    """η_eff against η along D, by R²_OOD in η over all test cells."""
    title = "η_eff* extrapolates better than η* (R²_OOD)"
    paper = "at every budget and along both axes η_eff* has the higher R²_OOD; all rise with β"
    found = r2_ood.data(view)
    if isinstance(found, Missing):
        return untested(title, paper, found.reason)
    curves = {(c.axis, c.quantity): c for c in found.curves}
    eff, lr = curves[Axis.DATA.value, Quantity.EFF_LR.value], curves[Axis.DATA.value, Quantity.LR.value]
    shared = [b for b in eff.budget_ratio if b in lr.budget_ratio]
    if not shared:
        return untested(title, paper, eff.reason or lr.reason or "no budget has both")
    own = [_at(eff, b) > _at(lr, b) for b in shared]
    in_lr = [_at(eff, b, of_lr=True) > _at(lr, b, of_lr=True) for b in shared]
    lines = (
        f"{len(found.test_tokens)} test cells at N = {format_number(found.params)}, {len(shared)} budgets from "
        f"{shared[0]:.0%} to {shared[-1]:.0%}: η_eff is higher at {sum(own)} in its own quantity, at {sum(in_lr)} in η",
        *(
            f"β = {b:.0%}: R²_OOD {_at(eff, b):+.2f} (η_eff), {_at(lr, b):+.2f} (η); in η {_at(eff, b, of_lr=True):+.2f}".replace(
                "-", "−"
            )
            for b in shared[:: max(1, len(shared) // 4)]
        ),
    )
    verdict = Verdict.SUPPORTED if all(in_lr) else Verdict.CONTRADICTED if not any(in_lr) else Verdict.INDISTINCT
    return Claim(title, paper, lines, "supported if higher at every shared budget when both are judged in η", verdict)


def proportion(view: StudyView) -> Claim:
    """ECR ∝ 1 − R²_OOD."""
    title = "ECR is proportional to 1 − R²_OOD"
    paper = "over strategies and budgets the extra compute grows in proportion to the unexplained share"
    found = ecr.data(view)
    if isinstance(found, Missing):
        return untested(title, paper, found.reason)
    fit = found.proportion_lr
    if fit is None or fit.exponent is None or fit.pearson_r is None:
        return untested(title, paper, "fewer than three scores with an ECR")
    lines = (
        f"{fit.points} scores: log ECR against log(1 − R²_OOD in η) has slope {fit.exponent:.2f}, r {fit.pearson_r:.3f}, "
        f"scatter {fit.scatter:.2f} octave about ECR = {fit.factor:.2%} · (1 − R²_OOD)",
    )
    near = PROPORTIONAL[0] <= fit.exponent <= PROPORTIONAL[1]
    verdict = Verdict.SUPPORTED if near and fit.pearson_r > 0.9 else Verdict.CONTRADICTED
    return Claim(title, paper, lines, f"supported if the slope is within {PROPORTIONAL} and r above 0.9", verdict)


def table(found: tuple[Trial, ...]) -> list[str]:
    """The trials as Markdown rows."""
    lines = [
        "| β | setup | error in η by seed (octaves) | ECR by seed | true cost |",
        "|---|---|---|---|---|",
    ]
    for one in found:
        errors = ", ".join(signed(e, digits=2) for e in one.errors) or (one.reason or "–")
        costs = ", ".join(f"{e:.1%}" for e in one.ecrs) or "–"
        lines.append(f"| {one.budget_ratio:.1%} | {one.setup} | {errors} | {costs} | {_cost(one)} |")
    return lines


def _pair(view: StudyView, truth: Truth, beta: float) -> tuple[tuple[float, float], ...] | None:
    tokens = block_of(view.main, truth.target.params).tokens
    pair = data_pairs(tokens, truth.target.tokens, beta, first=float(tokens[0]))
    return None if pair is None else tuple((truth.target.params, d) for d in pair)


def _sizes(
    sizes: list[tuple[float, tuple[float, ...]]], beta: float, truth: Truth
) -> tuple[tuple[float, float], ...] | None:
    chosen = next((some for b, some in sizes if abs(b - beta) < 1e-9), None)
    return None if chosen is None else tuple((n, truth.target.tokens) for n in chosen)


def _trial(
    name: str,
    beta: float,
    evidences: list[Evidence],
    axis: Axis,
    quantity: Quantity,
    truth: Truth,
    training: tuple[tuple[float, float], ...],
    inverted: bool,
) -> Trial:
    errors, prices, reason = [], [], None
    for evidence in evidences:
        said = predict_from(evidence, axis, quantity, truth.target, training, inverted=inverted)
        if isinstance(said, str) or said.log2_lr is None:
            reason = said if isinstance(said, str) else said.reason
            continue
        errors.append(truth.error(said.log2_lr))
        price = truth.ecr(said.log2_lr)
        prices += [] if price is None else [price]
    cost = cost_of(evidences[0], training, truth.target).true_ratio
    return Trial(name, beta, tuple(errors), tuple(prices), cost, reason)


def _at(curve: r2_ood.StrategyCurve, beta: float, *, of_lr: bool = False) -> float:
    k = curve.budget_ratio.index(beta)
    value = curve.r2_ood_lr[k] if of_lr else curve.r2_ood[k]
    return float("nan") if value is None else value


def _cost(trial: Trial) -> str:
    return "–" if trial.true_cost is None else f"{trial.true_cost:.0%}"
