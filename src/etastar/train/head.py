"""How is the loss of K × tokens × vocabulary computed without ever holding those logits?

The tied head and its cross-entropy go in chunks of tokens. A chunk's logits live only while its loss and
its two gradients are taken, so the memory is one chunk's; nothing is recomputed in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# Logits of one chunk: 512 MB in fp32 on a GPU; on a CPU what its cache holds.
CHUNK_ELEMENTS = {"cuda": 2**27, "cpu": 2**21}
ChunkFunction = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]


def chunk_loss(hidden: Tensor, embed: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
    """(K, c, d), (K, V, d), (c,) → the summed loss of each model, (K,), in fp32 or wider."""
    _, log_norm, picked = _logits(hidden, embed, targets)
    return ((log_norm - picked).sum(1),)


def chunk_loss_and_grads(hidden: Tensor, embed: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
    """`chunk_loss`, and the gradients of that sum to the hidden states and to the embedding."""
    logits, log_norm, picked = _logits(hidden, embed, targets)
    probabilities = (logits - log_norm[..., None]).exp()
    hit = torch.arange(logits.shape[-1], device=targets.device) == targets[:, None]
    error = (probabilities - hit.to(logits.dtype)).to(hidden.dtype)
    return (log_norm - picked).sum(1), torch.bmm(error, embed), torch.bmm(error.mT, hidden)


def _logits(hidden: Tensor, embed: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    wide = torch.promote_types(hidden.dtype, torch.float32)
    logits = torch.bmm(hidden, embed.mT).to(wide)
    index = targets.view(1, -1, 1).expand(logits.shape[0], -1, 1)
    return logits, logits.logsumexp(-1), logits.gather(-1, index).squeeze(-1)


class _TiedHead(torch.autograd.Function):
    """The chunks in a row; the gradients are made on the way forward and scaled on the way back."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, embed: Tensor, targets: Tensor, chunk: int, both: ChunkFunction) -> Tensor:
        table = embed.to(hidden.dtype)
        wide = torch.promote_types(hidden.dtype, torch.float32)
        total = torch.zeros(hidden.shape[0], device=hidden.device, dtype=wide)
        grad_hidden = torch.empty_like(hidden)
        grad_embed = torch.zeros_like(embed)
        for start in range(0, hidden.shape[1], chunk):
            part = slice(start, start + chunk)
            loss, to_hidden, to_embed = both(hidden[:, part], table, targets[part])
            total += loss
            grad_hidden[:, part] = to_hidden
            grad_embed += to_embed
        ctx.save_for_backward(grad_hidden, grad_embed)
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_embed = ctx.saved_tensors
        scale = upstream[0][:, None, None]
        # In place: the loss is used once, and the embedding's gradient is the largest tensor here.
        return grad_hidden.mul_(scale.to(grad_hidden.dtype)), grad_embed.mul_(scale), None, None, None


def chunk_tokens(stack: int, vocab: int, device: str) -> int:
    """Tokens a chunk: a power of two, so that batches divide evenly and one compiled shape serves."""
    fits = max(CHUNK_ELEMENTS[device] // (stack * vocab), 1)
    return 1 << (fits.bit_length() - 1)


def summed_loss(
    hidden: Tensor,
    embed: Tensor,
    targets: Tensor,
    *,
    loss_only: ChunkFunction = chunk_loss,
    loss_and_grads: ChunkFunction = chunk_loss_and_grads,
) -> Tensor:
    """Summed next-token loss of each model over (K, N, d) hidden states and (N,) targets: (K,)."""
    chunk = chunk_tokens(embed.shape[0], embed.shape[1], embed.device.type)
    if torch.is_grad_enabled():
        return _TiedHead.apply(hidden, embed, targets, chunk, loss_and_grads)  # type: ignore[no-any-return]
    table = embed.to(hidden.dtype)
    total = torch.zeros(hidden.shape[0], device=hidden.device, dtype=torch.float64)
    for start in range(0, hidden.shape[1], chunk):
        part = slice(start, start + chunk)
        total += loss_only(hidden[:, part], table, targets[part])[0]
    return total
