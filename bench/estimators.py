"""Which window and degree find the optimum best, in worlds that no polynomial was shaped for?

    python bench/estimators.py [--studies 6]

Loss worlds: linex of three asymmetries and a two-sided parabola, none of them cubic in anything; noise
0, 0.002 and 0.005; learning-rate grids of one octave and of half an octave. For every estimator: bias,
standard error and root-mean-square error of log2 η*, in octaves, and how often its 90 % interval holds
the truth. The last table ranks the estimators by error over all of it; the default must come first.
"""

from __future__ import annotations

import argparse

import numpy as np

from etastar.estimate.cells import EffColumn, Quantity, build_groups
from etastar.estimate.estimates import Options, estimate_group
from etastar.estimate.weights import FitChoice
from etastar.records import conform_runs
from etastar.simulate import Grid, Shape, Straight, World, simulate

DEFAULT = "auto (default)"
ESTIMATORS: dict[str, FitChoice] = {
    DEFAULT: FitChoice(),
    **{
        f"window {window}, degree {degree}": FitChoice(window=window, degree=degree, own_coordinate=True)
        for window in ("auto", "all", 3.0, 2.0, 1.5)
        for degree in (2, 3, 4)
    },
}
WORLDS = [(Shape.LINEX, 0.3), (Shape.LINEX, 0.6), (Shape.LINEX, 1.0), (Shape.TWO_SIDED, 0.6)]
CURVATURES = (0.01, 0.03)
GRIDS = {"1 octave": np.arange(-15, -5.9, 1.0), "1/2 octave": np.arange(-13.5, -7.4, 0.5)}
NOISES = (0.0, 0.002, 0.005)


def errors(world: World, log2_lrs: np.ndarray, choice: FitChoice, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(error, inside the interval) of every cell of one study; a cell without an answer misses by NaN."""
    tokens = tuple(5e9 * 2 ** (0.37 * k) for k in range(12))
    grid = Grid(widths=(768,), tokens=tokens, log2_lrs=tuple(float(x) for x in log2_lrs))
    # η alone: what a user without η_eff has
    runs = simulate(world, grid, seed=seed).drop_columns([c.value for c in EffColumn])
    group = build_groups(conform_runs(runs).table)[0]
    found = estimate_group(group, Options(choice=choice, replicates=200, seed=seed))[Quantity.LR]
    truth = world.log2_optimal_lr(found.params, found.tokens)
    interval = np.array([o.log2_interval for o in found.optima])
    return found.log2_values - truth, (interval[:, 0] <= truth) & (truth <= interval[:, 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=6, help="studies of 12 cells per world, grid and noise")
    studies = parser.parse_args().studies
    overall: dict[str, list[float]] = {name: [] for name in ESTIMATORS}
    for grid_name, log2_lrs in GRIDS.items():
        for sigma in NOISES:
            print(f"\ngrid {grid_name}, σ_loss = {sigma}   (octaves of η)")
            print(f"{'estimator':26s} {'bias':>7s} {'s.e.':>7s} {'rms':>7s} {'answered':>9s} {'inside':>7s}")
            for name, choice in ESTIMATORS.items():
                per_world, hits, answered = [], [], []
                for shape, asymmetry in WORLDS:
                    for curvature in CURVATURES:
                        world = World(
                            straight=Straight.LR, shape=shape, asymmetry=asymmetry, curvature=curvature,
                            slope_tokens=-0.5, log2_lr=-10.2, branch_noise=sigma,
                        )  # fmt: skip
                        pairs = [errors(world, log2_lrs, choice, seed) for seed in range(studies if sigma else 1)]
                        error = np.concatenate([e for e, _ in pairs])
                        known = np.isfinite(error)
                        answered.append(known.mean())
                        hits.append(np.concatenate([i for _, i in pairs])[known].mean())
                        # an optimum that was there and not found counts as an octave missed
                        per_world.append(np.where(known, error, 1.0))
                every = np.concatenate(per_world)
                bias = float(np.mean([np.mean(e) for e in per_world]))
                spread = float(np.sqrt(np.mean([np.var(e) for e in per_world])))
                overall[name] += [float(np.mean(e**2)) for e in per_world]
                rms = float(np.sqrt(np.mean(every**2)))
                print(f"{name:26s} {bias:+7.3f} {spread:7.3f} {rms:7.3f} {np.mean(answered):9.1%} {np.mean(hits):7.1%}")
    ranking = sorted((float(np.sqrt(np.mean(v))), name) for name, v in overall.items())
    print("\nover all worlds, grids and noises")
    for rms, name in ranking:
        print(f"{name:26s} {rms:7.3f}")
    best = ranking[0][1]
    print(f"\nsmallest error: {best}" + ("" if best == DEFAULT else "  (NOT the default)"))


if __name__ == "__main__":
    main()
