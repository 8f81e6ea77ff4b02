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
from torch import Tensor, nn

from etastar.errors import InputError
from etastar.monitor import names
from etastar.monitor.describe import checked_columns, main_group, model_sizes, optimizer_columns, positive
from etastar.monitor.pace import PeakLr, at_hand
from etastar.monitor.reading import PER, Reading, means, statistics, to_rows
from etastar.monitor.reconstruct import Reconstruct
from etastar.monitor.recording import Recording
from etastar.monitor.rules import decoupled, rate_factors
from etastar.monitor.scalars import GroupVectors
from etastar.monitor.shards import ShardSums, is_first_rank
from etastar.monitor.sinks import Outlets, Sink
from etastar.monitor.snapshot import Snapshot
from etastar.monitor.watch import Named, select
from etastar.monitor.workspace import MemoryUse, local
from etastar.records import content_id, runs_table
from etastar.train.statistics import Tally, effective_lr

Mode = Literal["snapshot", "reconstruct"]


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
        self._device = local(self.watched[0].param).device
        self._vectors = GroupVectors(self.watched, self._device)
        self._factors = rate_factors(self.optimizer, self.watched, self._device)
        self._shards = ShardSums(self.watched, self._device)
        self._source = (
            Snapshot(self.watched) if mode == "snapshot" else Reconstruct(self.optimizer, self.watched, self._vectors)
        )
        self._tally = Tally.zeros(1, self._device)
        self._always = torch.ones(1, dtype=torch.bool, device=self._device)
        self._flags = torch.tensor([0.0, 1.0], dtype=torch.float64, device=self._device)
        self._main = main_group(self.watched)
        self._peak = PeakLr()
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
        self._source.before()

    @torch.no_grad()
    def _after(self, *_: Any) -> None:
        sums = self._source.after()
        if sums is None:
            return
        sums = self._shards.complete(sums)
        weight_sq, dot, step_sq = sums
        # a weight that is no longer finite has no η_eff, not one of zero
        eff_lr = effective_lr(weight_sq, dot, step_sq) + 0 * (weight_sq + step_sq)
        # Not every call is a step. Fused optimizers are told inside that a gradient overflowed, and do nothing;
        # distributed checkpoints call a fresh optimizer with zero gradients at rate 0, to have its state made.
        overflow = getattr(self.optimizer, "found_inf", None)
        taken = self._always if overflow is None else (overflow.to(self._device, non_blocking=True) == 0).view(1)
        lr = self.optimizer.param_groups[self._main].get("lr")
        if at_hand(lr) == 0:
            taken = taken & (self._grad_squares().sum() != 0)
        rose, at_peak = self._peak.see(lr)
        if rose:
            self._tally.plateau.zero_()
            self._tally.plateau_steps.zero_()
        self._tally.add(eff_lr[None], alive=taken, on_plateau=self._flags[int(at_peak)])
        self._due = self._due or (self.log_every is not None and self._calls % self.log_every == 0)
        self._calls += 1
        if self._due:
            self._log(sums, eff_lr, taken)

    def _log(self, sums: Tensor, eff_lr: Tensor, taken: Tensor) -> None:
        """Read one step back to the host; a skipped step is passed over, and the next one is logged for it."""
        seen = statistics(sums, eff_lr, self._grad_squares(), *self._rates())
        if not taken.item():
            return
        self._due = False
        steps, mean, plateau = means(self._tally)
        lr = self.optimizer.param_groups[self._main].get("lr")
        lr = None if lr is None else float(lr)
        self._peak.read(lr)
        self.latest = Reading(
            step=steps - 1,
            lr=lr,
            eff_lr=float(eff_lr.mean()),
            mean_eff_lr=mean,
            plateau_eff_lr=plateau,
            weights=self.weights,
            values=to_rows(seen, self.weights),
        )
        if is_first_rank():
            if self._recording is not None:
                self._recording.statistics(self.latest.step, self.weights, self.latest.values)
            self._outlets(self.latest.step, self.latest.metrics(self._per))

    def _grad_squares(self) -> Tensor:
        """‖g‖² of every watched weight, as the step saw it; after the step's own sums, whose buffer it takes."""
        grads = [None if w.param.grad is None else local(w.param.grad) for w in self.watched]
        return self._shards.complete(self._source.workspace.squares(grads))

    def _rates(self) -> tuple[Tensor | None, Tensor | None]:
        """Rate and decay share of every weight in Δ = −s·w − r·u; None for an optimizer that is not known."""
        groups = self.optimizer.param_groups
        apart = {g: decoupled(self.optimizer, groups[g]) for g in self._vectors.slices}
        if any(known is None for known in apart.values()):
            return None, None
        lr = self._vectors.option("lr", groups, "lr")
        decay = {g: float(groups[g]["weight_decay"]) * bool(apart[g]) for g in self._vectors.slices}
        share = lr * self._vectors.vector("decay beside the update", decay)
        return (lr if self._factors is None else lr * self._factors), share

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
        return means(self._tally)[0]

    @property
    def mean_eff_lr(self) -> float:
        """Mean η_eff over every step so far and all watched weights; NaN before the first."""
        return means(self._tally)[1]

    @property
    def plateau_eff_lr(self) -> float | None:
        """The same over the steps at the peak learning rate, or None where there is no plateau."""
        return means(self._tally)[2]

    def memory(self) -> MemoryUse:
        """What the monitor keeps on this rank."""
        return self._source.workspace.memory()

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
        extra = checked_columns(columns)
        steps, mean, plateau = means(self._tally)
        size = params if params is not None else self._sizes.get("params")
        peak = lr if lr is not None else self._peak.value
        if not steps or not peak:
            raise InputError("finish: no step with a learning rate was seen", hint="call it after training")
        if size is None:
            raise InputError("finish: the number of parameters is not known", hint="give params=…, or the model")
        row = {
            "params": float(size),
            "tokens": float(tokens),
            "lr": float(peak),
            "loss": None if loss is None else float(loss),
            "mean_eff_lr": positive(mean),
            "plateau_eff_lr": positive(plateau),
            "steps": steps,
            **({"params_nonembedding": x} if (x := self._sizes.get("params_nonembedding")) else {}),
            **optimizer_columns(self.optimizer, self.optimizer.param_groups[self._main]),
            **extra,
        }
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
        tally = {name: float(value) for name, value in self._tally.tensors().items()}
        return {
            "run": self.run,
            "weights": content_id({"weights": self.weights}),
            "calls": self._calls,
            "due": self._due,
            "peak_lr": self._peak.value,
            "tally": tally,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state: the sums, the run's name; rows of later steps go."""
        if state["weights"] != content_id({"weights": self.weights}):
            raise InputError(
                f"the saved state is of other weights than the {len(self.weights)} watched here",
                hint="give the same model, include, exclude and split as before",
            )
        for name, tensor in self._tally.tensors().items():
            tensor.fill_(state["tally"][name])
        self.run, self._calls, self._due = state["run"], state["calls"], state["due"]
        self._peak.read(state["peak_lr"])
        if self._recording is not None:
            self._recording = Recording(self._recording.study, self.run)
            if is_first_rank():
                self._recording.resume(self.steps)


def unwrapped(optimizer: Any) -> torch.optim.Optimizer:
    """The torch optimizer inside what accelerate or Lightning wrap around it."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = inner
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InputError(
            f"StepMonitor: expected a torch.optim.Optimizer, got {type(optimizer).__name__}",
            hint="give the optimizer whose step() moves the weights",
        )
    return optimizer


def _check(*, mode: str, log_every: int | None, per: str) -> None:
    if mode not in ("snapshot", "reconstruct"):
        raise InputError(f"mode: {mode!r} is neither 'snapshot' nor 'reconstruct'", hint="snapshot always works")
    if log_every is not None and log_every < 1:
        raise InputError(
            f"log_every: {log_every} is not a number of steps above zero", hint="None logs on demand alone"
        )
    if per not in PER:
        raise InputError(f"per: {per!r} is not one of {', '.join(PER)}", hint="role averages over layers")
