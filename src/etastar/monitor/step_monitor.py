"""How far does each step of somebody else's training loop turn the weights?

    monitor = StepMonitor(optimizer, model, study="studies/mine")
    …                                              # the training loop, unchanged
    monitor.finish(loss=val_loss, tokens=tokens)

The monitor hangs on the optimizer's own step hooks, so it sees steps that are really taken, whatever
calls them. The mean of η_eff runs over every step and is kept on the device: the host waits for it on logged
steps alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import pyarrow as pa
import torch
from torch import nn

from etastar.errors import InputError
from etastar.monitor import names
from etastar.monitor.describe import main_group, model_sizes, positive, run_row
from etastar.monitor.gauge import Gauge, Measured, Mode
from etastar.monitor.reading import PER, Reading, means, to_rows
from etastar.monitor.recording import Recording
from etastar.monitor.shards import is_first_rank
from etastar.monitor.sinks import Outlets, Sink
from etastar.monitor.watch import Named, select, unwrapped
from etastar.monitor.workspace import MemoryUse
from etastar.records import content_id, runs_table


class StepMonitor:
    """Statistics of an optimizer's steps, from outside.

    `model` (or its named parameters) tells embeddings from other matrices. `study` is the folder to record
    to. `split={"*.c_attn.weight": 3}` watches q, k and v of a fused projection as three matrices. `sinks`:
    "auto" (trackers with a run under way) or a list of callables (step, metrics).
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: Named | None = None,
        *,
        study: str | Path | None = None,
        run: str | None = None,
        mode: Mode = "snapshot",
        log_every: int | None = 100,
        include: Sequence[str] | str | None = None,
        exclude: Sequence[str] | str = (),
        split: Mapping[str, int] | None = None,
        sinks: Literal["auto"] | Iterable[Sink] = "auto",
        per: Literal["role", "weight", "none"] = "role",
    ) -> None:
        _check(mode=mode, log_every=log_every, per=per)
        if model is not None and not isinstance(model, nn.Module):
            model = list(model)
        self.optimizer = unwrapped(optimizer)
        chosen = select(self.optimizer, model, include=include, exclude=exclude, split=split or {})
        self.watched, self.left_out = chosen.watched, chosen.left_out
        self.weights = tuple(weight.name for weight in self.watched)
        self.rounded = tuple(weight.name for weight in self.watched if weight.low_precision)
        self.run = run or secrets.token_hex(6)
        self.log_every = log_every
        self.latest: Reading | None = None
        self._sizes = model_sizes(model) if isinstance(model, nn.Module) else {}
        self._per = per
        self._gauge = Gauge(self.optimizer, self.watched, mode)
        self._calls = 0
        self._due = False
        self._recording = Recording(study, self.run) if study is not None else None
        self._outlets = Outlets(sinks)
        self._hooks = (
            self.optimizer.register_step_pre_hook(self._before),
            self.optimizer.register_step_post_hook(self._after),
        )

    # While training

    @torch.no_grad()
    def _before(self, *_: Any) -> None:
        self._gauge.before()

    @torch.no_grad()
    def _after(self, *_: Any) -> None:
        measured = self._gauge.after()
        if measured is None:
            return
        self._due = self._due or (self.log_every is not None and self._calls % self.log_every == 0)
        self._calls += 1
        if self._due:
            self._log(measured)

    def _log(self, measured: Measured) -> None:
        """Read one step back to the host; a call that was no step is passed over, and the next one logged for it."""
        seen = self._gauge.statistics(measured)
        if not measured.taken.item():
            return
        self._due = False
        steps, mean, plateau = means(self._gauge.tally)
        lr = None if self._gauge.lr is None else float(self._gauge.lr)
        self._gauge.peak.read(lr)
        self.latest = Reading(
            step=steps - 1,
            lr=lr,
            eff_lr=float(measured.eff_lr.mean()),
            mean_eff_lr=mean,
            plateau_eff_lr=plateau,
            weights=self.weights,
            values=to_rows(seen, self.weights),
        )
        if is_first_rank():
            if self._recording is not None:
                self._recording.statistics(self.latest.step, self.weights, self.latest.values)
            self._outlets(self.latest.step, self.latest.metrics(self._per))

    def log_next_step(self) -> None:
        """Log the next step too, whatever `log_every` says."""
        self._due = True

    def observe(self, *, train_loss: float | None = None, val_loss: float | None = None) -> None:
        """Note losses at the present step, beside the statistics."""
        steps = self.steps
        told = {names.TRAIN_LOSS: train_loss, names.VAL_LOSS: val_loss}
        metrics = {name: float(value) for name, value in told.items() if value is not None}
        if not is_first_rank():
            return
        for name, value in metrics.items():
            if self._recording is not None:
                column = name.removeprefix(names.PREFIX)
                # as a trained run has it: a training loss belongs to the step, a validation loss to the steps taken
                self._recording.loss(max(steps - 1, 0) if column == "train_loss" else steps, column, value)
        self._outlets(steps, metrics)

    # What was seen

    @property
    def steps(self) -> int:
        """Steps really taken; the host waits for the device."""
        return means(self._gauge.tally)[0]

    @property
    def mean_eff_lr(self) -> float:
        """Mean η_eff over every step so far and all watched weights; NaN before the first."""
        return means(self._gauge.tally)[1]

    @property
    def plateau_eff_lr(self) -> float | None:
        """The same over the steps at the peak learning rate, or None where there is no plateau."""
        return means(self._gauge.tally)[2]

    def memory(self) -> MemoryUse:
        """What the monitor keeps on this rank."""
        return self._gauge.memory

    # At the end

    def finish(
        self,
        *,
        loss: float | None,
        tokens: float,
        params: float | None = None,
        lr: float | None = None,
        **columns: Any,
    ) -> pa.Table:
        """Write the run's row, and return it.

        `params` counts the token embedding once and no position table; by default the model's. `lr` is the
        peak learning rate by default. `columns` are others of the runs table, such as batch_tokens or seed.
        """
        steps, mean, plateau = means(self._gauge.tally)
        peak = lr if lr is not None else self._gauge.peak.value
        measured = {
            "tokens": float(tokens),
            "lr": None if peak is None else float(peak),
            "loss": None if loss is None else float(loss),
            "mean_eff_lr": positive(mean),
            "plateau_eff_lr": positive(plateau),
            "steps": steps,
        }
        group = self.optimizer.param_groups[main_group(self.watched)]
        row = run_row(self.optimizer, group, self._sizes, {**columns, "params": params}, measured)
        table = runs_table([{**row, "run": self.run}])
        if is_first_rank():
            if self._recording is not None:
                self._recording.finish(table)
            told = {metric: row[column] for metric, column in names.RUN_METRICS.items()}
            self._outlets(steps, {name: float(value) for name, value in told.items() if value is not None})
        return table

    def close(self) -> None:
        """Take the hooks off and write what waits."""
        for hook in self._hooks:
            hook.remove()
        if self._recording is not None and is_first_rank():
            self._recording.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Stopping and going on

    def state_dict(self) -> dict[str, Any]:
        """Numbers and names alone: goes into a torch checkpoint or a JSON file. Writes what waits."""
        if self._recording is not None and is_first_rank():
            self._recording.flush()
        tally = {name: float(value) for name, value in self._gauge.tally.tensors().items()}
        return {
            "run": self.run,
            "weights": content_id({"weights": self.weights}),
            "calls": self._calls,
            "due": self._due,
            "peak_lr": self._gauge.peak.value,
            "tally": tally,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state: the sums, the run's name; rows of later steps go."""
        if state["weights"] != content_id({"weights": self.weights}):
            raise InputError(
                f"the saved state is of other weights than the {len(self.weights)} watched here",
                hint="give the same model, include, exclude and split as before",
            )
        for name, tensor in self._gauge.tally.tensors().items():
            tensor.fill_(state["tally"][name])
        self.run, self._calls, self._due = state["run"], state["calls"], state["due"]
        self._gauge.peak.read(state["peak_lr"])
        if self._recording is not None:
            self._recording = Recording(self._recording.study, self.run)
            if is_first_rank():
                self._recording.resume(self.steps)


def _check(*, mode: str, log_every: int | None, per: str) -> None:
    if mode not in ("snapshot", "reconstruct"):
        raise InputError(f"mode: {mode!r} is neither 'snapshot' nor 'reconstruct'", hint="snapshot always works")
    if log_every is not None and log_every < 1:
        raise InputError(
            f"log_every: {log_every} is not a number of steps above zero", hint="None logs on demand alone"
        )
    if per not in PER:
        raise InputError(f"per: {per!r} is not one of {', '.join(PER)}", hint="role averages over layers")
