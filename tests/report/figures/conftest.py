"""Studies that the figures are drawn from: a synthetic one whose law is known, the shipped one, and a bare table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import etastar
from etastar.estimate.cells import build_groups
from etastar.estimate.estimates import Options
from etastar.predict.logged import LoggedRows
from etastar.report.view import StudyView, read_study
from etastar.simulate import Grid, World, simulate, simulate_trajectories

MINI = Path(etastar.__file__).parent / "studies" / "mini"
# one stack that was trained first and stays as it is
ONE_STACK = "optimizer = 'adamw' and seed = 0 and params > 5e6 and params < 6e6"

TOKENS = (5e9, 7.5e9, 10e9, 15e9, 20e9, 25e9, 30e9, 40e9, 50e9, 60e9, 80e9, 100e9)
WORLD = World(batch_tokens=2**22, warmup_steps=125, decay_steps=600, trunk_noise=5e-4, branch_noise=5e-4)
GRID = Grid(widths=(256, 512, 1024), tokens=TOKENS, log2_lrs=tuple(float(x) for x in range(-15, -5)))


def worlds() -> list[tuple[World, Grid]]:
    """AdamW at three widths; AdamH, and Adam at constant LR without decay, at one."""
    held = WORLD.model_copy(update={"optimizer": "adamh"})
    free = WORLD.model_copy(update={"optimizer": "adam", "decay_steps": 0})
    halves = tuple(-13.0 + 0.5 * k for k in range(15))
    one = GRID.model_copy(update={"widths": (512,)})
    return [(WORLD, GRID), (held, one.model_copy(update={"log2_lrs": halves})), (free, one)]


@pytest.fixture(scope="session")
def synthetic() -> StudyView:
    """Everything that the paper trained, in a world where η_eff* is straight and the theory is exact."""
    runs = pa.concat_tables([simulate(world, grid, seed=3) for world, grid in worlds()])
    logged = pa.concat_tables([simulate_trajectories(world, grid) for world, grid in worlds()])
    return StudyView(
        "synthetic", runs, tuple(build_groups(runs)), Options(replicates=100), trajectories=LoggedRows.of_table(logged)
    )


@pytest.fixture(scope="session")
def mini() -> StudyView:
    """One trained stack of the shipped study."""
    return read_study(MINI, where=ONE_STACK, options=Options(replicates=100))


@pytest.fixture(scope="session")
def bare() -> StudyView:
    """Losses alone: no η_eff, no trajectories, one N."""
    grid = GRID.model_copy(update={"widths": (512,)})
    table = simulate(WORLD, grid, seed=3).select(["params", "tokens", "lr", "loss"])
    from etastar.records import conform_runs

    runs = conform_runs(table).table
    return StudyView("bare", runs, tuple(build_groups(runs)), Options(replicates=100))
