"""How is an optimizer watched that is not a `torch.optim.Optimizer`?

By one that is, and whose step calls the other's:

    stepper = ForeignOptimizer(model.named_parameters(), step=optimizer.step, lr=lambda: optimizer.lr)
    monitor = StepMonitor(stepper, model)
    …
    stepper.step()                                  # in the place of optimizer.step()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class ForeignOptimizer(torch.optim.Optimizer):
    """Hands every step on; `lr` is a number, or a function that is asked for it after each step."""

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, Tensor]],
        *,
        step: Callable[..., Any],
        lr: float | Callable[[], float],
    ) -> None:
        self._foreign_step = step
        self._lr_now = lr if callable(lr) else None
        super().__init__(list(named_parameters), {"lr": lr() if callable(lr) else lr})

    def step(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """The other's step, with its arguments and result."""
        result = self._foreign_step(*args, **kwargs)
        if self._lr_now is not None:
            for group in self.param_groups:
                group["lr"] = self._lr_now()
        return result
