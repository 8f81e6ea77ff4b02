"""Why does η* bend, in which regime are the sweep and the target, and may a straight η law be trusted?

The measured η_eff* law, carried through the theory's map at every swept D and at the target, is a
prediction of η*(D): its curvature stands beside the one that was measured, and what a straight η law
would miss at the target is a number. Either sign is possible.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from etastar.errors import EtastarError
from etastar.estimate.cells import Quantity
from etastar.laws.loglinear import Axis, Line, cell_weights, curvature_test
from etastar.predict.convert import EffMap, TransientMap
from etastar.predict.invert import RecursionMap, Theory, matrices_of, source_of
from etastar.predict.points import collect, same_params
from etastar.predict.strategies import Evidence
from etastar.scale import Scale
from etastar.theory.planned import MatricesAt, PlannedRun
from etastar.theory.regime import Diagnosis, diagnose, trust_in_words

Array = NDArray[np.float64]

TRUSTED, CAREFUL = 0.1, 0.3  # octaves that a straight η law may miss the target by


@dataclass(frozen=True)
class PredictedBend:
    """η*(D) that the η_eff* law implies at one N, beside the measured one. Curvatures are octaves/octave²."""

    tokens: tuple[float, ...]  # the swept D of that N
    log2_lr: tuple[float, ...]  # predicted log2 η* there, and at the target (last)
    curvature: float | None  # of log2 η* in log2 D over the swept D; None below three
    curvature_interval: tuple[float, float] | None
    measured_curvature: float | None
    measured_interval: tuple[float, float] | None
    eff_curvature: float | None  # of the measured η_eff* itself: the premise is that it is none
    eff_interval: tuple[float, float] | None
    octaves_at_target: float  # predicted η* − the straight line through the swept D (+: the line is too low)
    octaves_interval: tuple[float, float]
    words: str


@dataclass(frozen=True)
class StudyDiagnosis:
    """Regimes of the sweep and the target, and the bend; `reason` says why where there is nothing to say."""

    source: str | None = None
    swept_tokens: float | None = None  # the horizon at which the swept LRs are looked at: the longest
    swept: tuple[Diagnosis, ...] = ()
    target: Diagnosis | None = None
    bend: PredictedBend | None = None
    trust: str | None = None
    reason: str | None = None


def diagnose_study(evidence: Evidence, target: Scale, log2_lr: float | None, level: float) -> StudyDiagnosis:
    """Diagnose the target's N (or the nearest measured one) at the recommended log2 η."""
    if isinstance(evidence.theory, str):
        return StudyDiagnosis(reason=evidence.theory)
    if Quantity.EFF_LR not in evidence.estimates:
        return StudyDiagnosis(reason="η_eff was not measured in every run")
    estimates = evidence.estimates[Quantity.EFF_LR]
    sizes = np.unique(estimates.params)
    params = same_params(estimates, target.params) or float(sizes[np.argmin(np.abs(np.log2(sizes / target.params)))])
    everything = np.ones(len(estimates.optima), dtype=bool)
    way = evidence.inverted(params, everything, None, from_start=True)
    if isinstance(way, str):
        return StudyDiagnosis(reason=way)
    try:
        return _diagnosed(evidence, evidence.theory, way, params, target, log2_lr, level)
    except EtastarError as error:
        return StudyDiagnosis(source=str(source_of(way)), reason=error.message)


def _diagnosed(
    evidence: Evidence, theory: Theory, way: EffMap, params: float, target: Scale, log2_lr: float | None, level: float
) -> StudyDiagnosis:
    block = next(b for b in theory.group.blocks if b.params == params)
    swept_tokens = float(block.tokens[-1])
    run = theory.sweep.planned(swept_tokens)
    rates = block.log2_lr[np.isfinite(block.log2_eff_lr[-1])]
    swept = diagnose(np.exp2(rates), run=run, matrices=_matrices(way, run))
    there = None
    if log2_lr is not None:
        asked = (evidence.settings or theory.sweep).planned(target.tokens)
        there = diagnose(2.0**log2_lr, run=asked, matrices=_matrices(way, asked))[0]
    found = _bend(evidence, way, params, target, level)
    near = _near_optimum(swept, block.loss[-1][np.isfinite(block.log2_eff_lr[-1])])
    trust = found.words if found is not None else trust_in_words(near, there) if there is not None else None
    return StudyDiagnosis(str(source_of(way)), swept_tokens, swept, there, found, trust)


def _matrices(way: EffMap, run: PlannedRun) -> MatricesAt | None:
    if isinstance(way, TransientMap):
        return matrices_of(way)
    return way.matrices_for(run) if isinstance(way, RecursionMap) else None


def _near_optimum(swept: tuple[Diagnosis, ...], losses: Array) -> tuple[Diagnosis, ...]:
    best = swept[int(np.argmin(np.where(np.isfinite(losses), losses, np.inf)))].lr
    return tuple(one for one in swept if abs(np.log2(one.lr / best)) <= 1.001)


def _bend(evidence: Evidence, way: EffMap, params: float, target: Scale, level: float) -> PredictedBend | None:
    """The η_eff* law of this N through the map at each D, redraw by redraw; None below two cells."""
    eff, lr = evidence.estimates[Quantity.EFF_LR], evidence.estimates[Quantity.LR]
    here = Scale(params, target.tokens)
    points = collect(eff, Axis.DATA, here, eff.usable & lr.usable)
    if isinstance(points, str) or not way.covers(target.tokens):
        return None
    d, scales = points.log2_tokens, points.scales(Axis.DATA)
    line = Line.through(scales, points.weight)
    everywhere = np.append(d, np.log2(target.tokens))
    mixes = np.stack([line.at(np.array([x])) for x in everywhere])
    values, drawn = points.values(eff.log2_values), points.values(eff.replicates)
    law = np.vstack([mixes @ values, drawn @ mixes.T])  # (1 + redraws, horizons + 1)
    rates = np.column_stack([way.log2_lr(law[:, k], float(2.0**x)) for k, x in enumerate(everywhere)])
    straight = Line.through(scales, cell_weights(lr)[points.cell[:, 0]])
    missed = rates[:, -1] - rates[:, :-1] @ straight.at(np.array([everywhere[-1]]))
    told = curvature_test(scales, rates[0, :-1], rates[1:, :-1], straight, level=level)
    measured = curvature_test(
        scales, points.values(lr.log2_values), points.values(lr.replicates), straight, level=level
    )
    premise = curvature_test(scales, values, drawn, line, level=level)
    tails = [0.5 * (1 - level), 0.5 * (1 + level)]
    low, high = np.quantile(missed[1:] - missed[1:].mean() + missed[0], tails)
    return PredictedBend(
        tokens=tuple(float(x) for x in 2.0**d),
        log2_lr=tuple(float(x) for x in rates[0]),
        curvature=None if told is None else told[0],
        curvature_interval=None if told is None else told[1],
        measured_curvature=None if measured is None else measured[0],
        measured_interval=None if measured is None else measured[1],
        eff_curvature=None if premise is None else premise[0],
        eff_interval=None if premise is None else premise[1],
        octaves_at_target=float(missed[0]),
        octaves_interval=(float(low), float(high)),
        words=_words(float(missed[0]), told, measured, premise),
    )


Curvature = tuple[float, tuple[float, float], bool] | None


def _words(missed: float, told: Curvature, measured: Curvature, premise: Curvature) -> str:
    """May a straight η law be trusted to the target, by what the η_eff* law and the theory imply?"""
    if abs(missed) < TRUSTED:
        verdict = f"a straight η law can be trusted to the target: it would miss by {abs(missed):.2f} octaves"
    else:
        side, fault = ("up", "low") if missed > 0 else ("down", "high")
        trust = "can be trusted with care" if abs(missed) < CAREFUL else "cannot be trusted"
        verdict = (
            f"a straight η law {trust} to the target: η* bends {side}, "
            f"the line is {abs(missed):.2f} octaves too {fault} there"
        )
    if told is None or measured is None or premise is None:
        return verdict + " (fewer than three horizons: the runs cannot show a bend)"
    if premise[2]:
        return verdict + "; but the η_eff* law itself bends measurably, so no straight law is safe here"
    low, high = measured[1]
    agree = "agree with" if low <= told[0] <= high else "bend otherwise than"
    return verdict + f"; the measured optima {agree} the predicted curvature"
