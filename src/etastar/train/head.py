"""How is the loss of K × tokens × vocabulary computed without ever holding those logits?

The tied head and its cross-entropy go in chunks of tokens. A chunk's logits live only while its loss and
its two gradients are taken, so the memory is one chunk's; nothing is recomputed in the backward pass, which
begins at the hidden states. `plain_errors` is the reference; `train/kernel_loss.py` is the same in place.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# Logits of one chunk: 2 GiB in bf16 on a GPU; on a CPU what its cache holds.
CHUNK_ELEMENTS = {"cuda": 2**30, "cpu": 2**21}
# (logits, targets, scale) → losses (K, c), and scale × the gradient to the logits in their type
Errors = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]
# (hidden, table) → the logits of a range of tokens
Logits = Callable[[Tensor, Tensor], Callable[[slice], Tensor]]


def plain_logits(hidden: Tensor, table: Tensor) -> Callable[[slice], Tensor]:
    """(K, N, d), (K, V, d) → tokens' logits (K, c, V), in the products' type."""
    return lambda part: torch.bmm(hidden[:, part], table.mT)


def plain_errors(logits: Tensor, targets: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """(K, c, V), (c,) → every token's loss in fp32 or wider, and scale × (softmax − one-hot) in the logits' type."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    log_norm = wide.logsumexp(-1, keepdim=True)
    hit = torch.arange(logits.shape[-1], device=targets.device) == targets[:, None]
    index = targets.view(1, -1, 1).expand(logits.shape[0], -1, 1)
    error = ((wide - log_norm).exp() - hit.to(wide.dtype)) * scale
    return (log_norm - wide.gather(-1, index)).squeeze(-1), error.to(logits.dtype)


def chunk_tokens(stack: int, vocab: int, device: str) -> int:
    """Tokens a chunk: a power of two, so that batches divide evenly and one compiled shape serves."""
    fits = max(CHUNK_ELEMENTS[device] // (stack * vocab), 1)
    return 1 << (fits.bit_length() - 1)


def losses_and_grads(
    hidden: Tensor,
    table: Tensor,
    targets: Tensor,
    *,
    total: int,
    errors: Errors = plain_errors,
    logits_from: Logits = plain_logits,
) -> tuple[Tensor, Tensor, Tensor]:
    """Summed loss ÷ `total` of each model, (K,), and its gradients to hidden (K, N, d) and table (K, V, d).

    The table's gradient is added up in fp32 or wider, whatever the products' type.
    """
    chunk = chunk_tokens(table.shape[0], table.shape[1], table.device.type)
    grad_hidden = torch.empty_like(hidden)
    grad_table: Tensor | None = None
    losses = []
    logits_of = logits_from(hidden, table)
    for start in range(0, hidden.shape[1], chunk):
        part = slice(start, start + chunk)
        seen, wanted = hidden[:, part], targets[part]
        loss, error = errors(logits_of(part), wanted, 1 / total)
        losses.append(loss.sum(1))
        torch.bmm(error, table, out=grad_hidden[:, part])
        grad_table = _add_product(grad_table, error.mT, seen)
    assert grad_table is not None
    return torch.stack(losses).sum(0) / total, grad_hidden, grad_table


def summed_losses(hidden: Tensor, table: Tensor, targets: Tensor, *, errors: Errors = plain_errors) -> Tensor:
    """Summed next-token loss of each model over (K, N, d) hidden states and (N,) targets, (K,) float64."""
    chunk = chunk_tokens(table.shape[0], table.shape[1], table.device.type)
    total = torch.zeros(hidden.shape[0], device=hidden.device, dtype=torch.float64)
    for start in range(0, hidden.shape[1], chunk):
        part = slice(start, start + chunk)
        total += errors(torch.bmm(hidden[:, part], table.mT), targets[part], 1.0)[0].sum(1)
    return total


def _add_product(total: Tensor | None, left: Tensor, right: Tensor) -> Tensor:
    """total + left·right in fp32 or wider; on CUDA the product itself adds up there, without a pass of its own."""
    if left.is_cuda and left.dtype == torch.bfloat16:
        if total is None:
            return torch.bmm(left, right, out_dtype=torch.float32)
        return torch.baddbmm(total, left, right, out_dtype=torch.float32, out=total)
    product = torch.bmm(left, right)
    if total is None:
        return product.to(torch.promote_types(product.dtype, torch.float32))
    return total.add_(product)
