"""What does a figure need that the study does not hold, and which run would supply it?"""

from __future__ import annotations

from dataclasses import dataclass

LOGGED = "weight_norm, update_norm, update_dot_weight and eff_lr of each matrix"


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


def no_trajectories(figure: str, what: str = "a study folder trained with `etastar train`") -> Missing:
    """The study has runs and no trajectories of the group asked for."""
    return Missing(figure, "the study holds no trajectories", f"{what}, which logs {LOGGED},")


def no_eff_lr(figure: str) -> Missing:
    """η_eff is not known of every run."""
    return Missing(
        figure, "η_eff was not measured in every run", "runs that log mean_eff_lr (`etastar train`, or the monitor)"
    )
