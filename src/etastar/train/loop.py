"""How does a spec become rows in a study's folder?

Opens the corpus, takes this process's share of the stack, and sees it through (`stack`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import torch

from etastar.store import read_runs
from etastar.train.batches import check_corpus, open_corpus
from etastar.train.data import Corpus
from etastar.train.distributed import divide, process_group
from etastar.train.progress import PlainReporter, Reporter
from etastar.train.spec import TrainSpec
from etastar.train.stack import Limits, Only, StackTrainer


@dataclass(frozen=True)
class TrainResult:
    """What a call to `train` leaves: the study's rows, and whether every horizon is among them."""

    study: Path
    runs: pa.Table
    finished: bool


def train(
    spec: TrainSpec,
    study: str | Path,
    *,
    corpus: Corpus | None = None,
    reporter: Reporter | None = None,
    stop_after: float | None = None,
    should_stop: Callable[[], bool] | None = None,
    only: Only = None,
    wait: float = 0.0,
) -> TrainResult:
    """Train what is missing of a spec, into the study's folder; under torchrun, this process's share of it.

    `stop_after` seconds, or `should_stop()` asked after every step, end it early at a checkpoint; the same
    call goes on from there. `only` "trunk" trains up to the last branch point, `only` a horizon trains that
    branch from its point. `wait`: seconds to wait while another process holds the stack.
    """
    torch.set_num_threads(spec.execution.threads)
    reporter = reporter or PlainReporter()
    corpus = corpus or open_corpus(spec.data)
    check_corpus(spec, corpus)
    limits = Limits(
        deadline=None if stop_after is None else time.monotonic() + stop_after,
        should_stop=should_stop or (lambda: False),
        wait=wait,
    )
    with process_group(spec.execution.device) as (rank, ranks, device):
        execution = spec.execution.model_copy(update={"device": device})
        mine, share = divide(spec.model_copy(update={"execution": execution}), rank=rank, ranks=ranks)
        stack = StackTrainer(mine, Path(study), corpus, share, reporter, limits, only)
        finished = stack.run()
    return TrainResult(study=Path(study), runs=read_runs(study), finished=finished)
