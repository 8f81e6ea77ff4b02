"""Do the real trackers hold what the monitor logged?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from loops import small, train

import etastar
from etastar.monitor import StepMonitor, TensorBoardSink, WandbSink, names

TRACKERS = os.environ.get("ETASTAR_TRACKERS_PYTHON")


def attach(sinks: object, **options: object) -> tuple:
    model = small()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return model, optimizer, StepMonitor(optimizer, model, log_every=2, sinks=sinks, **options)  # type: ignore[arg-type]


def test_any_callable_is_a_sink() -> None:
    seen: list[tuple[int, dict[str, float]]] = []

    def keep(step: int, metrics: Mapping[str, float]) -> None:
        seen.append((step, dict(metrics)))

    model, optimizer, monitor = attach([keep], per="weight")
    norm = float(model.up.weight.detach().norm())
    train(model, optimizer, monitor, 3)
    monitor.observe(train_loss=3.0)
    monitor.finish(loss=2.0, tokens=50)
    assert [step for step, _ in seen] == [0, 2, 3, 3]
    first = seen[0][1]
    assert first[names.EFF_LR] == first[names.MEAN_EFF_LR]
    assert first["etastar/weight_norm/up.weight"] == pytest.approx(norm, rel=1e-6)
    assert len([name for name in first if names.parse_weight_metric(name)]) == 12
    assert seen[2][1] == {names.TRAIN_LOSS: 3.0}
    assert seen[3][1][names.LOSS] == 2.0
    assert seen[3][1][names.TOKENS] == 50
    assert seen[3][1][names.PEAK_LR] == 1e-3
    assert seen[3][1][names.MEAN_EFF_LR] == monitor.mean_eff_lr


def test_roles_average_over_layers() -> None:
    seen: list[dict[str, float]] = []
    model = torch.nn.ModuleList([small(seed) for seed in range(2)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = StepMonitor(optimizer, model, log_every=1, sinks=[lambda _, metrics: seen.append(dict(metrics))])
    sum(m(torch.arange(6)).square().sum() for m in model).backward()
    optimizer.step()
    assert monitor.latest is not None
    values = dict(zip(monitor.weights, monitor.latest.values, strict=True))
    mean = (values["0.up.weight"][0] + values["1.up.weight"][0]) / 2
    assert seen[0]["etastar/weight_norm/up.weight"] == pytest.approx(mean)


def test_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        model, optimizer, monitor = attach([TensorBoardSink(writer)])
        train(model, optimizer, monitor, 5)
        monitor.finish(loss=2.0, tokens=50)
    events = EventAccumulator(str(tmp_path)).Reload()
    scalars = events.Scalars(names.MEAN_EFF_LR)
    assert [e.step for e in scalars] == [0, 2, 4, 5]
    assert scalars[-1].value == pytest.approx(monitor.mean_eff_lr, rel=1e-6)
    assert events.Scalars("etastar/step_norm/down.weight")[-1].value == pytest.approx(
        monitor.latest.values[1][2], rel=1e-6
    )


@pytest.mark.parametrize("commit", [False, True])
def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit: bool) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(mode="offline", dir=str(tmp_path), project="p", settings=wandb.Settings(console="off"))
    try:
        model, optimizer, monitor = attach([WandbSink(commit=True)] if commit else "auto")
        for step in range(5):
            train(model, optimizer, monitor, 1, start=step)
            if not commit:
                wandb.log({"loss": 3.0 - step}, step=step)  # the loop's own numbering must go on undisturbed
        monitor.finish(loss=2.0, tokens=50)
        if not commit:
            wandb.log({"last": 1}, step=5)
            assert run.summary["loss"] == -1.0
        assert run.summary[names.MEAN_EFF_LR] == pytest.approx(monitor.mean_eff_lr)
        assert run.summary[names.LOSS] == 2.0
        assert run.summary["etastar/weight_norm/up.weight"] == pytest.approx(monitor.latest.values[0][0])
    finally:
        wandb.finish()
    assert list(tmp_path.rglob("*.wandb"))
    monitor._outlets(7, {names.EFF_LR: 1.0})  # no run under way: nothing to log to, and no error


_IN_THEIR_OWN_WORLD = """
import json, sys
import torch
sys.path.insert(0, {tests!r})
from loops import small, train
from etastar.monitor import StepMonitor, names

model = small()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
monitor = StepMonitor(optimizer, model, log_every=2, per="weight")
{start}
train(model, optimizer, monitor, 5)
monitor.finish(loss=2.0, tokens=50)
{read}
print("SEEN " + json.dumps([seen, monitor.mean_eff_lr]))
"""

_MLFLOW = (
    """
import mlflow
mlflow.set_tracking_uri("sqlite:///runs.db")
run = mlflow.start_run()
""",
    """
mlflow.end_run()
history = mlflow.MlflowClient().get_metric_history(run.info.run_id, names.MEAN_EFF_LR)
seen = [[m.step, m.value] for m in history]
assert mlflow.MlflowClient().get_run(run.info.run_id).data.metrics["etastar/weight_norm/up.weight"] > 0
""",
)

_TRACKIO = (
    """
import trackio
trackio.init(project="p", name="r", embed=False)
""",
    """
trackio.finish()
from trackio.sqlite_storage import SQLiteStorage
logs = SQLiteStorage.get_logs("p", "r")
seen = [[row["step"], row[names.MEAN_EFF_LR]] for row in logs if names.MEAN_EFF_LR in row]
""",
)


@pytest.mark.slow
@pytest.mark.skipif(TRACKERS is None, reason="ETASTAR_TRACKERS_PYTHON does not name a Python with mlflow and trackio")
@pytest.mark.parametrize(("start", "read"), [_MLFLOW, _TRACKIO], ids=["mlflow", "trackio"])
def test_mlflow_and_trackio(tmp_path: Path, start: str, read: str) -> None:
    assert TRACKERS is not None
    source = str(Path(etastar.__file__).parents[1])
    code = _IN_THEIR_OWN_WORLD.format(tests=str(Path(__file__).parent), start=start, read=read)
    environment = {**os.environ, "PYTHONPATH": source, "TRACKIO_DIR": str(tmp_path / "trackio")}
    done = subprocess.run(
        [TRACKERS, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    seen, mean = json.loads(done.stdout.split("SEEN ")[1].splitlines()[0])
    assert [step for step, _ in seen] == [0, 2, 4, 5]
    assert seen[-1][1] == pytest.approx(mean, rel=1e-9)


def test_no_tracker_is_imported() -> None:
    code = "import sys; import etastar.monitor; sys.exit(bool({'wandb','mlflow','trackio','transformers','lightning','polars'} & set(sys.modules)))"
    source = str(Path(etastar.__file__).parents[1])
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": source}).returncode == 0
