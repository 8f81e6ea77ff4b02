"""Does the monitor count the steps that are taken, and those alone, however a loop is written?"""

from __future__ import annotations

import copy
import json
import math

import pytest
import torch
from loops import OPTIMIZERS, eff_lr, loss_of, small, train, watched_values
from torch import nn

from etastar.errors import InputError
from etastar.monitor import ForeignOptimizer, StepMonitor

MODES = ("snapshot", "reconstruct")


@pytest.mark.parametrize("mode", MODES)
def test_gradient_accumulation(mode: str) -> None:
    """Four backward passes and one step are one step."""
    model = small()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    monitor = StepMonitor(optimizer, model, mode=mode, log_every=1, sinks=[])  # type: ignore[arg-type]
    expected = []
    for step in range(3):
        for micro in range(4):
            (loss_of(model, 4 * step + micro) / 4).backward()
        before = watched_values(monitor)
        optimizer.step()
        optimizer.zero_grad()
        expected.append([eff_lr(b, a) for b, a in zip(before, watched_values(monitor), strict=True)])
    assert monitor.steps == 3
    assert monitor.mean_eff_lr == pytest.approx(sum(map(sum, expected)) / 6, rel=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["adamw-fused", "adamw-foreach", "sgd-momentum", "sgd-momentum-fused"])
def test_steps_that_a_grad_scaler_skips_are_not_steps(kind: str, mode: str) -> None:
    """A fused optimizer is called and told of the overflow inside; another is not called at all."""
    model = small()
    optimizer = OPTIMIZERS[kind](model)
    monitor = StepMonitor(optimizer, model, mode=mode, log_every=2, sinks=[])  # type: ignore[arg-type]
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    # torch's fused SGD takes uninitialised memory for its momentum if the very first step overflows
    overflows = (2, 5) if kind == "sgd-momentum-fused" else (0, 2, 5)
    expected, logged = [], []
    for step in range(7):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, step)).backward()
        if step in overflows:
            model.up.weight.grad[0, 0] = math.inf  # type: ignore[index]
        before = watched_values(monitor)
        scaler.step(optimizer)
        scaler.update()
        turned = [eff_lr(b, a) for b, a in zip(before, watched_values(monitor), strict=True)]
        if step in overflows:
            assert turned == [0, 0]
        else:
            expected.append(sum(turned) / 2)
        if monitor.latest is not None and (not logged or logged[-1] != monitor.latest.step):
            logged.append(monitor.latest.step)
            grad = model.up.weight.grad
            assert grad is not None
            # gradients as the step saw them, unscaled
            assert monitor.latest.values[0][1] == pytest.approx(float(grad.norm()), rel=1e-5)
            assert monitor.latest.values[0][1] < 10
    assert monitor.steps == len(expected) == 7 - len(overflows)
    assert monitor.mean_eff_lr == pytest.approx(sum(expected) / len(expected), rel=2e-5)
    assert logged == sorted(set(logged))
    assert logged[0] == 0


@pytest.mark.parametrize("mode", MODES)
def test_groups_with_their_own_rates_and_schedules(mode: str) -> None:
    model = small(dtype=torch.float64)
    groups = [
        {"params": [model.up.weight], "lr": 1e-2, "weight_decay": 0.3, "betas": (0.7, 0.8)},
        {"params": [model.down.weight], "lr": 1e-4, "eps": 1e-3},
        {"params": [model.embed.weight, model.head.weight, model.norm.weight], "lr": 1e-3},
    ]
    optimizer = torch.optim.AdamW(groups)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step, 3) / 3)
    monitor = StepMonitor(optimizer, model, mode=mode, log_every=1, sinks=[])  # type: ignore[arg-type]
    expected = []
    for step in range(6):
        reference = train(model, optimizer, monitor, 1, start=step)
        schedule.step()
        expected.append(sum(reference.seen[0]) / 2)
        assert monitor.latest is not None
        assert [row[-1] for row in monitor.latest.values] == pytest.approx(reference.seen[0], rel=1e-8, abs=1e-15)
    assert expected[0] == 0  # a warm-up from zero: a step of no length
    assert monitor.mean_eff_lr == pytest.approx(sum(expected) / 6, rel=1e-8)
    assert monitor.plateau_eff_lr == pytest.approx(sum(expected[3:]) / 3, rel=1e-8)
    # the group with most watched parameters gives the run's rate; both have 396, so the first
    assert monitor.finish(loss=1.0, tokens=10)["lr"].to_pylist() == [1e-2]


def test_a_cosine_has_no_plateau() -> None:
    model = small()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
    monitor = StepMonitor(optimizer, model, log_every=None, sinks=[])
    for step in range(50):
        train(model, optimizer, monitor, 1, start=step)
        schedule.step()
    assert monitor.plateau_eff_lr is None
    assert monitor.steps == 50


@pytest.mark.parametrize("mode", MODES)
def test_weights_without_a_gradient_do_not_turn(mode: str) -> None:
    model = small()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.5)
    monitor = StepMonitor(optimizer, model, mode=mode, log_every=1, sinks=[])  # type: ignore[arg-type]
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        if step != 1:
            model.down.weight.grad = None
        before = watched_values(monitor)
        optimizer.step()
        expected = [eff_lr(b, a) for b, a in zip(before, watched_values(monitor), strict=True)]
        assert (expected[1] == 0) == (step != 1)
        assert monitor.latest is not None
        assert [row[-1] for row in monitor.latest.values] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_a_closure_computes_gradients_inside_the_step(mode: str) -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    monitor = StepMonitor(optimizer, model, mode=mode, log_every=1, sinks=[])  # type: ignore[arg-type]
    expected = []
    for step in range(3):

        def closure(step: int = step) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            return loss

        before = watched_values(monitor)
        optimizer.step(closure)  # type: ignore[arg-type]
        expected.append(sum(eff_lr(b, a) for b, a in zip(before, watched_values(monitor), strict=True)) / 2)
    assert monitor.mean_eff_lr == pytest.approx(sum(expected) / 3, rel=2e-5)


@pytest.mark.parametrize("mode", MODES)
def test_a_compiled_model(mode: str) -> None:
    model = small()
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(compiled.parameters(), lr=1e-3)
    monitor = StepMonitor(optimizer, compiled, mode=mode, log_every=2, sinks=[])  # type: ignore[arg-type]
    assert monitor.weights == ("up.weight", "down.weight")
    reference = train(compiled, optimizer, monitor, 3)  # type: ignore[arg-type]
    assert monitor.mean_eff_lr == pytest.approx(reference.mean, rel=2e-5)


@pytest.mark.parametrize("mode", MODES)
def test_goes_on_from_its_state(mode: str) -> None:
    """Stopped and resumed equals uninterrupted, and the state is JSON."""
    whole = small()
    optimizer = torch.optim.AdamW(whole.parameters(), lr=1e-3)
    monitor = StepMonitor(optimizer, whole, mode=mode, log_every=3, sinks=[])  # type: ignore[arg-type]
    train(whole, optimizer, monitor, 4)
    saved = json.loads(json.dumps(monitor.state_dict()))
    weights, moments = copy.deepcopy(whole.state_dict()), copy.deepcopy(optimizer.state_dict())
    train(whole, optimizer, monitor, 5, start=4)

    again = small(seed=5)
    again.load_state_dict(weights)
    other = torch.optim.AdamW(again.parameters(), lr=1e-3)
    other.load_state_dict(moments)
    resumed = StepMonitor(other, again, mode=mode, log_every=3, sinks=[])  # type: ignore[arg-type]
    resumed.load_state_dict(saved)
    assert resumed.steps == 4
    assert resumed.run == monitor.run
    train(again, other, resumed, 5, start=4)
    assert resumed.steps == monitor.steps == 9
    assert resumed.mean_eff_lr == monitor.mean_eff_lr
    assert resumed.plateau_eff_lr == monitor.plateau_eff_lr
    assert resumed.latest is not None
    assert monitor.latest is not None
    assert resumed.latest.step == monitor.latest.step == 6


def test_a_state_of_other_weights_is_refused() -> None:
    model = small()
    optimizer = torch.optim.AdamW(model.parameters())
    saved = StepMonitor(optimizer, model, include="up.*", sinks=[]).state_dict()
    with pytest.raises(InputError, match="other weights than the 2 watched here"):
        StepMonitor(optimizer, model, sinks=[]).load_state_dict(saved)


def test_closing_takes_the_hooks_off() -> None:
    model = small()
    optimizer = torch.optim.AdamW(model.parameters())
    with StepMonitor(optimizer, model, sinks=[]) as monitor:
        train(model, optimizer, monitor, 2)
    train(model, optimizer, monitor, 2)
    assert monitor.steps == 2


def test_the_monitor_changes_nothing() -> None:
    """Weights after training are the same bits with and without it."""
    ends = []
    for mode in (None, *MODES):
        model = small()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        if mode is not None:
            StepMonitor(optimizer, model, mode=mode, log_every=1, sinks=[])  # type: ignore[arg-type]
        for step in range(5):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
        ends.append(nn.utils.parameters_to_vector(model.parameters()).detach())
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])


def test_a_diverged_run_has_no_mean_and_says_so() -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = StepMonitor(optimizer, model, log_every=1, sinks=[])
    train(model, optimizer, monitor, 1)
    with torch.no_grad():
        model.up.weight[0, 0] = math.nan
    train(model, optimizer, monitor, 1)
    row = monitor.finish(loss=math.nan, tokens=100).to_pylist()[0]
    assert row["mean_eff_lr"] is None
    assert row["status"] == "diverged"


def test_an_optimizer_that_is_not_torchs() -> None:
    class Plain:
        """Signs of gradients, no groups, no hooks."""

        def __init__(self, model: nn.Module) -> None:
            self.parameters, self.lr = list(model.parameters()), 0.0

        @torch.no_grad()
        def step(self, factor: float) -> str:
            self.lr = 1e-3 * factor
            for parameter in self.parameters:
                parameter.sub_(self.lr * parameter.grad.sign())  # type: ignore[union-attr]
            return "stepped"

    model = small()
    plain = Plain(model)
    stepper = ForeignOptimizer(model.named_parameters(), step=plain.step, lr=lambda: plain.lr)
    monitor = StepMonitor(stepper, model, log_every=1, sinks=[])
    expected = []
    for step in range(3):
        stepper.zero_grad()
        loss_of(model, step).backward()
        before = watched_values(monitor)
        assert stepper.step(step + 1) == "stepped"
        expected.append(sum(eff_lr(b, a) for b, a in zip(before, watched_values(monitor), strict=True)) / 2)
    assert monitor.mean_eff_lr == pytest.approx(sum(expected) / 3, rel=1e-5)
    assert monitor.finish(loss=1.0, tokens=9)["lr"].to_pylist() == [3e-3]


@pytest.mark.parametrize("mode", MODES)
def test_a_call_that_only_makes_the_optimizers_state_is_not_a_step(mode: str) -> None:
    """torch.distributed.checkpoint steps a fresh optimizer at rate 0; a warm-up's first step at rate 0 counts."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    model = small()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    monitor = StepMonitor(optimizer, model, mode=mode, log_every=1, sinks=[])  # type: ignore[arg-type]
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(optimizer.param_groups[0]["lr"]))
    get_optimizer_state_dict(model, optimizer)
    assert [float(lr) for lr in calls] == [0.0]
    assert monitor.steps == 0
    assert monitor.latest is None
    optimizer.param_groups[0]["lr"] = 0.0
    train(model, optimizer, monitor, 1)
    assert monitor.steps == 1
    optimizer.param_groups[0]["lr"] = 1e-3
    train(model, optimizer, monitor, 1)
    assert monitor.steps == 2
    assert monitor.latest is not None
    assert monitor.latest.step == 1


def test_an_optimizer_without_a_learning_rate() -> None:
    """The run's rate is then the caller's to say."""

    class Bare(torch.optim.Optimizer):
        def __init__(self, parameters: object) -> None:
            super().__init__(parameters, {})  # type: ignore[arg-type]

        @torch.no_grad()
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            for parameter in self.param_groups[0]["params"]:
                parameter.sub_(parameter.grad, alpha=0.01)

    model = small()
    optimizer = Bare(model.parameters())
    monitor = StepMonitor(optimizer, model, log_every=1, sinks=[])
    reference = train(model, optimizer, monitor, 2)
    assert monitor.mean_eff_lr == pytest.approx(reference.mean, rel=1e-5)
    with pytest.raises(InputError, match="learning rate"):
        monitor.finish(loss=1.0, tokens=5)
    assert monitor.finish(loss=1.0, tokens=5, lr=0.01)["lr"].to_pylist() == [0.01]


def test_moments_kept_in_bf16_cannot_be_reconstructed() -> None:
    model = small()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    monitor = StepMonitor(optimizer, model, mode="reconstruct", sinks=[])
    train(model, optimizer, monitor, 1)
    for state in optimizer.state.values():
        state["exp_avg"] = state["exp_avg"].bfloat16()
    monitor._before()
    with pytest.raises(InputError, match=r"keeps exp_avg in bfloat16"):
        monitor._after()
