"""Can a stack go on from the checkpoint of another that held its learning rates?

The models of a stack never touch each other, so some rows of its tensors are a stack of their own; on a CPU
they go on bit for bit as they would have in company. A stack without a checkpoint takes the latest that any
other stack of the study left before its first branch point.
"""

from __future__ import annotations

from pathlib import Path

import torch

from etastar.launch.study import StackRecord, all_records
from etastar.train.checkpoint import CheckpointFolder, Mark
from etastar.train.schedule import leaves_trunk_at


def _folder(study: Path, record: StackRecord) -> CheckpointFolder:
    return CheckpointFolder(study / "checkpoints" / record.id, stack_id=record.id)


def donors(study: Path, record: StackRecord, *, up_to: int) -> list[tuple[StackRecord, Mark]]:
    """Checkpoints of trunks that hold all of a stack's models, latest first."""
    content = record.spec.trunk_content(data_identity=record.corpus)
    found: list[tuple[StackRecord, Mark]] = []
    for other in all_records(study):
        if other.id == record.id or not set(record.spec.lrs) <= set(other.spec.lrs):
            continue
        if other.spec.trunk_content(data_identity=other.corpus) != content:
            continue
        marks = _folder(study, other).marks()
        found += [(other, mark) for mark in marks if mark.segment == "trunk" and 0 < mark.step <= up_to]
    return sorted(found, key=lambda pair: (-pair[1].step, len(pair[0].spec.lrs), pair[0].id))


def take_over(study: Path, record: StackRecord, missing: tuple[int, ...]) -> tuple[str, int] | None:
    """Give a stack without checkpoints the rows of another's; (that stack's name, step), or None."""
    own = _folder(study, record)
    if own.marks() or not missing:
        return None
    first = min(leaves_trunk_at(record.spec.schedule, h) for h in missing)
    for other, mark in donors(study, record, up_to=first):
        tensors = _folder(study, other).load(mark)
        if tensors is None:
            continue
        rows = torch.tensor([other.spec.lrs.index(lr) for lr in record.spec.lrs])
        mine = {name: tensor.index_select(0, rows) for name, tensor in tensors.items()}
        own.save(mark, mine, {"spec": record.spec.model_dump(mode="json"), "from_stack": other.id})
        return other.name, mark.step
    return None
