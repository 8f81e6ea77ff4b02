"""How is one step of the whole stack computed on this device?

`Engine.step` takes a batch through the stack in micro-batches, sums gradients across ranks where there
are several, watches for divergence, and moves the parameters. It never reads a value back to the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from etastar.errors import SpecError
from etastar.train import optim
from etastar.train.head import Errors, losses_and_grads, plain_errors, plain_logits, summed_losses
from etastar.train.head_fp8 import check_fp8, fp8_logits
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


@dataclass(frozen=True)
class PlainPass:
    """A forward pass with autograd's graph behind it."""

    hidden: Tensor


class PlainPasses:
    """Forward and backward by autograd, compiled or not."""

    def __init__(self, hidden: Callable[[dict[str, Tensor], Tensor], Tensor]) -> None:
        self.hidden = hidden

    def forward(self, params: dict[str, Tensor], tokens: Tensor) -> PlainPass:
        """Tokens (B, T) through the stack."""
        return PlainPass(self.hidden(params, tokens))

    def backward(
        self, params: dict[str, Tensor], done: PlainPass, grad_hidden: Tensor, grad_table: Tensor
    ) -> dict[str, Tensor]:
        """Gradients of every parameter, the look-up's added to the head's `grad_table`."""
        grads = dict(zip(params, torch.autograd.grad(done.hidden, list(params.values()), grad_hidden), strict=True))
        return grads | {"embed": grad_table.add_(grads["embed"])}


class Passes(Protocol):
    """A model's way forward and back."""

    @property
    def hidden(self) -> Callable[[dict[str, Tensor], Tensor], Tensor]:
        """Hidden states alone, for evaluation."""
        ...

    def forward(self, params: dict[str, Tensor], tokens: Tensor) -> Any:
        """A pass whose `hidden` is (K, B·T, d)."""
        ...

    def backward(
        self, params: dict[str, Tensor], done: Any, grad_hidden: Tensor, grad_table: Tensor
    ) -> dict[str, Tensor]:
        """Gradients in the order of `params`."""
        ...


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
        self._model, self._errors, self._norms, self._move = self._paths()
        self._logits = plain_logits
        if execution.head == "fp8":
            check_fp8(spec, device, self.compute)
            self._logits = fp8_logits

    def _paths(self) -> tuple[Passes, Errors, Callable[[dict[str, Tensor]], Tensor], Callable[..., Tensor]]:
        """Model, loss, gradient norms and optimizer step: the one place that picks Triton or plain PyTorch."""
        spec, compiled = self.spec, _compiler(self.spec.execution, self.device)
        rules = {name: optim.rule_for(spec, name) for name in parameter_shapes(spec.model)}
        plain_step = compiled(partial(optim.optimizer_step, rules))
        if not uses_kernels(spec, self.device):
            hidden = compiled(partial(final_hidden, spec.model, compute=self.compute))
            return PlainPasses(hidden), compiled(plain_errors), compiled(optim.gradient_norms), plain_step
        from etastar.train.fused_model import FusedPasses
        from etastar.train.kernel_loss import errors_in_place
        from etastar.train.kernel_step import FusedStep, gradient_norms

        adam = all(rule.direction == "adam" for rule in rules.values())
        stream = torch.float32 if spec.execution.residual == "fp32" else self.compute
        model = FusedPasses(spec.model, compute=self.compute, stream=stream)
        return model, errors_in_place, gradient_norms, FusedStep(rules) if adam else plain_step

    def fresh_state(self) -> TrainState:
        """The state before step 0."""
        return TrainState.fresh(self.spec, device=self.device, dtype=self.dtype, compute=self.compute)

    def step(self, state: TrainState, batch: Tensor, row: Tensor) -> StepResult:
        """One optimizer step of every living model on this rank's sequences (B/ranks, T + 1)."""
        loss, grads = self._loss_and_gradients(state, batch)
        with torch.no_grad():
            norms = self._norms(grads)
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
            shadow = {name: weight.detach() for name, weight in state.shadow.items()}
            seen = self._move(weights, grads, state.optimizer, self.lrs, row, alive, scales, shadow)
            state.tally.add(seen[..., -1], alive=alive, on_plateau=row[optim.PLATEAU])
        return StepResult(loss=loss, statistics=seen, alive=alive)

    def _loss_and_gradients(self, state: TrainState, batch: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean loss over the whole batch, (K,), and the gradients that every rank then shares."""
        total = batch.shape[0] * (batch.shape[1] - 1) * self.ranks
        leaves = state.leaves()
        losses: list[Tensor] = []
        sums: dict[str, Tensor] = {}
        for part in batch.split(self.micro_batch):
            done = self._model.forward(leaves, part[:, :-1].contiguous())
            with torch.no_grad():
                loss, to_hidden, to_table = losses_and_grads(
                    done.hidden.detach(),
                    state.table(),
                    part[:, 1:].reshape(-1),
                    total=total,
                    errors=self._errors,
                    logits_from=self._logits,
                )
            losses.append(loss)
            grads = self._model.backward(leaves, done, to_hidden, to_table)
            sums = _added(sums, grads, last=len(losses) * self.micro_batch >= batch.shape[0])
        loss = torch.stack(losses).sum(0)
        if self.ranks > 1:
            # The stacked parameters are few and large: plain reductions, no buckets needed.
            sums = {name: grad.to(self.dtype) for name, grad in sums.items()}
            for tensor in (loss, *sums.values()):
                dist.all_reduce(tensor)
        return loss, sums

    @torch.no_grad()
    def evaluate(self, state: TrainState, sequences: Tensor) -> Tensor:
        """Mean loss of each model over this rank's validation sequences and all others', (K,) float64."""
        total = torch.zeros(len(self.spec.lrs) + 1, dtype=torch.float64, device=self.device)
        for part in sequences.split(self.micro_batch):
            part = part.to(self.device)
            hidden = self._model.hidden(state.leaves(), part[:, :-1].contiguous())
            total[:-1] += summed_losses(hidden, state.table(), part[:, 1:].reshape(-1), errors=self._errors)
            total[-1] += part.shape[0] * (part.shape[1] - 1)
        if self.ranks > 1:
            dist.all_reduce(total)
        return total[:-1] / total[-1]


def _added(sums: dict[str, Tensor], grads: dict[str, Tensor], *, last: bool) -> dict[str, Tensor]:
    """Gradients of the micro-batches so far, added up in fp32 or wider; a single one stays as it came."""
    if not sums:
        return {
            name: grad.contiguous() if last else grad.to(torch.promote_types(grad.dtype, torch.float32)).contiguous()
            for name, grad in grads.items()
        }
    for name, grad in grads.items():
        sums[name].add_(grad)
    return sums


def uses_kernels(spec: TrainSpec, device: torch.device) -> bool:
    """Whether the Triton kernels serve: on CUDA, where triton is there, unless the spec asks for something else."""
    execution, model = spec.execution, spec.model
    wanted = execution.kernels == "triton"
    reasons = {
        "the device is not CUDA": device.type != "cuda",
        "precision is fp64": execution.precision == "fp64",
        "deterministic kernels are asked for": execution.deterministic,
        "learned positions under a norm have no kernel": model.positions == "learned" and model.norm_embedding,
        "head_dim is not a power of two": model.head_dim & (model.head_dim - 1) != 0,
        "triton is not installed": find_spec("triton") is None,
    }
    against = [reason for reason, holds in reasons.items() if holds]
    if wanted and against:
        raise SpecError(f"execution.kernels: triton, but {against[0]}", hint="write kernels: auto")
    return execution.kernels != "plain" and not against


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
