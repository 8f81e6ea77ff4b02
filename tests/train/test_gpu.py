"""Does the stack train on CUDA as it does on a CPU?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_loop import rows, run
from toys import CORPUS, steps, toy

from etastar.train.engine import Engine
from etastar.train.graph import GraphedStep
from etastar.train.optim import step_table
from etastar.train.spec import TrainSpec

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def _on_cuda(spec: TrainSpec, count: int, *, graphed: bool = False) -> tuple[torch.Tensor, Any]:
    device = torch.device("cuda")
    engine = Engine(spec, device=device, micro_batch=10**6)
    state = engine.fresh_state()
    take = GraphedStep(engine).step if graphed else engine.step
    table = step_table(spec, start=0, stop=count, horizon=None, device=device)
    losses = []
    for step in range(count):
        batch = torch.from_numpy(CORPUS.batch(seed=0, step=step, sequences=4, length=16)).to(device)
        losses.append(take(state, batch, table[step]).loss)
    return torch.stack(losses).cpu().double(), state


@pytest.mark.parametrize("gpt2", [False, True])
@pytest.mark.parametrize("compiled", ["off", "default"])
def test_fp32_losses_equal_the_cpus(gpt2: bool, compiled: str) -> None:
    spec = toy(gpt2=gpt2, execution={"precision": "fp32", "compile": compiled})
    expected = steps(toy(gpt2=gpt2), 20)[1].double()
    torch.testing.assert_close(_on_cuda(spec, 20)[0], expected, rtol=0, atol=2e-3)


@pytest.mark.parametrize("kind", ["adamw", "adamh", "muonh"])
def test_bf16_losses_are_near_the_cpus(kind: str) -> None:
    spec = toy(optimizer={"kind": kind}, execution={"precision": "bf16", "compile": "off"})
    expected = steps(toy(optimizer={"kind": kind}), 20)[1].double()
    losses, state = _on_cuda(spec, 20)
    torch.testing.assert_close(losses, expected, rtol=0, atol=0.05)
    assert all(weight.dtype == torch.float32 for weight in state.params.values())


@pytest.mark.parametrize("compiled", ["off", "default"])
def test_a_recorded_step_is_the_step(compiled: str) -> None:
    spec = toy(execution={"precision": "fp32", "compile": compiled})
    plain, one = _on_cuda(spec, 30)
    replayed, other = _on_cuda(spec, 30, graphed=True)
    torch.testing.assert_close(replayed, plain, rtol=0, atol=1e-4)
    torch.testing.assert_close(other.tally.total, one.tally.total, rtol=1e-4, atol=0)


def test_branch_equals_an_uninterrupted_run_bitwise(tmp_path: Path) -> None:
    execution = {"device": "cuda", "deterministic": True, "compile": "off"}
    try:
        both = run(toy(execution=execution), tmp_path / "both")
        lone = run(toy(execution=execution, horizons=[24]), tmp_path / "lone")
    finally:
        torch.use_deterministic_algorithms(False)
    assert [row for row in rows(both, "lr") if row["steps"] == 24] == rows(lone, "lr")
