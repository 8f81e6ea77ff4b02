"""Is the error that the planner expects the error that comes? Predicted over realised, as it is.

    python bench/planner.py [--studies 6] [--worlds 16] [--replays 4] [RUNS …]

A study is cut at the middle of its D. The planner sees the smaller half alone: it fits that half's law, losses and noise,
draws worlds from them, and says what |log2 error| to expect when the plan "the smaller half" is used to predict
the largest D. Realised: what the smaller half really predicts, (a) in simulated studies, whose optimum at the largest D
is known, (b) in studies of the same plan in worlds with other dials than the planner was calibrated on, and (c) on
real sweeps, where the held-out half's own estimate stands for the truth (so its error counts in the realised one).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa

from etastar.design.draw import simulate_plan
from etastar.design.expect import Expectation, Trial, expect, try_plan
from etastar.design.priors import prior_worlds
from etastar.design.study import worlds_from
from etastar.errors import InputError
from etastar.estimate.cells import Group, Quantity, build_groups
from etastar.estimate.estimates import Options, estimate_group
from etastar.estimate.optimum import Status
from etastar.importers.tables import parse_mapping, read_runs
from etastar.plan.study_plan import StudyPlan, build_plan
from etastar.predict.recommend import answer
from etastar.records import group_labels
from etastar.scale import Scale, format_number
from etastar.simulate import Shape, Straight, World

# the calibrating studies' dials, and others
SETTINGS = {
    "η_eff straight, cubic": World(trunk_noise=0.001, branch_noise=0.001),
    "η_eff straight, linex, noisy": World(shape=Shape.LINEX, trunk_noise=0.002, branch_noise=0.003, slope_tokens=-0.4),
    "η straight, two-sided": World(straight=Straight.LR, shape=Shape.TWO_SIDED, branch_noise=0.002, slope_tokens=-0.6),
    "both bend": World(straight=Straight.NEITHER, bend_tokens=0.02, trunk_noise=0.001, branch_noise=0.001),
}
HORIZONS = (10_000, 15_000, 22_500, 34_000, 50_000, 75_000, 112_000, 170_000)


def plan_of(horizons: tuple[int, ...], target: Scale) -> StudyPlan:
    """One model of the paper's (width 768), half octaves, the smaller half of the horizons."""
    lrs = [2.0**x for x in np.arange(-15, -6.9, 0.5)]
    return build_plan(
        {
            "spec": {"model": {}},
            "stacks": [{"name": "w768", "width": 768, "lrs": lrs, "horizons": horizons}],
            "target": {"params": target.params, "tokens": target.tokens, "width": 768},
        }
    )


def show(name: str, expected: list[Expectation], realised: Expectation) -> None:
    """Expected (the median study's) beside realised; an abstention counts alike in both."""
    middle, high, ecr, silent = np.median(
        [(e.median_error, e.high_error, e.mean_ecr, e.abstained / e.worlds) for e in expected], axis=0
    )
    print(
        f"{name:44s} {middle:8.3f} {realised.median_error:9.3f} {middle / realised.median_error:6.2f} "
        f"{high:8.3f} {realised.high_error:9.3f} {ecr:9.2%} {realised.mean_ecr:9.2%} "
        f"{silent:7.0%} {realised.abstained / realised.worlds:8.0%}",
        flush=True,
    )


def simulated(studies: int, worlds: int, replays: int) -> None:
    """(a) and (b): every study calibrates a planner of its own."""
    small, last = HORIZONS[: len(HORIZONS) // 2], HORIZONS[-1]
    blank = plan_of(HORIZONS, Scale(1e8, 1e10))
    params = float(blank.params_of(blank.stacks[0]))
    target = Scale(params, float(last * blank.batch_tokens_of(blank.stacks[0])))
    plan = plan_of(small, target)
    for name, world in SETTINGS.items():
        expected: list[Expectation] = []
        realised: list[Trial] = []
        for index in range(studies):
            (half,) = build_groups(simulate_plan(world, plan, seed=1000 + index))
            drawn = worlds_from(half, plan, worlds, seed=index)
            expected.append(expect(plan, drawn, seed=10_000 * (index + 1)))
            realised += [try_plan(plan, world, seed=1000 + index)]
            # the same dials with fresh noise: the calibrating study's own error is one draw of many
            realised += [try_plan(plan, world, seed=500_000 + 100 * index + k) for k in range(replays)]
        show(f"same dials: {name}", expected, Expectation.of(realised))
        others = [other for key, other in SETTINGS.items() if key != name]
        elsewhere = [try_plan(plan, w, seed=900_000 + k) for k in range(2 * replays) for w in others]
        show("  calibrated there, other dials", expected, Expectation.of(elsewhere))
    prior = expect(plan, prior_worlds(plan, 2 * worlds, seed=3), seed=3)
    came = [try_plan(plan, w, seed=500 + k) for k in range(2 * replays) for w in SETTINGS.values()]
    show("priors, the four dials", [prior], Expectation.of(came))


def real(
    path: Path, mapping: str | None, group: str | None, where: str | None, worlds: int
) -> list[tuple[Expectation, float, float]]:
    """(c): (expected, realised, the held-out optimum's own sd) of every sweep with at least four D, the larger half held out."""
    table = read_runs(path, mapping=parse_mapping(mapping), where=where).table
    columns = [name.strip() for name in group.split(",")] if group else None
    labels = np.array(group_labels(table, columns))
    params = table["params"].to_numpy()
    pairs = []
    for label in np.unique(labels):
        for size in np.unique(params[labels == label]):
            part = table.filter(pa.array((labels == label) & (params == size)))
            found = _held_out(part, worlds)
            if found is not None:
                pairs.append(found)
                print(
                    f"  {path.stem[:20]} N={format_number(size)} {label[:40]:40s} {found[0].median_error:.3f} {found[1]:.3f}"
                )
    return pairs


def _held_out(part: pa.Table, worlds: int) -> tuple[Expectation, float, float] | None:
    """(expected, realised) |log2 error| at the largest D with an optimum, from the smaller half of the D."""
    tokens = part["tokens"].to_numpy()
    ladder = np.unique(tokens)
    if len(ladder) < 3:
        return None
    (whole,) = [g for g in build_groups(part, group_columns=()) if g.blocks]
    truth = estimate_group(whole, Options(replicates=100))[Quantity.LR]
    held = [o for o in truth.optima if o.status is Status.INTERIOR and o.tokens in ladder[(len(ladder) + 1) // 2 :]]
    if not held:
        return None
    last = max(held, key=lambda o: o.tokens)
    half = part.filter(pa.array(np.isin(tokens, ladder[: (len(ladder) + 1) // 2])))
    (group,) = [g for g in build_groups(half, group_columns=()) if g.blocks]
    target = Scale(last.params, last.tokens)
    said = answer(group, target, Options(replicates=100)).recommended
    plan = _plan_like(half, group, target)
    if said is None or plan is None:
        return None
    try:
        drawn = worlds_from(group, plan, worlds)
    except InputError:
        return None
    return expect(plan, drawn), abs(said.log2_lr - last.log2_value), last.log2_sd


def _plan_like(half: pa.Table, group: Group, target: Scale) -> StudyPlan | None:
    """A plan whose cells are those of the half: its own D as steps of a batch that makes them whole."""
    known = group.conditions
    batch = known.get("batch_tokens")
    size = int(batch) if isinstance(batch, (int, float)) else 2**19
    horizons = sorted({round(d / size) for d in half["tokens"].to_pylist()})
    warmup, decay = known.get("warmup_steps"), known.get("decay_steps")
    start = int(warmup) if isinstance(warmup, (int, float)) else min(horizons) // 20
    end = int(decay) if isinstance(decay, (int, float)) else None
    if not all(horizons) or target.tokens / size <= max(horizons):
        return None
    schedule = {"warmup_steps": start} | ({"decay_steps": end} if end is not None else {"decay_fraction": 0.2})
    # 12·L·d² + V·d = N with V = 0 is not allowed, so a narrow model stands in: only its N matters, and it is one
    layers, width = 1, 128
    vocab = max(round((target.params - 12 * layers * width**2) / width), 1)
    spec = {"model": {"layers": layers, "vocab": vocab, "context": 1}, "batch_sequences": size, "schedule": schedule}
    lrs = sorted({float(lr) for lr in half["lr"].to_pylist()})
    return build_plan(
        {
            "spec": spec,
            "stacks": [{"name": "half", "width": width, "lrs": lrs, "horizons": horizons}],
            "target": {"params": target.params, "tokens": target.tokens},
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, help="real sweeps with several D")
    parser.add_argument("--studies", type=int, default=6, help="simulated studies a setting; 0: none")
    parser.add_argument("--worlds", type=int, default=16, help="worlds behind each expectation")
    parser.add_argument("--replays", type=int, default=4, help="further studies behind the realised error")
    parser.add_argument("--map", default=None)
    parser.add_argument("--group", default=None)
    parser.add_argument("--where", default=None)
    asked = parser.parse_args()
    head = (
        f"{'|log2 error| at the largest D':44s} {'expected':>8s} {'realised':>9s} {'ratio':>6s} "
        f"{'90 %':>8s} {'realised':>9s} {'mean ECR':>9s} {'realised':>9s} {'silent':>7s} {'realised':>8s}"
    )
    print(head, "-" * len(head), sep="\n")
    if asked.studies:
        simulated(asked.studies, asked.worlds, asked.replays)
    for path in asked.runs:
        pairs = real(path, asked.map, asked.group, asked.where, asked.worlds)
        if pairs:
            came = Expectation.of([Trial(error, 0.0, True) for _, error, _ in pairs])
            show(f"{path.stem} ({len(pairs)} sweeps)", [e for e, _, _ in pairs], came)
            print(
                f"  the held-out optima are themselves known to ± {np.median([sd for _, _, sd in pairs]):.3f} (median)"
            )
        else:
            print(f"{path.stem}: no sweep with three D or more whose smaller half predicts")


if __name__ == "__main__":
    main()
