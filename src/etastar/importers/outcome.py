"""How did the runs end? One loss for all of them, a status each, and the mean η_eff where it was logged.

Losses of different metrics lie on different curves, so one metric is chosen for the whole source: the validation
loss that most runs have. η_eff is taken as it was logged; failing that it is approximated from the norms of
weights and steps, and marked.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from etastar.importers import names as n
from etastar.importers.raw import RawRun, Series
from etastar.records import RunStatus

_OURS = "etastar/"  # how the monitor's metrics begin
_MEAN, _PLATEAU = "etastar/mean_eff_lr", "etastar/plateau_eff_lr"
_WEIGHT = ("weight_norm", "param_norm", "weights_norm", "params_norm")
_STEP = ("step_norm", "delta_norm", "update_norm")
# "weight_norm/blocks.0.attn", "blocks.0.attn/weight_norm", "train/grad_norm", "etastar/eff_lr"
_PER_WEIGHT = re.compile(
    r"^(?P<before>(?:.*?[/.])?)(?P<what>[a-z]+_norm|eff_lr|update_dot_weight)(?:[/.](?P<weight>.+))?$"
)
_NO_WEIGHT = ("", "etastar", "train", "optim", "norms", "norm", "stats", "monitor", "metrics")


@dataclass(frozen=True)
class LossChoice:
    """Which metric is the loss, and which others could have been."""

    metric: str | None
    others: tuple[str, ...]
    validation: bool
    training: str | None  # the training loss, for trajectories


def choose_loss(runs: tuple[RawRun, ...], mapped: str | None = None) -> LossChoice:
    """The metric that is the loss: the mapped one; else the best-known validation loss that most runs have."""
    counts: dict[str, int] = {}
    for run in runs:
        for name in run.metrics:
            counts[name] = counts.get(name, 0) + 1
    known = {name: place for place, name in enumerate(n.VALIDATION)}
    candidates = [name for name in counts if name.lower() in known or n.validation_like(name)]
    order = sorted(candidates, key=lambda name: (-counts[name], known.get(name.lower(), 99), len(name), name))
    ranked = {name: place for place, name in enumerate(n.TRAINING)}
    trained = sorted((c for c in counts if c.lower() in ranked), key=lambda c: (-counts[c], ranked[c.lower()]))
    training = trained[0] if trained else None
    if mapped is not None:
        return LossChoice(mapped, tuple(c for c in order if c != mapped), True, training)
    if order:
        return LossChoice(order[0], tuple(order[1:]), True, training)
    return LossChoice(training, (), False, training)


def status_of(run: RawRun, loss: float | None, planned: float | None) -> tuple[RunStatus, str]:
    """How a run ended, and why that is thought."""
    if loss is not None and not math.isfinite(loss):
        return RunStatus.DIVERGED, "its loss is not finite"
    training = [s.last for name, s in run.metrics.items() if name.lower() in n.TRAINING]
    if loss is None and any(not math.isfinite(value) for value in training):
        return RunStatus.DIVERGED, "its training loss is not finite"
    if run.status is RunStatus.CRASHED:
        return RunStatus.CRASHED, "its tracker says that it did not finish"
    trusted = run.status is None or run.own_step is not None
    if trusted and planned and run.last_step + max(_gap(run), 1) < planned:
        return RunStatus.CRASHED, f"it stopped at step {run.last_step} of {planned:g}"
    return RunStatus.FINISHED, ""


def _gap(run: RawRun) -> int:
    """The usual distance between logged steps: a run's last log may lie so far before its end."""
    usual = [int(np.median(np.diff(s.steps))) for s in run.metrics.values() if len(s.steps) > 1]
    return min(usual, default=0)


@dataclass(frozen=True)
class EffLr:
    """η_eff of a run: means, each step's, each weight's norms; and whether it was worked out from norms."""

    mean: float | None
    plateau: float | None
    approximate: bool
    origin: str
    rows: dict[tuple[int, str | None], dict[str, float]]  # (step, weight) → trajectory columns


def eff_lr_of(run: RawRun, rate: Series | None) -> EffLr:
    """What a run's metrics say about η_eff."""
    rows: dict[tuple[int, str | None], dict[str, float]] = {}
    ours = False
    for name, series in run.metrics.items():
        match = _PER_WEIGHT.match(name)
        column = _column(match["what"]) if match else None
        if match is None or column is None:
            continue
        before = match["before"].rstrip("/.")
        weight = match["weight"] or (before if before not in _NO_WEIGHT else None)
        ours |= name.startswith(_OURS)
        if weight is None and column == "grad_norm":
            continue
        for step, value in zip(series.steps, series.values, strict=True):
            rows.setdefault((step, weight), {})[column] = value
    mean = _positive(run.metrics.get(_MEAN))
    plateau = _positive(run.metrics.get(_PLATEAU))
    if mean is not None:
        return EffLr(mean, plateau, False, _MEAN, rows)
    logged = [row["eff_lr"] for row in rows.values() if row.get("eff_lr", 0) > 0 and math.isfinite(row["eff_lr"])]
    if logged:
        return EffLr(_mean(rows), plateau, False, f"mean of η_eff over {_steps(rows)} logged steps", rows)
    return _from_norms(rows, plateau, rate if ours else None)


def _from_norms(rows: dict, plateau: float | None, rate: Series | None) -> EffLr:
    """η_eff ≈ ‖w_{t+1} − w_t‖ / ‖w_t‖: right where the step is nearly orthogonal to the weight."""
    rates = dict(zip(rate.steps, rate.values, strict=True)) if rate is not None else {}
    how = ""
    for (step, _weight), row in rows.items():
        weight = row.get("weight_norm", 0.0)
        taken, said = row.get("step_norm"), "step_norm / weight_norm"
        if taken is None and "update_norm" in row:
            # our own update_norm is before the LR; in other people's logs an update is the step itself
            factor = rates.get(step) if rate is not None else 1.0
            taken = row["update_norm"] * factor if factor else None
            said = "lr × update_norm / weight_norm" if rate is not None else "update_norm / weight_norm"
        if taken is not None and weight > 0 and math.isfinite(taken / weight) and taken > 0:
            row["eff_lr"] = taken / weight
            how = how or said
    if not how:
        return EffLr(None, plateau, False, "", rows)
    return EffLr(_mean(rows), plateau, True, f"approximate: {how} over {_steps(rows)} logged steps", rows)


def _mean(rows: dict[tuple[int, str | None], dict[str, float]]) -> float:
    """Mean over steps of the mean over weights; the row of the whole run where no weight has one."""
    per_weight = any(weight is not None and "eff_lr" in row for (_, weight), row in rows.items())
    by_step: dict[int, list[float]] = {}
    for (step, weight), row in rows.items():
        value = row.get("eff_lr", math.nan)
        if (weight is not None) == per_weight and math.isfinite(value) and value > 0:
            by_step.setdefault(step, []).append(value)
    return float(np.mean([np.mean(values) for values in by_step.values()]))


def _steps(rows: dict[tuple[int, str | None], dict[str, float]]) -> int:
    return len({step for (step, _), row in rows.items() if "eff_lr" in row})


def _column(what: str) -> str | None:
    if what in _WEIGHT:
        return "weight_norm"
    if what == "delta_norm":
        return "step_norm"
    return what if what in (*_STEP, "grad_norm", "eff_lr", "update_dot_weight") else None


def _positive(series: Series | None) -> float | None:
    return series.last if series is not None and math.isfinite(series.last) and series.last > 0 else None
