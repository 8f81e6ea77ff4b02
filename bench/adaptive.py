"""What does the adaptive sweep save, and does it find the same η*?

    python bench/adaptive.py [--studies 10] [--tuning] [RUNS …]

Simulated worlds first: the cost as a fraction of the planned grid's, and, adaptive beside plain, the error of η* at
the last horizon and of the learning rate recommended at the target. Then a replay of every runs file named, one
line a sweep with several horizons. `--tuning` tries margins (`keep_above`) on seeds of their own.
Files map by their usual names; `--group` names columns that must not be mixed, `--decay` the column that holds
the decay's share of the horizon where there are no decay steps.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from etastar.design.adaptive import AdaptiveRule
from etastar.design.replay import Replay, replay
from etastar.estimate.cells import build_groups
from etastar.estimate.estimates import Options
from etastar.importers.tables import parse_mapping, read_runs
from etastar.predict.recommend import answer
from etastar.records import group_labels
from etastar.scale import Scale, format_number, gpt_params
from etastar.simulate import Grid, Shape, Straight, World, simulate


def octaves(low: float, high: float, step: float) -> tuple[float, ...]:
    return tuple(float(x) for x in np.arange(low, high + 1e-9, step))


@dataclass(frozen=True)
class Setting:
    """A world, the learning rates that can be run in it, and those that are planned."""

    name: str
    world: World
    available: tuple[float, ...]
    planned: tuple[float, float]  # log2, ends of the planned grid
    tokens: tuple[float, ...] = (5e9, 10e9, 20e9, 40e9)
    seeds: int = 1


UNIT, HALF = octaves(-20, -3, 1.0), octaves(-19, -4, 0.5)
SETTINGS = (
    Setting("paper-like, unit grid", World(trunk_noise=0.001, branch_noise=0.001), UNIT, (-16, -7)),
    Setting("half octaves, linex", World(shape=Shape.LINEX, branch_noise=0.002), HALF, (-15, -7)),
    Setting("noisy, two-sided", World(shape=Shape.TWO_SIDED, trunk_noise=0.003, branch_noise=0.003), HALF, (-15, -7)),
    Setting("η straight", World(straight=Straight.LR, branch_noise=0.002, trunk_noise=0.001), HALF, (-15, -7)),
    Setting("two seeds", World(seed_noise=0.003, trunk_noise=0.002, branch_noise=0.002), UNIT, (-16, -7), seeds=2),
    Setting("diverges above", World(trunk_noise=0.001, branch_noise=0.001, diverges_above=3.0), HALF, (-15, -7)),
    Setting("grid too high", World(trunk_noise=0.001, branch_noise=0.001), HALF, (-11.5, -7)),
    Setting("grid too low", World(trunk_noise=0.001, branch_noise=0.001), HALF, (-18, -12.5)),
)
WIDTH, TARGET = 1024, 100e9


@dataclass(frozen=True)
class Outcome:
    fraction: float
    whole: float  # cost over that of everything available
    agrees: bool
    errors: tuple[float, float]  # |log2| of η* at the last horizon: adaptive, plain
    predicted: tuple[float, float]  # |log2| at the target: adaptive, plain; NaN where it abstained


def study(setting: Setting, seed: int, rule: AdaptiveRule) -> Outcome:
    """One simulated sweep, plain and adaptive."""
    grid = Grid(widths=(WIDTH,), tokens=setting.tokens, log2_lrs=setting.available, seeds=setting.seeds)
    runs = simulate(setting.world, grid, seed=seed)
    planned = [2.0**x for x in setting.available if setting.planned[0] <= x <= setting.planned[1]]
    played = replay(runs, planned=planned, rule=rule)
    params = float(gpt_params(WIDTH))
    truth = float(setting.world.log2_optimal_lr(params, setting.tokens[-1]))
    lrs = runs["lr"].to_numpy()
    plain = runs.filter(pa.array((lrs >= min(planned) * 0.999) & (lrs <= max(planned) * 1.001)))
    at_target = float(setting.world.log2_optimal_lr(params, TARGET))
    return Outcome(
        played.fraction,
        played.cost / played.whole_cost,
        played.agrees,
        (abs(played.adaptive.log2_value - truth), abs(played.plain.log2_value - truth)),
        tuple(abs(predict(table, params) - at_target) for table in (played.kept, plain)),  # type: ignore[arg-type]
    )


def predict(runs: pa.Table, params: float) -> float:
    """log2 of the recommended learning rate; NaN where there is none."""
    said = answer(build_groups(runs)[0], Scale(params, TARGET), Options(replicates=100)).recommended
    return said.log2_lr if said is not None else float("nan")


def simulated(studies: int, rule: AdaptiveRule, first_seed: int) -> None:
    head = (
        f"{'setting':24s} {'of grid':>8s} {'of all':>7s} {'same η*':>8s} {'η* error':>9s} {'plain':>6s} "
        f"{'at target':>10s} {'plain':>6s} {'answers':>9s}"
    )
    print(head, "-" * len(head), sep="\n")
    everything: list[Outcome] = []
    for setting in SETTINGS:
        outcomes = [study(setting, first_seed + k, rule) for k in range(studies)]
        report(setting.name, outcomes)
        if not setting.name.startswith("grid too"):
            everything += outcomes
    report("POOLED, grid about η*", everything)
    both = np.array([o.predicted for o in everything])
    both = both[np.isfinite(both).all(axis=1)]
    rms = np.sqrt((both**2).mean(axis=0))
    print(f"rms error at the target where both answer: adaptive {rms[0]:.3f}, plain {rms[1]:.3f} ({len(both)} studies)")


def report(name: str, outcomes: list[Outcome]) -> None:
    errors, predicted = np.array([o.errors for o in outcomes]), np.array([o.predicted for o in outcomes])
    answered = np.isfinite(predicted).sum(axis=0)
    middle = [np.nanmedian(column) if np.isfinite(column).any() else np.nan for column in predicted.T]
    found = np.nanmedian(errors, axis=0)
    print(
        f"{name:24s} {np.mean([o.fraction for o in outcomes]):8.1%} {np.mean([o.whole for o in outcomes]):7.1%} "
        f"{np.mean([o.agrees for o in outcomes]):8.0%} {found[0]:9.3f} {found[1]:6.3f} "
        f"{middle[0]:10.3f} {middle[1]:6.3f} {answered[0]:4d}/{answered[1]:d}",
        flush=True,
    )


def real(path: Path, mapping: str | None, group: str | None, decay: str | None, rule: AdaptiveRule) -> list[Replay]:
    """Replay every sweep of a file that has several horizons and enough learning rates."""
    table = read_runs(path, mapping=parse_mapping(mapping)).table
    columns = [name.strip() for name in group.split(",")] if group else None
    labels = np.array(group_labels(table, columns))
    params = table["params"].to_numpy()
    found = []
    for label in np.unique(labels):
        for size in np.unique(params[labels == label]):
            part = table.filter(pa.array((labels == label) & (params == size)))
            complete = _complete(part)
            if complete is None:
                continue
            share = None
            if decay is not None and complete[decay].null_count == 0:
                share = float(np.median(complete[decay].to_numpy()))
            played = replay(complete, rule=rule, decay_fraction=share)
            found.append(played)
            shown = f"{path.stem[:22]} N={format_number(size)} {label}"
            interval = "{:.2f} … {:.2f}".format(*played.plain.log2_interval)
            stopped = sum(len(r.stopped) for r in played.rounds)
            print(
                f"{shown[:60]:60s} {len(np.unique(complete['lr'].to_numpy())):3d} LRs "
                f"{len(played.rounds):2d} D: {played.fraction:6.1%} of the grid, {stopped} stopped, η* 2^"
                f"{played.adaptive.log2_value:.2f} against {interval}: {'same' if played.agrees else 'NOT THE SAME'}",
                flush=True,
            )
    return found


def _complete(part: pa.Table) -> pa.Table | None:
    """The learning rates that ran at every horizon, in a table of several horizons; None where too few."""
    tokens, lrs = part["tokens"].to_numpy(), part["lr"].to_numpy()
    ladder = np.unique(tokens)
    everywhere = [lr for lr in np.unique(lrs) if set(ladder) <= set(tokens[lrs == lr])]
    if len(ladder) < 2 or len(everywhere) < 4:
        return None
    return part.filter(pa.array(np.isin(lrs, everywhere)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, help="complete sweeps to replay")
    parser.add_argument("--studies", type=int, default=10, help="simulated sweeps a setting; 0: none")
    parser.add_argument("--tuning", action="store_true", help="compare margins, on other seeds")
    parser.add_argument("--seed", type=int, default=0, help="of the first simulated sweep")
    parser.add_argument("--map", default=None)
    parser.add_argument("--group", default=None)
    parser.add_argument("--decay", default=None)
    asked = parser.parse_args()
    if asked.tuning:
        for keep in (0.5, 1.0, 1.5, 2.0, 3.0):
            print(f"\nkeep_above {keep:g}")
            simulated(asked.studies, AdaptiveRule(keep_above=keep), 50_000)
        return
    if asked.studies:
        simulated(asked.studies, AdaptiveRule(), asked.seed)
    played = [one for path in asked.runs for one in real(path, asked.map, asked.group, asked.decay, AdaptiveRule())]
    if played:
        fractions = [one.fraction for one in played]
        print(
            f"{len(played)} sweeps: mean cost {np.mean(fractions):.1%} of the grid, "
            f"{np.mean([one.agrees for one in played]):.0%} with the same η*"
        )


if __name__ == "__main__":
    main()
