"""What happened along the way? Raw runs → the trajectories table: losses, and norms of weights, by step."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from etastar.importers.names import GRAD_NORM
from etastar.importers.outcome import EffLr, LossChoice
from etastar.importers.raw import RawRun
from etastar.records import TRAJECTORY_SCHEMA, conform_trajectories

_SCHEMA = TRAJECTORY_SCHEMA.append(pa.field("eff_lr_approximate", pa.bool_()))


def trajectories_table(runs: list[tuple[str, RawRun, EffLr]], choice: LossChoice) -> pa.Table:
    """One row a run × step, and one a run × step × weight where norms were logged."""
    columns: dict[str, list[Any]] = {name: [] for name in _SCHEMA.names}
    for name, raw, eff_lr in runs:
        rows = {key: dict(row) for key, row in eff_lr.rows.items()}
        _along(
            rows,
            raw,
            choice.training if choice.training != choice.metric or not choice.validation else None,
            "train_loss",
        )
        _along(rows, raw, choice.metric if choice.validation else None, "val_loss")
        _along(rows, raw, next((key for key in raw.metrics if key.lower() in GRAD_NORM), None), "grad_norm")
        for (step, weight), row in sorted(rows.items(), key=lambda item: (item[0][0], item[0][1] or "")):
            row |= {"run": name, "step": step, "weight": weight}
            row["eff_lr_approximate"] = eff_lr.approximate if "eff_lr" in row else None
            for column, values in columns.items():
                values.append(row.get(column))
    return conform_trajectories(pa.table(columns, schema=_SCHEMA)).table


def _along(rows: dict, raw: RawRun, metric: str | None, column: str) -> None:
    series = raw.metrics.get(metric or "")
    if series is not None:
        for step, value in zip(series.steps, series.values, strict=True):
            rows.setdefault((step, None), {})[column] = value
