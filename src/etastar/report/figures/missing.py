"""What does a figure need that the study does not hold, and which run would supply it?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from etastar.estimate.cells import Group
from etastar.scale import format_number

LOGGED = "weight_norm, update_norm, update_dot_weight and eff_lr of each matrix"
JUDGED = "a sweep at the largest N with its optimum inside, at three D or more,"


@dataclass(frozen=True)
class Missing:
    """A figure that cannot be drawn: why, and which run would supply its data."""

    figure: str
    reason: str
    would_supply: str

    @property
    def sentence(self) -> str:
        """Both in one line."""
        return f"{self.reason}; {self.would_supply} would supply it"


def no_trajectories(figure: str, group: Group) -> Missing:
    """A group has runs and no trajectories."""
    return Missing(
        figure,
        "no trajectories of these runs",
        f"{trunks_of(group)}, trained by `etastar train` or watched by the monitor, with {LOGGED}",
    )


def no_eff_lr(figure: str) -> Missing:
    """η_eff is not known of every run."""
    return Missing(
        figure,
        "η_eff was not measured in every run",
        "the same sweeps with mean_eff_lr, from `etastar train` or the monitor,",
    )


def trunks_of(group: Group) -> str:
    """The runs that would log a group's largest N: "the runs at N = 707M, η 2^-16 to 2^-7"."""
    block = group.blocks[-1]
    low, high = (float(np.round(x, 2)) for x in (block.log2_lr[0], block.log2_lr[-1]))
    return f"the runs at N = {format_number(block.params)}, η 2^{low:g} to 2^{high:g}"


def same_with(group: Group, settings: str) -> str:
    """The smallest N's sweep under other settings."""
    return f"the sweep at N = {format_number(group.blocks[0].params)} with {settings}"
