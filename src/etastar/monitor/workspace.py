"""How are sums over many matrices taken in a few kernels?

Matrices are laid one after the other into a flat buffer, each padded to whole rows of one length. An
operation between the buffer and the matrices is then one `torch._foreach` call, and a sum over every matrix
is one reduction over rows and one addition of the rows of each matrix, in float64: as many launches for
500 matrices as for 5. fp32 sums run over one row at most, so no digits are lost in long sums.

A buffer is worked through in batches that fit a GPU's second-level cache; a matrix larger than a batch is
cut between its rows. Where the buffer is a mere workspace all batches share its first part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from etastar.monitor.watch import Watched

foreach: Any = torch  # the functions over lists of tensors are underscored, and no others take lists

BATCH_ELEMENTS = 1 << 23  # 32 MB of fp32
_ROW = {"cuda": 8192, "cpu": 1024}  # the CPU adds up a row one after the other


@dataclass(frozen=True)
class Block:
    """Consecutive rows (of dimension 0) of one weight's local tensor."""

    weight: int
    start: int
    stop: int
    whole: bool  # the parameter itself: nothing to slice

    def of(self, tensor: Tensor) -> Tensor:
        """These rows of a tensor of the parameter's shape."""
        return tensor if self.whole else tensor[self.start : self.stop]


class Batch:
    """Blocks of one device and type, side by side in a part of a flat buffer."""

    def __init__(self, buffer: Tensor, blocks: Sequence[Block], tensors: Sequence[Tensor], row: int) -> None:
        self.blocks = tuple(blocks)
        self.row = row
        self.flat = buffer
        self.rows = buffer.view(-1, row)
        self.views: list[Tensor] = []
        owners: list[Tensor] = []
        gaps: list[Tensor] = []
        place = 0
        for block, tensor in zip(blocks, tensors, strict=True):
            self.views.append(_view(buffer, place, block.of(tensor)))
            end = place + self.views[-1].numel()
            count = -(-(end - place) // row)
            owners.append(torch.full((count,), block.weight))
            gaps.append(torch.arange(end, place + count * row))
            place += count * row
        self.owners = torch.cat(owners).to(buffer.device)
        padding = torch.cat(gaps)
        self.padding = padding.to(buffer.device) if len(padding) else None

    def clear_padding(self) -> None:
        """After an operation on the whole buffer: what lies between the matrices must not enter a sum."""
        if self.padding is not None:
            self.flat.index_fill_(0, self.padding, 0.0)

    def add_squares(self, into: Tensor) -> None:
        """Add ‖x‖² of each weight's blocks to `into` (weights,)."""
        norms = torch.linalg.vector_norm(self.rows, dim=1)
        into.index_add_(0, self.owners, norms.to(into).square())

    def add_sums(self, into: Tensor) -> None:
        """Add Σx of each weight's blocks to `into` (weights,)."""
        into.index_add_(0, self.owners, self.rows.sum(dim=1).to(into))


def _view(buffer: Tensor, place: int, like: Tensor) -> Tensor:
    """A part of the buffer shaped as `like`, with its strides where it is dense: foreach wants them equal."""
    flat = buffer[place : place + like.numel()]
    order = sorted(range(like.ndim), key=lambda dim: (like.stride(dim), like.shape[dim]))
    dense = 1
    for dim in order:
        if like.shape[dim] > 1 and like.stride(dim) != dense:
            return flat.view(like.shape)
        dense *= like.shape[dim]
    return flat.as_strided(like.shape, like.stride(), flat.storage_offset())


@dataclass(frozen=True)
class MemoryUse:
    """Device memory that a monitor holds on this rank, and for how many watched parameters of this rank."""

    bytes: int
    parameters: int

    @property
    def bytes_per_parameter(self) -> float:
        """Bytes a watched parameter."""
        return self.bytes / max(self.parameters, 1)

    def __str__(self) -> str:
        return f"{self.bytes / 2**20:.1f} MiB for {self.parameters:,} watched parameters, {self.bytes_per_parameter:.2f} bytes each"


class Workspace:
    """The batches over all watched weights; `keep` gives every matrix a place of its own."""

    def __init__(self, watched: Sequence[Watched], *, keep: bool) -> None:
        self.watched = tuple(watched)
        self.batches: list[Batch] = []
        self.bytes = 0
        # fp32 for bf16 weights too: their rounded step is exact in it
        kinds: dict[tuple[torch.device, torch.dtype], list[int]] = {}
        for index, weight in enumerate(watched):
            tensor = local(weight.param)
            wide = torch.promote_types(tensor.dtype, torch.float32)
            kinds.setdefault((tensor.device, wide), []).append(index)
        for (device, dtype), weights in kinds.items():
            self._lay_out(device, dtype, weights, keep=keep)

    def _lay_out(self, device: torch.device, dtype: torch.dtype, weights: list[int], *, keep: bool) -> None:
        tensors = {index: local(self.watched[index].param).detach() for index in weights}
        row = _row_length(device, [tensor.numel() for tensor in tensors.values()])
        groups: list[list[Block]] = [[]]
        filled = 0
        for index, tensor in tensors.items():
            for block in _blocks(self.watched[index], index, tensor):
                size = _padded(block.of(tensor).numel(), row)
                if filled and filled + size > BATCH_ELEMENTS:
                    groups.append([])
                    filled = 0
                groups[-1].append(block)
                filled += size
        sizes = [sum(_padded(b.of(tensors[b.weight]).numel(), row) for b in blocks) for blocks in groups]
        buffer = torch.zeros(sum(sizes) if keep else max(sizes), dtype=dtype, device=device)
        self.bytes += buffer.numel() * buffer.element_size()
        place = 0
        for blocks, size in zip(groups, sizes, strict=True):
            if size:
                part = buffer[place : place + size]
                self.batches.append(Batch(part, blocks, [tensors[b.weight] for b in blocks], row))
            place += size if keep else 0

    @cached_property
    def device(self) -> torch.device:
        """Where sums are kept: the first weight's device."""
        return local(self.watched[0].param).device

    def memory(self) -> MemoryUse:
        """What the buffers take."""
        return MemoryUse(self.bytes, sum(local(w.param).numel() // w.parts for w in self.watched))

    def zeros(self) -> Tensor:
        """An empty sum, (weights,) in float64."""
        return torch.zeros(len(self.watched), dtype=torch.float64, device=self.device)

    def squares(self, tensors: Sequence[Tensor | None]) -> Tensor:
        """‖x‖² of each weight, by way of the buffer, whose content is lost; a missing tensor counts zero."""
        total = self.zeros()
        for batch in self.batches:
            fill(batch, tensors)
            batch.add_squares(total)
        return total


def fill(batch: Batch, tensors: Sequence[Tensor | None]) -> None:
    """Copy the blocks' parts of these tensors (one a weight) into the batch; zero where there is none."""
    pairs = [(view, t) for view, t in zip(batch.views, pick(batch, tensors), strict=True) if t is not None]
    if len(pairs) < len(batch.views):
        batch.flat.zero_()
    else:
        batch.clear_padding()  # batches of a workspace share it, and have their gaps elsewhere
    if pairs:
        foreach._foreach_copy_([view for view, _ in pairs], [tensor for _, tensor in pairs])


def pick(batch: Batch, tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The blocks' parts of one tensor a weight."""
    return [None if (t := tensors[block.weight]) is None else block.of(t) for block in batch.blocks]


def local(tensor: Tensor) -> Tensor:
    """This rank's shard of a DTensor, or the tensor itself."""
    to_local = getattr(tensor, "to_local", None)
    return tensor if to_local is None else to_local()


def _row_length(device: torch.device, sizes: list[int]) -> int:
    """A power of two that pads the smallest matrix by an eighth at most, within what reduces well."""
    row = _ROW.get(device.type, 8192)
    while row > 64 and row * 8 > min((s for s in sizes if s), default=64):
        row //= 2
    return row


def _padded(size: int, row: int) -> int:
    return -(-size // row) * row


def _blocks(weight: Watched, index: int, tensor: Tensor) -> list[Block]:
    """A weight's rows, cut where they would not fit a batch."""
    if not tensor.numel():
        return []
    rows = tensor.shape[0] // weight.parts
    first = weight.part * rows
    fits = max(BATCH_ELEMENTS // max(tensor.numel() // tensor.shape[0], 1), 1)
    if rows <= fits:
        return [Block(index, first, first + rows, whole=weight.parts == 1)]
    cuts = range(first, first + rows, fits)
    return [Block(index, cut, min(cut + fits, first + rows), whole=False) for cut in cuts]
