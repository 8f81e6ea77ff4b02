"""What does a stack leave behind for the analysis?

Runs: one row a learning rate and horizon, written the moment its branch is evaluated. Trajectories: rows
of every n-th step, under the trunk's name before the branch and under the run's name in its decay; so a
run's whole path is its trunk's rows before `steps − decay_steps` and then its own. Logged tensors stay
on the device until a flush. What another packing of the same learning rates has recorded already is not
written a second time.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from torch import Tensor

from etastar.records import RUN_SCHEMA, RunStatus
from etastar.store import parts, read_part, read_runs, sweep_leftovers, write_runs, write_trajectories
from etastar.train.checkpoint import branch_segment
from etastar.train.engine import StepResult
from etastar.train.schedule import leaves_trunk_at
from etastar.train.spec import TrainSpec
from etastar.train.state import TrainState
from etastar.train.statistics import STATISTICS

_SPAN = re.compile(r"-(\d+)-(\d+)\.parquet$")

# Beside the contract's columns. Typed here: a part in which a value is unknown must not change the column.
_MORE = {
    "diverged_step": pa.int64(),
    "decay": pa.string(),
    "clip": pa.float64(),
    "spikes": pa.int64(),
    "epochs": pa.int64(),
    "device": pa.string(),
    "precision": pa.string(),
    "stack": pa.int64(),
    "micro_batch": pa.int64(),
    "ranks": pa.int64(),
    "threads": pa.int64(),
}
_ROW_SCHEMA = pa.schema([*RUN_SCHEMA, *(pa.field(name, kind) for name, kind in _MORE.items())])


@dataclass
class Recorder:
    """Rows of one stack on their way to the store."""

    study: Path
    spec: TrainSpec
    identity: str
    weights: list[str]
    _logged: list[tuple[int, StepResult]] = field(default_factory=list)
    _validated: list[tuple[int, Tensor, Tensor]] = field(default_factory=list)
    _others: dict[int | None, list[Path]] = field(default_factory=dict)

    @property
    def stack(self) -> str:
        """The stack's id: its parts' names begin with it."""
        return self.spec.stack_id(data_identity=self.identity)

    def sweep_leftovers(self, horizon: int | None) -> None:
        """Remove temporary files of an earlier, killed writer of the trunk (None) or of a branch."""
        for kind in ("runs", "trajectories"):
            sweep_leftovers(self.study / kind, f"{self.stack}-{self._segment(horizon)}-")

    def finished_horizons(self) -> set[int]:
        """Horizons of which every learning rate has its row in the store."""
        there = set(read_runs(self.study)["run"].to_pylist())
        return {h for h in self.spec.horizons if {self._run(lr, h) for lr in self.spec.lrs} <= there}

    def log(self, step: int, result: StepResult) -> None:
        """Keep one step's tensors, still on the device."""
        self._logged.append((step, result))

    def log_validation(self, steps_taken: int, loss: Tensor, alive: Tensor) -> None:
        """Keep the validation losses (K,) after so many steps."""
        self._validated.append((steps_taken, loss, alive.clone()))

    def flush(self, horizon: int | None, start: int, stop: int) -> None:
        """Write the logged steps start … stop−1 of the trunk (None) or a branch, replacing earlier rows."""
        tables = [self._rows(step, result, horizon) for step, result in self._logged]
        tables += [self._validation_rows(*validated, horizon) for validated in self._validated]
        self.drop_logged()
        if not tables:
            return
        prefix = f"{self.stack}-{self._segment(horizon)}"
        part = f"{prefix}-{start:09d}-{stop:09d}"
        fresh = self._not_elsewhere(pa.concat_tables(tables, promote_options="default"), horizon, start, stop)
        if fresh.num_rows:
            write_trajectories(self.study, fresh, part)
        self._cut_overlaps(prefix, part, start, stop)

    def drop_logged(self) -> None:
        """Forget steps that will be taken again."""
        self._logged, self._validated = [], []

    def _cut_overlaps(self, prefix: str, part: str, start: int, stop: int) -> None:
        """A resume may take steps again whose rows an earlier part holds: those rows go."""
        for path in parts(self.study, "trajectories", f"{prefix}-"):
            span = _SPAN.search(path.name)
            if path.stem == part or span is None or int(span[1]) >= stop or int(span[2]) <= start:
                continue
            table = read_part(path)
            steps = np.empty(0) if table is None else table["step"].to_numpy()
            first, last = int(span[1]), int(span[2])
            for keep, low, high in ((steps < start, first, start), (steps >= stop, stop, last)):
                if table is not None and keep.any():
                    rest = table.filter(pa.array(keep))
                    write_trajectories(self.study, rest, f"{prefix}-{low:09d}-{high:09d}")
            path.unlink(missing_ok=True)

    def _not_elsewhere(self, table: pa.Table, horizon: int | None, start: int, stop: int) -> pa.Table:
        """The rows that no other packing has recorded: one that goes on from its checkpoint, or that was cut."""
        if horizon not in self._others:
            mine = set(self._names(np.arange(len(self.spec.lrs)), horizon))
            segment = f"-{self._segment(horizon)}-"
            strangers = [p for p in parts(self.study, "trajectories") if segment in p.name]
            strangers = [p for p in strangers if not p.name.startswith(f"{self.stack}-")]
            self._others[horizon] = [
                p for p in strangers if (there := read_part(p)) is not None and mine & set(there["run"].to_pylist())
            ]
        seen: set[tuple[str, int]] = set()
        for path in self._others[horizon]:
            span = _SPAN.search(path.name)
            if span and int(span[1]) < stop and int(span[2]) > start and (there := read_part(path)) is not None:
                seen |= set(zip(there["run"].to_pylist(), there["step"].to_pylist(), strict=True))
        if not seen:
            return table
        keys = zip(table["run"].to_pylist(), table["step"].to_pylist(), strict=True)
        return table.filter(pa.array([key not in seen for key in keys]))

    def _segment(self, horizon: int | None) -> str:
        return "trunk" if horizon is None else branch_segment(horizon, self.spec.schedule.decay_of(horizon))

    def _names(self, alive: np.ndarray, horizon: int | None) -> list[str]:
        """The trajectory names of these models: the trunk's, or the run's in its branch."""
        lrs = [self.spec.lrs[index] for index in alive]
        return [self._trunk(lr) if horizon is None else self._run(lr, horizon) for lr in lrs]

    def _validation_rows(self, steps: int, loss: Tensor, alive: Tensor, horizon: int | None) -> pa.Table:
        living = np.flatnonzero(alive.cpu().numpy())
        return pa.table(
            {
                "run": pa.array(self._names(living, horizon), pa.string()),
                "step": np.full(len(living), steps),
                "val_loss": loss.cpu().numpy()[living],
            }
        )

    def _rows(self, step: int, result: StepResult, horizon: int | None) -> pa.Table:
        """One step's rows: a row a living model with its training loss, then a row a matrix of it."""
        alive = np.flatnonzero(result.alive.cpu().numpy())
        seen = result.statistics.cpu().numpy()[alive]  # (living, matrices, 6)
        living, matrices = seen.shape[:2]
        runs = self._names(alive, horizon)
        blank = pa.nulls(living, pa.float64())
        flat = {key: seen[..., column].reshape(-1) for column, key in enumerate(STATISTICS)}
        count = living * matrices
        columns: dict[str, Any] = {
            "run": pa.array(runs + [run for run in runs for _ in range(matrices)], pa.string()),
            "step": np.full(living + count, step),
            "weight": pa.array([None] * living + self.weights * living, pa.string()),
            "train_loss": pa.concat_arrays(
                [pa.array(result.loss.double().cpu().numpy()[alive]), pa.nulls(count, pa.float64())]
            ),
        }
        columns |= {key: pa.concat_arrays([blank, pa.array(values)]) for key, values in flat.items()}
        return pa.table(columns)

    def record(
        self, horizon: int, state: TrainState, loss: Tensor, *, epochs: int, provenance: dict[str, Any]
    ) -> pa.Table:
        """Write the K rows of one evaluated horizon."""
        spec, schedule = self.spec, self.spec.schedule
        mean, plateau = (values.tolist() for values in state.tally.means())
        watch = {name: values.tolist() for name, values in state.watch.tensors().items()}
        rows = [
            {
                "params": float(spec.model.params),
                "tokens": float(horizon * spec.batch_tokens),
                "lr": lr,
                "loss": value,
                "mean_eff_lr": _positive(mean[k]),
                "plateau_eff_lr": _positive(plateau[k]),
                "params_nonembedding": float(spec.model.params_nonembedding),
                "optimizer": spec.optimizer.kind,
                "weight_decay": spec.optimizer.decay_rate,
                "beta1": spec.optimizer.beta1,
                "batch_tokens": float(spec.batch_tokens),
                "schedule": schedule.kind,
                "steps": horizon,
                "warmup_steps": schedule.warmup_steps,
                "decay_steps": schedule.decay_of(horizon),
                "seed": spec.seed,
                "trunk": self._trunk(lr) if leaves_trunk_at(schedule, horizon) else self._run(lr, horizon),
                "run": self._run(lr, horizon),
                "status": _status(watch["alive"][k], value),
                "diverged_step": watch["diverged_step"][k] if watch["diverged_step"][k] >= 0 else None,
                "decay": spec.optimizer.decay,
                "clip": spec.optimizer.clip,
                "spikes": watch["spikes"][k],
                "epochs": epochs,
                **provenance,
            }
            for k, (lr, value) in enumerate(zip(spec.lrs, loss.tolist(), strict=True))
        ]
        table = pa.Table.from_pylist(rows, schema=_ROW_SCHEMA)
        part = f"{self.stack}-{self._segment(horizon)}-{spec.eval_tokens}"
        others = [read_part(path) for path in parts(self.study, "runs") if path.stem != part]
        elsewhere = {run for other in others if other is not None for run in other["run"].to_pylist()}
        fresh = table.filter(pa.array([run not in elsewhere for run in table["run"].to_pylist()]))
        if fresh.num_rows:
            write_runs(self.study, fresh, part)
        return table

    def _trunk(self, lr: float) -> str:
        return self.spec.trunk_id(lr, data_identity=self.identity)

    def _run(self, lr: float, horizon: int) -> str:
        return self.spec.run_id(lr, horizon, data_identity=self.identity)


def _positive(value: float) -> float | None:
    return value if math.isfinite(value) and value > 0 else None


def _status(alive: bool, loss: float) -> str:
    good = alive and math.isfinite(loss)
    return (RunStatus.FINISHED if good else RunStatus.DIVERGED).value
