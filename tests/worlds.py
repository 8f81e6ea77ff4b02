"""Small studies that several tests look at."""

from etastar.estimate.cells import Group, build_groups
from etastar.simulate import Grid, World, simulate


def group_of(world: World, grid: Grid, seed: int = 0) -> Group:
    """The one group of a simulated study."""
    (group,) = build_groups(simulate(world, grid, seed=seed))
    return group


def horizons(count: int, *, first: float = 5e9, step: float = 0.5) -> tuple[float, ...]:
    """D in steps of octaves."""
    return tuple(first * 2 ** (step * k) for k in range(count))


def octaves(low: float, high: float, step: float) -> tuple[float, ...]:
    """log2 learning rates, ends included."""
    return tuple(low + step * k for k in range(round((high - low) / step) + 1))
