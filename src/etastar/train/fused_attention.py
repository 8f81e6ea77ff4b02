"""Which attention serves a shape, and what does its way back need?

`LibraryAttention` is torch's fastest backend under autograd, with q, k and v joined again after it. `ShortAttention`
is our own, for contexts so short that the library's passes around the products cost more than the products.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from etastar.train import kernel_attention, kernel_layers
from etastar.train.spec import ModelSpec


class Attention(Protocol):
    """Causal attention from joined q, k, v (S, T, 3, H, D), with its QK-norm and RoPE."""

    def forward(self, qkv: Tensor, turns: Tensor | None, *, keep: bool) -> tuple[Tensor, Any]:
        """The mixture (S, T, H, D), and with `keep` what the way back needs."""
        ...

    def backward(self, grad: Tensor, qkv: Tensor, kept: Any, turns: Tensor | None) -> Tensor:
        """The mixture's gradient (S, T, H, D) to that of `qkv`."""
        ...


def attention_for(model: ModelSpec, compute: torch.dtype) -> Attention:
    """The faster one. Ours multiplies in bf16 alone: in fp32 a kernel's products would be TF32's."""
    fits = 16 <= model.head_dim <= kernel_attention.WIDEST and model.context <= kernel_attention.LONGEST
    return (ShortAttention if fits and compute == torch.bfloat16 else LibraryAttention)(model.qk_norm)


class LibraryAttention:
    """torch's, differentiable from q, k and v on."""

    def __init__(self, qk_norm: bool) -> None:
        self._qk_norm = qk_norm

    def forward(self, qkv: Tensor, turns: Tensor | None, *, keep: bool) -> tuple[Tensor, Any]:
        """An autograd graph of its own: leaves q, k, v, and the mixture as torch gives it."""
        q, k = _queries_and_keys(qkv, turns, self._qk_norm)
        leaves = [part.transpose(1, 2).detach().requires_grad_(keep) for part in (q, k, qkv[:, :, 2])]
        with torch.set_grad_enabled(keep):
            mixed = F.scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], is_causal=True)
        return mixed.detach().transpose(1, 2), (leaves, mixed)

    def backward(self, grad: Tensor, qkv: Tensor, kept: Any, turns: Tensor | None) -> Tensor:
        """By autograd, then joined."""
        leaves, mixed = kept
        dq, dk, dv = (part.transpose(1, 2) for part in torch.autograd.grad(mixed, leaves, grad.transpose(1, 2)))
        return kernel_layers.heads_backward(dq, dk, dv, qkv, turns, qk_norm=self._qk_norm)


class ShortAttention:
    """`kernel_attention`'s."""

    def __init__(self, qk_norm: bool) -> None:
        self._qk_norm = qk_norm

    def forward(self, qkv: Tensor, turns: Tensor | None, *, keep: bool) -> tuple[Tensor, Any]:
        """Keeps q and k where they are no views of `qkv`, the mixture, and every query's sum."""
        q, k = _queries_and_keys(qkv, turns, self._qk_norm)
        mixed, log2_sums = kernel_attention.attend(q, k, qkv)
        return mixed, (q, k, mixed, log2_sums)

    def backward(self, grad: Tensor, qkv: Tensor, kept: Any, turns: Tensor | None) -> Tensor:
        """One program a head and sequence."""
        q, k, mixed, log2_sums = kept
        return kernel_attention.attend_backward(grad, q, k, qkv, mixed, log2_sums, turns, qk_norm=self._qk_norm)


def _queries_and_keys(qkv: Tensor, turns: Tensor | None, qk_norm: bool) -> tuple[Tensor, Tensor]:
    """(S, T, H, D) each, normed and turned where asked, else views."""
    if turns is not None or qk_norm:
        return kernel_layers.heads(qkv, turns, qk_norm=qk_norm)
    return qkv[:, :, 0], qkv[:, :, 1]
