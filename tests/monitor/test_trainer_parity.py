"""Does the monitor see in a plain torch loop what the trainer sees in its own?

The trainer's engine takes steps of a toy model; a torch AdamW takes the same gradients on the same matrices.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from etastar.monitor import StepMonitor
from etastar.train.engine import Engine
from etastar.train.model import MATRICES
from etastar.train.optim import matrix_names, step_table
from etastar.train.statistics import STATISTICS

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))
from toys import CORPUS, toy


@pytest.mark.parametrize(("precision", "close"), [("fp64", 1e-8), ("fp32", 1e-4)])
@pytest.mark.parametrize("mode", ["snapshot", "reconstruct"])
def test_equals_the_trainers_statistics(mode: str, precision: str, close: float) -> None:
    spec = toy(lrs=[2**-7], execution={"precision": precision}, schedule={"warmup_steps": 3, "decay_steps": 0})
    rule = spec.optimizer
    engine = Engine(spec, device=torch.device("cpu"), micro_batch=10**6)
    state = engine.fresh_state()
    names = matrix_names(spec)
    values = torch.cat([state.params[n].detach()[0].flatten(0, 1).reshape(-1) for n in MATRICES])
    shapes = [m.shape for n in MATRICES for m in state.params[n].detach()[0].flatten(0, 1)]
    pieces = values.split([shape.numel() for shape in shapes])
    weights = [nn.Parameter(piece.view(shape).clone()) for piece, shape in zip(pieces, shapes, strict=True)]
    optimizer = torch.optim.AdamW(
        list(zip(names, weights, strict=True)),
        lr=1.0,
        betas=(rule.beta1, rule.beta2),
        eps=rule.eps,
        weight_decay=rule.decay_rate,
    )
    monitor = StepMonitor(optimizer, mode=mode, log_every=1, sinks=[])  # type: ignore[arg-type]
    assert monitor.weights == tuple(names)
    table = step_table(spec, start=0, stop=8, horizon=None, device=engine.device)
    for step in range(8):
        tokens = torch.from_numpy(CORPUS.batch(seed=0, step=step, sequences=4, length=16))
        _, grads = engine._loss_and_gradients(state, tokens)
        flat = [g for n in MATRICES for g in grads[n][0].flatten(0, 1)]
        for weight, grad in zip(weights, flat, strict=True):
            weight.grad = grad.clone()
        optimizer.param_groups[0]["lr"] = spec.lrs[0] * float(table[step, 0])
        optimizer.step()
        own = engine.step(state, tokens, table[step]).statistics[0]
        assert monitor.latest is not None
        seen = torch.tensor(monitor.latest.values, dtype=torch.float64)
        for column, name in enumerate(STATISTICS):
            scale = (
                own[:, STATISTICS.index("update_norm")] * own[:, 0] if name == "update_dot_weight" else own[:, column]
            )
            assert ((seen[:, column] - own[:, column]).abs() <= close * scale.abs()).all(), name
    mean, _ = state.tally.means()
    assert monitor.mean_eff_lr == pytest.approx(float(mean), rel=close)
