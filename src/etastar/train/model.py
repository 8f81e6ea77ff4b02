"""What does a stack of K GPTs compute, each on the same tokens?

Every parameter carries a leading dimension K; K = 1 is the ordinary run and goes the same way. The
tokens (B, T) are shared by the stack, activations are (K, B, T, d), and no operation mixes two models:
a NaN in one leaves the others as they were. Shapes of the parameters (L layers, d width, V vocabulary):

    embed (K, V, d)        positions (K, C, d)             tied head: logits = hidden · embedᵀ
    qkv   (K, L, 3, d, d)  out (K, L, 1, d, d)             matrices as (out, in); q, k and v are three
    up    (K, L, 1, 4d, d) down (K, L, 1, d, 4d)
    gain_attn, gain_mlp (K, L, d)  gain_final (K, d)       LayerNorm's gains; RMSNorm here has none
"""

from __future__ import annotations

import hashlib
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from etastar.train.spec import ModelSpec

MATRICES = ("qkv", "out", "up", "down")
EMBEDDINGS = ("embed", "positions")
GAINS = ("gain_attn", "gain_mlp", "gain_final")
NORM_EPS = {"layernorm": 1e-5, "rmsnorm": 1e-6}
QK_EPS = 1e-6
_GPT2_STD = 0.02


def parameter_shapes(model: ModelSpec) -> dict[str, tuple[int, ...]]:
    """One model's parameters and their shapes, without the stack dimension."""
    d, layers = model.width, model.layers
    shapes: dict[str, tuple[int, ...]] = {"embed": (model.vocab, d)}
    if model.positions == "learned":
        shapes["positions"] = (model.context, d)
    shapes |= {
        "qkv": (layers, 3, d, d),
        "out": (layers, 1, d, d),
        "up": (layers, 1, 4 * d, d),
        "down": (layers, 1, d, 4 * d),
    }
    if model.norm == "layernorm":
        shapes |= {"gain_attn": (layers, d), "gain_mlp": (layers, d), "gain_final": (d,)}
    return shapes


def weight_names(model: ModelSpec, name: str) -> list[str]:
    """The matrices that one stacked parameter holds, in the order of its (L, M) dimensions flattened."""
    kinds = ("q", "k", "v") if name == "qkv" else (name,)
    return [f"blocks.{layer}.{kind}" for layer in range(model.layers) for kind in kinds]


def init_params(
    model: ModelSpec, *, stack: int, seed: int, device: torch.device, dtype: torch.dtype
) -> dict[str, Tensor]:
    """The initial weights of `initial_std`; gains are 1.

    One model is drawn on the CPU, each parameter from its own stream of (seed, name), and copied K
    times: model k of a stack starts as the same model does alone, on any device.
    """
    params: dict[str, Tensor] = {}
    for name, shape in parameter_shapes(model).items():
        if name in GAINS:
            one = torch.ones(shape)
        else:
            one = torch.randn(shape, generator=_stream(seed, name)) * initial_std(model, name)
        one = one.to(device=device, dtype=dtype)
        params[name] = one.expand(stack, *shape).clone().requires_grad_()
    return params


def initial_std(model: ModelSpec, name: str) -> float:
    """Standard deviation of one parameter's initial weights: embeddings 0.02, matrices as `init` says."""
    if name in EMBEDDINGS:
        return _GPT2_STD
    std = _GPT2_STD if model.init == "gpt2" else 1 / math.sqrt(model.width)
    return std / math.sqrt(2 * model.layers) if name in ("out", "down") else std


def _stream(seed: int, name: str) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))


def final_hidden(model: ModelSpec, params: dict[str, Tensor], tokens: Tensor, compute: torch.dtype) -> Tensor:
    """Tokens (B, T) → normalised hidden states (K, B·T, d) in the compute type.

    The residual stream stays in the parameters' type; matrices and their inputs are cast to `compute`.
    """
    stack, vocab, width = params["embed"].shape
    batch, length = tokens.shape
    # One flat table of K·V rows: model k reads, and sends gradients to, its own rows alone.
    offsets = torch.arange(stack, device=tokens.device).view(stack, 1, 1) * vocab
    x = F.embedding(tokens + offsets, params["embed"].reshape(stack * vocab, width))
    if model.positions == "learned":
        x = x + params["positions"][:, None, :length]
    if model.norm_embedding:
        x = F.rms_norm(x, (width,), eps=NORM_EPS["rmsnorm"])
    x = x.reshape(stack, batch * length, width)
    turns = rope_table(model, length, x.device, x.dtype) if model.positions == "rope" else None

    layers = {name: params[name].to(compute).unbind(1) for name in MATRICES}
    no_gain: tuple[Tensor | None, ...] = (None,) * model.layers
    gains_attn = params["gain_attn"].unbind(1) if "gain_attn" in params else no_gain
    gains_mlp = params["gain_mlp"].unbind(1) if "gain_mlp" in params else no_gain
    for layer in range(model.layers):
        h = _norm(model, x, gains_attn[layer]).to(compute)
        h = _attention(model, _linear(h, layers["qkv"][layer]), batch, length, turns)
        x = x + _linear(h, layers["out"][layer])
        h = _norm(model, x, gains_mlp[layer]).to(compute)
        x = x + _linear(F.gelu(_linear(h, layers["up"][layer])), layers["down"][layer])
    return _norm(model, x, params.get("gain_final")).to(compute)


def logits(model: ModelSpec, params: dict[str, Tensor], tokens: Tensor) -> Tensor:
    """(B, T) → (K, B, T, V): for looking at a model; training never holds them whole (`train/head.py`)."""
    hidden = final_hidden(model, params, tokens, params["embed"].dtype)
    return (hidden @ params["embed"].mT).view(hidden.shape[0], *tokens.shape, -1)


def _linear(x: Tensor, weight: Tensor) -> Tensor:
    """(K, N, in) by (K, M, out, in) → (K, N, M·out)."""
    stack, parts, out, inner = weight.shape
    return torch.bmm(x, weight.reshape(stack, parts * out, inner).mT)


def _norm(model: ModelSpec, x: Tensor, gain: Tensor | None) -> Tensor:
    eps = NORM_EPS[model.norm]
    shape = (x.shape[-1],)
    x = F.layer_norm(x, shape, eps=eps) if model.norm == "layernorm" else F.rms_norm(x, shape, eps=eps)
    return x if gain is None else x * gain[:, None, :]


def _attention(model: ModelSpec, qkv: Tensor, batch: int, length: int, turns: Tensor | None) -> Tensor:
    """Causal attention over (K·B, heads, T, head_dim): one model's sequences never meet another's."""
    stack = qkv.shape[0]
    parts = qkv.view(stack * batch, length, 3, model.heads, model.head_dim).permute(2, 0, 3, 1, 4)
    q, k, v = parts.unbind(0)
    if model.qk_norm:
        q = F.rms_norm(q, (model.head_dim,), eps=QK_EPS)
        k = F.rms_norm(k, (model.head_dim,), eps=QK_EPS)
    if turns is not None:
        q, k = _rotate(q, turns), _rotate(k, turns)
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return mixed.transpose(1, 2).reshape(stack, batch * length, model.width)


def rope_table(model: ModelSpec, length: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """cos and sin of position × frequency, (2, T, head_dim/2); angles in float64, then rounded once."""
    half = model.head_dim // 2
    frequency = 10_000.0 ** (-torch.arange(half, device=device, dtype=torch.float64) / half)
    angle = torch.arange(length, device=device, dtype=torch.float64)[:, None] * frequency
    return torch.stack((angle.cos(), angle.sin())).to(dtype)


def _rotate(x: Tensor, turns: Tensor) -> Tensor:
    """Turn pairs by their position's angle, in the table's wider type."""
    cos, sin = turns.unbind(0)
    first, second = x.to(turns.dtype).chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).to(x.dtype)
