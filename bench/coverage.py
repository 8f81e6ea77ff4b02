"""Do 90 % intervals contain the truth 90 % of the time? Counted on synthetic studies.

    python bench/coverage.py [--studies 40] [--jobs 2] [--tuning]

Each study is drawn from a world with known optima; the bench counts how often the intervals of cell
optima and of the recommended learning rate hold them. `--tuning` uses the dial settings and seeds that
the estimator's constants were chosen on; the default settings and seeds were not used for that.
Worlds whose law is not log-linear in any quantity are reported apart: there no law can be right.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from etastar.estimate.cells import Quantity, build_groups
from etastar.estimate.estimates import Options, estimate_group
from etastar.predict.recommend import answer_from
from etastar.predict.strategies import Evidence
from etastar.scale import Scale, gpt_params
from etastar.simulate import Grid, Shape, Straight, World, simulate


def octaves(low: float, high: float, step: float) -> tuple[float, ...]:
    return tuple(float(x) for x in np.arange(low, high + 1e-9, step))


def horizons(first: float, count: int, step: float) -> tuple[float, ...]:
    return tuple(first * 2 ** (step * k) for k in range(count))


@dataclass(frozen=True)
class Setting:
    name: str
    world: World
    grid: Grid
    target_tokens: float = 100e9
    well_specified: bool = True
    seed: int = 0
    extra: dict[str, float] = field(default_factory=dict)


UNIT = octaves(-16, -6, 1.0)
HALF = octaves(-15, -7, 0.5)
THREE = (512, 1024, 2048)

TUNING = [
    Setting(
        "paper-like", World(trunk_noise=0.001, branch_noise=0.001), Grid(tokens=horizons(5e9, 7, 0.5), log2_lrs=UNIT)
    ),
    Setting(
        "linex, half octaves",
        World(shape=Shape.LINEX, branch_noise=0.002),
        Grid(widths=THREE, tokens=horizons(5e9, 6, 0.5), log2_lrs=HALF),
    ),
    Setting(
        "two-sided",
        World(shape=Shape.TWO_SIDED, trunk_noise=0.002, branch_noise=0.001),
        Grid(widths=THREE, tokens=horizons(5e9, 8, 0.4), log2_lrs=UNIT),
    ),
    Setting(
        "η straight",
        World(straight=Straight.LR, branch_noise=0.003),
        Grid(widths=THREE, tokens=horizons(5e9, 6, 0.6), log2_lrs=UNIT),
    ),
    Setting(
        "three seeds",
        World(seed_noise=0.003, trunk_noise=0.003, branch_noise=0.003),
        Grid(widths=THREE, tokens=horizons(5e9, 6, 0.5), log2_lrs=HALF, seeds=3),
    ),
]

HELD_OUT = [
    Setting(
        "paper-like, quiet",
        World(trunk_noise=0.0006, branch_noise=0.0012),
        Grid(tokens=horizons(6e9, 8, 0.4), log2_lrs=UNIT),
        seed=60_000,
    ),
    Setting(
        "paper-like, noisy",
        World(trunk_noise=0.002, branch_noise=0.003, asymmetry=0.7),
        Grid(widths=(768, 1536, 2048), tokens=horizons(5e9, 7, 0.5), log2_lrs=HALF),
        seed=61_000,
    ),
    Setting(
        "linex, unit grid",
        World(shape=Shape.LINEX, asymmetry=0.6, trunk_noise=0.001, branch_noise=0.0015, slope_tokens=-0.45),
        Grid(widths=THREE, tokens=horizons(6e9, 7, 0.45), log2_lrs=UNIT),
        seed=62_000,
    ),
    Setting(
        "two-sided, half octaves",
        World(shape=Shape.TWO_SIDED, asymmetry=0.4, trunk_noise=0.0015, branch_noise=0.0015, curvature=0.04),
        Grid(widths=(256, 768, 2048), tokens=horizons(5e9, 7, 0.5), log2_lrs=HALF),
        seed=63_000,
    ),
    Setting(
        "η straight, linex",
        World(
            straight=Straight.LR,
            shape=Shape.LINEX,
            asymmetry=0.4,
            curvature=0.02,
            branch_noise=0.002,
            trunk_noise=0.001,
        ),
        Grid(widths=THREE, tokens=horizons(5e9, 7, 0.5), log2_lrs=HALF),
        seed=64_000,
    ),
    Setting(
        "η straight, gaps and divergence",
        World(straight=Straight.LR, branch_noise=0.002, diverges_above=3.0, slope_tokens=-0.4),
        Grid(widths=THREE, tokens=horizons(6e9, 7, 0.5), log2_lrs=HALF, missing=0.1),
        seed=65_000,
    ),
    Setting(
        "two seeds, noise grows with LR",
        World(seed_noise=0.004, trunk_noise=0.002, branch_noise=0.002, noise_growth=0.3),
        Grid(widths=THREE, tokens=horizons(5e9, 6, 0.6), log2_lrs=HALF, seeds=2),
        seed=66_000,
    ),
    Setting(
        "one size, four horizons",
        World(trunk_noise=0.001, branch_noise=0.001),
        Grid(widths=(2048,), tokens=horizons(5e9, 4, 0.75), log2_lrs=HALF),
        target_tokens=60e9,
        seed=67_000,
    ),
    Setting(
        "both bend up",
        World(straight=Straight.NEITHER, bend_tokens=0.03, trunk_noise=0.001, branch_noise=0.001),
        Grid(widths=THREE, tokens=horizons(5e9, 7, 0.5), log2_lrs=HALF),
        well_specified=False,
        seed=68_000,
    ),
    Setting(
        "both bend down",
        World(straight=Straight.NEITHER, bend_tokens=-0.03, trunk_noise=0.001, branch_noise=0.001),
        Grid(widths=THREE, tokens=horizons(5e9, 7, 0.5), log2_lrs=HALF),
        well_specified=False,
        seed=69_000,
    ),
]


@dataclass(frozen=True)
class Outcome:
    cells: int
    cells_inside: int
    cell_width: float
    recommended: bool
    inside: bool
    width: float
    error: float
    strategy: str


def study(setting: Setting, index: int, replicates: int, surface: bool) -> Outcome:
    """One synthetic study, from runs to recommendation."""
    runs = simulate(setting.world, setting.grid, seed=setting.seed + index)
    group = build_groups(runs)[0]
    estimates = estimate_group(group, Options(replicates=replicates, seed=index, surface=surface))
    cells = inside = 0
    widths: list[float] = []
    for quantity, found in estimates.items():
        law = setting.world.log2_optimal_lr if quantity is Quantity.LR else setting.world.log2_optimal_eff_lr
        truth = law(found.params, found.tokens)
        for k in np.flatnonzero(found.usable):
            low, high = found.optima[k].log2_interval
            cells += 1
            inside += low <= truth[k] <= high
            widths.append(high - low)
    target = Scale(float(gpt_params(max(setting.grid.widths))), setting.target_tokens)
    answer = answer_from(Evidence(group, estimates), target, 0.9)
    truth = float(setting.world.log2_optimal_lr(target.params, target.tokens))
    said = answer.recommended
    if said is None:
        return Outcome(cells, inside, float(np.median(widths)), False, False, np.nan, np.nan, "abstained")
    low, high = said.log2_interval
    strategy = f"{said.axis.value}/{said.quantity.value}"
    return Outcome(
        cells, inside, float(np.median(widths)), True, low <= truth <= high, high - low, said.log2_lr - truth, strategy
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=40, help="studies a setting")
    parser.add_argument("--replicates", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tuning", action="store_true")
    parser.add_argument("--surface", action="store_true", help="fit all D of one N together")
    parser.add_argument("--only", default="", help="settings whose name holds this")
    asked = parser.parse_args()
    settings = [s for s in (TUNING if asked.tuning else HELD_OUT) if asked.only in s.name]
    print(f"{asked.studies} studies a setting, {asked.replicates} redraws, nominal 90 %")
    head = f"{'setting':34s} {'cells':>7s} {'width':>6s} {'LR':>7s} {'width':>6s} {'|error|':>8s}  strategies"
    print(head, "-" * len(head), sep="\n")
    pooled: dict[bool, list[Outcome]] = {True: [], False: []}
    with ProcessPoolExecutor(asked.jobs) as pool:
        for setting in settings:
            jobs = [pool.submit(study, setting, k, asked.replicates, asked.surface) for k in range(asked.studies)]
            outcomes = [job.result() for job in jobs]
            pooled[setting.well_specified].extend(outcomes)
            report(setting.name, outcomes)
    for right, name in ((True, "POOLED, law log-linear"), (False, "POOLED, no law log-linear")):
        if pooled[right]:
            report(name, pooled[right])


def report(name: str, outcomes: list[Outcome]) -> None:
    cells = sum(o.cells_inside for o in outcomes) / max(sum(o.cells for o in outcomes), 1)
    given = [o for o in outcomes if o.recommended]
    strategies: dict[str, int] = {}
    for o in outcomes:
        strategies[o.strategy] = strategies.get(o.strategy, 0) + 1
    used = ", ".join(f"{k} {v}" for k, v in sorted(strategies.items(), key=lambda item: -item[1]))
    inside = np.mean([o.inside for o in given]) if given else np.nan
    width = np.median([o.width for o in given]) if given else np.nan
    error = np.median([abs(o.error) for o in given]) if given else np.nan
    cell_width = np.median([o.cell_width for o in outcomes])
    print(f"{name:34s} {cells:7.1%} {cell_width:6.2f} {inside:7.1%} {width:6.2f} {error:8.3f}  {used}", flush=True)


if __name__ == "__main__":
    main()
