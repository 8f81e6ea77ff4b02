"""Does training in a lower precision begin as in a higher one, and does rounding stay rounding?

The CUDA tests compare devices with these tolerances; here the same toys show that they are wide enough.
"""

from __future__ import annotations

import pytest
import torch
from toys import BF16_START, FP32_START, steps, toy


@pytest.mark.parametrize("gpt2", [False, True])
def test_fp32_starts_as_fp64(gpt2: bool) -> None:
    exact, expected, _ = steps(toy(gpt2=gpt2, execution={"precision": "fp64"}), FP32_START.steps)
    state, losses, _ = steps(toy(gpt2=gpt2, execution={"precision": "fp32"}), FP32_START.steps)
    torch.testing.assert_close(losses.double(), expected, rtol=0, atol=FP32_START.atol / 10)
    torch.testing.assert_close(state.tally.total, exact.tally.total, rtol=FP32_START.atol / 10, atol=0)


@pytest.mark.parametrize("kind", ["adamw", "adamh", "muonh"])
def test_bf16_starts_as_fp32(kind: str) -> None:
    expected = steps(toy(optimizer={"kind": kind}), BF16_START.steps)[1]
    state, losses, _ = steps(toy(optimizer={"kind": kind}, execution={"precision": "bf16"}), BF16_START.steps)
    torch.testing.assert_close(losses, expected, rtol=0, atol=BF16_START.atol / 5)
    assert not torch.equal(losses, expected)
    assert all(weight.dtype == torch.float32 for weight in state.params.values())


def test_the_rope_model_does_not_amplify_rounding() -> None:
    """What its normed embedding and wide matrices are for: without both, 30 steps turn 1e-7 into 4e-2."""
    expected = steps(toy(execution={"precision": "fp64"}), 30)[1]
    losses = steps(toy(execution={"precision": "fp32"}), 30)[1]
    torch.testing.assert_close(losses.double(), expected, rtol=0, atol=1e-5)
