"""What does the theory say of this study? Regimes of the sweep and the target, the bend, and how well it fits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from etastar.estimate.cells import Group
from etastar.predict.calibration import StudyReport
from etastar.predict.diagnosis import PredictedBend, StudyDiagnosis
from etastar.report.tables import Column, Table, table
from etastar.report.view import StudyView
from etastar.scale import Scale, format_number


@dataclass(frozen=True)
class TheoryPart:
    """The theory's section; `reason` where it has nothing to say."""

    regimes: Table | None = None
    sentences: tuple[str, ...] = ()
    calibration: Table | None = None
    calibration_note: str = ""
    reason: str = ""


def theory_part(view: StudyView, group: Group, target: Scale, settings: Any = None) -> TheoryPart:
    """Diagnosis at the target; where there are trajectories, the calibration of the largest N that has them."""
    found = view.diagnosis(group, target, settings)
    sizes = sorted(view.paths(group))
    judged = (
        view.theory_report(group, sizes[-1]) if sizes else "no trajectories: the theory is fitted to mean η_eff alone"
    )
    calibration = None if isinstance(judged, str) else _calibration(judged)
    note = judged if isinstance(judged, str) else _calibration_note(judged)
    if found.reason is not None:
        return TheoryPart(calibration=calibration, calibration_note=note, reason=found.reason)
    return TheoryPart(_regimes(found), _sentences(found), calibration, note)


def _regimes(found: StudyDiagnosis) -> Table:
    columns = (
        Column("who", "", "text"), Column("lr", "η", "lr"), Column("log2_lr", "log₂ η", "log2"),
        Column("regime", "regime", "text"), Column("decay_time", "1/(2ηλ)", "int", "decay time in steps"),
        Column("relaxations", "2ηλT", "number", "decay times that the run lasts"),
        Column("timescale", "1/(ηλT)", "number", "AdamW's averaging time as a share of the run"),
        Column("slope", "slope", "log2", "d log η / d log η_eff: 1 before equilibrium, 2 in it"),
        Column("mean_eff_lr", "mean η_eff", "lr"),
        Column("norm_ratio", "‖w_T‖/‖w₀‖", "number"),
    )  # fmt: skip
    named = [("sweep", one) for one in found.swept] + ([("target", found.target)] if found.target else [])
    rows = [
        (
            who, one.lr, math.log2(one.lr), str(one.regime), one.decay_time, one.relaxations, one.timescale, one.slope,
            one.mean_eff_lr, one.norm_ratio,
        )
        for who, one in named
    ]  # fmt: skip
    return table(
        f"Regimes of the swept learning rates at D = {format_number(found.swept_tokens or 0)}, and of the target",
        columns,
        rows,
    )


def _sentences(found: StudyDiagnosis) -> tuple[str, ...]:
    said = [f"By the {found.source}."]
    if found.target is not None:
        said.append(f"At the target: {found.target.words}.")
    if found.bend is not None:
        said.append(_bend(found.bend))
    if found.trust is not None:
        said.append(f"{found.trust[0].upper()}{found.trust[1:]}.")
    return tuple(said)


def _bend(bend: PredictedBend) -> str:
    if bend.curvature is None or bend.measured_curvature is None:
        return "Fewer than three horizons: no curvature of log₂ η* in log₂ D can be measured."
    told = _with_ends(bend.curvature, bend.curvature_interval)
    measured = _with_ends(bend.measured_curvature, bend.measured_interval)
    own = _with_ends(bend.eff_curvature or 0.0, bend.eff_interval)
    return (
        f"Curvature of log₂ η* in log₂ D (octaves per octave²): {told} predicted from the η_eff* law, {measured} measured; "
        f"of log₂ η_eff* itself {own}."
    )


def _with_ends(value: float, ends: tuple[float, float] | None) -> str:
    return f"{value:+.3f}" + ("" if ends is None else f" ({ends[0]:+.3f} … {ends[1]:+.3f})")


def _calibration(found: StudyReport) -> Table:
    columns = (
        Column("lr", "η", "lr"), Column("loss", "loss", "loss"),
        Column("kappa", "κ fitted", "number", "correlation factor, median over matrices"),
        Column("kappa_low", "least", "number"), Column("kappa_high", "most", "number"),
        Column("held_out", "held-out error, median", "percent", "η_eff of the last quarter, calibrated on the first half"),
        Column("held_out_worst", "worst matrix", "percent"), Column("bias", "mean over matrices", "percent"),
        Column("spread", "spread of η_eff (octaves)", "log2"),
    )  # fmt: skip
    rows = [
        (
            one.lr, one.loss, one.factors[1], one.factors[0], one.factors[2], one.held_out_median, one.held_out_worst,
            one.held_out_bias, one.spread_octaves,
        )
        for one in found.lrs
    ]  # fmt: skip
    return table(f"The theory calibrated on trajectories at N = {format_number(found.params)}", columns, rows)


def _calibration_note(found: StudyReport) -> str:
    words = f"{found.steps} steps; κ by theory (1+β₁)/(1−β₁) = {found.factor_theory:.1f}."
    return words if found.no_decay is None else f"{words} Without weight decay: {found.no_decay.words}."
