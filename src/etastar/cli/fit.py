"""`etastar fit`: where is the optimum of every cell, and which laws do the optima follow?"""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.table import Table

from etastar.cli import options as o
from etastar.cli.looks import make_console, make_table
from etastar.estimate.cells import EffColumn, Quantity
from etastar.estimate.definitions import flag_disagreements
from etastar.estimate.estimates import Estimates, estimate_group
from etastar.estimate.optimum import Optimum, Status
from etastar.laws.loglinear import Law, all_laws
from etastar.scale import format_number


def fit_command(
    runs: o.Runs,
    mapping: o.Map = None,
    where: o.Where = None,
    fit_where: o.FitWhere = None,
    group: o.GroupBy = None,
    degree: o.Degree = None,
    window: o.Window = "auto",
    eff_lr: o.EffLr = EffColumn.MEAN,
    surface: o.Surface = False,
    level: o.Level = 0.9,
    replicates: o.Replicates = 500,
    seed: o.Seed = 0,
    as_json: o.Json = False,
) -> None:
    """Estimate the optimum of every (N, D) and fit the log-linear laws through them.

    The paper's own estimator is `--window all --degree 3`.

    Example: etastar fit runs.csv --map params=N,tokens=D --where "optimizer = 'adamw'"
    """
    loaded = o.load(
        runs, mapping=mapping, where=where, fit_where=fit_where, group=group, degree=degree, window=window,
        eff_lr=eff_lr, level=level, replicates=replicates, seed=seed, surface=surface,
    )  # fmt: skip
    if not as_json:
        o.print_notes(make_console(), loaded)
    optima: list[Optimum] = []
    laws: list[Law] = []
    for found in loaded.groups:
        estimates = flag_disagreements(estimate_group(found, loaded.options))
        for quantity in estimates.values():
            optima.extend(quantity.optima)
            laws.extend(all_laws(quantity, level=level))
        if not as_json:
            _show(estimates, laws)
    if as_json:
        o.print_json({"optima": [optimum_json(x) for x in optima], "laws": [law_json(x) for x in laws]})


def optimum_json(optimum: Optimum) -> dict[str, Any]:
    """One optimum as the contract has it."""
    return {
        "params": optimum.params,
        "tokens": optimum.tokens,
        "quantity": optimum.quantity.value,
        "optimum": optimum.value,
        "log2_interval": list(optimum.log2_interval) if optimum.status is Status.INTERIOR else None,
        "status": optimum.status.value,
        "r2": optimum.r2,
        "loss": optimum.loss,
        "degree": optimum.degree,
        "fitted_in": optimum.fitted_in.value,
        "points": optimum.points,
        "flags": [flag.value for flag in optimum.flags],
        "group": optimum.group,
    }


def law_json(law: Law) -> dict[str, Any]:
    """One law as the contract has it; a joint law has a slope for D and one for N."""
    single = len(law.slopes) == 1
    return {
        "axis": law.axis.value,
        "quantity": law.quantity.value,
        "fixed": law.fixed,
        "slope": law.slopes[0] if single else {"tokens": law.slopes[0], "params": law.slopes[1]},
        "intercept": law.intercept,
        "slope_interval": law.slope_intervals[0]
        if single
        else {"tokens": law.slope_intervals[0], "params": law.slope_intervals[1]},
        "pearson_r": law.pearson_r,
        "curvature": law.curvature,
        "curvature_interval": law.curvature_interval,
        "curved": law.curved,
        "cells": law.cells,
        "flags": [flag.value for flag in law.flags],
        "group": law.group,
    }


def _show(estimates: dict[Quantity, Estimates], laws: list[Law]) -> None:
    console = make_console()
    first = next(iter(estimates.values()))
    label = first.group.label or "all runs"
    noise = first.noise
    said = f"noise of one loss {noise.total:.2g} (from {noise.source})" if noise else "noise unknown"
    values = [f"log2 {_SIGNS[quantity]}" for quantity in estimates]
    table = make_table(f"Optima: {label} · {said}", "N", "D", *values, "status", "flags", left=("status", "flags"))
    rows = list(zip(*(e.optima for e in estimates.values()), strict=True))
    for row in _thinned(rows):
        if row is None:
            table.add_row(*["…"] * (2 + len(estimates)), "", "")
            continue
        cells = [
            f"{x.log2_value:.2f} [{x.log2_interval[0]:.2f}, {x.log2_interval[1]:.2f}]" if x.value else "–" for x in row
        ]
        flags = sorted({flag.value for x in row for flag in x.flags})
        table.add_row(
            format_number(row[0].params), format_number(row[0].tokens), *cells, row[0].status.value, ", ".join(flags)
        )
    console.print(table)
    console.print(_law_table([law for law in laws if law.group == first.group.label]))


def _thinned(rows: list[Any], most: int = 60) -> list[Any]:
    """All rows of a small study; of a large one the first and last, with a gap that shows."""
    return rows if len(rows) <= most else [*rows[: most // 2], None, *rows[-most // 2 :]]


_SIGNS = {Quantity.LR: "η*", Quantity.EFF_LR: "η_eff*"}


def _law_table(laws: list[Law]) -> Table:
    columns = ("law", "slope", "curvature", "bends?", "r", "cells")
    table = make_table("Laws: log2 optimum against log2 scale", *columns, left=("law", "bends?"))
    for law in _thinned(laws):
        if law is None:
            table.add_row(*["…"] * 6)
            continue
        slopes = "\n".join(
            f"{s:+.3f} [{a:+.3f}, {b:+.3f}]" for s, (a, b) in zip(law.slopes, law.slope_intervals, strict=True)
        )
        bend = "–"
        if law.curvature is not None and law.curvature_interval is not None:
            bend = f"{law.curvature:+.3f} [{law.curvature_interval[0]:+.3f}, {law.curvature_interval[1]:+.3f}]"
        verdict = {None: "cannot tell", True: "[red]yes[/]", False: "not seen"}[law.curved]
        r = "–" if law.pearson_r is None or not np.isfinite(law.pearson_r) else f"{law.pearson_r:.4f}"
        along = {"data": "along D, N = ", "model": "along N, D = "}.get(law.axis.value, "along D and N")
        name = f"{_SIGNS[law.quantity]} {along}" + (format_number(law.fixed) if law.fixed else "")
        table.add_row(name, slopes, bend, verdict, r, str(law.cells))
    return table
