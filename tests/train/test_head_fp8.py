"""Are fp8 logits the logits, and is an fp8 head refused where there is none?"""

from __future__ import annotations

import pytest
import torch
from toys import toy

from etastar.errors import SpecError
from etastar.train.engine import Engine
from etastar.train.head import losses_and_grads, plain_errors, plain_logits
from etastar.train.head_fp8 import check_fp8, fp8_logits

CPU = torch.device("cpu")


@pytest.fixture
def wide() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states, table and targets of two models whose scales are far apart."""
    torch.manual_seed(0)
    apart = torch.tensor([1.0, 300.0]).view(2, 1, 1)
    hidden, table = torch.randn(2, 48, 64) * apart, torch.randn(2, 96, 64) * 0.05 / apart
    return hidden.bfloat16(), table.bfloat16(), torch.randint(0, 96, (48,))


def test_logits_are_the_products_within_fp8s_rounding(wide: tuple[torch.Tensor, ...]) -> None:
    hidden, table, _ = wide
    part = slice(16, 48)
    expected, seen = plain_logits(hidden, table)(part).float(), fp8_logits(hidden, table)(part).float()
    assert seen.shape == expected.shape
    for k in range(2):
        off = (seen[k] - expected[k]).norm() / expected[k].norm()
        assert 1e-3 < off < 0.05, "e4m3 keeps three bits"


def test_loss_and_gradients_follow(wide: tuple[torch.Tensor, ...]) -> None:
    hidden, table, targets = wide
    exact = losses_and_grads(hidden, table, targets, total=48, errors=plain_errors)
    narrow = losses_and_grads(hidden, table, targets, total=48, errors=plain_errors, logits=fp8_logits)
    torch.testing.assert_close(narrow[0], exact[0], rtol=2e-3, atol=0)
    for a, b in zip(narrow[1:], exact[1:], strict=True):
        assert (a.float() - b.float()).norm() < 0.05 * b.float().norm()


@pytest.mark.parametrize(
    ("execution", "said"), [({"precision": "bf16"}, "not CUDA"), ({"precision": "fp32"}, "the device is cpu")]
)
def test_it_is_refused_where_it_cannot_be(execution: dict[str, str], said: str) -> None:
    spec = toy(execution={"head": "fp8", **execution})
    with pytest.raises(SpecError, match=said):
        Engine(spec, device=CPU, micro_batch=2)


def test_odd_shapes_are_refused_before_the_device_is_asked() -> None:
    spec = toy(execution={"head": "fp8", "precision": "bf16"})
    odd = spec.model_copy(update={"model": spec.model.model_copy(update={"vocab": 67})})
    with pytest.raises(SpecError, match="vocab 67 is no multiple of 16"):
        check_fp8(odd, torch.device("cuda"), torch.bfloat16)
