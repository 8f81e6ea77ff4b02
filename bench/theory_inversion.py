"""Is the LR found through η_eff and inversion nearer the truth than the raw η law, at every budget?

    python bench/theory_inversion.py [--studies 20] [--jobs 2] [--world paper|straight|all]

Synthetic studies of one model size (707M) on the paper's horizons, target 100B. A budget β buys every cell
with D up to D₂ = (β − 5 %)·100B, 5B being the smallest, as in the paper's Table 1. For each: median |log2 error|
of η and the coverage of 90 % intervals, of the raw η law and of the inverted η_eff law, and which one the
back-test chose. In the paper's world η_eff* is straight, in the other η* is. Below: the paper's own two-cell
fits (5B and D₂), without back-test.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from etastar.estimate.cells import Quantity, build_groups
from etastar.estimate.estimates import Options, estimate_group
from etastar.importers.tables import keep_runs
from etastar.laws.loglinear import Axis
from etastar.predict.points import at_tokens, stack
from etastar.predict.recommend import answer_from
from etastar.predict.strategies import Evidence, Prediction, follow
from etastar.scale import Scale, gpt_params
from etastar.simulate import Grid, Straight, World, simulate

BUDGETS = (0.13, 0.17, 0.2064, 0.3763, 0.551)
TARGET = Scale(float(gpt_params(2048)), 100e9)
NOISE = {"trunk_noise": 0.001, "branch_noise": 0.001}
WORLDS = {
    "paper": ("η_eff* straight (paper-like)", World(**NOISE)),
    "straight": ("η* straight", World(straight=Straight.LR, **NOISE)),
}
GRID = Grid(widths=(2048,), tokens=tuple(2.5e9 * k for k in range(2, 23)))


@dataclass(frozen=True)
class Outcome:
    budget: float
    kind: str  # raw, inverted, recommended, raw pair, inverted pair
    error: float
    inside: bool
    width: float
    inverted: bool


def study(world: World, seed: int) -> list[Outcome]:
    """One study at every budget."""
    runs, truth = simulate(world, GRID, seed=seed), float(world.log2_optimal_lr(TARGET.params, TARGET.tokens))
    found: list[Outcome] = []
    for budget in BUDGETS:
        second = budget * TARGET.tokens - 5e9
        group = build_groups(keep_runs(runs, f"tokens <= {second * 1.0001}"))[0]
        evidence = Evidence(group, estimate_group(group, Options(replicates=300, seed=seed)))
        said = answer_from(evidence, TARGET, 0.9)
        for prediction in said.predictions:
            if prediction.axis is Axis.DATA and prediction.log2_lr is not None:
                kind = {(Quantity.LR, False): "raw", (Quantity.EFF_LR, True): "inverted"}
                name = kind.get((prediction.quantity, prediction.inverted))
                if name is not None:
                    found.append(_outcome(budget, name, prediction, truth))
        best = said.recommended
        if best is not None:
            low, high = best.log2_interval
            through = best.quantity is Quantity.EFF_LR
            found.append(
                Outcome(budget, "recommended", best.log2_lr - truth, low <= truth <= high, high - low, through)
            )
        whole = build_groups(keep_runs(runs, f"tokens <= {second + 2.5e9}"))[0]
        found += _pair(
            Evidence(whole, estimate_group(whole, Options(replicates=300, seed=seed))), budget, second, truth
        )
    return found


def _outcome(budget: float, kind: str, prediction: Prediction, truth: float) -> Outcome:
    low, high = prediction.interval(0.9, of_lr=True) or (np.nan, np.nan)
    assert prediction.log2_lr is not None
    return Outcome(budget, kind, prediction.log2_lr - truth, low <= truth <= high, high - low, prediction.inverted)


def _pair(evidence: Evidence, budget: float, second: float, truth: float) -> list[Outcome]:
    """The paper's two-cell fit; D₂ between two measured D is interpolated."""
    out = []
    for quantity, name in ((Quantity.LR, "raw pair"), (Quantity.EFF_LR, "inverted pair")):
        estimates = evidence.estimates[quantity]
        points = [at_tokens(estimates, TARGET.params, d, estimates.usable) for d in (5e9, second)]
        if any(point is None for point in points):
            continue
        allowed = estimates.tokens <= second * 1.0001
        said = follow(
            evidence,
            estimates,
            stack([point for point in points if point is not None]),
            Axis.DATA,
            TARGET,
            allowed,
            inverted=quantity is Quantity.EFF_LR,
        )
        if said.log2_lr is not None:
            out.append(_outcome(budget, name, said, truth))
    return out


def report(outcomes: list[Outcome], kinds: tuple[str, ...]) -> bool:
    """The table; true where the second kind is nearer than the first at every budget."""
    better = True
    for budget in BUDGETS:
        cells = []
        medians = []
        for kind in kinds:
            own = [o for o in outcomes if o.kind == kind and o.budget == budget]
            if not own:
                cells.append(f"{'–':>8s} {'–':>7s} {'–':>6s}")
                continue
            medians.append(float(np.median([abs(o.error) for o in own])))
            inside, width = np.mean([o.inside for o in own]), np.median([o.width for o in own])
            cells.append(f"{medians[-1]:8.3f} {inside:7.0%} {width:6.2f}")
        better &= len(medians) >= 2 and medians[1] < medians[0]
        through = [o.inverted for o in outcomes if o.kind == "recommended" and o.budget == budget]
        chosen = f"{np.mean(through):12.0%}" if through else f"{'–':>12s}"
        print(f"{budget:7.2%}  {'  '.join(cells)}  {chosen if 'recommended' in kinds else ''}", flush=True)
    return better


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--studies", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--world", choices=(*WORLDS, "all"), default="all")
    asked = parser.parse_args()
    with ProcessPoolExecutor(asked.jobs) as pool:
        for key in WORLDS if asked.world == "all" else (asked.world,):
            name, world = WORLDS[key]
            print(f"\n{name}: {asked.studies} studies, 707M, target 100B; median |log2 error| of η, coverage, width")
            jobs = [pool.submit(study, world, 7_000 + k) for k in range(asked.studies)]
            outcomes = [one for job in jobs for one in job.result()]
            head = "  ".join(f"{kind:>23s}" for kind in ("raw η law", "inverted η_eff law", "recommended"))
            print(f"{'β':>7s}  {head}  through η_eff")
            better = report(outcomes, ("raw", "inverted", "recommended"))
            print(f"inverted nearer than raw at every budget: {'yes' if better else 'no'}")
            print(f"{'β':>7s}  {'two cells: raw':>23s}  {'two cells: inverted':>23s}")
            better = report(outcomes, ("raw pair", "inverted pair"))
            print(f"inverted nearer than raw at every budget: {'yes' if better else 'no'}")


if __name__ == "__main__":
    main()
