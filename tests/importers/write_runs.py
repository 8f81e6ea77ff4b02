"""Write the logical runs with the real libraries: `python write_runs.py LIBRARY FOLDER [RUN …]`.

Run in an interpreter that has the trackers (`.venv-trackers`), without network. The files under golden/ were made
by `python write_runs.py golden tests/importers/golden`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from logical_runs import RUNS, Logical

QUIET = {
    "WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DISABLE_GIT": "true", "WANDB_DISABLE_CODE": "true",
    "WANDB_X_DISABLE_STATS": "true", "WANDB_X_DISABLE_META": "true", "WANDB_CONSOLE": "off", "HF_HUB_OFFLINE": "1",
    "MLFLOW_ALLOW_FILE_STORE": "true", "TRANSFORMERS_VERBOSITY": "error", "GRADIO_ANALYTICS_ENABLED": "False",
    "TRACKIO_DISABLE_SYSTEM_METRICS": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1",
}  # fmt: skip


def write_wandb(runs: list[Logical], folder: Path) -> None:
    """A process a run, as in life; a crash is an exception that nobody catches."""
    for run in runs:
        command = [sys.executable, __file__, "wandb-one", str(folder), run.name]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode != (1 if run.crashes else 0):
            raise SystemExit(done.stderr)


def write_one_wandb(runs: list[Logical], folder: Path) -> None:
    import wandb

    (run,) = runs
    folder.mkdir(parents=True, exist_ok=True)
    # the id decides the file's name, so that golden files keep theirs
    identity = f"run{RUNS.index(run):05d}"
    opened = wandb.init(project="η-sweep", name=run.name, id=identity, config=run.config, dir=str(folder))
    for step, row in run.rows:
        opened.log({**row, "global_step": step})
    if run.crashes:
        raise RuntimeError("out of memory")  # wandb notices, and notes the exit code
    opened.finish()


def write_tensorboard(runs: list[Logical], folder: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    for run in runs:
        writer = SummaryWriter(str(folder / run.name))
        writer.add_hparams(run.config, {}, run_name=".")
        before = 0
        for step, row in run.rows:
            if step <= before:  # a restart: a new process writes a new file
                writer.close()
                writer = SummaryWriter(str(folder / run.name))
            before = step
            for name, value in row.items():
                # the old way and the new way to write a scalar
                writer.add_scalar(name, value, step, new_style=name == "loss")
        writer.close()


def write_mlflow(runs: list[Logical], uri: str) -> None:
    import mlflow

    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("η-sweep")
    for run in runs:
        mlflow.start_run(run_name=run.name)
        mlflow.log_params(run.config)
        for step, row in run.rows:
            mlflow.log_metrics(row, step=step)
        mlflow.end_run("FAILED" if run.crashes else "FINISHED")


def write_trackio(runs: list[Logical], folder: Path) -> None:
    os.environ["TRACKIO_DIR"] = str(folder)
    import trackio

    for run in runs:
        opened = trackio.init(
            project="η-sweep", name=run.name, config=run.config, auto_log_gpu=False, auto_log_cpu=False
        )
        for step, row in run.rows:
            opened.log(row, step=step)
        opened.finish()  # Trackio keeps no word of how a run ended


def write_trackio_parquet(runs: list[Logical], folder: Path) -> None:
    """The files that Trackio syncs to a Space, without the database."""
    write_trackio(runs, folder)
    from trackio.sqlite_storage import SQLiteStorage

    SQLiteStorage.export_to_parquet()
    for path in folder.glob("*.db*"):
        path.unlink()


def write_trainer(runs: list[Logical], folder: Path) -> None:
    """A real Trainer on a real (tiny) GPT-2; what is logged is the script's."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    torch.set_num_threads(1)
    data = [{"input_ids": torch.randint(0, 64, (16,)), "labels": torch.randint(0, 64, (16,))} for _ in range(128)]

    class Script(TrainerCallback):
        def __init__(self, run: Logical) -> None:
            self.rows = list(run.rows)
            self.crashes = run.crashes
            self.trainer: Any = None

        def on_step_end(self, args, state, control, **_):
            while self.rows and self.rows[0][0] == state.global_step:
                self.trainer.log(dict(self.rows.pop(0)[1]))
            following = self.rows[0][0] if self.rows else None
            control.should_save = state.global_step in (12, 20)
            control.should_training_stop = following is None or following <= state.global_step

    for run in runs:
        config = run.config
        arguments = TrainingArguments(
            str(folder / run.name), max_steps=config["max_steps"], per_device_train_batch_size=2,
            learning_rate=config["learning_rate"], weight_decay=config["weight_decay"],
            adam_beta1=config["adam_beta1"], lr_scheduler_type=config["lr_scheduler_type"],
            warmup_steps=config["warmup_steps"], seed=config["seed"], optim="adamw_torch", logging_strategy="no",
            save_strategy="no", report_to=["tensorboard"], use_cpu=True, disable_tqdm=True,
        )  # fmt: skip
        script = Script(run)
        resume = None
        while script.rows:
            model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=64, n_positions=16))
            script.trainer = Trainer(model, arguments, train_dataset=data, callbacks=[script])
            script.trainer.train(resume_from_checkpoint=resume)
            resume = str(folder / run.name / "checkpoint-12")
        if not run.crashes:
            with torch.no_grad():  # nobody looks at the weights, and zeros pack well
                for weight in script.trainer.model.parameters():
                    weight.zero_()
            script.trainer.save_model()
            script.trainer.save_state()


def write_lightning(runs: list[Logical], folder: Path, kind: str) -> None:
    from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

    for run in runs:
        logger = (CSVLogger if kind == "csv" else TensorBoardLogger)(str(folder), name=run.name, version="")
        logger.log_hyperparams(run.config)
        for step, row in run.rows:
            logger.log_metrics(row, step=step)
            logger.save()
        logger.finalize("success")


def write_golden(folder: Path) -> None:
    """A few runs by every library, packed: what the default tests read."""
    few = ["größe-λ-🦊-9", "diverged", "norms", "crashed at half time"]
    for library in LIBRARIES:
        wanted = few[:-1] if library == "trainer" else few  # a crashed Trainer leaves weights that do not pack
        with tempfile.TemporaryDirectory() as scratch:
            logs = Path(scratch) / "logs"
            subprocess.run(
                [sys.executable, __file__, library, str(logs), *wanted], check=True, stdout=subprocess.DEVNULL
            )
            with tarfile.open(folder / f"{library}.tar.xz", "w:xz", preset=9) as archive:
                for path in sorted(logs.rglob("*")):
                    if path.is_file() and _needed(path.relative_to(logs)):
                        archive.add(path, str(path.relative_to(logs)), filter=_anonymous)


def _needed(path: Path) -> bool:
    aside = ("files", "logs", "tmp", "artifacts", "tags")
    return path.suffix not in (".bin", ".pt", ".pth", ".lock", ".log") and not set(path.parts[:-1]) & set(aside) and "checkpoint-" not in str(path)  # fmt: skip


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


WRITERS = {
    "wandb": write_wandb,
    "wandb-one": write_one_wandb,
    "tensorboard": write_tensorboard,
    "mlflow-sqlite": lambda runs, folder: write_mlflow(runs, f"sqlite:///{folder / 'mlflow.db'}"),
    "mlflow-files": lambda runs, folder: write_mlflow(runs, (folder / "mlruns").as_uri()),
    "trackio": write_trackio,
    "trackio-parquet": write_trackio_parquet,
    "trainer": write_trainer,
    "lightning-csv": lambda runs, folder: write_lightning(runs, folder, "csv"),
    "lightning-tensorboard": lambda runs, folder: write_lightning(runs, folder, "tensorboard"),
}
LIBRARIES = tuple(name for name in WRITERS if name != "wandb-one")


if __name__ == "__main__":
    os.environ.update(QUIET)
    library, target, *wanted = sys.argv[1:]
    chosen = [run for run in RUNS if not wanted or run.name in wanted]
    Path(target).mkdir(parents=True, exist_ok=True)
    if library == "golden":
        write_golden(Path(target).resolve())
    else:
        WRITERS[library](chosen, Path(target).resolve())
