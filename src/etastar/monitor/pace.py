"""When is a run on its plateau, told from the learning rates alone?

The plateau is the steps at the highest learning rate; a higher one begins it anew. That counts the last
step of a warm-up and the first of a decay, whose factor is 1, beside those strictly between them.
"""

from __future__ import annotations

from torch import Tensor

_SAME = 1e-9


def at_hand(lr: float | Tensor | None) -> float | None:
    """A learning rate that the host knows without waiting for a device."""
    if lr is None or (isinstance(lr, Tensor) and lr.device.type != "cpu"):
        return None
    return float(lr)


class PeakLr:
    """The highest learning rate so far."""

    def __init__(self) -> None:
        self.value: float | None = None

    def see(self, lr: float | Tensor | None) -> tuple[bool, bool]:
        """(the peak rose, the step is at the peak). A rate that lives on a GPU is not waited for: no plateau."""
        number = at_hand(lr)
        if number is None:
            return False, False
        rose = self.value is None or number > self.value * (1 + _SAME)
        if rose:
            self.value = number
        assert self.value is not None
        return rose, number >= self.value * (1 - _SAME)

    def read(self, lr: float | None) -> None:
        """Take a rate that was read back at a logged step, or from a saved state."""
        if lr is not None and (self.value is None or lr > self.value):
            self.value = lr
