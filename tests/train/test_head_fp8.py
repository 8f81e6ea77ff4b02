"""Are fp8 logits the logits, and is an fp8 head refused where there is none?"""

from __future__ import annotations

import pytest
import torch
from toys import steps, toy

from etastar.errors import SpecError
from etastar.train import engine
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
    narrow = losses_and_grads(hidden, table, targets, total=48, errors=plain_errors, logits_from=fp8_logits)
    torch.testing.assert_close(narrow[0], exact[0], rtol=2e-3, atol=0)
    for a, b in zip(narrow[1:], exact[1:], strict=True):
        assert (a.float() - b.float()).norm() < 0.05 * b.float().norm()


def test_a_step_takes_its_logits_in_fp8(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, which is refused, as the GPU would take it: losses differ from bf16's, and not by much."""
    monkeypatch.setattr(engine, "check_fp8", lambda *_: None)
    bf16 = {"precision": "bf16", "compile": "off"}
    _, plain, _ = steps(toy(model={"width": 32}, execution=bf16), 10)
    _, narrow, _ = steps(toy(model={"width": 32}, execution=bf16 | {"head": "fp8"}), 10)
    assert not torch.equal(narrow, plain)
    torch.testing.assert_close(narrow, plain, rtol=0, atol=0.05)


def test_a_cpu_is_refused() -> None:
    with pytest.raises(SpecError, match="the device is cpu, not CUDA"):
        engine.Engine(toy(execution={"head": "fp8", "precision": "bf16"}), device=CPU, micro_batch=2)


@pytest.mark.parametrize(
    ("compute", "changed", "said"),
    [
        (torch.float32, {}, "products are not in bf16"),
        (torch.bfloat16, {"vocab": 67}, "vocab 67 is no multiple of 16"),
        (torch.bfloat16, {"width": 24}, "width 24 is no multiple of 16"),
    ],
)
def test_what_has_no_fp8_products_is_refused(compute: torch.dtype, changed: dict[str, int], said: str) -> None:
    spec = toy(execution={"head": "fp8"})
    shaped = spec.model.model_copy(update={"width": 32, "vocab": 64} | changed)
    with pytest.raises(SpecError, match=said):
        check_fp8(spec.model_copy(update={"model": shaped}), torch.device("cuda"), compute)
