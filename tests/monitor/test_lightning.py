"""Does a real Lightning Trainer log, save and resume η_eff?"""

from __future__ import annotations

import csv
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from loops import batch, eff_lr, small

from etastar.errors import InputError
from etastar.monitor import names
from etastar.store import read_runs, read_trajectories
from etastar.store.verify import verify_files

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    lightning = pytest.importorskip("lightning.pytorch")

from lightning.pytorch.loggers import CSVLogger

from etastar.monitor.lightning import EtastarCallback

pytestmark = pytest.mark.filterwarnings("ignore")


class Module(lightning.LightningModule):
    """The small model."""

    def __init__(self) -> None:
        super().__init__()
        self.net = small()
        self.seen: list[float] = []

    def training_step(self, rows: Any, index: int) -> torch.Tensor:
        tokens, targets = rows[0]
        return torch.nn.functional.cross_entropy(self.net(tokens), targets)

    def validation_step(self, rows: Any, index: int) -> None:
        self.log("val_loss", self.training_step(rows, index))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        before = [w.detach().clone() for w in (self.net.up.weight, self.net.down.weight)]
        super().optimizer_step(*args, **kwargs)
        after = (self.net.up.weight, self.net.down.weight)
        self.seen.append(sum(eff_lr(b, a) for b, a in zip(before, after, strict=True)) / 2)


def loader(count: int = 16) -> Any:
    return torch.utils.data.DataLoader([torch.stack(batch(i)) for i in range(count)], batch_size=1)


def make(folder: Path, callback: Any, **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "max_steps": 8,
        "accelerator": "cpu",
        "logger": CSVLogger(folder, name="log"),
        "log_every_n_steps": 2,
        "accumulate_grad_batches": 2,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "callbacks": [callback],
    }
    return lightning.Trainer(**{**settings, **changes})


@pytest.mark.parametrize("mode", ["snapshot", "reconstruct"])
def test_trainer_logs_and_records(tmp_path: Path, mode: str) -> None:
    module = Module()
    callback = EtastarCallback(study=tmp_path / "study", mode=mode, run="l", tokens_per_step=64)
    trainer = make(tmp_path, callback)
    trainer.fit(module, loader(), loader(2))
    assert len(module.seen) == 8
    assert callback.monitor is not None
    assert callback.monitor.weights == ("net.up.weight", "net.down.weight")
    assert callback.monitor.mean_eff_lr == pytest.approx(sum(module.seen) / 8, rel=2e-5)
    with Path(trainer.logger.log_dir, "metrics.csv").open() as file:
        logged = [row for row in csv.DictReader(file) if row.get(names.EFF_LR)]
    assert [int(row["step"]) for row in logged] == [2, 4, 6, 8]
    assert [float(row[names.EFF_LR]) for row in logged] == pytest.approx(module.seen[1::2], rel=2e-5)
    assert callback.finished
    row = read_runs(tmp_path / "study").to_pylist()[0]
    assert row["tokens"] == 512
    assert row["loss"] == pytest.approx(float(trainer.callback_metrics["val_loss"]))
    assert sorted({r["step"] for r in read_trajectories(tmp_path / "study").to_pylist() if r["weight"]}) == [1, 3, 5, 7]
    assert verify_files(tmp_path / "study") == []


def test_a_resumed_training_goes_on(tmp_path: Path) -> None:
    """Lightning deals the batches anew, so the whole is what both halves' own copies saw."""
    before, after = Module(), Module()
    trainer = make(tmp_path, EtastarCallback(run="l"), max_steps=4)
    trainer.fit(before, loader())
    trainer.save_checkpoint(tmp_path / "at4.ckpt")
    again = EtastarCallback(run="other")
    make(tmp_path, again).fit(after, loader(), ckpt_path=str(tmp_path / "at4.ckpt"))
    assert again.monitor is not None
    assert again.monitor.run == "l"
    assert again.monitor.steps == len(before.seen) + len(after.seen) == 8
    assert again.monitor.mean_eff_lr == pytest.approx(sum(before.seen + after.seen) / 8, rel=2e-5)


def test_an_optimizer_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none of index 1 among 1"):
        make(tmp_path, EtastarCallback(optimizer=1)).fit(Module(), loader())
