"""How does a Hugging Face Trainer get η_eff?

    trainer = Trainer(..., callbacks=[EtastarCallback(study="studies/mine")])

The metrics join the trainer's own log at every logging step, so they are in `trainer_state.json` and in the
progress log; trackers with a run under way get them from the monitor. Each checkpoint keeps the monitor's state
beside the trainer's, and a resumed training goes on from it. The run's row is written after training, by the
first evaluation that follows the last step, if the number of tokens is known: from `tokens_per_step`, or from
the trainer with `include_num_input_tokens_seen`. Otherwise call `callback.monitor.finish(loss=…, tokens=…)`.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from etastar.errors import InputError
from etastar.monitor import names
from etastar.monitor.step_monitor import StepMonitor
from etastar.store import write_atomically

STATE_FILE = "etastar_monitor.json"


class EtastarCallback(TrainerCallback):
    """`options` are StepMonitor's: mode, include, exclude, split, sinks, per, run."""

    def __init__(
        self,
        *,
        study: str | Path | None = None,
        tokens_per_step: float | None = None,
        loss_metric: str = "eval_loss",
        columns: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.monitor: StepMonitor | None = None
        self.finished = False
        self._study = study
        self._tokens_per_step = tokens_per_step
        self._loss_metric = loss_metric
        self._columns = dict(columns or {})  # of the run's row, e.g. seed or batch_tokens
        self._options = options
        self._evaluated: tuple[int, float] | None = None  # global step, loss
        self._ended = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Hang the monitor on the optimizer, and go on from a checkpoint's state."""
        if self.monitor is not None:
            self.monitor.close()
        every = None if args.logging_strategy == "steps" else 100
        settings = {"log_every": every, **self._options}
        self.monitor = StepMonitor(kwargs["optimizer"], kwargs["model"], study=self._study, **settings)
        self.finished = self._ended = False
        if state.global_step:
            self._resume(args, state)

    def _resume(self, args: TrainingArguments, state: TrainerState) -> None:
        assert self.monitor is not None
        assert args.output_dir is not None
        folders = [Path(args.output_dir) / f"checkpoint-{state.global_step}"]
        if isinstance(given := getattr(args, "resume_from_checkpoint", None), str):
            folders.append(Path(given))
        file = next((folder / STATE_FILE for folder in folders if (folder / STATE_FILE).is_file()), None)
        if file is None:
            warnings.warn(
                f"no {STATE_FILE} beside the checkpoint of step {state.global_step}: "
                "mean_eff_lr covers the steps from here on alone",
                stacklevel=2,
            )
            return
        try:
            saved = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise InputError(f"{file}: not the monitor's state", hint="remove it to go on without") from None
        self.monitor.load_state_dict(saved)

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The step that the trainer will log is the one to read."""
        step = state.global_step + 1
        first = step == 1 and args.logging_first_step
        if self.monitor is not None and (first or (state.logging_steps and step % state.logging_steps == 0)):
            self.monitor.log_next_step()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add the metrics to a training log, in place and in the history; note losses."""
        if self.monitor is None or logs is None:
            return
        if "loss" in logs and self.monitor.latest is not None:
            found = {**self.monitor.latest.metrics("none"), names.STEP: self.monitor.latest.step}
            found[names.MEAN_EFF_LR] = self.monitor.mean_eff_lr
            logs.update(found)
            if state.log_history:
                state.log_history[-1].update(found)
            self.monitor.observe(train_loss=logs["loss"])
        if self._loss_metric in logs:
            self.monitor.observe(val_loss=logs[self._loss_metric])

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """The monitor's state goes beside the trainer's."""
        if self.monitor is None or args.output_dir is None:
            return
        content = json.dumps(self.monitor.state_dict())
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if state.is_world_process_zero and folder.is_dir():

            def write(path: Path) -> None:
                path.write_text(content, encoding="utf-8")

            write_atomically(folder / STATE_FILE, write)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Keep the loss; after training it is the run's."""
        metrics = kwargs.get("metrics") or {}
        if self._loss_metric in metrics:
            self._evaluated = (state.global_step, float(metrics[self._loss_metric]))
        if self._ended:
            self._finish(state)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take the hooks off, and write the row if the last step was evaluated."""
        self._ended = True
        if self.monitor is not None:
            self.monitor.close()
            self._finish(state)

    def _finish(self, state: TrainerState) -> None:
        if self.monitor is None or self._evaluated is None or self._evaluated[0] != state.global_step:
            return
        tokens: float = state.num_input_tokens_seen
        if self._tokens_per_step is not None:
            tokens = self._tokens_per_step * state.global_step
        if tokens:
            self.monitor.finish(loss=self._evaluated[1], tokens=tokens, **self._columns)
            self.finished = True
