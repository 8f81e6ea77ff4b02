"""`etastar theory STUDY`: what its trajectories say about the theory, and the calibrated network to ask."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from etastar.cli.looks import make_table
from etastar.cli.target import load_paths
from etastar.errors import InputError
from etastar.estimate.cells import build_groups
from etastar.importers.sources import read_source
from etastar.predict.calibration import StudyReport, study_report
from etastar.predict.invert import Theory
from etastar.predict.settings import RunSettings, sweep_settings
from etastar.scale import format_lr, format_number, parse_positive
from etastar.theory.network import Calibration, FromCalibration
from etastar.theory.nodecay import NoDecayStudy
from etastar.theory.planned import MatricesAt, PlannedRun


@dataclass(frozen=True)
class StudyTheory:
    """One N of a study, calibrated."""

    theory: Theory
    params: float

    @property
    def settings(self) -> RunSettings:
        """How the study was trained."""
        return self.theory.sweep

    @property
    def tokens(self) -> float:
        """Its longest horizon."""
        return float(next(b for b in self.theory.group.blocks if b.params == self.params).tokens[-1])

    @property
    def steps(self) -> int:
        """The same in steps."""
        return self.settings.steps(self.tokens)

    def matrices(self, run: PlannedRun) -> MatricesAt:
        """The calibrated network, as the theory takes it: with the trunk's beginning where the run shares it."""
        return self._network().matrices_for(run)[0]

    def matrices_from_start(self) -> MatricesAt:
        """The same, begun at W₀: for runs of any length on one footing."""
        return FromCalibration(self._network(), from_start=True)

    def _network(self) -> Calibration:
        network = self.theory.calibration(self.params, self.tokens)
        if isinstance(network, str):
            raise InputError(f"nothing to calibrate: {network}", hint="log weight_norm and update_norm of every matrix")
        return network


def load_study(study: Path, trajectories: Path | None, where: str | None, params: str) -> StudyTheory:
    """Runs and trajectories of one group and one N; several groups are refused."""
    source = read_source(study, where=where)
    table = source.table
    groups = [group for group in build_groups(table) if group.blocks]
    if len(groups) > 1:
        labels = "; ".join(group.label for group in groups[:4])
        raise InputError(f"{len(groups)} groups were trained differently: {labels}", hint="pick one with --where")
    settings = sweep_settings(groups[0])
    if isinstance(settings, str):
        raise InputError(f"the study's settings are not known: {settings}", hint="add the columns to its runs table")
    paths, notes = load_paths(study, trajectories, table, groups, None, source.trajectories)
    found = paths.get(groups[0].label, {})
    if not found:
        raise InputError(
            f"{study}: no trajectories to calibrate on" + "".join(f" ({note})" for note in notes),
            hint="give --trajectories FILE, or ask without a study, with --init-std and --update-rms",
        )
    sizes = sorted(found)
    wanted = parse_positive(params, what="params") if params else sizes[-1]
    nearest = min(sizes, key=lambda n: abs(math.log2(n / wanted)))
    if abs(math.log2(nearest / wanted)) > 0.05:
        raise InputError(
            f"params: no trajectories at N = {format_number(wanted)}",
            hint=f"there are {', '.join(format_number(n) for n in sizes)}",
        )
    return StudyTheory(Theory(groups[0], settings, paths=found), nearest)


def report_json(known: StudyTheory) -> dict[str, Any]:
    """The whole report; arrays as lists."""
    return _plain(asdict(study_report(known.theory, known.params)))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def show_report(console: Console, known: StudyTheory) -> None:
    """Three tables: by LR, by matrix at the best LR, and the λ = 0 check."""
    found = study_report(known.theory, known.params)
    console.print(_by_lr(found))
    console.print(
        "* within an octave of the lowest loss. κ: correlation factor, fitted. held out: η_eff of the last quarter, "
        "calibrated on the first half. figures: median |error| with β₁ / with the fitted κ.",
        highlight=False,
    )
    console.print(_by_weight(found))
    if found.no_decay is not None:
        console.print(_no_decay(found.no_decay))
        console.print(
            f"λ = 0: {escape(found.no_decay.words)}; rank correlation of Σ η_eff with loss "
            f"{found.no_decay.loss_correlation:+.2f}; the law 1/√(κt + W₀²/(η²U²)) misses by "
            f"{found.no_decay.law_error:.0%} at worst",
            highlight=False,
        )


def _by_lr(found: StudyReport) -> Table:
    theory = f"κ by theory (1+β₁)/(1−β₁) = {found.factor_theory:.1f}"
    table = make_table(
        f"N = {format_number(found.params)}, {found.steps} steps; {theory}",
        "lr", "loss", "κ least–median–most", "drift of U, κ", "held out: median (worst)", "mean over matrices", "to blame",
        "‖u‖ constant", "⟨u,w⟩", "‖w‖²", "spread",
        left=("to blame",),
    )  # fmt: skip
    for one in found.lrs:
        low, middle, high = one.factors
        shapes = one.figures
        blame = ", ".join(f"{count} {name}" for name, count in one.causes.items() if count)
        table.add_row(
            f"{format_lr(one.lr)}{' *' if one.near_optimum else ''}",
            f"{one.loss:.4f}",
            f"{low:.0f}–{middle:.0f}–{high:.0f}",
            f"{one.update_drift:+.2f}, {one.factor_drift:+.2f}",
            f"{_percent(one.held_out_median)} ({_percent(one.held_out_worst)})",
            _percent(one.held_out_bias),
            blame or "–",
            _percent(shapes.update_norm),
            f"{_percent(shapes.correlation)} / {_percent(shapes.correlation_fitted)}",
            f"{_percent(shapes.weight_norm)} / {_percent(shapes.weight_norm_fitted)}",
            f"{one.spread_octaves:.2f}",
        )
    return table


def _by_weight(found: StudyReport) -> Table:
    columns = ("matrix", "W₀", "U", "κ fitted", "κ from ⟨u,w⟩", "κ theory", "residual", "held out", "to blame")
    table = make_table(f"Matrices at lr {format_lr(found.weights[0].lr)}", *columns, left=("matrix", "to blame"))
    held = {one.weight: one for one in found.held_out}
    for fit in found.weights:
        outside = held.get(fit.weight)
        table.add_row(
            escape(fit.weight) + (" (no growth)" if fit.flags else ""),
            f"{fit.weight_norm0:.3g}",
            f"{fit.update_norm:.3g}",
            f"{fit.factor:.1f}",
            f"{fit.factor_from_dot:.1f}",
            f"{fit.factor_theory:.1f}",
            _percent(fit.fit_residual),
            "–" if outside is None else _percent(outside.eff_lr_error),
            "–" if outside is None or not outside.cause else outside.cause,
        )
    return table


def _no_decay(study: NoDecayStudy) -> Table:
    columns = ("lr", "η_eff at the end", "λ = 0 law", "Σ η_eff", "loss", "collapse predicted")
    table = make_table("Without weight decay: η_eff at the end, its law, Σ η_eff and loss", *columns)
    for k, lr in enumerate(study.lr):
        table.add_row(
            format_lr(float(lr)),
            f"{study.final_eff_lr[k]:.4g}",
            f"{study.law_eff_lr[k]:.4g}",
            f"{study.accumulated[k]:.4g}",
            f"{study.loss[k]:.4f}",
            "yes" if study.collapsed[k] else "",
        )
    return table


def _percent(value: float) -> str:
    return "–" if not math.isfinite(value) else f"{100 * value:.1f} %"
