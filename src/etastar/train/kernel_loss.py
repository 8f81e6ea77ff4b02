"""How is the cross-entropy of a chunk of logits, and its gradient, taken in one visit to memory?

The Triton kernel gives one program a row. It finds the row's log-sum-exp, writes the loss, and puts the
gradient where the logits were: one read and one write of the chunk, nothing else of its size is made.
A row that fits into registers is read once; a longer one is read a second time, from the cache.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

_LONG_BLOCK, _LONG_WARPS = 8192, 16  # the fastest of seven tried on an H200
_IN_REGISTERS = 16_384  # longest row that one program holds


@triton.jit
def _loss_of_row(
    logits, targets, losses, scale, log2_scale, tokens, vocab, BLOCK: tl.constexpr, WHOLE: tl.constexpr
):  # fmt: skip
    LOG2_E: tl.constexpr = 1.4426950408889634
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets + row % tokens)
    start = logits + row * vocab
    lanes = tl.arange(0, BLOCK)
    picked = tl.load(start + target).to(tl.float32) * LOG2_E
    if WHOLE:
        inside = lanes < vocab
        x = tl.load(start + lanes, mask=inside, other=-float("inf")).to(tl.float32) * LOG2_E
        top = tl.max(x, axis=0)
        raised = tl.exp2(x - top)
        total = tl.sum(raised, axis=0)
        log2_norm = top + tl.log2(total)
        tl.store(start + lanes, (raised * (scale / total)).to(logits.dtype.element_ty), mask=inside)
    else:
        top = -float("inf")
        total = 0.0
        for at in range(0, vocab, BLOCK):
            x = tl.load(
                start + at + lanes, mask=at + lanes < vocab, other=-float("inf"), eviction_policy="evict_last"
            ).to(tl.float32)
            higher = tl.maximum(top, tl.max(x, axis=0) * LOG2_E)
            total = total * tl.exp2(top - higher) + tl.sum(tl.exp2(x * LOG2_E - higher), axis=0)
            top = higher
        log2_norm = top + tl.log2(total)
        shift = log2_norm - log2_scale
        for at in range(0, vocab, BLOCK):
            inside = at + lanes < vocab
            x = tl.load(start + at + lanes, mask=inside, other=0.0).to(tl.float32)
            error = tl.exp2(x * LOG2_E - shift)
            tl.store(start + at + lanes, error.to(logits.dtype.element_ty), mask=inside, eviction_policy="evict_first")
    tl.store(losses + row, (log2_norm - picked) / LOG2_E)
    # The target's own place last, once every lane has written: cheaper than asking at each element.
    tl.debug_barrier()
    tl.store(start + target, ((tl.exp2(picked - log2_norm) - 1.0) * scale).to(logits.dtype.element_ty))


def errors_in_place(logits: Tensor, targets: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """`head.plain_errors`, the gradient written over the logits: (K, c, V), (c,) → losses (K, c), gradient."""
    stack, tokens, vocab = logits.shape
    losses = torch.empty(stack, tokens, device=logits.device, dtype=torch.float32)
    whole = vocab <= _IN_REGISTERS
    block = triton.next_power_of_2(vocab) if whole else _LONG_BLOCK
    warps = max(block // 1024, 1) if whole else _LONG_WARPS
    _loss_of_row[(stack * tokens,)](
        logits, targets, losses, scale, math.log2(scale), tokens, vocab, BLOCK=block, WHOLE=whole, num_warps=warps
    )  # fmt: skip
    return losses, logits
