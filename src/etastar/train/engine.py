"""How is one step of the whole stack computed on this device?

`Engine.step` takes a batch through the stack in micro-batches, sums gradients across ranks where there
are several, watches for divergence, and moves the parameters. It never reads a value back to the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from etastar.errors import SpecError
from etastar.train import optim
from etastar.train.head import chunk_loss, chunk_loss_and_grads, summed_loss
from etastar.train.model import final_hidden, parameter_shapes
from etastar.train.spec import Execution, TrainSpec
from etastar.train.state import TrainState

_COMPUTE = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}


@dataclass(frozen=True)
class StepResult:
    """One step's losses (K,) before the update, matrix statistics (K, matrices, 6) and who is alive (K,)."""

    loss: Tensor
    statistics: Tensor
    alive: Tensor


def resolve_device(execution: Execution) -> torch.device:
    """The device to train on; `auto` is CUDA where there is one."""
    name = execution.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise SpecError(f"execution.device: {name!r} is no device", hint="write auto, cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SpecError("execution.device: cuda asked for, and torch sees none", hint="write device: auto or cpu")
    if device.type not in ("cpu", "cuda"):
        raise SpecError(f"execution.device: {name!r} is not supported", hint="write auto, cpu or cuda")
    return device


def precisions(execution: Execution, device: torch.device) -> tuple[torch.dtype, torch.dtype]:
    """(type of the parameters, type of the matrix products): master weights are fp32 or wider."""
    name = execution.precision
    if name == "auto":
        name = "bf16" if device.type == "cuda" else "fp32"
    return (torch.float64 if name == "fp64" else torch.float32), _COMPUTE[name]


def default_micro_batch(spec: TrainSpec, device: torch.device) -> int:
    """Sequences a forward pass: what half the free CUDA memory holds, or 1 GiB of a CPU's.

    A token of one model keeps some 40 bytes × width a layer with products in bf16 (two fp32 residuals, the
    norms' outputs, q, k, v, the attention's output and both sides of the GELU), twice that in fp32. The
    state takes 24 bytes a parameter: weight, two moments, gradient, and what the update holds meanwhile.
    """
    model, stack = spec.model, len(spec.lrs)
    token_bytes = 40 if precisions(spec.execution, device)[1] == torch.bfloat16 else 80
    per_sequence = token_bytes * model.width * model.layers * model.context * stack
    room = 2.0**30
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        room = 0.5 * (free - 24 * model.params * stack)
    fits = max(int(room / per_sequence), 1)
    return min(1 << (fits.bit_length() - 1), spec.batch_sequences)


class Engine:
    """One stack's computation; holds no state of training."""

    def __init__(self, spec: TrainSpec, *, device: torch.device, micro_batch: int, ranks: int = 1) -> None:
        execution = spec.execution
        self.spec = spec
        self.device = device
        self.micro_batch = micro_batch
        self.ranks = ranks
        self.dtype, self.compute = precisions(execution, device)
        self.lrs = torch.tensor(spec.lrs, dtype=torch.float64, device=device)
        self._rules = {name: optim.rule_for(spec, name) for name in parameter_shapes(spec.model)}
        compiled = _compiler(execution, device)
        self._hidden = compiled(partial(final_hidden, spec.model, compute=self.compute))
        self._loss_only = compiled(chunk_loss)
        self._loss_and_grads = compiled(chunk_loss_and_grads)
        self._move = compiled(partial(optim.optimizer_step, self._rules))

    def fresh_state(self) -> TrainState:
        """The state before step 0."""
        return TrainState.fresh(self.spec, device=self.device, dtype=self.dtype)

    def step(self, state: TrainState, batch: Tensor, row: Tensor) -> StepResult:
        """One optimizer step of every living model on this rank's sequences (B/ranks, T + 1)."""
        loss, grads = self._loss_and_gradients(state, batch)
        with torch.no_grad():
            norms = optim.gradient_norms(grads)
            state.watch.see(
                loss,
                norms,
                step=row[optim.STEP],
                after_warmup=row[optim.AFTER_WARMUP],
                vocab=self.spec.model.vocab,
            )
            alive = state.watch.alive.clone()
            limit = self.spec.optimizer.clip
            scales = None if limit is None else optim.clip_scales(norms, limit)
            weights = {name: weight.detach() for name, weight in state.params.items()}
            seen = self._move(weights, grads, state.optimizer, self.lrs, row, alive, scales)
            state.tally.add(seen[..., -1], alive=alive, on_plateau=row[optim.PLATEAU])
        return StepResult(loss=loss, statistics=seen, alive=alive)

    def _loss_and_gradients(self, state: TrainState, batch: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean loss over the whole batch, (K,), and the gradients that every rank then shares."""
        total = batch.shape[0] * (batch.shape[1] - 1) * self.ranks
        weights = list(state.params.values())
        losses: list[Tensor] = []
        sums: list[Tensor] = []
        for part in batch.split(self.micro_batch):
            hidden = self._hidden(state.params, part[:, :-1].contiguous())
            loss = self._summed(hidden, state, part) / total
            grads = torch.autograd.grad(loss.sum(), weights)
            losses.append(loss.detach())
            if sums:
                for summed, grad in zip(sums, grads, strict=True):
                    summed.add_(grad)
            else:
                sums = [grad.contiguous() for grad in grads]
        loss = torch.stack(losses).sum(0)
        if self.ranks > 1:
            # The stacked parameters are few and large: plain reductions, no buckets needed.
            for tensor in (loss, *sums):
                dist.all_reduce(tensor)
        return loss, dict(zip(state.params, sums, strict=True))

    def _summed(self, hidden: Tensor, state: TrainState, part: Tensor) -> Tensor:
        return summed_loss(
            hidden,
            state.params["embed"],
            part[:, 1:].reshape(-1),
            loss_only=self._loss_only,
            loss_and_grads=self._loss_and_grads,
        )

    @torch.no_grad()
    def evaluate(self, state: TrainState, sequences: Tensor) -> Tensor:
        """Mean loss of each model over this rank's validation sequences and all others', (K,) float64."""
        total = torch.zeros(len(self.spec.lrs) + 1, dtype=torch.float64, device=self.device)
        for part in sequences.split(self.micro_batch):
            part = part.to(self.device)
            hidden = self._hidden(state.params, part[:, :-1].contiguous())
            total[:-1] += self._summed(hidden, state, part)
            total[-1] += part.shape[0] * (part.shape[1] - 1)
        if self.ranks > 1:
            dist.all_reduce(total)
        return total[:-1] / total[-1]


def _compiler(execution: Execution, device: torch.device) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """torch.compile with the spec's mode, or nothing: on a CPU the compile time is not earned back."""
    mode = execution.compile
    if mode == "off" or (mode == "auto" and device.type == "cpu"):
        return lambda function: function
    import torch._dynamo  # here: it costs seconds, and a CPU run never needs it

    dynamo_config = torch._dynamo.config
    # One process may train many stacks: past the default of 8 shapes torch falls back to eager in silence.
    dynamo_config.recompile_limit = max(dynamo_config.recompile_limit, 64)
    if mode == "max-autotune":
        return partial(torch.compile, dynamic=False, mode="max-autotune-no-cudagraphs")
    return partial(torch.compile, dynamic=False)
