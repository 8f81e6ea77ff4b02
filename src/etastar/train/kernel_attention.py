"""How does causal attention over short contexts go in one program a head and sequence?

At a few hundred tokens the libraries' backward pass spends its time around the products: a pass for ⟨o, do⟩, a
query gradient added up by atomics in fp32, a pass to narrow it, and another to join q, k and v. Here one program
walks a head of one sequence: query gradients first, then those of keys and values, taken back through RoPE and
QK-norm where there are any, and written where the joined gradient belongs. No atomics, so the bits repeat.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from etastar.train.kernel_layers import through_qk_norm, turned

LONGEST, WIDEST = 256, 64  # context and head dimension up to which this beats the libraries on an H200
# Three programs a multiprocessor instead of two: a tenth faster, spills included. NVIDIA's backend alone knows it.
_FEW_REGISTERS = {} if torch.version.hip else {"maxnreg": 168}


@triton.jit
def _rows(base, at, stride, length, D: tl.constexpr):
    """Rows `at` of a (length, D) matrix; zeros past its end."""
    column = tl.arange(0, D)
    return tl.load(base + at[:, None] * stride + column[None, :], mask=(at < length)[:, None], other=0.0)


@triton.jit
def _attend(
    q, k, v, mixed, log2_sums, length, heads, q_token, v_token, scale,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    sequence = (tl.program_id(0) // heads).to(tl.int64)
    head = tl.program_id(0) % heads
    block = tl.program_id(1)
    column = tl.arange(0, D)
    query = sequence * length * q_token + head * D
    value_start = sequence * length * v_token + head * D
    row = block * M + tl.arange(0, M)
    mine = _rows(q + query, row, q_token, length, D)
    top = tl.full((M,), -float("inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    out = tl.zeros((M, D), tl.float32)
    for start in range(0, tl.minimum((block + 1) * M, length), N):
        other = start + tl.arange(0, N)
        score = tl.dot(mine, tl.trans(_rows(k + query, other, q_token, length, D))) * scale
        score = tl.where(row[:, None] >= other[None, :], score, -float("inf"))
        higher = tl.maximum(top, tl.max(score, axis=1))
        weight = tl.exp2(score - higher[:, None])
        shrink = tl.exp2(top - higher)
        value = _rows(v + value_start, other, v_token, length, D)
        out = tl.dot(weight.to(value.dtype), value, out * shrink[:, None])
        total = total * shrink + tl.sum(weight, axis=1)
        top = higher
    inside = (row < length)[:, None]
    place = (sequence * length + row)[:, None] * (heads * D) + head * D + column[None, :]
    tl.store(mixed + place, (out / total[:, None]).to(mixed.dtype.element_ty), mask=inside)
    tl.store(log2_sums + tl.program_id(0) * length + row, top + tl.log2(total), mask=row < length)


@triton.jit
def _taken_back(
    grad, at, raw, out, turns, length, stride, D: tl.constexpr, NORM: tl.constexpr, ROPE: tl.constexpr
):  # fmt: skip
    """The gradient of normed and turned rows, through both, to `out`."""
    HALF: tl.constexpr = D // 2
    inside = (at < length)[:, None]
    if NORM or ROPE:
        lane = tl.arange(0, HALF)
        first, second = tl.split(tl.permute(tl.reshape(grad, (grad.shape[0], 2, HALF)), (0, 2, 1)))
        place = at[:, None] * stride + lane[None, :]
        if ROPE:
            cos = tl.load(turns + at[:, None] * HALF + lane[None, :], mask=inside, other=0.0)
            sin = tl.load(turns + (length + at)[:, None] * HALF + lane[None, :], mask=inside, other=0.0)
            first, second = turned(first, second, cos, -sin)
        if NORM:
            x1 = tl.load(raw + place, mask=inside, other=0.0).to(tl.float32)
            x2 = tl.load(raw + place + HALF, mask=inside, other=0.0).to(tl.float32)
            first, second = through_qk_norm(first, second, x1, x2, HALF)
        tl.store(out + place, first.to(out.dtype.element_ty), mask=inside)
        tl.store(out + place + HALF, second.to(out.dtype.element_ty), mask=inside)
    else:
        column = tl.arange(0, D)
        tl.store(out + at[:, None] * stride + column[None, :], grad.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _attend_backward(
    q, k, qkv, mixed, log2_sums, coming, dqkv, turns, deltas, length, heads, q_token, scale,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, NORM: tl.constexpr, ROPE: tl.constexpr,
):  # fmt: skip
    LN2: tl.constexpr = 0.6931471805599453
    sequence = (tl.program_id(0) // heads).to(tl.int64)
    head = tl.program_id(0) % heads
    width = heads * D
    query = sequence * length * q_token + head * D
    joined = sequence * length * 3 * width + head * D
    plain = sequence * length * width + head * D
    sums = log2_sums + tl.program_id(0) * length
    delta_of = deltas + tl.program_id(0) * length
    value_of = qkv + joined + 2 * width
    for first in range(0, length, M):
        row = first + tl.arange(0, M)
        mine = _rows(q + query, row, q_token, length, D)
        grad = _rows(coming + plain, row, width, length, D)
        had = _rows(mixed + plain, row, width, length, D)
        norm = tl.load(sums + row, mask=row < length, other=float("inf"))
        delta = tl.sum(grad.to(tl.float32) * had.to(tl.float32), axis=1)
        tl.store(delta_of + row, delta, mask=row < length)
        dmine = tl.zeros((M, D), tl.float32)
        for start in range(0, tl.minimum(first + M, length), N):
            other = start + tl.arange(0, N)
            key = _rows(k + query, other, q_token, length, D)
            score = tl.dot(mine, tl.trans(key)) * scale
            weight = tl.where(row[:, None] >= other[None, :], tl.exp2(score - norm[:, None]), 0.0)
            dweight = tl.dot(grad, tl.trans(_rows(value_of, other, 3 * width, length, D)))
            dmine = tl.dot((weight * (dweight - delta[:, None])).to(key.dtype), key, dmine)
        _taken_back(
            dmine * (scale * LN2), row, qkv + joined, dqkv + joined, turns, length, 3 * width, D, NORM, ROPE
        )  # fmt: skip
    tl.debug_barrier()  # the deltas of every row are read below by other threads
    for start in range(0, length, N):
        other = start + tl.arange(0, N)
        key = _rows(k + query, other, q_token, length, D)
        value = _rows(value_of, other, 3 * width, length, D)
        dkey = tl.zeros((N, D), tl.float32)
        dvalue = tl.zeros((N, D), tl.float32)
        for first in range(start // M * M, length, M):
            row = first + tl.arange(0, M)
            mine = _rows(q + query, row, q_token, length, D)
            grad = _rows(coming + plain, row, width, length, D)
            norm = tl.load(sums + row, mask=row < length, other=float("inf"))
            delta = tl.load(delta_of + row, mask=row < length, other=0.0)
            score = tl.dot(key, tl.trans(mine)) * scale
            weight = tl.where(row[None, :] >= other[:, None], tl.exp2(score - norm[None, :]), 0.0)
            dvalue = tl.dot(weight.to(value.dtype), grad, dvalue)
            dweight = tl.dot(value, tl.trans(grad))
            dkey = tl.dot((weight * (dweight - delta[None, :])).to(value.dtype), mine, dkey)
        _taken_back(
            dkey * (scale * LN2), other, qkv + joined + width, dqkv + joined + width, turns, length, 3 * width,
            D, NORM, ROPE,
        )  # fmt: skip
        _taken_back(
            dvalue, other, value_of, dqkv + joined + 2 * width, turns, length, 3 * width, D, False, False
        )  # fmt: skip


def attend(q: Tensor, k: Tensor, qkv: Tensor) -> tuple[Tensor, Tensor]:
    """q and k (S, T, H, D) in the same strides, v in `qkv` (S, T, 3, H, D) → the mixture (S, T, H, D), and every
    query's log2 Σ exp (S·H, T), which the way back needs."""
    sequences, length, count, dim = q.shape
    mixed = torch.empty(q.shape, device=q.device, dtype=q.dtype)
    log2_sums = torch.empty(sequences * count, length, device=q.device, dtype=torch.float32)
    _attend[(sequences * count, triton.cdiv(length, 64))](
        q, k, qkv[:, :, 2], mixed, log2_sums, length, count, q.stride(1), qkv.stride(1), _scale(dim),
        M=64, N=32, D=dim, num_warps=4, num_stages=4,
    )  # fmt: skip
    return mixed, log2_sums


def attend_backward(
    coming: Tensor, q: Tensor, k: Tensor, qkv: Tensor, mixed: Tensor, log2_sums: Tensor, turns: Tensor | None,
    *, qk_norm: bool,
) -> Tensor:  # fmt: skip
    """The mixture's gradient (S, T, H, D) to that of `qkv`, from before QK-norm and RoPE."""
    sequences, length, count, dim = q.shape
    dqkv, deltas = torch.empty_like(qkv), torch.empty_like(log2_sums)
    _attend_backward[(sequences * count,)](
        q, k, qkv, mixed, log2_sums, coming, dqkv, qkv if turns is None else turns, deltas, length, count, q.stride(1),
        _scale(dim), M=64, N=64, D=dim, NORM=qk_norm, ROPE=turns is not None, num_warps=4, num_stages=1,
        **_FEW_REGISTERS,
    )  # fmt: skip
    return dqkv


def _scale(dim: int) -> float:
    """Of a score whose softmax is taken with base two."""
    return math.log2(math.e) / math.sqrt(dim)
