"""The statistics of `etastar.train` for somebody else's training loop."""

from etastar.monitor.foreign import ForeignOptimizer
from etastar.monitor.sinks import MlflowSink, Sink, TensorBoardSink, TrackioSink, WandbSink
from etastar.monitor.step_monitor import StepMonitor

__all__ = ["ForeignOptimizer", "MlflowSink", "Sink", "StepMonitor", "TensorBoardSink", "TrackioSink", "WandbSink"]
