"""How does one stack get through its trunk and its branches, whatever interrupts it?

For each horizon, earliest first: take the newest trunk at or before the point where its branch leaves it,
advance to that point, keep it, run the decay, evaluate, record. Whatever is recorded is never done again;
whatever is missing follows from the checkpoints. So a killed training is started with the same command, and
gives the same bits on the same device, packing and thread count (on CUDA with `execution.deterministic`).

`only` cuts this into pieces for several processes: the trunk alone leaves a checkpoint at every branch
point, and each branch starts from its own; the rows are the same.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from etastar.errors import SpecError
from etastar.train.batches import Feed
from etastar.train.checkpoint import CheckpointFolder, Mark, branch_points, branch_segment
from etastar.train.data import Corpus
from etastar.train.distributed import Share
from etastar.train.engine import Engine, StepResult, default_micro_batch, resolve_device
from etastar.train.graph import GraphedStep, uses_graph
from etastar.train.optim import matrix_names, step_table
from etastar.train.pace import Pace
from etastar.train.place import Place
from etastar.train.progress import Cell, Reporter
from etastar.train.recorder import Recorder
from etastar.train.schedule import leaves_trunk_at
from etastar.train.spec import TrainSpec
from etastar.train.state import TrainState


class _TimeIsUpError(Exception):
    """The time that was given is over, or a stop was asked for; the state is saved."""


Only = Literal["trunk"] | int | None


@dataclass(frozen=True)
class Limits:
    """When to end early, at a checkpoint, and how long to wait for another process on the same stack."""

    deadline: float | None = None  # of time.monotonic
    should_stop: Callable[[], bool] = lambda: False
    wait: float = 0.0

    @property
    def reached(self) -> bool:
        """Is it time to save and end?"""
        return self.should_stop() or (self.deadline is not None and time.monotonic() > self.deadline)


class StackTrainer:
    """One process's stack on its way through the trunk and its branches."""

    def __init__(
        self,
        spec: TrainSpec,
        study: Path,
        corpus: Corpus,
        share: Share,
        reporter: Reporter,
        limits: Limits,
        only: Only = None,
    ) -> None:
        self.spec = spec
        self.share = share
        self.reporter = reporter
        self.limits = limits
        self.only = only
        self.device = resolve_device(spec.execution)
        if spec.execution.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)
        stack_id = spec.stack_id(data_identity=corpus.identity)
        self.checkpoints = CheckpointFolder(study / "checkpoints" / stack_id, stack_id=stack_id)
        self.feed = Feed(spec, corpus, self.device, share.batch_rank, share.batch_ranks)
        self.micro_batch = self._first_micro_batch()
        self.recorder = Recorder(study, spec, corpus.identity, matrix_names(spec))

    def run(self) -> bool:
        """Train every horizon that is not in the store; False if it was stopped first."""
        try:
            with nullcontext() if isinstance(self.only, int) else self._claimed(None):
                self._run_within_memory()
        except _TimeIsUpError:
            self.reporter.message("stopped and saved; the same command goes on from here")
            return False
        return True

    @contextmanager
    def _claimed(self, horizon: int | None) -> Iterator[None]:
        """Hold the trunk (None) or a branch; of the processes that share a batch, the writing one does."""
        if not self.share.writes:
            yield
            return
        with self.checkpoints.claimed(self._segment(horizon), wait=self.limits.wait):
            self.recorder.sweep_leftovers(horizon)
            yield

    def _segment(self, horizon: int | None) -> str:
        return "trunk" if horizon is None else branch_segment(horizon, self.spec.schedule.decay_of(horizon))

    def _first_micro_batch(self) -> int:
        asked = self.spec.execution.micro_batch or default_micro_batch(self.spec, self.device)
        return min(asked, self.spec.batch_sequences // self.share.batch_ranks)

    def _run_within_memory(self) -> None:
        """Once, an out-of-memory halves the micro-batch and goes on from the last checkpoint."""
        try:
            self._run_missing()
            return
        except torch.OutOfMemoryError:
            if self.micro_batch == 1 or self.share.data_parallel:
                raise self._out_of_memory() from None
        self.recorder.drop_logged()
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        self.micro_batch //= 2
        self.reporter.message(f"out of memory: going on with micro-batches of {self.micro_batch} sequences")
        try:
            self._run_missing()
        except torch.OutOfMemoryError:
            raise self._out_of_memory() from None

    def _out_of_memory(self) -> SpecError:
        return SpecError(
            f"out of memory on {self.device} with {len(self.spec.lrs)} models and micro-batches of "
            f"{self.micro_batch} sequences",
            hint="set execution.micro_batch lower, or train fewer learning rates in one stack",
        )

    def _run_missing(self) -> None:
        done = self.recorder.finished_horizons()
        self.share.wait()
        wanted = [self.only] if isinstance(self.only, int) else self.spec.horizons
        missing = sorted(h for h in wanted if h not in done)
        if self.share.writes and self.only is None:
            # a kill between a row and its clean-up would leave the branch's checkpoints behind
            over = {self._segment(h) for h in done}
            self.checkpoints.drop(mark for mark in self.checkpoints.marks() if mark.segment in over)
        if done and self.only is None:
            self.reporter.message(f"{len(done)} of {len(self.spec.horizons)} horizons are in the store already")
        if not missing:
            return
        self.engine = Engine(self.spec, device=self.device, micro_batch=self.micro_batch, ranks=self.share.batch_ranks)
        graphed = uses_graph(self.spec, self.device, self.share.batch_ranks)
        self.take_step = GraphedStep(self.engine).step if graphed else self.engine.step
        self.pace = Pace(self.spec, self.reporter)
        self.validation = self.feed.validation()
        if (epochs := self.feed.epochs(missing[-1])) > 1:
            self.reporter.message(f"the longest horizon sees its data again: {epochs} epochs begin")
        place = Place(
            self.spec,
            self.engine,
            self.checkpoints,
            writes=self.share.writes,
            in_pieces=self.only is not None,
        )
        if self.only == "trunk":
            self._run_trunk(place, missing)
            return
        for index, horizon in enumerate(missing):
            with self._claimed(horizon):
                self._run_horizon(place, horizon, missing[index:])

    def _run_trunk(self, place: Place, missing: list[int]) -> None:
        """Leave a checkpoint at every point from which a missing branch has yet to start."""
        points = branch_points(self.spec, self.checkpoints.marks(), missing)
        if not points:
            return
        start = place.to_trunk(up_to=points[0])
        self.pace.plan(points[-1] - start)
        for point in points:
            self._advance(place, start, point, None, points)
            start = max(start, point)

    def _run_horizon(self, place: Place, horizon: int, missing: list[int]) -> None:
        """Trunk up to the branch, the branch, its evaluation and its rows."""
        leaving = [leaves_trunk_at(self.spec.schedule, h) for h in missing]
        leaves, branch = leaving[0], self._segment(horizon)
        start = place.to_branch(branch, up_to=horizon)
        if start is not None:
            self.pace.plan(self._steps_left(start, missing))
        elif isinstance(self.only, int):
            place.to_branch_point(leaves)
            start = leaves
            self.pace.plan(horizon - leaves)
        else:
            start = place.to_trunk(up_to=leaves)
            self.pace.plan(self._steps_left(start, missing))
            self._advance(place, start, leaves, None, leaving)
            start = leaves
        self._advance(place, start, horizon, horizon, leaving)
        self._record(horizon, place.state, self.engine.evaluate(place.state, self.validation))
        if self.share.writes:
            self.checkpoints.drop(mark for mark in self.checkpoints.marks() if mark.segment == branch)
            if isinstance(self.only, int):
                place.drop_branch_point(leaves, self.recorder.finished_horizons())

    def _steps_left(self, start: int, missing: list[int]) -> int:
        """Steps from here to the last horizon: the trunk once, and every decay."""
        schedule = self.spec.schedule
        trunk = max(leaves_trunk_at(schedule, h) for h in missing)
        decays = sum(h - leaves_trunk_at(schedule, h) for h in missing)
        return max(trunk - start, 0) + decays

    def _advance(self, place: Place, start: int, stop: int, horizon: int | None, leaves: list[int]) -> None:
        """Steps start … stop−1 of the trunk (None) or of the branch to `horizon`, saving on the way."""
        every = self.spec.execution.checkpoint_every
        while start < stop:
            if not bool(place.state.watch.alive.any()):
                start = stop  # all frozen: more steps would change nothing
            else:
                start = self._take_steps(place.state, start, min((start // every + 1) * every, stop), horizon)
            over = self.share.agree(self.limits.reached)
            if horizon is None or start < stop:
                # the last trunk stays on disk, so that a later horizon can be added to it
                must = over or start < stop or stop == max(leaves)
                place.keep(Mark(self._segment(horizon), start), leaves=leaves, must=must)
                self.share.wait()
            if over and start < stop:
                raise _TimeIsUpError

    def _take_steps(self, state: TrainState, start: int, stop: int, horizon: int | None) -> int:
        """Steps between two checkpoints; returns the step reached, earlier than `stop` if time is up."""
        execution = self.spec.execution
        rows = step_table(self.spec, start=start, stop=stop, horizon=horizon, device=self.device)
        segment = "trunk" if horizon is None else f"branch {horizon}"
        reached = stop
        for step, batch in zip(range(start, stop), self.feed.batches(start, stop), strict=True):
            result: StepResult = self.take_step(state, batch, rows[step - start])
            if execution.eval_every and (step + 1) % execution.eval_every == 0 and step + 1 != horizon:
                loss = self.engine.evaluate(state, self.validation)
                self.recorder.log_validation(step + 1, loss, result.alive)
            logged = step % execution.log_every == 0
            if logged:
                self.recorder.log(step, result)
            # to agree with others costs a message, so they ask each other at logged steps alone
            if (logged or not self.share.data_parallel) and self.share.agree(self.limits.reached) and step + 1 < stop:
                reached = step + 1
                break
            self.pace.took_step(segment, step + 1, stop, result)
        if self.share.writes:
            self.recorder.flush(horizon, start, reached)
        else:
            self.recorder.drop_logged()
        return reached

    def _record(self, horizon: int, state: TrainState, loss: torch.Tensor) -> None:
        if not self.share.writes:
            return
        self.checkpoints.check_claim(self._segment(horizon))
        self.recorder.log_validation(horizon, loss, state.watch.alive)
        self.recorder.flush(horizon, horizon, horizon + 1)
        rows = self.recorder.record(
            horizon, state, loss, epochs=self.feed.epochs(horizon), provenance=self._provenance()
        )
        wanted = ("lr", "loss", "mean_eff_lr", "status")
        cells = [Cell(**{name: row[name] for name in wanted}) for row in rows.to_pylist()]
        self.reporter.evaluated(horizon, cells)

    def _provenance(self) -> dict[str, Any]:
        """How it was computed: beside the run in its row, not part of its name."""
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"
        return {
            "device": name,
            "precision": str(self.engine.compute).removeprefix("torch.")
            + (" + fp8 head" if self.spec.execution.head == "fp8" else ""),
            "stack": len(self.spec.lrs),
            "micro_batch": self.micro_batch,
            "ranks": self.share.batch_ranks,
            "threads": self.spec.execution.threads,
        }
