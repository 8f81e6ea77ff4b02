"""What settings and metrics mean: the conventions of several trainers, losses among many, restarts, endings."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etastar.errors import InputError
from etastar.importers.interpret import interpret
from etastar.importers.meaning import meaning_of
from etastar.importers.outcome import choose_loss, eff_lr_of, status_of
from etastar.importers.raw import Gathered, RawRun, Series, combine, flatten, log_row
from etastar.records import RunStatus
from etastar.scale import gpt_params


def run(config=None, name="r", status=None, **metrics) -> RawRun:
    """A run whose metrics are lists of (step, value)."""
    raw = RawRun(id=name, name=name, source="test", config=flatten(config or {}), status=status)
    for metric, points in metrics.items():
        for step, value in points:
            raw.add(metric.replace("__", "/"), step, 0.0, value)
    return raw


NANOGPT = {
    "n_layer": 12, "n_head": 12, "n_embd": 768, "batch_size": 12, "block_size": 1024, "max_iters": 600_000,
    "gradient_accumulation_steps": 40, "learning_rate": 6e-4, "weight_decay": 0.1, "beta1": 0.9, "decay_lr": True,
    "warmup_iters": 2000, "lr_decay_iters": 600_000, "min_lr": 6e-5, "eval_interval": 2000, "out_dir": "out",
}  # fmt: skip
TRAINER = {
    "per_device_train_batch_size": 8, "gradient_accumulation_steps": 4, "world_size": 2, "learning_rate": 5e-4,
    "lr_scheduler_type": "cosine_with_min_lr", "warmup_ratio": 0.1, "warmup_steps": 0, "max_steps": 1000,
    "optim": "adamw_torch_fused", "adam_beta1": 0.9, "weight_decay": 0.0, "seed": 42, "block_size": 512,
    "num_hidden_layers": 4, "hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 8,
    "num_key_value_heads": 2, "hidden_act": "silu", "vocab_size": 32000, "num_train_epochs": 3.0,
}  # fmt: skip
TORCHTITAN = {
    "training": {"seq_len": 2048, "global_batch_size": 64, "local_batch_size": 8, "steps": 10_000, "seed": 1},
    "optimizer": {"name": "AdamW", "lr": 3e-4, "weight_decay": 0.1, "beta1": 0.9},
    "lr_scheduler": {"warmup_steps": 200, "decay_ratio": 0.2},
    "model": {"num_params": "1.2B"},
}


def test_nanogpt() -> None:
    found = meaning_of(run(NANOGPT, lr=[(0, 0.0), (2000, 6e-4)]))
    assert found.values["batch_tokens"] == 12 * 1024 * 40  # its accumulation counts all processes
    assert found.values["tokens"] == 600_000 * 12 * 1024 * 40
    assert found.values["params"] == gpt_params(768)
    assert found.values["schedule"] == "cosine"
    assert found.values["warmup_steps"] == 2000
    assert any("vocabulary" in guess for guess in found.guesses)
    assert not any("devices" in guess for guess in found.guesses)


def test_trainer() -> None:
    found = meaning_of(run(TRAINER))
    assert found.values["batch_tokens"] == 8 * 4 * 2 * 512
    assert found.values["optimizer"] == "adamw"
    assert found.values["schedule"] == "cosine"
    assert found.values["warmup_steps"] == 100
    assert found.values["weight_decay"] == 0.0
    layer = 2 * 256 * 256 * (1 + 2 / 8) + 3 * 256 * 1024
    assert found.values["params"] == 4 * layer + 32000 * 256
    without = meaning_of(run({k: v for k, v in TRAINER.items() if k != "world_size"}))
    assert any("one is assumed" in guess for guess in without.guesses)


def test_torchtitan_and_dotted_names() -> None:
    found = meaning_of(run(TORCHTITAN))
    assert found.values["params"] == 1.2e9
    assert found.values["lr"] == 3e-4
    assert found.values["batch_tokens"] == 64 * 2048
    assert found.values["tokens"] == 64 * 2048 * 10_000
    assert found.values["optimizer"] == "adamw"
    assert found.values["decay_steps"] == 2000
    assert found.origin["lr"] == "optimizer.lr"


def test_batches_in_tokens_and_lightning_names() -> None:
    assert meaning_of(run({"total_batch_size": 524288})).values["batch_tokens"] == 524288
    lightning = {"batch_size": 16, "accumulate_grad_batches": 2, "devices": 4, "seq_length": 128, "betas": [0.85, 0.95]}
    found = meaning_of(run(lightning))
    assert found.values["batch_tokens"] == 16 * 2 * 4 * 128
    assert found.values["beta1"] == 0.85


def test_what_means_not_set_is_not_a_value() -> None:
    found = meaning_of(run({"max_steps": -1, "learning_rate": 0.0, "weight_decay": 0.0, "seed": 0}, loss=[(7, 1.0)]))
    assert found.values["steps"] == 7
    assert found.origin["steps"] == "last logged step"
    assert "lr" not in found.values
    assert (found.values["weight_decay"], found.values["seed"]) == (0.0, 0.0)


def test_values_beyond_the_contract_cost_their_run_alone() -> None:
    base = {"n_params": 1e6, "tokens": 1e9}
    odd = {"learning_rate": 1e300, "adam_beta1": 7.0, "max_steps": 1e40, "seed": 2**70, "weight_decay": -1}
    good = run({**base, "learning_rate": 1e-3}, name="good", val_loss=[(1, 3.0)])
    found = interpret(Gathered("a test", (good, run({**base, **odd}, name="odd", val_loss=[(1, 3.0)]))), {})
    assert found.table["run"].to_pylist() == ["good"]
    assert found.refused[0][0] == "odd"
    assert "no lr" in found.refused[0][1]


def test_a_rate_that_was_only_logged() -> None:
    found = meaning_of(run({}, learning_rate=[(1, 1e-4), (10, 1e-3), (20, 0.0)]))
    assert found.values["lr"] == 1e-3
    assert any("largest learning_rate" in guess for guess in found.guesses)


def test_one_loss_for_all_runs() -> None:
    both = run(name="a", val_loss=[(1, 3.0)], eval__c4__loss=[(1, 2.0)])
    other = run(name="b", eval__c4__loss=[(1, 2.5)])
    assert choose_loss((both, other)).metric == "eval/c4/loss"  # the one that both have
    assert choose_loss((both, other)).others == ("val_loss",)
    assert choose_loss((both,)).metric == "val_loss"
    assert choose_loss((both, other), "val_loss").metric == "val_loss"
    training = choose_loss((run(loss=[(1, 3.0)], train_loss=[(1, 3.5)], accuracy=[(1, 0.5)]),))
    assert (training.metric, training.validation) == ("loss", False)
    assert choose_loss((run(accuracy=[(1, 0.5)], lossless=[(1, 1.0)], evaluated=[(1, 1.0)]),)).metric is None


@pytest.mark.parametrize(
    ("raw", "loss", "planned", "status"),
    [
        (run(loss=[(90, 1.0), (100, 1.0)]), 1.0, 100, RunStatus.FINISHED),
        (run(loss=[(80, 1.0), (90, 1.0)]), 1.0, 100, RunStatus.FINISHED),  # the next log would have been at the end
        (run(loss=[(10, 1.0), (50, 1.0), (60, 1.0), (70, 1.0)]), 1.0, 100, RunStatus.CRASHED),
        (run(loss=[(50, 1.0)], status=RunStatus.FINISHED), 1.0, 100, RunStatus.FINISHED),  # may count calls of log
        (run(loss=[(100, 1.0)], status=RunStatus.CRASHED), 1.0, 100, RunStatus.CRASHED),
        (run(loss=[(100, 1.0)], status=RunStatus.CRASHED), math.nan, 100, RunStatus.DIVERGED),
        (run(loss=[(100, math.inf)]), None, 100, RunStatus.DIVERGED),
        (run(loss=[(10, 1.0)]), 1.0, None, RunStatus.FINISHED),
    ],
)
def test_how_a_run_ended(raw: RawRun, loss: float | None, planned: float | None, status: RunStatus) -> None:
    assert status_of(raw, loss, planned)[0] is status


@given(st.lists(st.tuples(st.integers(0, 12), st.floats(0, 9)), max_size=30))
def test_a_series_is_what_an_uninterrupted_reader_would_keep(points: list[tuple[int, float]]) -> None:
    """Reference: a write at a step forgets everything at that step and after."""
    kept: dict[int, float] = {}
    series = Series()
    for step, value in points:
        series.add(step, 0.0, value)
        kept = {s: v for s, v in kept.items() if s < step} | {step: value}
    assert dict(zip(series.steps, series.values, strict=True)) == kept
    assert series.steps == sorted(set(series.steps))


def test_rows_carry_the_optimizers_step() -> None:
    raw = run()
    for call, row in enumerate(({"iter": 0, "loss": 3.0}, {"iter": 500, "loss": 2.0}, {"val/loss": 2.5})):
        log_row(raw, row, call, 0.0)
    assert raw.metrics["loss"].steps == [0, 500]
    assert raw.metrics["val/loss"].steps == [500]
    assert "iter" not in raw.metrics


def test_the_monitors_steps_are_its_own() -> None:
    """Its metrics join the rows of a loop whose tracker counts calls of log."""
    raw = run()
    for call in range(6):
        extra = {"etastar/step": 100 * call, "etastar/eff_lr": 0.5, "etastar/mean_eff_lr": 0.25} if call % 2 else {}
        log_row(raw, {"loss": 3.0, **extra}, call, 0.0)
    assert raw.metrics["loss"].steps == [0, 1, 2, 3, 4, 5]
    assert raw.metrics["etastar/eff_lr"].steps == [100, 300, 500]
    assert "etastar/step" not in raw.metrics


def test_what_the_monitor_says_at_the_end_is_believed_first() -> None:
    raw = run({"learning_rate": 1.0, "n_params": 5}, etastar__val_loss=[(10, 3.0), (99, 2.0)])
    ending = {"params": 1e6, "tokens": 2e9, "steps": 100, "peak_lr": 1e-3, "mean_eff_lr": 0.01, "loss": 2.0}
    for name, value in ending.items():
        raw.add(f"etastar/{name}", 99, 0.0, value)
    (row,) = interpret(Gathered("a test", (raw,)), {}).table.to_pylist()
    assert (row["params"], row["tokens"], row["steps"], row["lr"]) == (1e6, 2e9, 100, 1e-3)
    assert (row["loss"], row["loss_metric"], row["mean_eff_lr"]) == (2.0, "etastar/val_loss", 0.01)
    assert row["status"] == "finished"


def test_files_of_one_run_are_joined() -> None:
    first = run({"lr": 1.0, "a": 1}, loss=[(1, 5.0), (2, 4.0), (3, 3.0)], status=RunStatus.CRASHED)
    second = run({"lr": 2.0}, loss=[(2, 3.5), (4, 2.0)], status=RunStatus.FINISHED)
    both = combine([first, second])
    assert both.config == {"lr": 2.0, "a": 1}
    assert both.metrics["loss"].values == [5.0, 3.5, 2.0]
    assert both.metrics["loss"].rewritten == 2
    assert both.status is RunStatus.FINISHED


def test_eff_lr_as_logged_and_from_norms() -> None:
    logged = run(**{"etastar__mean_eff_lr": [(1, 0.5), (2, 0.25)], "etastar__eff_lr__w": [(1, 9.0)]})
    found = eff_lr_of(logged, None)
    assert (found.mean, found.approximate) == (0.25, False)
    stepwise = eff_lr_of(run(etastar__eff_lr__a=[(1, 0.1), (2, 0.3)], etastar__eff_lr__b=[(1, 0.3)]), None)
    assert stepwise.mean == pytest.approx((0.2 + 0.3) / 2)
    assert not stepwise.approximate
    norms = eff_lr_of(run(weight_norm__a=[(1, 4.0), (2, 2.0)], step_norm__a=[(1, 0.4), (2, 0.4)]), None)
    assert norms.mean == pytest.approx((0.1 + 0.2) / 2)
    assert norms.approximate
    assert norms.rows[2, "a"]["eff_lr"] == pytest.approx(0.2)
    behind = eff_lr_of(run(**{"a.w__param_norm": [(1, 4.0)], "a.w__update_norm": [(1, 0.4)]}), None)
    assert behind.mean == pytest.approx(0.1)
    rate = Series([1], [0.0], [0.5])
    ours = eff_lr_of(run(etastar__weight_norm__a=[(1, 4.0)], etastar__update_norm__a=[(1, 8.0)]), rate)
    assert ours.mean == pytest.approx(1.0)  # our update_norm is before the LR
    assert eff_lr_of(run(weight_norm__a=[(1, 4.0)], grad_norm=[(1, 1.0)]), None).mean is None
    assert eff_lr_of(run(weight_norm__a=[(1, 0.0)], step_norm__a=[(1, 1.0)]), None).mean is None


def runs_of_a_sweep() -> Gathered:
    base = {"n_params": 1e6, "max_steps": 10}
    raws = [
        run({**base, "learning_rate": 2.0**-k, "tag": f"t{k}"}, name=f"lr{k}", val_loss=[(10, 3.0)]) for k in range(3)
    ]
    return Gathered("a test", tuple(raws))


def test_a_map_supplies_and_overrides() -> None:
    found = interpret(runs_of_a_sweep(), {"batch_tokens": "1000"})
    assert found.table["tokens"].to_pylist() == [1e4] * 3
    assert found.mapped["tokens"] == "steps × batch_tokens"
    twice = interpret(runs_of_a_sweep(), {"tokens": "steps * 524288", "lr": "learning_rate / 2", "group": "tag"})
    assert twice.table["tokens"].to_pylist() == [10 * 524288] * 3
    assert twice.table["lr"].to_pylist() == [0.5, 0.25, 0.125]
    assert twice.table["group"].to_pylist() == ["t0", "t1", "t2"]
    with pytest.raises(InputError, match="no column, and no expression"):
        interpret(runs_of_a_sweep(), {"tokens": "nothere * 2"})


def test_a_stepwise_eff_lr_is_averaged_and_a_running_mean_is_not() -> None:
    base = {"n_params": 1e6, "tokens": 1e9, "lr": 1e-3}
    points = [(1, 0.1), (2, 0.3), (3, math.nan)]
    raw = run(base, val_loss=[(3, 3.0)], turned=points, running_mean=[(1, 0.1), (3, 0.4)])
    found = interpret(Gathered("a test", (raw,)), {"mean_eff_lr": "turned"})
    assert found.table["mean_eff_lr"].to_pylist() == pytest.approx([0.2])
    assert any("the mean of turned over its logged steps" in note for note in found.notes)
    assert interpret(Gathered("a test", (raw,)), {"mean_eff_lr": "running_mean"}).table["mean_eff_lr"].to_pylist() == [
        0.4
    ]


def test_settings_may_come_from_the_runs_names() -> None:
    raws = tuple(run(name=f"n124M_lr{lr}", val_loss=[(100, 3.0)]) for lr in ("1e-3", "2e-3"))
    with pytest.raises(InputError) as error:
        interpret(Gathered("a test", raws), {})
    assert "split_part(run" in error.value.hint
    mapping = {"params": "substr(split_part(run,'_',1),2)", "lr": "split_part(run,'_lr',2)", "tokens": "steps*1000"}
    found = interpret(Gathered("a test", raws), mapping).table
    assert found["params"].to_pylist() == [124e6] * 2
    assert found["lr"].to_pylist() == [1e-3, 2e-3]


def test_what_is_missing_is_named_with_what_is_there() -> None:
    with pytest.raises(InputError) as error:
        interpret(runs_of_a_sweep(), {})
    assert "none of 3 runs can be used (no tokens in 3)" in error.value.message
    assert "n_params, max_steps, learning_rate, tag" in error.value.hint
    assert "val_loss" in error.value.hint


def test_runs_of_one_name_are_told_apart() -> None:
    raws = [RawRun(id=f"id{k}", name="same", source="s", config={"lr": 1e-3, "params": 5, "tokens": 7}) for k in (1, 2)]
    for raw in raws:
        raw.add("val_loss", 1, 0.0, 2.0)
    assert interpret(Gathered("a test", tuple(raws)), {}).table["run"].to_pylist() == ["same (id1)", "same (id2)"]
