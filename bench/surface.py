"""Cell by cell, or all D of one N together? Errors of both estimators on the same studies.

    python bench/surface.py [--studies 12]

Root-mean-square error of log2 η* and log2 η_eff* over worlds, and the error of the law's prediction at
100B tokens along D. The default stays per cell unless the surface wins in every world.
"""

from __future__ import annotations

import argparse

import numpy as np

from etastar.estimate.cells import Quantity, build_groups
from etastar.estimate.estimates import Options, estimate_group
from etastar.laws.loglinear import Axis
from etastar.predict.strategies import Evidence, predict_strategy
from etastar.scale import Scale, gpt_params
from etastar.simulate import Grid, Shape, Straight, World, simulate

UNIT, HALF = tuple(np.arange(-16.0, -5.9, 1.0)), tuple(np.arange(-15.0, -6.9, 0.5))
SETTINGS = {
    "cubic, σ 0.002, unit grid": (World(branch_noise=0.002), UNIT),
    "cubic, trunk σ 0.002": (World(trunk_noise=0.002), UNIT),
    "linex, σ 0.002, half octaves": (World(shape=Shape.LINEX, branch_noise=0.002), HALF),
    "two-sided, σ 0.002": (World(shape=Shape.TWO_SIDED, branch_noise=0.002), UNIT),
    "η straight, linex, σ 0.003": (World(straight=Straight.LR, shape=Shape.LINEX, branch_noise=0.003), HALF),
    "both bend, σ 0.002": (World(straight=Straight.NEITHER, bend_tokens=0.03, branch_noise=0.002), HALF),
    "cubic, σ 0.006, half octaves": (World(branch_noise=0.006), HALF),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=12)
    studies = parser.parse_args().studies
    tokens = tuple(5e9 * 2 ** (0.5 * k) for k in range(7))
    target = Scale(float(gpt_params(2048)), 100e9)
    print(
        f"{'world':32s} {'cells: per cell':>16s} {'surface':>8s} {'at 100B: per cell':>18s} {'surface':>8s}   (octaves)"
    )
    for name, (world, log2_lrs) in SETTINGS.items():
        grid = Grid(widths=(768, 2048), tokens=tokens, log2_lrs=tuple(float(x) for x in log2_lrs))
        cells: dict[bool, list[float]] = {False: [], True: []}
        ahead: dict[bool, list[float]] = {False: [], True: []}
        for seed in range(studies):
            group = build_groups(simulate(world, grid, seed=500 + seed))[0]
            for surface in (False, True):
                estimates = estimate_group(group, Options(replicates=50, surface=surface))
                for quantity, found in estimates.items():
                    law = world.log2_optimal_lr if quantity is Quantity.LR else world.log2_optimal_eff_lr
                    error = found.log2_values - law(found.params, found.tokens)
                    cells[surface].append(float(np.nanmean(error**2)))
                said = predict_strategy(Evidence(group, estimates), Axis.DATA, Quantity.EFF_LR, target)
                if said.log2_lr is not None:
                    ahead[surface].append(
                        (said.log2_lr - float(world.log2_optimal_lr(target.params, target.tokens))) ** 2
                    )
        rms = {s: float(np.sqrt(np.mean(cells[s]))) for s in cells}
        far = {s: float(np.sqrt(np.mean(ahead[s]))) for s in ahead}
        print(f"{name:32s} {rms[False]:16.3f} {rms[True]:8.3f} {far[False]:18.3f} {far[True]:8.3f}", flush=True)


if __name__ == "__main__":
    main()
