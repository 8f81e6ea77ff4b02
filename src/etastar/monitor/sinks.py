"""Where do the monitor's numbers go, beside the study?

A sink is anything that can be called with a step and a mapping of metric names to numbers: a function of
yours, or one of these. Nothing here imports a tracker before it is used, and by itself the monitor
finds those alone that the program has imported and started.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Protocol

from etastar.errors import InputError
from etastar.monitor.names import PREFIX, STEP


class Sink(Protocol):
    """A place to log to."""

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of one optimizer step."""
        ...


class WandbSink:
    """Weights & Biases: the run given, or the one under way.

    Metrics join the row that your next `wandb.log` completes, so that they never disturb its step. A loop
    that logs nothing itself says commit=True.
    """

    def __init__(self, run: Any = None, *, commit: bool = False) -> None:
        import wandb

        self._given = run
        self._current = lambda: wandb.run
        self._commit = commit
        self._defined: Any = None

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log to the run."""
        run = self._current() if self._given is None else self._given
        if run is None:
            return
        if self._defined is not run:
            run.define_metric(STEP)
            run.define_metric(f"{PREFIX}*", step_metric=STEP)
            self._defined = run
        run.log({STEP: step, **metrics}, commit=self._commit)


class TensorBoardSink:
    """A `torch.utils.tensorboard.SummaryWriter`, or anything with its `add_scalar`."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        """One scalar a metric."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)


class MlflowSink:
    """MLflow's active run, or the run of an id."""

    def __init__(self, run_id: str | None = None) -> None:
        import mlflow  # type: ignore[import-not-found]

        self._log = mlflow.log_metrics
        self._run_id = run_id

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        """One batch a step. MLflow refuses some characters in names; they become underscores."""
        named = {"".join(c if c.isalnum() or c in "_-. :/" else "_" for c in name): v for name, v in metrics.items()}
        self._log(named, step=step, run_id=self._run_id)


class TrackioSink:
    """Trackio's run that is under way."""

    def __init__(self) -> None:
        import trackio  # type: ignore[import-not-found]

        self._log = trackio.log

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        """One row at this step."""
        self._log({STEP: step, **metrics}, step=step)


class Outlets:
    """The sinks of one monitor: those given, or ("auto") trackers that have a run under way when there is something to log."""

    def __init__(self, sinks: Literal["auto"] | Iterable[Sink]) -> None:
        self._auto = isinstance(sinks, str)
        if isinstance(sinks, str) and sinks != "auto":
            raise InputError(
                f"sinks: {sinks!r} is neither 'auto' nor a list of sinks", hint="write sinks=[WandbSink()]"
            )
        self._given = [] if isinstance(sinks, str) else list(sinks)
        for sink in self._given:
            if not callable(sink):
                raise InputError(
                    f"sinks: {type(sink).__name__} cannot be called",
                    hint="a sink is a function (step, metrics); a SummaryWriter goes into TensorBoardSink(writer)",
                )
        self._found: dict[str, Sink] = {}

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics everywhere."""
        if not metrics:
            return
        started = _active() if self._auto else {}
        for name, make in started.items():
            self._found.setdefault(name, make())
        for sink in [*self._given, *(self._found[name] for name in started)]:
            sink(step, metrics)


def _active() -> dict[str, Callable[[], Sink]]:
    """Trackers that this program has imported and that have a run under way."""
    modules = sys.modules
    found: dict[str, Callable[[], Sink]] = {}
    if "wandb" in modules and getattr(modules["wandb"], "run", None) is not None:
        found["wandb"] = WandbSink
    if "mlflow" in modules and _started(modules["mlflow"], "active_run"):
        found["mlflow"] = MlflowSink
    if "trackio" in modules and _trackio_started(modules["trackio"]):
        found["trackio"] = TrackioSink
    return found


def _started(module: Any, asked: str) -> bool:
    ask = getattr(module, asked, None)
    return callable(ask) and ask() is not None


def _trackio_started(module: Any) -> bool:
    context = getattr(getattr(module, "context_vars", None), "current_run", None)
    return context is not None and context.get() is not None
