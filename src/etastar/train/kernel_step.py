"""How do Adam's moments, the step and all its statistics take one visit to memory?

One Triton program walks a span of one matrix: it reads weight, gradient and moments, writes weight, moments
and the low-precision copy that the next forward pass reads, and keeps six sums on the way: ‖w‖², ‖g‖²,
‖Δ‖², ‖u‖², ⟨u, w⟩ and ⟨w, Δ⟩. AdamH needs ‖u‖ before it can step, so it goes in two visits: moments, then
the move. `train/optim.py` has the same arithmetic in plain PyTorch, which is the reference.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from etastar.train.model import EMBEDDINGS, MATRICES
from etastar.train.optim import BIAS1, BIAS2, EMBED_BIAS1, EMBED_BIAS2, FACTOR, OptimizerState, Rule
from etastar.train.statistics import effective_lr

_SUMS = 6
_BLOCK = 1024
_BLOCKS_A_PROGRAM = 8


@triton.jit
def _walk(
    weight,
    grad,
    first,
    second,
    shadow,
    sums,
    rates,
    decays,
    clips,
    alive,
    biases,
    size,
    matrices,
    spans,
    beta1,
    beta2,
    eps,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
    MOMENTS: tl.constexpr,
    MOVE: tl.constexpr,
    HYPERBALL: tl.constexpr,
    CLIP: tl.constexpr,
    STATISTICS: tl.constexpr,
    SHADOW: tl.constexpr,
):
    matrix = tl.program_id(0)
    span = tl.program_id(1)
    model = matrix // matrices
    base = matrix.to(tl.int64) * size
    lanes = tl.arange(0, BLOCK)
    # AdamW's rate and decay belong to a model, AdamH's step length and rescaling to a matrix.
    place = matrix if HYPERBALL else model
    rate = tl.load(rates + place)
    decay = tl.load(decays + place)
    living = tl.load(alive + model) != 0
    bias1 = tl.load(biases)
    bias2 = tl.load(biases + 1)
    weight_sq = tl.zeros((BLOCK,), tl.float32)
    grad_sq = tl.zeros((BLOCK,), tl.float32)
    step_sq = tl.zeros((BLOCK,), tl.float32)
    update_sq = tl.zeros((BLOCK,), tl.float32)
    update_dot_weight = tl.zeros((BLOCK,), tl.float32)
    weight_dot_step = tl.zeros((BLOCK,), tl.float32)
    for turn in range(BLOCKS):
        at = (span * BLOCKS + turn) * BLOCK + lanes
        inside = at < size
        where = base + at
        w = tl.load(weight + where, mask=inside, other=0.0)
        m = tl.load(first + where, mask=inside, other=0.0)
        v = tl.load(second + where, mask=inside, other=0.0)
        if MOMENTS:
            g = tl.load(grad + where, mask=inside, other=0.0).to(tl.float32)
            grad_sq += g * g
            if CLIP:
                g *= tl.load(clips + model)
            m = m + (g - m) * (1 - beta1)
            v = v * beta2 + (g * g) * (1 - beta2)
            tl.store(first + where, m, mask=inside)
            tl.store(second + where, v, mask=inside)
        u = tl.where(inside, (m / bias1) / (tl.sqrt(v / bias2) + eps), 0.0)
        if MOMENTS:
            weight_sq += w * w
            update_sq += u * u
            update_dot_weight += u * w
        if MOVE:
            new = (w - rate * u) * decay if HYPERBALL else w - (rate * u + decay * w)
            new = tl.where(living, new, w)
            step = new - w
            step_sq += step * step
            weight_dot_step += w * step
            tl.store(weight + where, new, mask=inside)
            if SHADOW:
                tl.store(shadow + where, new.to(shadow.dtype.element_ty), mask=inside)
    if STATISTICS:
        out = sums + (matrix * spans + span) * 6
        if MOMENTS:
            tl.store(out + 0, tl.sum(weight_sq, axis=0))
            tl.store(out + 1, tl.sum(grad_sq, axis=0))
            tl.store(out + 3, tl.sum(update_sq, axis=0))
            tl.store(out + 4, tl.sum(update_dot_weight, axis=0))
        if MOVE:
            tl.store(out + 2, tl.sum(step_sq, axis=0))
            tl.store(out + 5, tl.sum(weight_dot_step, axis=0))


@triton.jit
def _squares(grad, sums, size, spans, BLOCK: tl.constexpr, BLOCKS: tl.constexpr):
    model = tl.program_id(0)
    span = tl.program_id(1)
    base = model.to(tl.int64) * size
    total = tl.zeros((BLOCK,), tl.float32)
    for turn in range(BLOCKS):
        at = (span * BLOCKS + turn).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        g = tl.load(grad + base + at, mask=at < size, other=0.0).to(tl.float32)
        total += g * g
    tl.store(sums + model * spans + span, tl.sum(total, axis=0))


def gradient_norms(grads: dict[str, Tensor]) -> Tensor:
    """`optim.gradient_norms`, each gradient read once."""
    squares = []
    for grad in grads.values():
        stack, size = grad.shape[0], grad[0].numel()
        spans = triton.cdiv(size, 8 * _BLOCK)
        sums = torch.empty(stack, spans, device=grad.device, dtype=torch.float32)
        _squares[(stack, spans)](grad, sums, size, spans, BLOCK=_BLOCK, BLOCKS=8, num_warps=4)
        squares.append(sums.sum(1, dtype=torch.float64))
    return torch.stack(squares).sum(0).sqrt()


class FusedStep:
    """`optim.optimizer_step` in one or two visits to memory; rules with Adam's direction only.

    Without `statistics` nothing is measured: to see what measuring costs.
    """

    def __init__(self, rules: dict[str, Rule], *, statistics: bool = True) -> None:
        self._rules = rules
        self._measured = set(MATRICES) if statistics else set()

    def __call__(
        self,
        params: dict[str, Tensor],
        grads: dict[str, Tensor],
        state: OptimizerState,
        lrs: Tensor,
        row: Tensor,
        alive: Tensor,
        clip_scale: Tensor | None,
        shadow: dict[str, Tensor],
    ) -> Tensor:
        """Move every parameter of every living model; statistics of all matrices, (K, matrices, 6)."""
        found = []
        narrow = row.float()
        biases = {False: narrow[BIAS1 : BIAS2 + 1], True: narrow[EMBED_BIAS1 : EMBED_BIAS2 + 1]}
        for name, weight in params.items():
            rule = self._rules[name]
            rate = row[FACTOR] * (lrs if rule.own_lr is None else torch.full_like(lrs, rule.own_lr))
            decay = rule.weight_decay * (row[FACTOR].expand_as(rate) if rule.independent_decay else rate)
            stack = weight.shape[0]
            matrices = weight[0].numel() // (weight.shape[-1] * weight.shape[-2]) if name in MATRICES else 1
            launch = _Launch(rule, weight, grads[name], state, name, alive, biases[name in EMBEDDINGS], clip_scale)
            launch.shadow = shadow.get(name)
            if rule.hyperball:
                radius = state.radius[name].reshape(stack * matrices).double()
                sums = launch.walk(matrices, rate.float(), decay.float(), moments=True, move=False)
                weight_sq, _, _, update_sq, dot, _ = sums.sum(1, dtype=torch.float64).unbind(-1)
                length = rate.repeat_interleave(matrices) * radius / update_sq.sqrt().clamp_min(1e-30)
                away = (weight_sq - 2 * length * dot + length.square() * update_sq).sqrt()
                launch.walk(matrices, length.float(), (radius / away).float(), moments=False, move=True, sums=sums)
            else:
                statistics = name in self._measured
                sums = launch.walk(
                    matrices, rate.float(), decay.float(), moments=True, move=True, statistics=statistics
                )
            if name in self._measured:
                found.append(sums.sum(1, dtype=torch.float64).view(stack, matrices, _SUMS))
        return _statistics(torch.cat(found, dim=1)) if found else torch.empty(0)


class _Launch:
    """One parameter's tensors on their way into the kernel."""

    def __init__(
        self,
        rule: Rule,
        weight: Tensor,
        grad: Tensor,
        state: OptimizerState,
        name: str,
        alive: Tensor,
        biases: Tensor,
        clip: Tensor | None,
    ) -> None:
        self.rule, self.weight, self.grad, self.alive, self.biases = rule, weight, grad, alive, biases
        self.first, self.second = state.first[name], state.second[name]
        self.clip = None if clip is None else clip.float()
        self.shadow: Tensor | None = None

    def walk(
        self,
        matrices: int,
        rates: Tensor,
        decays: Tensor,
        *,
        moments: bool,
        move: bool,
        statistics: bool = True,
        sums: Tensor | None = None,
    ) -> Tensor:
        weight = self.weight
        total = weight.shape[0] * matrices
        size = weight.numel() // total
        spans = triton.cdiv(size, _BLOCK * _BLOCKS_A_PROGRAM)
        if sums is None:
            # Zeros: AdamH's first visit leaves the places of the second open.
            sums = torch.zeros(total, spans if statistics else 0, _SUMS, device=weight.device, dtype=torch.float32)
        _walk[(total, spans)](
            weight,
            self.grad,
            self.first,
            self.second,
            self.shadow if self.shadow is not None else weight,
            sums,
            rates,
            decays,
            self.clip if self.clip is not None else rates,
            self.alive,
            self.biases,
            size,
            matrices,
            spans,
            self.rule.beta1,
            self.rule.beta2,
            self.rule.eps,
            BLOCK=_BLOCK,
            BLOCKS=_BLOCKS_A_PROGRAM,
            MOMENTS=moments,
            MOVE=move,
            HYPERBALL=self.rule.hyperball and move,
            CLIP=self.clip is not None,
            STATISTICS=statistics,
            SHADOW=self.shadow is not None and move,
            num_warps=4,
        )
        return sums


def _statistics(sums: Tensor) -> Tensor:
    """Six sums of every matrix → the six columns of `statistics.STATISTICS`."""
    weight_sq, grad_sq, step_sq, update_sq, dot, weight_dot_step = sums.unbind(-1)
    eff_lr = effective_lr(weight_sq, weight_dot_step, step_sq)
    columns = (weight_sq.sqrt(), grad_sq.sqrt(), step_sq.sqrt(), update_sq.sqrt(), dot, eff_lr)
    return torch.stack(columns, dim=-1)
