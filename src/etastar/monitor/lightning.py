"""How does a Lightning Trainer get η_eff?

    trainer = Trainer(..., callbacks=[EtastarCallback(study="studies/mine")])

The metrics go to the trainer's loggers every `log_every_n_steps`; the monitor's state travels in Lightning's
checkpoints. The run's row is written at the end of `fit` if `tokens_per_step` is given and the module logged
`loss_metric`; otherwise call `callback.monitor.finish(loss=…, tokens=…)`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etastar.errors import InputError
from etastar.monitor import names
from etastar.monitor.step_monitor import StepMonitor

# Two packages bring the same trainer with different base classes: the program's own one it must be.
if TYPE_CHECKING or "pytorch_lightning" not in sys.modules or "lightning.pytorch" in sys.modules:
    from lightning.pytorch import Callback
else:
    from pytorch_lightning import Callback


class EtastarCallback(Callback):
    """`options` are StepMonitor's: mode, include, exclude, split, sinks, per, run. `optimizer` picks one of several."""

    def __init__(
        self,
        *,
        study: str | Path | None = None,
        optimizer: int = 0,
        tokens_per_step: float | None = None,
        loss_metric: str = "val_loss",
        columns: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.monitor: StepMonitor | None = None
        self.finished = False
        self._study = study
        self._optimizer = optimizer
        self._tokens_per_step = tokens_per_step
        self._loss_metric = loss_metric
        self._columns = dict(columns or {})
        self._options = {"log_every": None, **options}
        self._saved: dict[str, Any] | None = None
        self._logged = -1

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Hang the monitor on the optimizer; a checkpoint's state came before this."""
        if self._optimizer >= len(trainer.optimizers):
            raise InputError(
                f"optimizer: there is none of index {self._optimizer} among {len(trainer.optimizers)}",
                hint="count from 0",
            )
        if self.monitor is not None:
            self.monitor.close()
        self.monitor = StepMonitor(trainer.optimizers[self._optimizer], pl_module, study=self._study, **self._options)
        self._logged = -1
        if self._saved is not None:
            self.monitor.load_state_dict(self._saved)
            self._saved = None

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """The step that Lightning will log is the one to read."""
        every = trainer.log_every_n_steps
        if self.monitor is not None and every and (trainer.global_step + 1) % every == 0:
            self.monitor.log_next_step()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Send a fresh reading to the loggers."""
        reading = None if self.monitor is None else self.monitor.latest
        if reading is None or reading.step == self._logged:
            return
        self._logged = reading.step
        metrics = {names.STEP: reading.step, **reading.metrics("none")}
        for logger in trainer.loggers:
            logger.log_metrics(metrics, step=trainer.global_step)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Note the validation loss."""
        loss = trainer.callback_metrics.get(self._loss_metric)
        if self.monitor is not None and loss is not None and not trainer.sanity_checking:
            self.monitor.observe(val_loss=float(loss))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Take the hooks off, and write the row if tokens and loss are known."""
        if self.monitor is None:
            return
        self.monitor.close()
        loss = trainer.callback_metrics.get(self._loss_metric)
        if self._tokens_per_step is not None and loss is not None:
            tokens = self._tokens_per_step * trainer.global_step
            self.monitor.finish(loss=float(loss), tokens=tokens, **self._columns)
            self.finished = True

    def state_dict(self) -> dict[str, Any]:
        """The monitor's, for Lightning's checkpoint."""
        return {} if self.monitor is None else self.monitor.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Kept until training starts."""
        self._saved = state_dict or None
