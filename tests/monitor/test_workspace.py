"""Are sums over many matrices right, whatever their shapes, cuts and strides?"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from etastar.monitor import workspace
from etastar.monitor.watch import Watched
from etastar.monitor.workspace import Workspace, fill

SHAPES = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 70)), min_size=1, max_size=6)


def watched(tensors: list[Tensor], parts: int = 1) -> list[Watched]:
    return [Watched(f"w{i}", t, 0, part, parts) for i, t in enumerate(tensors) for part in range(parts)]


@settings(max_examples=60, deadline=None)
@given(shapes=SHAPES, limit=st.sampled_from([64, 500, 10**6]), keep=st.booleans(), seed=st.integers(0, 99))
def test_sums_equal_float64(shapes: list[tuple[int, int]], limit: int, keep: bool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(shape, generator=generator) for shape in shapes]
    tensors = [t.T if i % 3 == 2 else t for i, t in enumerate(tensors)]  # some transposed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workspace, "BATCH_ELEMENTS", limit)
        space = Workspace(watched(tensors), keep=keep)
    expected = torch.stack([t.double().square().sum() for t in tensors])
    for _ in range(2):  # the second time the buffers are full of the first
        torch.testing.assert_close(space.squares(tensors), expected, rtol=1e-6, atol=0)
    sums = space.zeros()
    for batch in space.batches:
        fill(batch, tensors)
        batch.add_sums(sums)
    torch.testing.assert_close(sums, torch.stack([t.double().sum() for t in tensors]), rtol=1e-5, atol=1e-4)
    assert space.memory().parameters == sum(t.numel() for t in tensors)


def test_a_workspace_stays_small_and_a_copy_does_not() -> None:
    tensors = [torch.zeros(2048, 2048) for _ in range(8)]
    assert Workspace(watched(tensors), keep=True).bytes == 4 * 8 * 2048**2
    assert Workspace(watched(tensors), keep=False).bytes == 4 * workspace.BATCH_ELEMENTS


def test_a_matrix_larger_than_a_batch_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "BATCH_ELEMENTS", 4096)
    tensors = [torch.randn(300, 64), torch.randn(60, 10)]
    space = Workspace(watched(tensors, parts=3), keep=False)
    assert len(space.batches) > 3
    parts = [part for tensor in tensors for part in tensor.chunk(3)]
    expected = torch.stack([part.double().square().sum() for part in parts])
    given = [tensor for tensor in tensors for _ in range(3)]
    torch.testing.assert_close(space.squares(given), expected, rtol=1e-6, atol=0)


def test_missing_tensors_count_zero() -> None:
    tensors = [torch.ones(9, 9), torch.ones(5, 7)]
    space = Workspace(watched(tensors), keep=False)
    assert space.squares([tensors[0], None]).tolist() == pytest.approx([81, 0])
    assert space.squares([None, tensors[1]]).tolist() == pytest.approx([0, 35])


def test_long_sums_keep_their_digits() -> None:
    """One norm over 4 million fp32 numbers loses the fourth digit on a CPU; this does not."""
    tensor = torch.randn(2000, 2000, generator=torch.Generator().manual_seed(0))
    seen = Workspace(watched([tensor]), keep=False).squares([tensor])
    assert float(seen) == pytest.approx(float(tensor.double().square().sum()), rel=1e-7)
