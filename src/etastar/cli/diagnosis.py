"""How a diagnosis looks, on the screen and in JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from etastar.cli.looks import make_table
from etastar.predict.diagnosis import PredictedBend, StudyDiagnosis
from etastar.scale import format_lr, format_number
from etastar.theory.regime import Diagnosis


def regime_table(title: str, swept: tuple[Diagnosis, ...], target: Diagnosis | None = None) -> Table:
    """A row a learning rate; the target's last."""
    columns = ("log2 lr", "regime", "1/(2ηλ)", "2ηλT", "1/(ηλT)", "slope", "mean η_eff", "‖w_T‖/‖w₀‖")
    table = make_table(title, *columns, left=("regime",))
    rows = [("", one) for one in swept] + ([("target ", target)] if target is not None else [])
    for who, one in rows:
        table.add_row(
            f"{who}{math.log2(one.lr):.2f}",
            str(one.regime),
            f"{one.decay_time:,.0f}" if math.isfinite(one.decay_time) else "∞",
            f"{one.relaxations:.3g}",
            f"{one.timescale:.3g}" if math.isfinite(one.timescale) else "∞",
            f"{one.slope:.2f}",
            f"{one.mean_eff_lr:.4g}",
            f"{one.norm_ratio:.3g}",
        )
    return table


def show_diagnosis(console: Console, found: StudyDiagnosis) -> None:
    """Regimes, then the bend, then the verdict."""
    if found.reason is not None:
        console.print(f"[dim]no diagnosis: {escape(found.reason)}[/]", highlight=False)
        return
    console.print(
        regime_table(
            f"Regimes: the swept learning rates at D = {format_number(found.swept_tokens or 0)}, and the target "
            f"(by the {found.source})",
            found.swept,
            found.target,
        )
    )
    if found.target is not None:
        console.print(f"target {format_lr(found.target.lr)}: {found.target.words}", highlight=False)
    if found.bend is not None:
        console.print(_bend_line(found.bend), highlight=False)
    if found.trust is not None:
        console.print(f"[bold]diagnosis[/] {escape(found.trust)}", highlight=False)


def _bend_line(bend: PredictedBend) -> str:
    if bend.curvature is None or bend.measured_curvature is None:
        return "curvature of log2 η* in log2 D: fewer than three horizons"
    told = _value(bend.curvature, bend.curvature_interval)
    measured = _value(bend.measured_curvature, bend.measured_interval)
    own = _value(bend.eff_curvature or 0.0, bend.eff_interval)
    return (
        f"curvature of log2 η* in log2 D: predicted from the η_eff* law {told}, measured {measured}; "
        f"of log2 η_eff*: measured {own}"
    )


def _value(value: float, interval: tuple[float, float] | None) -> str:
    ends = "" if interval is None else f" ({interval[0]:+.3f} … {interval[1]:+.3f})"
    return f"{value:+.3f}{ends}"


def diagnosis_json(found: StudyDiagnosis) -> dict[str, Any]:
    """Every number of it."""
    return asdict(found)
