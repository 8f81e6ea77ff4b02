"""Which horizons does a budget buy? A geometric ladder, none too short for its warm-up and decay.

The ladder is chosen by a fixed order of wishes: four horizons over two octaves or more, then three over at least
1.6, then two over at least one; and in each case a shortest horizon of five decays, of two, of one, as the budget
allows. Short horizons are mostly warm-up and decay, which bends their η_eff (see the mean over all steps).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from etastar.plan.training import Training

# (horizons, longest over shortest) in the order in which they are wished for
WISHES = ((4, 8.0), (4, 4.0), (3, 4.0), (3, 3.0), (2, 4.0), (2, 3.0), (2, 2.0))
DECAYS = (5.0, 2.0, 1.0)  # of the shortest horizon, beside its warm-up
LEAST_PLATEAU = 0.1  # of warm-up + decay: a shorter plateau has no η_eff of its own

Cost = Callable[[Sequence[float]], float]  # horizons → steps that they count as


@dataclass(frozen=True)
class Ladder:
    """Horizons in steps, ascending."""

    horizons: tuple[int, ...]
    cost: float  # in steps of this model


def paper_cost(horizons: Sequence[float]) -> float:
    """Σα: every horizon counts in full."""
    return float(sum(horizons))


def least_horizon(training: Training) -> int:
    """The shortest horizon that a plan proposes."""
    return math.ceil(training.shortest() * (1 + LEAST_PLATEAU))


def ladder(
    allowance: float, training: Training, cost: Cost, *, longest: float, count: int | None = None
) -> Ladder | None:
    """The first wished-for ladder that costs no more than `allowance` steps; None where there is none."""
    if count is not None:
        wishes = [(count, 2.0 ** (0.5 * (count - 1) * k)) for k in (2.0, 1.5, 1.0, 0.7)] + [(count, 2.0)]
    else:
        wishes = list(WISHES)
    by_count = dict.fromkeys(n for n, _ in wishes)
    for number in by_count:
        for decays in DECAYS:
            for n, span in wishes:
                if n != number:
                    continue
                least = max(
                    least_horizon(training), training.warmup_steps + decays * training.decay_of(training.shortest())
                )
                found = geometric(allowance, cost, n, span, longest=longest)
                if found and found[0] >= least and len(set(found)) == n:
                    return Ladder(found, cost(found))
    return None


def geometric(allowance: float, cost: Cost, count: int, span: float, *, longest: float) -> tuple[int, ...]:
    """`count` horizons over a factor of `span` that cost `allowance` together, none above `longest`."""
    shape = [span ** (k / (count - 1)) if count > 1 else 1.0 for k in range(count)]
    low, high = 0.0, min(longest / shape[-1], allowance)
    if cost([high * s for s in shape]) > allowance:
        for _ in range(80):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if cost([middle * s for s in shape]) <= allowance else (low, middle)
        high = low
    found = tuple(_rounded_down(high * s) for s in shape)
    # whole steps of a cost that is not smooth (a decay fraction) may come out a step too dear
    return found if cost(found) <= allowance * (1 + 1e-9) else ()


def smallest_cost(training: Training, cost: Cost) -> float:
    """The cheapest ladder there can be: two horizons, an octave apart."""
    least = least_horizon(training)
    return cost([_rounded_up(least), 2 * _rounded_up(least)])


def _rounded_down(steps: float) -> int:
    """Three significant digits are easier to read, and never cost more."""
    whole = math.floor(steps * (1 + 1e-12))
    unit = 10 ** max(len(str(whole)) - 3, 0)
    return whole // unit * unit


def _rounded_up(steps: float) -> int:
    whole = math.ceil(steps)
    unit = 10 ** max(len(str(whole)) - 3, 0)
    return -(-whole // unit) * unit
