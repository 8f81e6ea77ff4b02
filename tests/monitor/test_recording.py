"""Does a monitored run arrive in a study as a trained one does?"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from loops import small, train

from etastar.errors import InputError
from etastar.monitor import StepMonitor, recording
from etastar.store import read_runs, read_trajectories
from etastar.store.verify import verify_files
from etastar.train.statistics import STATISTICS


def attach(study: Path | None, *, log_every: int = 2, run: str | None = "one") -> tuple:
    model = small()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.8, 0.9), weight_decay=0.2)
    return model, optimizer, StepMonitor(optimizer, model, study=study, run=run, log_every=log_every, sinks=[])


def test_trajectories_and_the_row(tmp_path: Path) -> None:
    model, optimizer, monitor = attach(tmp_path)
    reference = train(model, optimizer, monitor, 5)
    monitor.observe(train_loss=2.5)
    monitor.observe(val_loss=2.25)
    returned = monitor.finish(loss=2.25, tokens=160, batch_tokens=32, seed=7)
    row = read_runs(tmp_path).to_pylist()[0]
    assert row == returned.to_pylist()[0]
    expected = {
        "run": "one",
        "params": 17 * 12 * 2 + 2 * 12 * 33 + 33 + 24,
        "params_nonembedding": 17 * 12 + 2 * 12 * 33 + 33 + 24,
        "tokens": 160,
        "lr": 1e-3,
        "loss": 2.25,
        "optimizer": "adamw",
        "weight_decay": 0.2,
        "beta1": 0.8,
        "batch_tokens": 32,
        "steps": 5,
        "seed": 7,
        "status": "finished",
        "schedule": None,
    }
    assert {name: row[name] for name in expected} == expected
    assert row["mean_eff_lr"] == pytest.approx(reference.mean, rel=1e-5)
    assert row["plateau_eff_lr"] == row["mean_eff_lr"]
    rows = read_trajectories(tmp_path).to_pylist()
    seen = [(r["step"], r["weight"]) for r in rows if r["weight"]]
    assert seen == [(s, w) for s in (0, 2, 4) for w in ("up.weight", "down.weight")]
    last = [r for r in rows if r["step"] == 4 and r["weight"]]
    assert [r["eff_lr"] for r in last] == pytest.approx(reference.seen[4], rel=1e-5)
    assert all(r[name] is not None for r in last for name in STATISTICS)
    assert [(r["step"], r["train_loss"], r["val_loss"]) for r in rows if not r["weight"]] == [
        (4, 2.5, None),
        (5, None, 2.25),
    ]
    assert verify_files(tmp_path) == []


def test_a_resume_replaces_the_steps_that_are_taken_again(tmp_path: Path) -> None:
    model, optimizer, monitor = attach(tmp_path, log_every=1)
    train(model, optimizer, monitor, 3)
    saved = monitor.state_dict()
    train(model, optimizer, monitor, 4, start=3)
    monitor.close()  # written up to step 6, then the machine fell over
    model, optimizer, again = attach(tmp_path, log_every=1, run=None)
    again.load_state_dict(saved)
    train(model, optimizer, again, 2, start=3)
    again.finish(loss=1.0, tokens=5)
    rows = read_trajectories(tmp_path)
    assert sorted(set(rows["step"].to_pylist())) == [0, 1, 2, 3, 4]
    assert set(rows["run"].to_pylist()) == {"one"}
    assert verify_files(tmp_path) == []


def test_a_part_across_the_resumed_step_is_cut(tmp_path: Path) -> None:
    model, optimizer, monitor = attach(tmp_path, log_every=1)
    train(model, optimizer, monitor, 2)
    saved = {**monitor.state_dict()}
    train(model, optimizer, monitor, 4, start=2)
    monitor.close()
    again = attach(tmp_path, log_every=1, run=None)[2]
    again.load_state_dict({**saved, "tally": {**saved["tally"], "steps": 4.0}})
    assert sorted(set(read_trajectories(tmp_path)["step"].to_pylist())) == [0, 1, 2, 3]
    assert verify_files(tmp_path) == []


def test_rows_are_written_as_they_gather(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "ROWS_IN_MEMORY", 4)
    model, optimizer, monitor = attach(tmp_path, log_every=1)
    train(model, optimizer, monitor, 5)
    assert sorted(set(read_trajectories(tmp_path)["step"].to_pylist())) == [0, 1, 2, 3]
    monitor.close()
    assert sorted(set(read_trajectories(tmp_path)["step"].to_pylist())) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["größe/α β", "../out", ".hidden", "a" * 300, "-1-000000001-000000002"])
def test_any_run_name_stays_in_the_folder(tmp_path: Path, name: str) -> None:
    model, optimizer, monitor = attach(tmp_path / "study", run=name)
    train(model, optimizer, monitor, 1)
    monitor.finish(loss=1.0, tokens=5)
    assert read_runs(tmp_path / "study")["run"].to_pylist() == [name]
    assert {p.parent.name for p in tmp_path.rglob("*.parquet")} == {"runs", "trajectories"}
    assert len(list((tmp_path / "study").rglob("*.parquet"))) == 2


def test_finish_says_what_is_missing(tmp_path: Path) -> None:
    model, optimizer, monitor = attach(tmp_path)
    with pytest.raises(InputError, match="no step with a learning rate"):
        monitor.finish(loss=1.0, tokens=5)
    train(model, optimizer, monitor, 1)
    with pytest.raises(InputError, match="'colour' is no column"):
        monitor.finish(loss=1.0, tokens=5, colour="red")
    with pytest.raises(InputError, match="tokens"):
        monitor.finish(loss=1.0, tokens=-5)
    named = StepMonitor(optimizer, model.named_parameters(), sinks=[])
    train(model, optimizer, named, 1)
    with pytest.raises(InputError, match="number of parameters is not known"):
        named.finish(loss=1.0, tokens=5)
    assert read_runs(tmp_path).num_rows == 0
    assert named.finish(loss=1.0, tokens=5, params=1e6)["params"].to_pylist() == [1e6]


def test_a_crash_can_be_recorded(tmp_path: Path) -> None:
    model, optimizer, monitor = attach(tmp_path)
    train(model, optimizer, monitor, 1)
    monitor.finish(loss=None, tokens=5, status="crashed")
    assert read_runs(tmp_path)["status"].to_pylist() == ["crashed"]


def test_a_study_of_monitored_runs_is_fitted(tmp_path: Path) -> None:
    """Five rates of one model: `etastar fit` finds the optimum among them."""
    from typer.testing import CliRunner

    from etastar.cli.app import app

    for index, log2_lr in enumerate((-11, -10, -9, -8, -7)):
        model = small()
        optimizer = torch.optim.AdamW(model.parameters(), lr=2.0**log2_lr)
        monitor = StepMonitor(optimizer, model, study=tmp_path, run=f"lr{index}", sinks=[])
        train(model, optimizer, monitor, 3)
        monitor.finish(loss=2 + 0.1 * (log2_lr + 9.2) ** 2, tokens=1e6)
    done = CliRunner().invoke(app, ["fit", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "interior" in done.output.lower(), done.output
    assert not math.isnan(read_runs(tmp_path)["mean_eff_lr"][0].as_py())


def test_a_run_that_begins_anew_replaces_its_namesake(tmp_path: Path) -> None:
    model, optimizer, monitor = attach(tmp_path, log_every=1)
    train(model, optimizer, monitor, 6)
    monitor.finish(loss=3.0, tokens=6)
    other = attach(tmp_path, log_every=1, run="one-1")  # its parts' names begin alike
    train(other[0], other[1], other[2], 6)
    other[2].finish(loss=3.0, tokens=6)
    model, optimizer, again = attach(tmp_path, log_every=1)
    train(model, optimizer, again, 2)
    with pytest.warns(UserWarning, match="'one' was there already and is replaced"):
        again.finish(loss=2.0, tokens=2)
    rows = read_trajectories(tmp_path).to_pylist()
    assert sorted({r["step"] for r in rows if r["run"] == "one"}) == [0, 1]
    assert sorted({r["step"] for r in rows if r["run"] == "one-1"}) == [0, 1, 2, 3, 4, 5]
    assert dict(zip(*(read_runs(tmp_path)[c].to_pylist() for c in ("run", "loss")), strict=True)) == {
        "one": 2.0,
        "one-1": 3.0,
    }
    assert verify_files(tmp_path) == []


def test_a_loss_told_twice_is_one_row(tmp_path: Path) -> None:
    model, optimizer, monitor = attach(tmp_path)
    train(model, optimizer, monitor, 1)
    monitor.observe(val_loss=3.0)
    monitor.observe(val_loss=2.0)
    monitor.close()
    monitor.observe(val_loss=2.0)  # an evaluation after training, at the same step
    monitor.finish(loss=2.0, tokens=2)
    assert [r for r in read_trajectories(tmp_path)["val_loss"].to_pylist() if r is not None] == [2.0]
    assert verify_files(tmp_path) == []
