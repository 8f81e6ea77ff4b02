"""How good is each strategy at each budget? R²_OOD(β), ECR(β) and the paper's Table 1.

The test cells are those of the target's N inside a range of D; none enters its own prediction. For each
β and test cell a training set is bought on each axis, the law is fitted to it, and the prediction is
compared with the measured optimum, in the strategy's own quantity and in η.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from etastar.errors import InputError
from etastar.estimate.cells import Quantity
from etastar.estimate.flags import Flag, merge_flags
from etastar.laws.loglinear import Axis
from etastar.predict.budget import SweepCost, all_data_pairs, data_pairs, model_sets, sweep_cost
from etastar.predict.cost import Curves, cost_at
from etastar.predict.points import Points, at_tokens, same_params, stack
from etastar.predict.strategies import Evidence, Prediction, follow
from etastar.scale import Scale, format_number

Array = NDArray[np.float64]

STRATEGIES = tuple((axis, quantity) for axis in (Axis.DATA, Axis.MODEL) for quantity in (Quantity.EFF_LR, Quantity.LR))


@dataclass(frozen=True)
class Row:
    """One strategy, one budget, one test cell: a row of the paper's Table 1."""

    axis: Axis
    quantity: Quantity
    budget_ratio: float
    target: Scale
    training: tuple[tuple[float, float], ...]  # the (N, D) it was fitted on
    log2_value: float | None = None
    log2_error: float | None = None
    log2_lr_error: float | None = None
    loss_gap: float | None = None
    ecr: float | None = None
    cost: SweepCost | None = None
    flags: tuple[Flag, ...] = ()
    reason: str | None = None


@dataclass(frozen=True)
class Score:
    """One strategy at one budget, over all test cells."""

    axis: Axis
    quantity: Quantity
    budget_ratio: float
    tests: int
    log2_error: float | None  # root mean square, own quantity
    log2_lr_error: float | None  # root mean square, in η
    loss_gap: float | None
    ecr: float | None
    r2_ood: float | None
    r2_ood_lr: float | None
    true_cost: float | None
    reason: str | None


@dataclass(frozen=True)
class Evaluation:
    """Scores by strategy and budget, and the rows behind them."""

    group: str
    params: float
    test_tokens: tuple[float, ...]
    rows: tuple[Row, ...]
    scores: tuple[Score, ...]


def evaluate(
    evidence: Evidence,
    *,
    params: float,
    tokens: tuple[float, float],
    budgets: tuple[float, float],
    every_pair: bool = False,
) -> Evaluation:
    """Judge all strategies at every budget in the range, on the test cells of `params` in `tokens`."""
    lr = evidence.estimates[Quantity.LR]
    own = same_params(lr, params)
    if own is None:
        sizes = ", ".join(format_number(n) for n in np.unique(lr.params))
        raise InputError(
            f"params: no run has N = {format_number(params)}; there are {sizes}",
            hint="evaluation needs the target's own sweep as the truth: name a measured N",
        )
    tests = _test_cells(evidence, own, tokens)
    curves = Curves(lr)
    rows: list[Row] = []
    for index in tests:
        target = Scale(own, float(lr.tokens[index]))
        for axis in (Axis.DATA, Axis.MODEL):
            for beta, training in _training_sets(evidence, axis, target, budgets, every_pair):
                rows += [
                    _row(evidence, curves, int(index), axis, quantity, beta, target, training)
                    for quantity in (Quantity.EFF_LR, Quantity.LR)
                ]
    scores = _scores(evidence, rows, tests, 2 if every_pair else 6)
    return Evaluation(evidence.group.label, own, tuple(float(lr.tokens[k]) for k in tests), tuple(rows), scores)


def _test_cells(evidence: Evidence, params: float, tokens: tuple[float, float]) -> NDArray[np.int64]:
    lr = evidence.estimates[Quantity.LR]
    inside = (lr.params == params) & (lr.tokens >= tokens[0] * (1 - 1e-6)) & (lr.tokens <= tokens[1] * (1 + 1e-6))
    found = np.flatnonzero(inside & lr.usable)
    if len(found) == 0:
        statuses = sorted({lr.optima[k].status.value for k in np.flatnonzero(inside)})
        raise InputError(
            f"tokens: no cell of N = {format_number(params)} between {format_number(tokens[0])} and "
            f"{format_number(tokens[1])} has an interior optimum ({', '.join(statuses) or 'none was run'})",
            hint="name a range of D that was swept, e.g. --tokens 50B:100B",
        )
    return found[np.argsort(lr.tokens[found])]


def _training_sets(
    evidence: Evidence, axis: Axis, target: Scale, budgets: tuple[float, float], every_pair: bool
) -> list[tuple[float, tuple[tuple[float, float], ...]]]:
    """(β, the (N, D) cells) of every training set in the budget range."""
    lr = evidence.estimates[Quantity.LR]
    sizes = model_sets(lr.params, target.params)
    low, high = budgets[0] - 1e-9, budgets[1] + 1e-9
    if axis is Axis.MODEL:
        return [(b, tuple((n, target.tokens) for n in chosen)) for b, chosen in sizes if low <= b <= high]
    measured = np.unique(lr.tokens[(lr.params == target.params) & lr.usable])
    if every_pair:
        pairs = [(b, (d1, d2)) for b, d1, d2 in all_data_pairs(measured, target.tokens)]
    else:
        # a regular ladder of β, and the β of the model axis, so that both can be read side by side
        ladder = sorted({round(b, 6) for b in np.arange(budgets[0], budgets[1] + 1e-9, 0.01)} | {b for b, _ in sizes})
        found = [(b, data_pairs(measured, target.tokens, b, first=float(measured[0]))) for b in ladder]
        pairs = [(b, pair) for b, pair in found if pair is not None]
    return [(b, tuple((target.params, d) for d in pair)) for b, pair in pairs if low <= b <= high]


def _row(
    evidence: Evidence,
    curves: Curves,
    index: int,
    axis: Axis,
    quantity: Quantity,
    beta: float,
    target: Scale,
    training: tuple[tuple[float, float], ...],
) -> Row:
    row = Row(axis, quantity, beta, target, training)
    said = predict_from(evidence, axis, quantity, target, training)
    if isinstance(said, str):
        return replace(row, reason=said)
    if said.log2_value is None:
        return replace(row, reason=said.reason)
    own, lr = evidence.estimates[quantity], evidence.estimates[Quantity.LR]
    row = replace(
        row,
        log2_value=said.log2_value,
        log2_error=said.log2_value - float(own.log2_values[index]) if own.usable[index] else None,
        cost=cost_of(evidence, training, target),
        flags=said.flags,
        reason=said.reason,
    )
    if said.log2_lr is None:
        return row
    price = cost_at(curves, index, said.log2_lr)
    return replace(
        row,
        log2_lr_error=said.log2_lr - float(lr.log2_values[index]),
        loss_gap=price.loss_gap,
        ecr=price.ratio(target.tokens),
        flags=merge_flags(said.flags, price.flags),
        reason=price.reason,
    )


def predict_from(
    evidence: Evidence,
    axis: Axis,
    quantity: Quantity,
    target: Scale,
    training: tuple[tuple[float, float], ...],
    *,
    inverted: bool = False,
) -> Prediction | str:
    """Follow the law of exactly this training set of (N, D); D between two measured ones is interpolated."""
    if quantity not in evidence.estimates:
        return "η_eff was not measured in every run"
    estimates = evidence.estimates[quantity]
    # the map from η_eff to η may look at what the training set's trunks passed on their way, no further
    longest = {n: max(d for m, d in training if m == n) for n, _ in training}
    allowed = np.zeros(len(estimates.optima), dtype=bool)
    for n, d in longest.items():
        allowed |= (estimates.params == n) & (estimates.tokens <= d * (1 + 1e-9))
    points: list[Points] = []
    for n, d in training:
        point = at_tokens(estimates, n, d, estimates.usable)
        if point is None:
            return f"no usable cell at N = {format_number(n)}, D = {format_number(d)}"
        points.append(point)
    return follow(evidence, estimates, stack(points), axis, target, allowed, inverted=inverted)


def cost_of(evidence: Evidence, training: tuple[tuple[float, float], ...], target: Scale) -> SweepCost:
    """What a training set really costs."""
    return sweep_cost(evidence.group, _measured(evidence, training), target)


def _measured(evidence: Evidence, training: tuple[tuple[float, float], ...]) -> list[tuple[float, float]]:
    """The training set with each D moved to the nearest one that was run (for its price)."""
    found = []
    for block in evidence.group.blocks:
        wanted = [d for n, d in training if n == block.params]
        found += [(block.params, float(block.tokens[np.argmin(np.abs(block.tokens - d))])) for d in wanted]
    return found


def _scores(evidence: Evidence, rows: list[Row], tests: NDArray[np.int64], digits: int) -> tuple[Score, ...]:
    by_key: dict[tuple[Axis, Quantity, float], list[Row]] = {}
    for row in rows:
        by_key.setdefault((row.axis, row.quantity, round(row.budget_ratio, digits)), []).append(row)
    scores = [_score(evidence, *key, members, len(tests)) for key, members in by_key.items()]
    order = {strategy: k for k, strategy in enumerate(STRATEGIES)}
    return tuple(sorted(scores, key=lambda s: (s.budget_ratio, order[s.axis, s.quantity])))


def _score(evidence: Evidence, axis: Axis, quantity: Quantity, beta: float, rows: list[Row], tests: int) -> Score:
    errors = [row.log2_error for row in rows if row.log2_error is not None]
    lr_errors = [row.log2_lr_error for row in rows if row.log2_lr_error is not None]
    priced = [row for row in rows if row.ecr is not None]
    gaps = [row.loss_gap for row in rows if row.loss_gap is not None]
    reasons = sorted({row.reason for row in rows if row.reason})
    compute = sum(row.target.compute for row in priced)
    whole = len(priced) == len(rows)
    return Score(
        axis=axis,
        quantity=quantity,
        budget_ratio=beta,
        tests=len(rows),
        log2_error=_rms(errors),
        log2_lr_error=_rms(lr_errors),
        loss_gap=float(np.mean(gaps)) if gaps else None,
        ecr=sum((row.ecr or 0.0) * row.target.compute for row in priced) / compute if whole and compute else None,
        r2_ood=r2_ood(evidence, quantity, rows, [row.log2_error for row in rows]),
        r2_ood_lr=r2_ood(evidence, Quantity.LR, rows, [row.log2_lr_error for row in rows]),
        true_cost=float(np.mean([row.cost.true_ratio for row in rows if row.cost]))
        if any(r.cost for r in rows)
        else None,
        reason="; ".join(reasons) or (None if len(rows) >= tests else f"{len(rows)} of {tests} test cells"),
    )


def _rms(errors: list[float]) -> float | None:
    return float(np.sqrt(np.mean(np.square(errors)))) if errors else None


def r2_ood(evidence: Evidence, quantity: Quantity, rows: list[Row], errors: list[float | None]) -> float | None:
    """R²_OOD = 1 − Σ error² / Σ (log η* − mean log η*)²; None with fewer than two test cells."""
    estimates = evidence.estimates.get(quantity)
    if estimates is None or len(rows) < 2 or any(error is None for error in errors):
        return None
    at = {(float(n), float(d)): k for k, (n, d) in enumerate(zip(estimates.params, estimates.tokens, strict=True))}
    truth = np.array([estimates.log2_values[at[row.target.params, row.target.tokens]] for row in rows])
    spread = float(((truth - truth.mean()) ** 2).sum())
    if not spread > 0:
        return None
    return 1 - float(np.sum(np.square(np.array(errors, float)))) / spread
