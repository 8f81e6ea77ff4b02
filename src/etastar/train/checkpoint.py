"""Where can training go on from after a kill at any moment?

A checkpoint is one safetensors file (no pickles) with JSON and a digest in its header, written beside its place,
flushed and renamed: it is there whole or not at all. `trunk-STEP` is a trunk, `branch-HORIZON-DECAY-STEP`
a decay on its way. `expendable` says which of them the rest of the branch graph no longer needs. Who writes
a segment has claimed it, so that a trunk and its branches can be the work of several processes.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from etastar.errors import SpecError
from etastar.store import Lease, acquire, sweep_leftovers, write_atomically
from etastar.store.tensor_digest import DamagedTensorsError
from etastar.train.schedule import leaves_trunk_at
from etastar.train.spec import TrainSpec
from etastar.train.tensor_file import read_tensors, write_tensors

_NAME = re.compile(r"^(trunk|branch-\d+-\d+)-(\d+)\.safetensors$")


@dataclass(frozen=True, order=True)
class Mark:
    """One checkpoint's place: its segment ("trunk" or "branch-HORIZON-DECAY") and its step."""

    segment: str
    step: int

    @property
    def file(self) -> str:
        """Its file name."""
        return f"{self.segment}-{self.step:09d}.safetensors"


def branch_segment(horizon: int, decay: int) -> str:
    """The segment name of a branch."""
    return f"branch-{horizon}-{decay}"


def expendable(marks: Iterable[Mark], *, leaves: Iterable[int], running: str | None, keep: Iterable[int]) -> set[Mark]:
    """Which checkpoints may go, given where the unfinished branches leave the trunk.

    Kept: the newest trunk before the next leaving point (training goes on from it), the newest trunk of
    all (a later horizon can be added to it), the steps in `keep`, and the newest of the running branch.
    """
    marks = set(marks)
    needed: set[Mark] = set()
    trunks = sorted(mark for mark in marks if mark.segment == "trunk")
    first = min(leaves, default=None)
    if trunks:
        needed.add(trunks[-1])
    if first is not None and (before := [mark for mark in trunks if mark.step <= first]):
        needed.add(before[-1])
    needed |= {mark for mark in trunks if mark.step in set(keep)}
    if mine := sorted(mark for mark in marks if mark.segment == running):
        needed.add(mine[-1])
    return marks - needed


def branch_points(spec: TrainSpec, marks: Iterable[Mark], missing: Iterable[int]) -> list[int]:
    """Steps at which the trunk has yet to leave a checkpoint for these horizons, earliest first."""
    marks = set(marks)
    begun = {mark.segment for mark in marks}
    points = {
        leaves_trunk_at(spec.schedule, h) for h in missing if branch_segment(h, spec.schedule.decay_of(h)) not in begun
    }
    return sorted(step for step in points if step > 0 and Mark("trunk", step) not in marks)


class CheckpointFolder:
    """The checkpoints of one stack."""

    def __init__(self, folder: Path, *, stack_id: str) -> None:
        self.folder = folder
        self.stack_id = stack_id
        self._claims: dict[str, Lease] = {}

    def marks(self) -> list[Mark]:
        """What is there, sorted by segment and step."""
        found = (_NAME.match(path.name) for path in self.folder.glob("*.safetensors"))
        return sorted(Mark(match[1], int(match[2])) for match in found if match)

    def save(self, mark: Mark, tensors: Mapping[str, Tensor], provenance: Mapping[str, Any]) -> None:
        """Write one checkpoint; a full disk leaves the earlier ones intact."""
        self.check_claim(mark.segment)
        content = {"stack": self.stack_id, "segment": mark.segment, "step": mark.step, **provenance}
        write_atomically(self.folder / mark.file, lambda path: write_tensors(path, tensors, content))

    def load(self, mark: Mark) -> dict[str, Tensor] | None:
        """The tensors, or None and a warning where the file is damaged; another spec's is refused."""
        path = self.folder / mark.file
        try:
            content, tensors = read_tensors(path)
        except DamagedTensorsError as error:
            warnings.warn(f"{path} cannot be read and is left out: {error}", stacklevel=2)
            return None
        if content.get("stack") != self.stack_id or content.get("step") != mark.step:
            raise SpecError(
                f"{path} is a checkpoint of another spec (stack {content.get('stack', 'unknown')}, "
                f"expected {self.stack_id})",
                hint="move the file away, or use another --out folder",
            )
        return tensors

    def newest(self, segment: str, *, up_to: int) -> Mark | None:
        """The newest checkpoint of a segment at or before a step."""
        fitting = [mark for mark in self.marks() if mark.segment == segment and mark.step <= up_to]
        return fitting[-1] if fitting else None

    def drop(self, marks: Iterable[Mark]) -> None:
        """Remove checkpoints that are no longer needed."""
        for mark in marks:
            with contextlib.suppress(FileNotFoundError):
                (self.folder / mark.file).unlink()

    def set_aside(self, mark: Mark) -> None:
        """Take a damaged checkpoint out of the way, so that it is made anew."""
        with contextlib.suppress(FileNotFoundError):
            (self.folder / mark.file).rename(self.folder / f"{mark.file}.damaged")

    def check_claim(self, segment: str) -> None:
        """Refuse to write what another process has taken over meanwhile."""
        if segment in self._claims:
            self._claims[segment].check()

    @contextmanager
    def claimed(self, segment: str, *, wait: float = 0.0) -> Iterator[None]:
        """Hold a segment, which dies with the process: two trainings of one segment would mix files."""
        lease = acquire(self.folder, segment, wait=wait)
        self._claims[segment] = lease
        try:
            sweep_leftovers(self.folder, f"{segment}-")
            yield
        finally:
            del self._claims[segment]
            lease.release()
