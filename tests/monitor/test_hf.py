"""Does a real transformers Trainer log, save and resume η_eff?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from loops import eff_lr

from etastar.errors import InputError
from etastar.monitor import names
from etastar.store import read_runs, read_trajectories
from etastar.store.verify import verify_files

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from etastar.monitor.hf import STATE_FILE, EtastarCallback  # noqa: E402


class Rows(torch.utils.data.Dataset):
    """Random tokens."""

    def __init__(self, count: int) -> None:
        self.tokens = torch.randint(64, (count, 16), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


class Witness(transformers.TrainerCallback):
    """η_eff by the definition, from copies around each optimizer step."""

    def __init__(self) -> None:
        self.seen: list[float] = []
        self.before: list[torch.Tensor] = []

    def weights(self, model: Any) -> list[torch.Tensor]:
        return [
            p.detach().clone() for n, p in model.named_parameters() if p.ndim == 2 and "wte" not in n and "wpe" not in n
        ]

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.before = self.weights(kwargs["model"])

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        turned = [eff_lr(b, a) for b, a in zip(self.before, self.weights(kwargs["model"]), strict=True)]
        self.seen.append(sum(turned) / len(turned))


def make(folder: Path, callbacks: list[Any], **changes: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2)
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "max_steps": 8,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "logging_steps": 2,
        "save_steps": 4,
        "learning_rate": 1e-3,
        "warmup_steps": 2,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "include_num_input_tokens_seen": "all",
        "dataloader_pin_memory": False,
    }
    return transformers.Trainer(
        model=transformers.GPT2LMHeadModel(config),
        args=transformers.TrainingArguments(**{**settings, **changes}),
        train_dataset=Rows(64),
        eval_dataset=Rows(8),
        callbacks=callbacks,
    )


@pytest.mark.parametrize("mode", ["snapshot", "reconstruct"])
def test_trainer_logs_and_records(tmp_path: Path, mode: str) -> None:
    witness = Witness()
    callback = EtastarCallback(study=tmp_path / "study", mode=mode, run="hf", columns={"seed": 3})
    trainer = make(tmp_path / "out", [callback, witness])
    trainer.train()
    assert callback.monitor is not None
    assert len(callback.monitor.weights) == 8
    assert len(witness.seen) == 8
    mean = sum(witness.seen) / 8
    assert callback.monitor.mean_eff_lr == pytest.approx(mean, rel=2e-5)

    saved = json.loads((tmp_path / "out" / "checkpoint-8" / "trainer_state.json").read_text())
    logged = [entry for entry in saved["log_history"] if names.EFF_LR in entry]
    assert [entry["step"] for entry in logged] == [2, 4, 6, 8]
    assert [entry[names.STEP] for entry in logged] == [1, 3, 5, 7]
    assert [entry[names.EFF_LR] for entry in logged] == pytest.approx(witness.seen[1::2], rel=2e-5)
    assert logged[-1][names.MEAN_EFF_LR] == pytest.approx(mean, rel=2e-5)

    assert not callback.finished  # nothing was evaluated yet
    metrics = trainer.evaluate()
    assert callback.finished
    row = read_runs(tmp_path / "study").to_pylist()[0]
    assert row["loss"] == pytest.approx(metrics["eval_loss"])
    assert row["tokens"] == 8 * 2 * 4 * 16
    assert row["lr"] == pytest.approx(1e-3)
    assert row["seed"] == 3
    assert row["params"] == 64 * 16 + sum(
        p.numel() for n, p in trainer.model.named_parameters() if "wte" not in n and "wpe" not in n
    )
    assert row["mean_eff_lr"] == pytest.approx(mean, rel=2e-5)
    rows = read_trajectories(tmp_path / "study").to_pylist()
    assert sorted({r["step"] for r in rows if r["weight"]}) == [1, 3, 5, 7]
    assert sum(r["val_loss"] is not None for r in rows) == 1
    assert verify_files(tmp_path / "study") == []


def test_a_resumed_training_goes_on(tmp_path: Path) -> None:
    whole = EtastarCallback(study=tmp_path / "study", run="hf")
    make(tmp_path / "out", [whole]).train()
    assert (tmp_path / "out" / "checkpoint-4" / STATE_FILE).is_file()
    again = EtastarCallback(study=tmp_path / "study", run="other")
    make(tmp_path / "out", [again]).train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-4"))
    assert again.monitor is not None
    assert whole.monitor is not None
    assert again.monitor.run == "hf"
    assert again.monitor.steps == 8
    assert again.monitor.mean_eff_lr == pytest.approx(whole.monitor.mean_eff_lr, rel=1e-6)
    assert verify_files(tmp_path / "study") == []


def test_a_checkpoint_without_state_is_said(tmp_path: Path) -> None:
    make(tmp_path / "out", []).train()
    again = EtastarCallback()
    with pytest.warns(UserWarning, match="covers the steps from here on alone"):
        make(tmp_path / "out", [again]).train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-4"))
    assert again.monitor is not None
    assert again.monitor.steps == 4


def test_a_broken_state_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "out", [EtastarCallback()]).train()
    (tmp_path / "out" / "checkpoint-4" / STATE_FILE).write_text("{")
    with pytest.raises(InputError, match="not the monitor's state"):
        make(tmp_path / "out", [EtastarCallback()]).train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-4"))
