"""How does each weight take one visit to memory for all its sums?

One Triton program walks a span of one weight's tensors and leaves three partial sums in fp32; those of all
spans are then added up in float64 by one operation. Nothing is written but the partial sums. `sums.PlainSums` has
the same arithmetic in plain PyTorch, which is the reference, and what serves tensors that are not dense.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from etastar.monitor.sums import Moments, PlainSums, Tensors
from etastar.monitor.workspace import Batch, Workspace, pick

_BLOCK = 1024
_BLOCKS_A_PROGRAM = 8
_SPAN = _BLOCK * _BLOCKS_A_PROGRAM


@triton.jit(do_not_specialize=["start"])
def _pair(x_of, y_of, sums, start, size, BLOCK: tl.constexpr, BLOCKS: tl.constexpr, DIFFERENCE: tl.constexpr):
    span = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    x_sq = tl.zeros((BLOCK,), tl.float32)
    dot = tl.zeros((BLOCK,), tl.float32)
    y_sq = tl.zeros((BLOCK,), tl.float32)
    for turn in range(BLOCKS):
        at = (span * BLOCKS + turn).to(tl.int64) * BLOCK + lanes
        inside = at < size
        x = tl.load(x_of + at, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_of + at, mask=inside, other=0.0).to(tl.float32)
        if DIFFERENCE:
            y = y - x
        x_sq += x * x
        dot += x * y
        y_sq += y * y
    out = sums + (start + span) * 3
    tl.store(out + 0, tl.sum(x_sq, axis=0))
    tl.store(out + 1, tl.sum(dot, axis=0))
    tl.store(out + 2, tl.sum(y_sq, axis=0))


@triton.jit(do_not_specialize=["start", "place"])
def _adam(weight, first, second, floors, sums, start, place, size, BLOCK: tl.constexpr, BLOCKS: tl.constexpr):
    span = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    floor = tl.load(floors + place).to(tl.float32)
    x_sq = tl.zeros((BLOCK,), tl.float32)
    dot = tl.zeros((BLOCK,), tl.float32)
    y_sq = tl.zeros((BLOCK,), tl.float32)
    for turn in range(BLOCKS):
        at = (span * BLOCKS + turn).to(tl.int64) * BLOCK + lanes
        inside = at < size
        x = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
        m = tl.load(first + at, mask=inside, other=0.0)
        v = tl.load(second + at, mask=inside, other=1.0)
        y = m / (tl.sqrt(v) + floor)
        x_sq += x * x
        dot += x * y
        y_sq += y * y
    out = sums + (start + span) * 3
    tl.store(out + 0, tl.sum(x_sq, axis=0))
    tl.store(out + 1, tl.sum(dot, axis=0))
    tl.store(out + 2, tl.sum(y_sq, axis=0))


class KernelSums:
    """`sums.PlainSums`, each tensor read once; a batch with a tensor that is missing or not dense goes the plain way."""

    def __init__(self, workspace: Workspace) -> None:
        self._plain = PlainSums(workspace)
        self._plainly = False  # whether a batch went the plain way since the last result
        self._weights = len(workspace.watched)
        self._places: dict[int, list[int]] = {}  # of a batch's blocks in the partial sums
        owners = [torch.empty(0, dtype=torch.int64)]  # a rank may hold nothing of any weight
        spans = 0
        for batch in workspace.batches:
            self._places[id(batch)] = places = []
            for block, view in zip(batch.blocks, batch.views, strict=True):
                places.append(spans)
                count = triton.cdiv(view.numel(), _SPAN)
                owners.append(torch.full((count,), block.weight))
                spans += count
        self._owners = torch.cat(owners).to(workspace.device)
        self._partial = torch.zeros(spans, 3, dtype=torch.float32, device=workspace.device)

    def steps(self, batch: Batch, after: Tensors) -> None:
        """x is in the batch, y = after − x."""
        self._pairs(batch, after, steps=True)

    def directions(self, batch: Batch, after: Tensors) -> None:
        """y is in the batch, x = after."""
        self._pairs(batch, after, steps=False)

    def _pairs(self, batch: Batch, after: Tensors, *, steps: bool) -> None:
        now = _dense(batch, after)
        if now is None:
            self._leave(batch)
            (self._plain.steps if steps else self._plain.directions)(batch, after)
            return
        for place, view, tensor in zip(self._places[id(batch)], batch.views, now, strict=True):
            x, y = (view, tensor) if steps else (tensor, view)
            with torch.cuda.device_of(view):
                _pair[(triton.cdiv(view.numel(), _SPAN),)](
                    x,
                    y,
                    self._partial,
                    place,
                    view.numel(),
                    BLOCK=_BLOCK,
                    BLOCKS=_BLOCKS_A_PROGRAM,
                    DIFFERENCE=steps,
                    num_warps=4,  # pyright: ignore[reportCallIssue]
                )

    def adam(self, batch: Batch, moments: Moments, after: Tensors) -> None:
        """y is Adam's direction, x = after."""
        found = [_dense(batch, tensors) for tensors in (after, moments.first, moments.second)]
        now, first, second = found
        if now is None or first is None or second is None:
            self._leave(batch)
            self._plain.adam(batch, moments, after)
            return
        blocks = zip(batch.blocks, self._places[id(batch)], now, first, second, strict=True)
        for block, place, weight, m, v in blocks:
            with torch.cuda.device_of(weight):
                _adam[(triton.cdiv(weight.numel(), _SPAN),)](
                    weight,
                    m,
                    v,
                    moments.floor,
                    self._partial,
                    place,
                    block.weight,
                    weight.numel(),
                    BLOCK=_BLOCK,
                    BLOCKS=_BLOCKS_A_PROGRAM,
                    num_warps=4,  # pyright: ignore[reportCallIssue]
                )

    def _leave(self, batch: Batch) -> None:
        """This time the batch's sums are taken elsewhere."""
        self._plainly = True
        for place, view in zip(self._places[id(batch)], batch.views, strict=True):
            self._partial[place : place + triton.cdiv(view.numel(), _SPAN)].zero_()

    def result(self) -> Tensor:
        """The sums of every weight, (3, weights) in float64."""
        total = torch.zeros(self._weights, 3, dtype=torch.float64, device=self._partial.device)
        total.index_add_(0, self._owners, self._partial.double())
        if not self._plainly:
            return total.T
        self._plainly = False
        return total.T + self._plain.result()


def _dense(batch: Batch, tensors: Tensors) -> list[Tensor] | None:
    """The blocks' parts of these tensors, if all are there and dense."""
    parts = [part for part in pick(batch, tensors) if part is not None and part.is_contiguous()]
    return parts if len(parts) == len(batch.blocks) else None
