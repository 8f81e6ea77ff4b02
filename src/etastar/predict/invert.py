"""Which η has the η_eff that a law asks for, by the theory, under the target's own λ, warm-up and schedule?

Three roads, the best that the study allows: the recursion calibrated matrix by matrix on trajectories;
the closed form whose W₀/U and correlation factor are fitted to the runs' mean η_eff; and, for AdamH and
MuonH, the identity times the schedule's mean. Unlike the measured map (`convert`) they may be asked
about settings that the sweep did not have.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import PchipInterpolator

from etastar.errors import EtastarError
from etastar.estimate.cells import Block, EffColumn, Group
from etastar.estimate.flags import Flag
from etastar.predict.closed_form import beyond
from etastar.predict.convert import (
    GOOD_FIT,
    Conditions,
    EffMap,
    TransientMap,
    fit_transient,
    mixed,
    points_near_optima,
)
from etastar.predict.settings import RunSettings
from etastar.predict.trunks import Paths, calibrated
from etastar.theory.letters import beta1_of_factor
from etastar.theory.network import Calibration
from etastar.theory.planned import Matrices, MatricesAt, PlannedRun, mean_eff_lr

Array = NDArray[np.float64]

BEYOND = 3.0  # octaves beyond the swept LRs within which a calibrated map answers
_GRID = 0.25  # octaves of η between the map's nodes; a smooth curve goes between them
_STEP = 0.05  # octaves, for slopes


class Source(enum.StrEnum):
    """Where a theory map's constants come from."""

    TRAJECTORIES = "recursion calibrated on trajectories"
    RUNS = "closed form fitted to the runs' mean η_eff"
    IDENTITY = "identity times the schedule's mean (the norm is held fixed)"


@dataclass(frozen=True)
class RecursionMap:
    """Mean η_eff of a planned run by the recursion, and back, with matrices that a study brought."""

    settings: RunSettings  # of the runs asked about
    matrices_for: Callable[[PlannedRun], MatricesAt]
    log2_range: tuple[float, float]  # of η
    error: float
    source: Source = Source.TRAJECTORIES
    flags: tuple[Flag, ...] = (Flag.THEORY_MAP,)
    _tables: dict[float, tuple[Array, Array]] = field(default_factory=dict, compare=False)

    def covers(self, tokens: float) -> bool:
        """A run longer than its own warm-up and decay."""
        steps = self.settings.steps(tokens)
        return steps > self.settings.warmup_steps + self.settings.decay_of(steps)

    def log2_eff_lr(self, log2_lr: ArrayLike, tokens: float) -> Array:
        """log2 mean η_eff, the forward map."""
        run = self.settings.planned(tokens)
        return np.log2(mean_eff_lr(np.exp2(np.asarray(log2_lr, float)), run=run, matrices=self.matrices_for(run)))

    def reach(self, tokens: float) -> tuple[float, float]:
        """log2 η_eff at the ends of the range of η."""
        values, _ = self._table(tokens)
        return float(values[0]), float(values[-1])

    def log2_lr(self, log2_eff_lr: ArrayLike, tokens: float) -> Array:
        """Invert the rising map through a smooth curve; beyond its reach it goes on straight."""
        values, grid = self._table(tokens)
        wanted = np.asarray(log2_eff_lr, float)
        inside = PchipInterpolator(values, grid)(np.clip(wanted, values[0], values[-1]))
        return np.asarray(inside, float) + beyond(wanted, values, grid)

    def _table(self, tokens: float) -> tuple[Array, Array]:
        if tokens not in self._tables:
            low, high = self.log2_range
            grid = np.linspace(low, high, int(np.ceil((high - low) / _GRID)) + 1)
            values = self.log2_eff_lr(grid, tokens)
            # a calibrated map may fall where noise moves κ between two LRs: the lowest solution counts
            rising = np.concatenate(([True], values[1:] > np.maximum.accumulate(values)[:-1] + 1e-9))
            self._tables[tokens] = (values[rising], grid[rising])
        return self._tables[tokens]


@dataclass(frozen=True)
class IdentityMap:
    """A hyperball optimizer: η_eff(t) is η(t), so the mean differs from η by the schedule's mean."""

    settings: RunSettings
    plateau: bool
    error: float
    source: Source = Source.IDENTITY
    flags: tuple[Flag, ...] = (Flag.THEORY_MAP,)

    def _log2_mean(self, tokens: float) -> float:
        return 0.0 if self.plateau else float(np.log2(self.settings.planned(tokens).factors().mean()))

    def covers(self, tokens: float) -> bool:
        """A run longer than its own warm-up and decay."""
        steps = self.settings.steps(tokens)
        return steps > self.settings.warmup_steps + self.settings.decay_of(steps)

    def reach(self, tokens: float) -> tuple[float, float]:
        """Anything up to the diameter of the sphere."""
        return -np.inf, 1.0

    def log2_eff_lr(self, log2_lr: ArrayLike, tokens: float) -> Array:
        """log2 mean η_eff."""
        return np.asarray(log2_lr, float) + self._log2_mean(tokens)

    def log2_lr(self, log2_eff_lr: ArrayLike, tokens: float) -> Array:
        """log2 η."""
        return np.asarray(log2_eff_lr, float) - self._log2_mean(tokens)


@dataclass(frozen=True)
class Theory:
    """What the theory may use of a study: its settings, the target's, and trajectories by N where there are any."""

    group: Group
    sweep: RunSettings
    eff_column: EffColumn = EffColumn.MEAN
    paths: Paths = field(default_factory=dict)
    _calibrations: dict[tuple[float, int], Calibration | str] = field(default_factory=dict, compare=False)

    def map(
        self, params: float, allowed: dict[float, NDArray[np.bool_]], settings: RunSettings, *, from_start: bool = False
    ) -> EffMap | str:
        """η_eff → η at this N under `settings`, from the allowed rows (D) of each block alone; or why not."""
        seen = [b for b in self.group.blocks if allowed.get(b.params, np.zeros(0, bool)).any()]
        own = [b for b in seen if b.params == params]
        found = [(b.params, self._of_block(b, allowed[b.params], settings, from_start)) for b in own or seen]
        maps: list[tuple[float, EffMap]] = [(n, way) for n, way in found if not isinstance(way, str)]
        if not maps:
            return next((way for _, way in found if isinstance(way, str)), "no runs to calibrate on")
        return maps[0][1] if own else mixed(maps, params) or "no runs to calibrate on"

    def calibration(self, params: float, longest: float) -> Calibration | str:
        """One N's network calibrated on what runs of at most `longest` tokens passed."""
        steps = self.sweep.steps(longest)
        if (params, steps) not in self._calibrations:
            beta1 = self.group.conditions.get("beta1")
            if params not in self.paths or not isinstance(beta1, (int, float)):
                found: Calibration | str = "no trajectories"
            else:
                found = calibrated(self.paths[params], self.sweep, float(beta1), steps)
            self._calibrations[params, steps] = found
        return self._calibrations[params, steps]

    def _of_block(self, block: Block, rows: NDArray[np.bool_], settings: RunSettings, from_start: bool) -> EffMap | str:
        e, t, l = points_near_optima(block, rows)
        if self.sweep.optimizer.fixes_norm:
            bare = IdentityMap(settings, self.eff_column is EffColumn.PLATEAU, 0.0)
            at_home = replace(bare, settings=self.sweep)
            missed = [float(at_home.log2_lr(a, float(2.0**b)) - c) for a, b, c in zip(e, t, l, strict=True)]
            return replace(bare, error=float(np.sqrt(np.mean(np.square(missed)))) if missed else 0.0)
        if self.eff_column is EffColumn.MEAN and block.params in self.paths:
            network = self.calibration(block.params, float(block.tokens[rows].max()))
            if not isinstance(network, str):
                return self._calibrated(network, settings, e, t, l, from_start)
        conditions = Conditions.under(self.sweep, self.eff_column)
        if conditions is None:
            return "without trajectories the closed form speaks of wsd and constant schedules alone"
        fitted = fit_transient(conditions, e, t, l) if len(l) >= 4 and np.ptp(e) > 0 else None
        if fitted is None:
            return "too few runs to fit the closed form"
        if fitted.error > GOOD_FIT:
            return f"the closed form misses the runs' mean η_eff by {fitted.error:.2f} octaves"
        return _closed_form(fitted, settings, self.eff_column)

    def _calibrated(
        self, network: Calibration, settings: RunSettings, e: Array, t: Array, l: Array, from_start: bool
    ) -> RecursionMap:
        swept = np.log2(network.lrs)
        bare = RecursionMap(
            settings,
            (lambda run: network.matrices_for(run, from_start=from_start)[0]),
            (float(swept[0]) - BEYOND, _top(float(swept[-1]) + BEYOND, settings)),
            0.0,
        )
        # its own miss, begun at W₀, on the longest runs it may know of; in octaves of η
        longest = t > t.max() - 1e-6
        at_home = replace(
            bare, settings=self.sweep, matrices_for=lambda run: network.matrices_for(run, from_start=True)[0]
        )
        tokens = float(2.0 ** t.max())
        around = at_home.log2_eff_lr(l[longest][:, None] + _STEP * np.array([-1.0, 0.0, 1.0]), tokens)
        rise = np.maximum((around[:, 2] - around[:, 0]) / (2 * _STEP), 0.05)
        return replace(bare, error=float(np.sqrt(np.mean(((around[:, 1] - e[longest]) / rise) ** 2))))


def _closed_form(fitted: TransientMap, settings: RunSettings, eff_column: EffColumn) -> EffMap | str:
    """The fitted constants under other settings; a cosine goes by the recursion."""
    conditions = Conditions.under(settings, eff_column)
    if conditions is not None:
        return replace(fitted, conditions=conditions, flags=(Flag.THEORY_MAP,))
    if eff_column is EffColumn.PLATEAU:
        return f"a {settings.schedule} schedule has no plateau"
    low = -30.0
    typed = matrices_of(fitted)
    return RecursionMap(settings, lambda _: typed, (low, _top(0.0, settings)), fitted.error, Source.RUNS)


def matrices_of(fitted: TransientMap) -> Matrices:
    """The closed form's two constants as one matrix (only W₀/U matters)."""
    return Matrices(
        weight_norm0=np.array(2.0**fitted.log2_norm_ratio),
        update_norm=np.array(1.0),
        beta1=beta1_of_factor(2.0**fitted.log2_correlation),
    )


def source_of(way: EffMap) -> Source:
    """Which road a theory map is."""
    part = getattr(way, "maps", (way,))[0]
    return getattr(part, "source", Source.RUNS)


def too_short(settings: RunSettings, tokens: float) -> str | None:
    """Why a run of so many tokens cannot be planned, in words; None where it can."""
    try:
        settings.planned(tokens)
    except EtastarError as error:
        return error.message
    return None


def _top(log2_lr: float, settings: RunSettings) -> float:
    """η·λ stays below one half: else one step would erase the weight."""
    if settings.weight_decay == 0 or settings.independent_decay:
        return log2_lr
    return min(log2_lr, float(-1.0 - np.log2(settings.weight_decay)))
