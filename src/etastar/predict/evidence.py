"""What may strategies draw on? A group's optima, its trajectories, and the maps from η_eff to η they give."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from etastar.estimate.cells import EffColumn, Group, Quantity
from etastar.estimate.estimates import Estimates
from etastar.predict.convert import Conditions, EffMap, map_for
from etastar.predict.invert import Theory
from etastar.predict.settings import RunSettings, sweep_settings
from etastar.predict.trunks import Paths


@dataclass
class Evidence:
    """A group's estimates and the maps between its learning rates, fitted once for each set of cells.

    `paths` are trajectories to calibrate the theory on; `settings` the target's, where they are not the
    sweep's.
    """

    group: Group
    estimates: dict[Quantity, Estimates]
    eff_column: EffColumn = EffColumn.MEAN
    paths: Paths = field(default_factory=dict)
    settings: RunSettings | None = None
    _maps: dict[tuple[float, bytes], EffMap | None] = field(default_factory=dict)
    _inverted: dict[tuple[float, bytes, RunSettings, bool], EffMap | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        found = sweep_settings(self.group)
        self.theory = found if isinstance(found, str) else Theory(self.group, found, self.eff_column, self.paths)

    @property
    def other_settings(self) -> bool:
        """Does the target have another λ, warm-up or schedule than the sweep?"""
        known = isinstance(self.theory, Theory) and self.settings is not None
        return known and not self.settings.same_course(self.theory.sweep)  # type: ignore[union-attr]

    @property
    def other_batch(self) -> bool:
        """Does the target have another batch?"""
        known = isinstance(self.theory, Theory) and self.settings is not None
        return known and abs(np.log2(self.settings.batch_tokens / self.theory.sweep.batch_tokens)) > 1e-3  # type: ignore[union-attr]

    def map(self, params: float, allowed: NDArray[np.bool_]) -> EffMap | None:
        """η_eff → η at this N, from the allowed cells alone."""
        key = (params, allowed.tobytes())
        if key not in self._maps:
            conditions = Conditions.of(self.group, self.eff_column)
            self._maps[key] = map_for(self.group, params, conditions, self.rows(allowed))
        return self._maps[key]

    def inverted(
        self, params: float, allowed: NDArray[np.bool_], settings: RunSettings | None, *, from_start: bool = False
    ) -> EffMap | str:
        """The same by the theory, under `settings` (the sweep's, by default); or why it cannot be."""
        if isinstance(self.theory, str):
            return self.theory
        key = (params, allowed.tobytes(), settings or self.theory.sweep, from_start)
        if key not in self._inverted:
            self._inverted[key] = self.theory.map(params, self.rows(allowed), key[2], from_start=from_start)
        return self._inverted[key]

    def rows(self, allowed: NDArray[np.bool_]) -> dict[float, NDArray[np.bool_]]:
        """Allowed cells as allowed rows (D) of each block."""
        by_params, start = {}, 0
        for block in self.group.blocks:
            by_params[block.params] = allowed[start : start + len(block.tokens)]
            start += len(block.tokens)
        return by_params
