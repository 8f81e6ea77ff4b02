"""How do numbers of parameter groups (learning rate, decay, betas) meet the device without a wait?

Each is a vector with one entry a watched weight, written by a fill when its group's number has changed: a
copy from the host would make the host wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from etastar.errors import InputError
from etastar.monitor.watch import Watched


class GroupVectors:
    """Vectors (weights,) in float64 of the groups' numbers; weights stand in the order of their groups."""

    def __init__(self, watched: Sequence[Watched], device: torch.device) -> None:
        self.device = device
        self._count = len(watched)
        self.slices: dict[int, slice] = {}
        for index, weight in enumerate(watched):
            start = self.slices[weight.group].start if weight.group in self.slices else index
            self.slices[weight.group] = slice(start, index + 1)
        self._vectors: dict[str, Tensor] = {}
        self._known: dict[tuple[str, int], float] = {}

    def vector(self, name: str, values: Mapping[int, float | Tensor]) -> Tensor:
        """The vector `name` with these values, one a group."""
        if name not in self._vectors:
            self._vectors[name] = torch.zeros(self._count, dtype=torch.float64, device=self.device)
        vector = self._vectors[name]
        for group, place in self.slices.items():
            value = values[group]
            if isinstance(value, Tensor) and value.device.type != "cpu":
                vector[place].copy_(value)  # stays on the device
                continue
            number = float(value)
            if self._known.get((name, group)) != number:
                vector[place].fill_(number)
                self._known[name, group] = number
        return vector

    def option(self, name: str, groups: Sequence[Mapping[str, Any]], key: str, place: int | None = None) -> Tensor:
        """The vector of one option of the groups, e.g. `lr`, or of one entry of a pair such as `betas`."""
        try:
            values = {g: groups[g][key] if place is None else groups[g][key][place] for g in self.slices}
        except KeyError:
            raise InputError(
                f"the optimizer's parameter groups have no {key!r}", hint="use mode='snapshot', which needs none"
            ) from None
        return self.vector(name, values)
