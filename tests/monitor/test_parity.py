"""Is the monitor's η_eff the paper's, for every optimizer it knows and both ways to measure it?"""

from __future__ import annotations

import pytest
import torch
from loops import OPTIMIZERS, loss_of, matrices, small, train, watched_values

from etastar.monitor import StepMonitor
from etastar.train.statistics import STATISTICS, step_statistics

MODES = ("snapshot", "reconstruct")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_equals_the_definition_in_float64(kind: str, mode: str) -> None:
    model = small()
    optimizer = OPTIMIZERS[kind](model)
    monitor = StepMonitor(optimizer, model, mode=mode, log_every=1, sinks=[])  # type: ignore[arg-type]
    reference = train(model, optimizer, monitor, 8)
    assert monitor.weights == ("up.weight", "down.weight")
    assert monitor.latest is not None
    assert monitor.latest.step == 7
    seen = [row[STATISTICS.index("eff_lr")] for row in monitor.latest.values]
    # a reconstruction does not see the rounding of the weights themselves, a part in 2^24 of each
    close = 5e-6 if mode == "snapshot" else 2e-5
    assert seen == pytest.approx(reference.seen[-1], rel=close)
    assert monitor.mean_eff_lr == pytest.approx(reference.mean, rel=close)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_exact_in_float64(kind: str, mode: str) -> None:
    """In float64 nothing rounds that matters, so the algebra of each rule stands bare."""
    model = small(dtype=torch.float64)
    optimizer = OPTIMIZERS[kind](model)
    monitor = StepMonitor(optimizer, model, mode=mode, log_every=1, sinks=[])  # type: ignore[arg-type]
    reference = train(model, optimizer, monitor, 5)
    assert monitor.mean_eff_lr == pytest.approx(reference.mean, rel=1e-8)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_both_modes_agree_on_all_statistics(kind: str) -> None:
    model = small(dtype=torch.float64)
    optimizer = OPTIMIZERS[kind](model)
    one, two = (StepMonitor(optimizer, model, mode=mode, log_every=1, sinks=[]) for mode in MODES)  # type: ignore[arg-type]
    train(model, optimizer, one, 4)
    assert one.latest is not None
    assert two.latest is not None
    for left, right in zip(one.latest.values, two.latest.values, strict=True):
        assert left == pytest.approx(right, rel=1e-7)


@pytest.mark.parametrize("mode", MODES)
def test_equals_step_statistics_of_the_trainer(mode: str) -> None:
    """All six, from AdamW's weights, gradients and update formed here by hand."""
    model = small(dtype=torch.float64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.2, betas=(0.8, 0.9))
    monitor = StepMonitor(optimizer, model, mode=mode, log_every=1, sinks=[])  # type: ignore[arg-type]
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        before = watched_values(monitor)
        grads = [w.param.grad.clone() for w in monitor.watched]  # type: ignore[union-attr]
        optimizer.step()
        assert monitor.latest is not None
        for index, weight in enumerate(monitor.watched):
            state = optimizer.state[weight.param]
            first, second = state["exp_avg"] / (1 - 0.8 ** (step + 1)), state["exp_avg_sq"] / (1 - 0.9 ** (step + 1))
            update = first / (second.sqrt() + 1e-8)
            moved = weight.param.detach() - before[index]
            expected = step_statistics(before[index], grads[index], update, moved).stacked()
            seen = torch.tensor(monitor.latest.values[index], dtype=torch.float64)
            torch.testing.assert_close(seen, expected, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_tiny_rates_keep_their_digits_in_fp32(mode: str) -> None:
    """η = 2^-16, where 2 − 2cos has none left."""
    model = small()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2.0**-16, weight_decay=0.0, fused=True)
    monitor = StepMonitor(optimizer, model, mode=mode, log_every=None, sinks=[])  # type: ignore[arg-type]
    reference = train(model, optimizer, monitor, 5)
    assert monitor.mean_eff_lr == pytest.approx(reference.mean, rel=1e-6 if mode == "snapshot" else 1e-4)


def test_update_of_an_unknown_optimizer_is_unknown() -> None:
    model = small()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    monitor = StepMonitor(optimizer, model, log_every=1, sinks=[])
    reference = train(model, optimizer, monitor, 3)
    assert monitor.mean_eff_lr == pytest.approx(reference.mean, rel=1e-6)
    assert monitor.latest is not None
    row = dict(zip(STATISTICS, monitor.latest.values[0], strict=True))
    assert row["update_norm"] != row["update_norm"]
    assert row["step_norm"] > 0
    assert not any("update" in name for name in monitor.latest.metrics("weight"))


@pytest.mark.parametrize("mode", MODES)
def test_fused_matrices_can_be_split(mode: str) -> None:
    """q, k and v in one parameter are three matrices, as in the trainer."""
    model = small(dtype=torch.float64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    monitor = StepMonitor(optimizer, model, mode=mode, split={"up.*": 3}, log_every=1, sinks=[])  # type: ignore[arg-type]
    reference = train(model, optimizer, monitor, 3)
    assert monitor.weights == ("up.weight[0]", "up.weight[1]", "up.weight[2]", "down.weight")
    assert monitor.mean_eff_lr == pytest.approx(reference.mean, rel=1e-8)
    assert monitor.latest is not None
    total = sum(row[1] ** 2 for row in monitor.latest.values[:3])
    assert total == pytest.approx(float(model.up.weight.grad.square().sum()), rel=1e-9)  # type: ignore[union-attr]


def test_bf16_weights_are_flagged_and_measured_as_they_rounded() -> None:
    model = small(dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with pytest.warns(UserWarning, match="2 of 2 watched weights are kept in bfloat16"):
        monitor = StepMonitor(optimizer, model, log_every=1, sinks=[])
    assert monitor.rounded == ("up.weight", "down.weight")
    reference = train(model, optimizer, monitor, 4)
    assert monitor.mean_eff_lr == pytest.approx(reference.mean, rel=1e-5)
    # the step as computed would have been another: many entries do not move at all
    assert matrices(model)[0].dtype == torch.bfloat16
