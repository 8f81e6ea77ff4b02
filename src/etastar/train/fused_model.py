"""How do a stack's forward and backward pass look when nothing is left to a compiler?

Matrix products by cuBLAS, attention as `fused_attention` picks it, everything between them by `kernel_layers`:
one visit to memory each, every activation kept once. The residual stream is kept in the products' type
or in fp32, as the caller says. `train/model.py` is the reference; both read the same parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from etastar.train import kernel_layers as kernels
from etastar.train.fused_attention import Attention, attention_for
from etastar.train.model import NORM_EPS, rope_table
from etastar.train.spec import ModelSpec


@dataclass(frozen=True)
class _Layer:
    """What one block's backward pass needs of its forward pass."""

    x_in: Tensor
    h_attn: Tensor
    qkv: Tensor
    attention: Any  # what `fused_attention` keeps
    mixed: Tensor
    x_mid: Tensor
    h_mlp: Tensor
    up: Tensor
    act: Tensor


@dataclass(frozen=True)
class Pass:
    """A forward pass: the normalised hidden states (K, B·T, d), and what the way back needs."""

    hidden: Tensor
    tokens: Tensor
    layers: list[_Layer]
    x_last: Tensor


class FusedPasses:
    """`model.final_hidden` and its gradients."""

    def __init__(
        self, model: ModelSpec, *, compute: torch.dtype, stream: torch.dtype, attention: Attention | None = None
    ) -> None:
        self.model = model
        self.compute = compute
        self.stream = stream
        self._attention = attention or attention_for(model, compute)
        self._eps = NORM_EPS[model.norm]

    def hidden(self, params: dict[str, Tensor], tokens: Tensor) -> Tensor:
        """Hidden states alone, for evaluation."""
        return self.forward(params, tokens, keep=False).hidden

    @torch.no_grad()
    def forward(self, params: dict[str, Tensor], tokens: Tensor, *, keep: bool = True) -> Pass:
        """Tokens (B, T) through the stack; `keep` what the backward pass needs."""
        model, (batch, length) = self.model, tokens.shape
        stack = params["embed"].shape[0]
        positions = params["positions"][:, :length].contiguous() if model.positions == "learned" else None
        x = kernels.embed(
            tokens, params["embed"], positions, norm=model.norm_embedding, eps=NORM_EPS["rmsnorm"], stream=self.stream
        )
        turns = rope_table(model, length, x.device, torch.float32) if model.positions == "rope" else None
        layers: list[_Layer] = []
        delta = None
        for index in range(model.layers):
            x_in, h_attn = self._add_norm(x, delta, params.get("gain_attn"), index)
            qkv = _linear(h_attn, params["qkv"], index).view(stack * batch, length, 3, model.heads, model.head_dim)
            mixed, attention = self._attention.forward(qkv, turns, keep=keep)
            mixed = mixed.reshape(stack, batch * length, model.width)
            x_mid, h_mlp = self._add_norm(x_in, _linear(mixed, params["out"], index), params.get("gain_mlp"), index)
            up = _linear(h_mlp, params["up"], index)
            act = kernels.gelu(up)
            x, delta = x_mid, _linear(act, params["down"], index)
            if keep:
                layers.append(_Layer(x_in, h_attn, qkv, attention, mixed, x_mid, h_mlp, up, act))
        x_last, hidden = kernels.add_norm(
            x, delta, params.get("gain_final"), kind=model.norm, eps=self._eps, compute=self.compute
        )
        return Pass(hidden, tokens, layers, x_last)

    @torch.no_grad()
    def backward(
        self, params: dict[str, Tensor], done: Pass, grad_hidden: Tensor, grad_table: Tensor
    ) -> dict[str, Tensor]:
        """Gradients of every parameter; the look-up's is added to `grad_table`, the head's (K, V, d)."""
        model, tokens = self.model, done.tokens
        grads = {name: torch.empty_like(weight) for name, weight in params.items() if name != "embed"}
        turns = rope_table(model, tokens.shape[1], tokens.device, torch.float32) if model.positions == "rope" else None
        sums = self._gain_sums(params, done.x_last)
        dx, narrow = self._norm_backward(grad_hidden, done.x_last, None, params, sums, "gain_final", 0)
        for index in reversed(range(model.layers)):
            layer = done.layers[index]
            grad = self._linear_backward(narrow, layer.act, params, grads, "down", index)
            grad = kernels.gelu_backward(grad, layer.up)
            grad = self._linear_backward(grad, layer.h_mlp, params, grads, "up", index)
            dx, narrow = self._norm_backward(grad, layer.x_mid, dx, params, sums, "gain_mlp", index)
            grad = self._linear_backward(narrow, layer.mixed, params, grads, "out", index)
            coming = grad.view(*layer.qkv.shape[:2], model.heads, model.head_dim)
            grad = self._attention.backward(coming, layer.qkv, layer.attention, turns)
            grad = grad.view(*layer.mixed.shape[:2], 3 * model.width)
            grad = self._linear_backward(grad, layer.h_attn, params, grads, "qkv", index)
            dx, narrow = self._norm_backward(grad, layer.x_in, dx, params, sums, "gain_attn", index)
        for name, shares in sums.items():
            torch.sum(shares, dim=2, out=grads[name].view(shares.shape[0], shares.shape[1], -1))
        if model.positions == "learned":
            # The position table is looked up before the norm, if there is one; presets have one or the other.
            shape = (dx.shape[0], *tokens.shape, model.width)
            grads["positions"].zero_()[:, : tokens.shape[1]] = dx.view(shape).sum(1, dtype=torch.float32)
        kernels.embed_backward(
            tokens, params["embed"], dx, grad_table, norm=model.norm_embedding, eps=NORM_EPS["rmsnorm"]
        )
        return {name: grad_table if name == "embed" else grads[name] for name in params}

    def _add_norm(self, x: Tensor, delta: Tensor | None, gain: Tensor | None, index: int) -> tuple[Tensor, Tensor]:
        chosen = None if gain is None else gain[:, index]
        return kernels.add_norm(x, delta, chosen, kind=self.model.norm, eps=self._eps, compute=self.compute)

    def _gain_sums(self, params: dict[str, Tensor], x: Tensor) -> dict[str, Tensor]:
        """Room for the shares of every gain's gradient: added up once, when all layers have left theirs."""
        layers = {"gain_final": 1, "gain_mlp": self.model.layers, "gain_attn": self.model.layers}
        return {name: kernels.gain_sums(x, count) for name, count in layers.items() if name in params}

    def _norm_backward(
        self,
        dh: Tensor,
        x: Tensor,
        dx: Tensor | None,
        params: dict[str, Tensor],
        sums: dict[str, Tensor],
        name: str,
        index: int,
    ) -> tuple[Tensor, Tensor]:
        gain, shares = params.get(name), None
        if gain is not None:
            gain, shares = gain.view(gain.shape[0], -1, gain.shape[-1])[:, index], sums[name][:, index]
        return kernels.norm_backward(dh, x, gain, dx, shares, kind=self.model.norm, eps=self._eps)

    def _linear_backward(
        self,
        grad: Tensor,
        x: Tensor,
        params: dict[str, Tensor],
        grads: dict[str, Tensor],
        name: str,
        index: int,
    ) -> Tensor:
        """The gradient to the input; the matrix's goes to its place in `grads`."""
        torch.bmm(grad.mT, x, out=_flat(grads[name], index))
        return torch.bmm(grad, _flat(params[name], index))


def _flat(weight: Tensor, index: int) -> Tensor:
    """(K, L, M, out, in) → layer `index` as (K, M·out, in), a view."""
    stack, _, parts, out, inner = weight.shape
    return weight.detach()[:, index].view(stack, parts * out, inner)


def _linear(x: Tensor, weight: Tensor, index: int) -> Tensor:
    return torch.bmm(x, _flat(weight, index).mT)
