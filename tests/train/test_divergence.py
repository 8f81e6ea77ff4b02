"""Is a diverged model frozen, and are the others left as they were?"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from test_loop import Silent
from toys import CORPUS, steps, toy

from etastar.store import read_trajectories
from etastar.train.divergence import MARGIN, PATIENCE, Watch
from etastar.train.engine import Engine
from etastar.train.loop import train
from etastar.train.optim import step_table

VOCAB = 64
LINE = math.log(VOCAB)


def _watch(losses: list[float], *, warmup: int = 0) -> Watch:
    watch = Watch.fresh(1, torch.device("cpu"))
    for step, loss in enumerate(losses):
        watch.see(
            torch.tensor([loss]),
            torch.ones(1),
            step=torch.tensor(float(step)),
            after_warmup=torch.tensor(float(step >= warmup)),
            vocab=VOCAB,
        )
    return watch


def test_not_finite_diverges_at_once() -> None:
    watch = _watch([4.0, 3.0, math.nan, 2.0])
    assert not watch.alive.item()
    assert watch.diverged_step.item() == 2
    assert not _watch([4.0, math.inf]).alive.item()


def test_gradient_that_is_not_finite_diverges() -> None:
    watch = Watch.fresh(2, torch.device("cpu"))
    zero = torch.tensor(0.0)
    watch.see(torch.ones(2), torch.tensor([1.0, math.inf]), step=zero, after_warmup=zero, vocab=VOCAB)
    assert watch.alive.tolist() == [True, False]


def test_learned_and_lost_diverges_after_its_patience() -> None:
    low, high = [2.0] * 60, [LINE + 3] * 400
    watch = _watch(low + high)
    assert not watch.alive.item()
    crossing = watch.diverged_step.item() - PATIENCE - 60
    assert 0 < crossing < 60  # the smoothed loss takes some steps to cross the line
    assert _watch(low + high[:90]).alive.item()


def test_spike_that_recovers_is_counted_not_fatal() -> None:
    watch = _watch([2.0] * 60 + [LINE + 6] * 40 + [2.0] * 300 + [LINE + 6] * 40 + [2.0] * 300)
    assert watch.alive.item()
    assert watch.spikes.item() == 2


def test_a_tiny_learning_rate_is_slow_not_diverged() -> None:
    """Its loss stays where it began, a little above ln(vocabulary)."""
    wobble = [LINE + 0.05 + 0.02 * math.sin(step) for step in range(600)]
    assert _watch(wobble).alive.item()
    assert not _watch([LINE + 0.05] + [LINE + 2 * MARGIN] * 600).alive.item()


def test_warm_up_is_not_judged() -> None:
    assert _watch([2.0] * 60 + [LINE + 3] * 300, warmup=1000).alive.item()


def test_frozen_model_stays_and_the_others_are_bitwise_undisturbed() -> None:
    """The middle learning rate blows up to NaN; its neighbours end as beside a tame one."""
    wild = toy(lrs=[2**-8, 2.0**60, 2**-6], schedule={"warmup_steps": 0})
    tame = toy(lrs=[2**-8, 2.0**-9, 2**-6], schedule={"warmup_steps": 0})
    with_nan, losses, _ = steps(wild, 30)
    without, _, _ = steps(tame, 30)
    assert with_nan.watch.alive.tolist() == [True, False, True]
    for name, weight in with_nan.tensors().items():
        other = without.tensors()[name]
        for k in (0, 2):
            assert torch.equal(weight[k], other[k]), name
    fell = int(with_nan.watch.diverged_step[1])
    assert 0 < fell < 10
    early, _, _ = steps(wild, fell)
    for name, weight in with_nan.params.items():
        assert torch.equal(weight[1].nan_to_num(), early.params[name][1].nan_to_num())
    assert torch.isfinite(losses[:, [0, 2]]).all()
    assert torch.isfinite(with_nan.tally.total[[0, 2]]).all()


def test_frozen_with_finite_weights_keeps_its_bits() -> None:
    spec = toy()
    engine = Engine(spec, device=torch.device("cpu"), micro_batch=10**6)
    state = engine.fresh_state()
    state.watch.alive[0] = False
    before = {name: weight.detach().clone() for name, weight in state.params.items()}
    row = step_table(spec, start=0, stop=1, horizon=None, device=engine.device)[0]
    engine.step(state, torch.from_numpy(CORPUS.batch(seed=0, step=0, sequences=4, length=16)), row)
    for name, weight in state.params.items():
        assert torch.equal(weight[0], before[name][0])
        assert not torch.equal(weight[1], before[name][1])


def test_diverged_rows_are_recorded_and_the_rest_goes_on(tmp_path: Path) -> None:
    spec = toy(lrs=[2**-8, 2.0**60], schedule={"warmup_steps": 0, "decay_steps": 6})
    table = train(spec, tmp_path, corpus=CORPUS, reporter=Silent()).runs.sort_by("lr")
    by_lr = {(row["lr"], row["steps"]): row for row in table.to_pylist()}
    assert by_lr[2**-8, 24]["status"] == "finished"
    assert by_lr[2.0**60, 24]["status"] == "diverged"
    assert by_lr[2.0**60, 24]["diverged_step"] < 10
    paths = read_trajectories(tmp_path).to_pylist()
    trunk = by_lr[2.0**60, 24]["trunk"]
    assert max(row["step"] for row in paths if row["run"] == trunk) <= by_lr[2.0**60, 24]["diverged_step"]


def test_all_diverged_stops_early(tmp_path: Path) -> None:
    spec = toy(lrs=[2.0**60, 2.0**61], schedule={"warmup_steps": 0, "decay_steps": 6}, horizons=[2000])
    table = train(spec, tmp_path, corpus=CORPUS, reporter=Silent()).runs
    assert table["status"].to_pylist() == ["diverged", "diverged"]
