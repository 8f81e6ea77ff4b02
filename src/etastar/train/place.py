"""From where does a stack go on: from memory, from disk, or from the beginning?

The state stays one object for as long as the process lives (a recorded step belongs to it) and is put back to
a trunk's last branch point from a copy in memory where that is small, else from its checkpoint. Checkpoints
are what a later process goes on from; `Execution.checkpoint_seconds` says how much of its time it may lose.
"""

from __future__ import annotations

import time

from torch import Tensor

from etastar.errors import SpecError
from etastar.train.checkpoint import CheckpointFolder, Mark, expendable
from etastar.train.engine import Engine
from etastar.train.schedule import leaves_trunk_at
from etastar.train.spec import TrainSpec
from etastar.train.state import TrainState

_HELD_BYTES = 4 << 30  # a larger state is read back from disk: a second copy could be what does not fit


class Place:
    """A stack's state in this process, and what it can be put back to."""

    def __init__(
        self, spec: TrainSpec, engine: Engine, checkpoints: CheckpointFolder, *, writes: bool, in_pieces: bool
    ) -> None:
        self.spec = spec
        self.checkpoints = checkpoints
        self.state: TrainState = engine.fresh_state()
        self._engine = engine
        self._writes = writes
        self._in_pieces = in_pieces
        self._saved = time.monotonic()
        self._held: tuple[int, dict[str, Tensor]] | None = None
        self._hold(0)

    def to_trunk(self, *, up_to: int) -> int:
        """Put the state at the newest trunk at or before a step; returns that trunk's step."""
        for mark in self._newest_first("trunk", up_to):
            if self._held is not None and mark.step <= self._held[0] <= up_to:
                break
            if self._read(mark):
                return mark.step
        if self._held is not None and self._held[0] <= up_to:
            self.state.load(self._held[1], where="the trunk in memory")
            return self._held[0]
        self.state = self._engine.fresh_state()
        return 0

    def to_branch(self, segment: str, *, up_to: int) -> int | None:
        """Put the state at the newest checkpoint of a branch on its way; None, untouched, if there is none."""
        return next((mark.step for mark in self._newest_first(segment, up_to) if self._read(mark)), None)

    def to_branch_point(self, leaves: int) -> None:
        """Put the state at what the trunk's own process left for a branch."""
        if leaves == 0:
            self.state = self._engine.fresh_state()
            return
        mark = Mark("trunk", leaves)
        path = self.checkpoints.folder / mark.file
        if not path.exists() or not self._read(mark):
            raise SpecError(f"{path}: the branch point is not there whole", hint="run the trunk's task again")

    def drop_branch_point(self, leaves: int, finished: set[int]) -> None:
        """The point of a recorded branch goes, unless others need it or a later horizon may go on from it."""
        needed = {leaves_trunk_at(self.spec.schedule, h) for h in set(self.spec.horizons) - finished}
        trunks = [mark for mark in self.checkpoints.marks() if mark.segment == "trunk"]
        if leaves in needed or self.spec.execution.keep_branch_points or trunks[-1:] == [Mark("trunk", leaves)]:
            return
        self.checkpoints.drop([Mark("trunk", leaves)])

    def keep(self, mark: Mark, *, leaves: list[int], must: bool) -> None:
        """Keep the state in memory if a branch leaves here, and on disk; what nothing needs any more goes.

        Unless it `must`, a branch point is left off the disk where the last checkpoint is recent: this process
        has it in memory, and a later one loses no more than `checkpoint_seconds`.
        """
        branches_here = mark.segment == "trunk" and mark.step in leaves
        held = branches_here and not self._in_pieces and self._hold(mark.step)
        execution = self.spec.execution
        recent = time.monotonic() - self._saved < execution.checkpoint_seconds
        if not self._writes or (held and recent and not must and not execution.keep_branch_points):
            return
        self.checkpoints.save(mark, self.state.tensors(), {"spec": self.spec.model_dump(mode="json")})
        self._saved = time.monotonic()
        points = [leaves_trunk_at(self.spec.schedule, h) for h in self.spec.horizons]
        keep = points if execution.keep_branch_points or self._in_pieces else []
        gone = expendable(self.checkpoints.marks(), leaves=leaves, running=mark.segment, keep=keep)
        # in pieces, the other segments belong to other processes
        self.checkpoints.drop(old for old in gone if not self._in_pieces or old.segment == mark.segment)

    def _hold(self, step: int) -> bool:
        """Copy the state, on its device; False where it is too large for that."""
        tensors = self.state.tensors()
        if sum(x.nbytes for x in tensors.values()) > _HELD_BYTES:
            self._held = None
            return False
        if self._held is None:
            self._held = (step, {name: x.clone() for name, x in tensors.items()})
        else:
            copies = self._held[1]
            for name, x in tensors.items():
                copies[name].copy_(x)
            self._held = (step, copies)
        return True

    def _newest_first(self, segment: str, up_to: int) -> list[Mark]:
        marks = (mark for mark in reversed(self.checkpoints.marks()) if mark.segment == segment)
        return [mark for mark in marks if mark.step <= up_to]

    def _read(self, mark: Mark) -> bool:
        """Load a checkpoint; False, and set aside, where it is damaged."""
        tensors = self.checkpoints.load(mark)
        if tensors is None:
            if self._writes:
                self.checkpoints.set_aside(mark)
            return False
        self.state.load(tensors, where=str(self.checkpoints.folder / mark.file))
        return True
