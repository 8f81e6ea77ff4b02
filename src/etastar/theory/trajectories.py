"""What did one matrix of one run do, as arrays over its logged steps?

The door from a trajectories table (`etastar.records`) or from plain arrays into this room.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from etastar.errors import InputError
from etastar.theory.letters import Floats

_MEASURED = ("weight_norm", "update_norm", "update_dot_weight", "eff_lr")


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """One matrix of one run at its logged steps; ⟨u_t, w_t⟩ and η_eff are NaN where unknown."""

    run: str
    weight: str
    step: np.ndarray
    weight_norm: Floats
    update_norm: Floats
    update_dot_weight: Floats
    eff_lr: Floats

    @classmethod
    def from_arrays(
        cls,
        *,
        step: ArrayLike,
        weight_norm: ArrayLike,
        update_norm: ArrayLike,
        update_dot_weight: ArrayLike | None = None,
        eff_lr: ArrayLike | None = None,
        weight: str = "w",
        run: str = "run",
    ) -> Trajectory:
        """Check the arrays, sort them by step, and drop logged steps without a norm."""
        given = (weight_norm, update_norm, update_dot_weight, eff_lr)
        steps = np.asarray(step, float)
        columns = {
            name: np.full(len(steps), np.nan) if values is None else np.asarray(values, float)
            for name, values in zip(_MEASURED, given, strict=True)
        }
        name = f"trajectory of {weight[:60]!r} in run {run[:60]!r}"
        if any(values.shape != steps.shape for values in columns.values()):
            raise InputError(f"{name}: columns differ in length", hint="give one value a logged step")
        known = np.isfinite(columns["weight_norm"]) & np.isfinite(columns["update_norm"])
        order = np.argsort(steps[known], kind="stable")
        steps = steps[known][order].astype(np.int64)
        if len(steps) < 8:
            raise InputError(
                f"{name}: {len(steps)} steps hold both weight_norm and update_norm, expected at least 8",
                hint="log both norms more often",
            )
        if (np.diff(steps) == 0).any():
            raise InputError(f"{name}: a step is logged twice", hint="keep one row a run, step and weight")
        columns = {key: values[known][order] for key, values in columns.items()}
        if (columns["weight_norm"] <= 0).any() or (columns["update_norm"] <= 0).any():
            raise InputError(f"{name}: a norm is not above zero", hint="drop a matrix that starts at zero")
        return cls(run=run, weight=weight, step=steps, **columns)

    def before(self, step: int) -> Trajectory:
        """The part logged before a step."""
        return self._part(self.step < step)

    def since(self, step: int) -> Trajectory:
        """The part logged at a step and after it."""
        return self._part(self.step >= step)

    def _part(self, keep: np.ndarray) -> Trajectory:
        columns = {name: getattr(self, name)[keep] for name in _MEASURED}
        return Trajectory.from_arrays(step=self.step[keep], weight=self.weight, run=self.run, **columns)

    def every_step(self, name: str, start: int, stop: int) -> Floats:
        """A column at every step of [start, stop), straight lines between logged steps."""
        return np.interp(np.arange(start, stop), self.step, getattr(self, name))


def trajectories_of(table: pa.Table) -> Mapping[str, tuple[Trajectory, ...]]:
    """A trajectories table → its matrices by run, in the order in which they appear."""
    missing = [name for name in ("run", "step", "weight", *_MEASURED[:2]) if name not in table.column_names]
    if missing:
        raise InputError(
            f"trajectories table: no column {', '.join(missing)}",
            hint="the theory needs weight_norm and update_norm of each weight; see etastar.records",
        )
    table = table.filter(table["weight"].is_valid())
    (run_of, runs), (weight_of, weights) = _codes(table["run"]), _codes(table["weight"])
    columns = {
        name: table[name].to_numpy(zero_copy_only=False).astype(float)
        for name in ("step", *_MEASURED)
        if name in table.column_names
    }
    keys = run_of * max(len(weights), 1) + weight_of
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    found: dict[str, list[Trajectory]] = {}
    for rows in sorted(np.split(order, starts[1:]), key=lambda rows: rows[0]) if len(order) else ():
        run, weight = runs[run_of[rows[0]]], weights[weight_of[rows[0]]]
        part = {name: values[rows] for name, values in columns.items()}
        found.setdefault(run, []).append(Trajectory.from_arrays(run=run, weight=weight, **part))
    return {run: tuple(matrices) for run, matrices in found.items()}


def _codes(column: pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """A column of names as numbers, and the names."""
    encoded = column.combine_chunks().dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()
