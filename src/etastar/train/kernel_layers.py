"""What lies between two matrix products of a block, as one visit to memory each?

    add_norm        x + δ, and its LayerNorm or RMSNorm        (backward: norm_backward)
    gelu            the exact one                              (backward: gelu_backward)
    heads           QK-norm and RoPE on q and k                (backward: heads_backward, which also joins q, k, v)
    embed           look-up, positions, norm of the stream     (backward: embed_backward)

Activations are (K, N, d) or (K·B, T, …), contiguous; arithmetic is in fp32 whatever the storage. The plain
model in `train/model.py` says what is computed; these functions only say it faster.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from etastar.train.model import QK_EPS

_QK_EPS = tl.constexpr(QK_EPS)  # kernels see no other globals
_TILE = 4096  # elements a program holds at once


def _rows(width: int) -> tuple[int, int]:
    """(block, rows): a tile of whole rows."""
    block = triton.next_power_of_2(width)
    return block, max(_TILE // block, 1)


@dataclass(frozen=True)
class _Walk:
    """How a backward norm's programs walk the rows: few that stay, each prefetching its next tile."""

    block: int
    rows: int
    warps: int
    programs: int  # of one model; each adds up its share of the gain's gradient
    stages: int

    @classmethod
    def of(cls, x: Tensor) -> _Walk:
        """The fastest of sixteen tried on an H200; past 4096 columns a tile more would not fit every card's memory."""
        stack, rows, width = x.shape
        block = triton.next_power_of_2(width)
        tile, warps, programs, stages = (1024, 1, 4224, 2) if block <= 512 else (2048, 4, 1056, 3)
        if block > 4096:
            warps, stages = 8, 1
        tile = max(tile // block, 1)
        return cls(block, tile, warps, min(triton.cdiv(rows, tile), max(programs // stack, 1)), stages)


def gain_sums(x: Tensor, layers: int) -> Tensor:
    """Where the backward norms of `layers` layers leave their shares of the gain's gradient, (K, L, programs, d)."""
    stack, _, width = x.shape
    return torch.empty(stack, layers, _Walk.of(x).programs, width, device=x.device, dtype=torch.float32)


@triton.jit
def _normed(x, inside, width, eps, LAYERNORM: tl.constexpr):
    """x̂ and 1/σ of every row."""
    mean = tl.sum(x, axis=1) / width if LAYERNORM else tl.zeros((x.shape[0],), tl.float32)
    away = tl.where(inside, x - mean[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(away * away, axis=1) / width + eps)
    return away * scale[:, None], scale


@triton.jit
def _add_norm(
    x, delta, gain, x_out, h, rows, width, eps, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    DELTA: tl.constexpr, GAIN: tl.constexpr, LAYERNORM: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    at = (model * rows + row)[:, None] * width + column[None, :]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if DELTA:
        value += tl.load(delta + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(x_out + at, value.to(x_out.dtype.element_ty), mask=inside)
    unit, _ = _normed(value, inside, width, eps, LAYERNORM)
    if GAIN:
        unit *= tl.load(gain + model * width + column, mask=column < width, other=0.0)[None, :]
    tl.store(h + at, unit.to(h.dtype.element_ty), mask=inside)


def add_norm(
    x: Tensor, delta: Tensor | None, gain: Tensor | None, *, kind: str, eps: float, compute: torch.dtype
) -> tuple[Tensor, Tensor]:
    """x + δ in x's type, and its norm in the products' type."""
    stack, rows, width = x.shape
    block, tile = _rows(width)
    out = x if delta is None else torch.empty_like(x)
    h = torch.empty(x.shape, device=x.device, dtype=compute)
    _add_norm[(triton.cdiv(rows, tile), stack)](
        x, x if delta is None else delta, x if gain is None else gain.contiguous(), out, h, rows, width, eps,
        BLOCK=block, ROWS=tile, DELTA=delta is not None, GAIN=gain is not None, LAYERNORM=kind == "layernorm",
        num_warps=4 if block <= 1024 else 8,
    )  # fmt: skip
    return out, h


@triton.jit
def _norm_backward(
    dh, x, gain, dx, dx_out, narrow, sums, sums_of_model, rows, width, eps, programs, turns,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, ADD: tl.constexpr, NARROW: tl.constexpr,
    GAIN: tl.constexpr, LAYERNORM: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(1).to(tl.int64)
    program = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    full = column < width
    to_gain = tl.zeros((ROWS, BLOCK), tl.float32)
    if GAIN:
        factor = tl.load(gain + model * width + column, mask=full, other=0.0)
    for turn in tl.range(0, turns, num_stages=STAGES):
        row = (turn * programs + program) * ROWS + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & full[None, :]
        at = (model * rows + row)[:, None] * width + column[None, :]
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        grad = tl.load(dh + at, mask=inside, other=0.0).to(tl.float32)
        if ADD:
            had = tl.load(dx + at, mask=inside, other=0.0).to(tl.float32)
        unit, scale = _normed(value, inside, width, eps, LAYERNORM)
        if GAIN:
            to_gain += grad * unit
            grad *= factor[None, :]
        along = tl.sum(grad * unit, axis=1) / width
        inner = grad - unit * along[:, None]
        if LAYERNORM:
            inner -= (tl.sum(grad, axis=1) / width)[:, None]
        inner *= scale[:, None]
        if ADD:
            inner += had
        tl.store(dx_out + at, inner.to(dx_out.dtype.element_ty), mask=inside)
        if NARROW:
            tl.store(narrow + at, inner.to(narrow.dtype.element_ty), mask=inside)
    if GAIN:
        tl.store(sums + model * sums_of_model + program * width + column, tl.sum(to_gain, axis=0), mask=full)


def norm_backward(
    dh: Tensor, x: Tensor, gain: Tensor | None, dx: Tensor | None, sums: Tensor | None, *, kind: str, eps: float
) -> tuple[Tensor, Tensor]:
    """dx + the gradient through the norm, in x's type and in dh's; a layer of `gain_sums` is filled where there is a gain.

    `dx` is overwritten. The two results are one tensor where the types are the same.
    """
    stack, rows, width = x.shape
    walk = _Walk.of(x)
    out = torch.empty_like(x) if dx is None else dx
    narrow = out if dh.dtype == x.dtype else torch.empty_like(dh)
    _norm_backward[(walk.programs, stack)](
        dh, x, x if gain is None else gain.contiguous(), out, out, narrow, x if sums is None else sums,
        0 if sums is None else sums.stride(0), rows, width, eps, walk.programs,
        triton.cdiv(rows, walk.rows * walk.programs),
        BLOCK=walk.block, ROWS=walk.rows, ADD=dx is not None, NARROW=narrow is not out, GAIN=gain is not None,
        LAYERNORM=kind == "layernorm", STAGES=walk.stages, num_warps=walk.warps,
    )  # fmt: skip
    return out, narrow


@triton.jit
def _normal(x):
    """Φ(x) and φ(x), to 2e-7: Abramowitz and Stegun 7.1.26, one exponential for both."""
    far = tl.abs(x)
    t = 1.0 / (1.0 + 0.23164190 * far)
    bell = tl.exp2(far * far * -0.7213475204444817)
    tail = ((((0.5307027 * t - 0.7265760) * t + 0.7107069) * t - 0.1422484) * t + 0.1274148) * t * bell
    return tl.where(x > 0, 1.0 - tail, tail), bell * 0.3989422804014327


@triton.jit
def _gelu(x, out, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    share, _ = _normal(value)
    tl.store(out + at, (value * share).to(out.dtype.element_ty), mask=inside)


def gelu(x: Tensor) -> Tensor:
    """x·Φ(x)."""
    out = torch.empty_like(x)
    _gelu[(triton.cdiv(x.numel(), _TILE),)](x, out, x.numel(), BLOCK=_TILE, num_warps=8)
    return out


@triton.jit
def _gelu_backward(grad, x, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    coming = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
    share, density = _normal(value)
    tl.store(grad + at, (coming * (share + value * density)).to(grad.dtype.element_ty), mask=inside)


def gelu_backward(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient to x, written over `grad`."""
    _gelu_backward[(triton.cdiv(x.numel(), _TILE),)](grad, x, x.numel(), BLOCK=_TILE, num_warps=8)
    return grad


@triton.jit
def _half_rows(size, heads, length, HALF: tl.constexpr, ROWS: tl.constexpr):
    """Which (token, head) a tile's rows are, and their positions."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < size
    token, head = row // heads, row % heads
    return inside, token.to(tl.int64), head, token % length


@triton.jit
def turned(first, second, cos, sin):
    """Rows of heads, in halves, turned by RoPE; by −sin back again."""
    return first * cos - second * sin, first * sin + second * cos


@triton.jit
def through_qk_norm(first, second, x1, x2, HALF: tl.constexpr):
    """The gradient of normed rows of heads, in halves, to that of the rows x."""
    scale = tl.rsqrt((tl.sum(x1 * x1, axis=1) + tl.sum(x2 * x2, axis=1)) / (2 * HALF) + _QK_EPS)[:, None]
    x1 *= scale
    x2 *= scale
    along = ((tl.sum(first * x1, axis=1) + tl.sum(second * x2, axis=1)) / (2 * HALF))[:, None]
    return (first - x1 * along) * scale, (second - x2 * along) * scale


@triton.jit
def _heads(
    qkv, q_out, k_out, turns, size, heads, length,
    HALF: tl.constexpr, ROWS: tl.constexpr, NORM: tl.constexpr, ROPE: tl.constexpr,
):  # fmt: skip
    inside, token, head, position = _half_rows(size, heads, length, HALF, ROWS)
    lane = tl.arange(0, HALF)
    mask = inside[:, None] & (lane >= 0)[None, :]
    width = heads * 2 * HALF
    if ROPE:
        cos = tl.load(turns + position[:, None] * HALF + lane[None, :], mask=mask, other=0.0)
        sin = tl.load(turns + (length + position)[:, None] * HALF + lane[None, :], mask=mask, other=0.0)
    for part in tl.static_range(2):
        source = (token * 3 + part)[:, None] * width + (head * 2 * HALF)[:, None] + lane[None, :]
        first = tl.load(qkv + source, mask=mask, other=0.0).to(tl.float32)
        second = tl.load(qkv + source + HALF, mask=mask, other=0.0).to(tl.float32)
        if NORM:
            scale = tl.rsqrt((tl.sum(first * first, axis=1) + tl.sum(second * second, axis=1)) / (2 * HALF) + _QK_EPS)
            first *= scale[:, None]
            second *= scale[:, None]
        if ROPE:
            first, second = turned(first, second, cos, sin)
        out = q_out if part == 0 else k_out
        place = token[:, None] * width + (head * 2 * HALF)[:, None] + lane[None, :]
        tl.store(out + place, first.to(out.dtype.element_ty), mask=mask)
        tl.store(out + place + HALF, second.to(out.dtype.element_ty), mask=mask)


def heads(qkv: Tensor, turns: Tensor | None, *, qk_norm: bool) -> tuple[Tensor, Tensor]:
    """(S, T, 3, H, D) → q and k as attention takes them, (S, T, H, D): normed and turned where asked."""
    sequences, length, _, count, dim = qkv.shape
    q, k = (torch.empty(sequences, length, count, dim, device=qkv.device, dtype=qkv.dtype) for _ in range(2))
    size, tile = sequences * length * count, max(_TILE // dim, 1)
    _heads[(triton.cdiv(size, tile),)](
        qkv, q, k, qkv if turns is None else turns, size, count, length,
        HALF=dim // 2, ROWS=tile, NORM=qk_norm, ROPE=turns is not None, num_warps=4,
    )  # fmt: skip
    return q, k


@triton.jit
def _heads_backward(
    dq, dk, dv, qkv, dqkv, turns, size, heads, length,
    q_token, q_head, k_token, k_head, v_token, v_head, q_sequence, k_sequence, v_sequence,
    HALF: tl.constexpr, ROWS: tl.constexpr, NORM: tl.constexpr, ROPE: tl.constexpr,
):  # fmt: skip
    inside, token, head, position = _half_rows(size, heads, length, HALF, ROWS)
    lane = tl.arange(0, HALF)
    mask = inside[:, None] & (lane >= 0)[None, :]
    width = heads * 2 * HALF
    sequence = token // length
    if ROPE:
        cos = tl.load(turns + position[:, None] * HALF + lane[None, :], mask=mask, other=0.0)
        sin = tl.load(turns + (length + position)[:, None] * HALF + lane[None, :], mask=mask, other=0.0)
    for part in tl.static_range(3):
        if part == 0:
            source = dq + (sequence * q_sequence + position * q_token + head * q_head)[:, None] + lane[None, :]
        elif part == 1:
            source = dk + (sequence * k_sequence + position * k_token + head * k_head)[:, None] + lane[None, :]
        else:
            source = dv + (sequence * v_sequence + position * v_token + head * v_head)[:, None] + lane[None, :]
        first = tl.load(source, mask=mask, other=0.0).to(tl.float32)
        second = tl.load(source + HALF, mask=mask, other=0.0).to(tl.float32)
        place = (token * 3 + part)[:, None] * width + (head * 2 * HALF)[:, None] + lane[None, :]
        if part < 2:
            if ROPE:
                first, second = turned(first, second, cos, -sin)
            if NORM:
                x1 = tl.load(qkv + place, mask=mask, other=0.0).to(tl.float32)
                x2 = tl.load(qkv + place + HALF, mask=mask, other=0.0).to(tl.float32)
                first, second = through_qk_norm(first, second, x1, x2, HALF)
        tl.store(dqkv + place, first.to(dqkv.dtype.element_ty), mask=mask)
        tl.store(dqkv + place + HALF, second.to(dqkv.dtype.element_ty), mask=mask)


def heads_backward(dq: Tensor, dk: Tensor, dv: Tensor, qkv: Tensor, turns: Tensor | None, *, qk_norm: bool) -> Tensor:
    """Gradients (S, T, H, D), in any strides, to those of (S, T, 3, H, D)."""
    sequences, length, _, count, dim = qkv.shape
    dqkv = torch.empty_like(qkv)
    size, tile = sequences * length * count, max(_TILE // dim, 1)
    strides = [grad.stride(axis) for grad in (dq, dk, dv) for axis in (1, 2)]
    assert all(grad.stride(3) == 1 for grad in (dq, dk, dv))
    _heads_backward[(triton.cdiv(size, tile),)](
        dq, dk, dv, qkv, dqkv, qkv if turns is None else turns, size, count, length,
        *strides, *(grad.stride(0) for grad in (dq, dk, dv)),
        HALF=dim // 2, ROWS=tile, NORM=qk_norm, ROPE=turns is not None, num_warps=4,
    )  # fmt: skip
    return dqkv


@triton.jit
def _embed(
    tokens, table, positions, out, rows, length, vocab, width, eps,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, LEARNED: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    token = tl.load(tokens + row, mask=row < rows, other=0)
    value = tl.load(table + (model * vocab + token)[:, None] * width + column[None, :], mask=inside, other=0.0)
    if LEARNED:
        place = (model * length + row % length)[:, None] * width + column[None, :]
        value += tl.load(positions + place, mask=inside, other=0.0)
    if NORM:
        value, _ = _normed(value, inside, width, eps, False)
    tl.store(out + (model * rows + row)[:, None] * width + column[None, :], value.to(out.dtype.element_ty), mask=inside)


def embed(
    tokens: Tensor, table: Tensor, positions: Tensor | None, *, norm: bool, eps: float, stream: torch.dtype
) -> Tensor:
    """(B, T) token ids → the stream where it begins, (K, B·T, d); `positions` (K, T, d) contiguous."""
    stack, vocab, width = table.shape
    rows = tokens.numel()
    block, tile = _rows(width)
    out = torch.empty(stack, rows, width, device=table.device, dtype=stream)
    _embed[(triton.cdiv(rows, tile), stack)](
        tokens, table, table if positions is None else positions, out, rows, tokens.shape[1], vocab, width, eps,
        BLOCK=block, ROWS=tile, LEARNED=positions is not None, NORM=norm, num_warps=4,
    )  # fmt: skip
    return out


@triton.jit
def _embed_backward(
    tokens, table, dx, dtable, rows, vocab, width, eps, BLOCK: tl.constexpr, ROWS: tl.constexpr, NORM: tl.constexpr
):  # fmt: skip
    model = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    token = tl.load(tokens + row, mask=row < rows, other=0)
    place = (model * vocab + token)[:, None] * width + column[None, :]
    grad = tl.load(dx + (model * rows + row)[:, None] * width + column[None, :], mask=inside, other=0.0).to(tl.float32)
    if NORM:
        value = tl.load(table + place, mask=inside, other=0.0)
        unit, scale = _normed(value, inside, width, eps, False)
        along = tl.sum(grad * unit, axis=1) / width
        grad = (grad - unit * along[:, None]) * scale[:, None]
    tl.atomic_add(dtable + place, grad, mask=inside)


def embed_backward(tokens: Tensor, table: Tensor, dx: Tensor, dtable: Tensor, *, norm: bool, eps: float) -> None:
    """Add the stream's gradient (K, B·T, d) to the rows that were looked up; without learned positions before the norm."""
    stack, vocab, width = table.shape
    rows = tokens.numel()
    block, tile = _rows(width)
    _embed_backward[(triton.cdiv(rows, tile), stack)](
        tokens, table, dx, dtable, rows, vocab, width, eps, BLOCK=block, ROWS=tile, NORM=norm, num_warps=4
    )  # fmt: skip
