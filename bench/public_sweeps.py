"""How well are real sweeps predicted? Every group's largest D from its smaller ones, against Step Law.

    python bench/public_sweeps.py [--surface] PATH

PATH holds published sweeps: `steplaw_dense_le537M.csv`, `wsd_adamw_runs.csv`, `adamh_moe_d512_d768.csv`.
For each group (one model size, one batch, one recipe) with at least three D whose optimum is interior,
the largest D is held out, the rest is fitted along D, and the prediction is compared with the optimum
measured there. Beside it, what Step Law's formula says (of its own sweep it is a fit, not a prediction).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from etastar.estimate.cells import Quantity, build_groups
from etastar.estimate.estimates import Options, estimate_group
from etastar.estimate.optimum import Optimum
from etastar.importers.tables import keep_runs, read_runs
from etastar.laws.loglinear import Axis
from etastar.laws.published import STEP_LAW
from etastar.predict.backtest import backtest, widen
from etastar.predict.strategies import Evidence, predict_strategy
from etastar.records import conform_runs
from etastar.scale import Scale, format_number


@dataclass(frozen=True)
class Source:
    """One file: how its columns map, what may be mixed, and whether its N leaves embeddings out."""

    file: str
    mapping: dict[str, str]
    group: tuple[str, ...]
    where: str | None = None
    bare_params: bool = False


SOURCES = (
    Source(
        "steplaw_dense_le537M.csv", {"params": "N", "tokens": "D"}, ("batch_tokens",), "NOT diverged", bare_params=True
    ),
    Source(
        "wsd_adamw_runs.csv",
        {"params": "N", "tokens": "D", "schedule": "sched"},
        ("dataset", "schedule", "batch_tokens", "weight_decay", "cooldown", "decay", "beta1"),
    ),
    Source(
        "adamh_moe_d512_d768.csv",
        {"params": "N_active", "tokens": "D", "mean_eff_lr": "eff_lr_peak"},
        ("batch_tokens",),
        "complete AND loss IS NOT NULL",
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--surface", action="store_true", help="fit all D of one N together")
    asked = parser.parse_args()
    folder, options = asked.path, Options(surface=asked.surface)
    head = (
        f"{'source':10s} {'group':46s} {'N':>6s} {'held-out D':>10s} {'D':>2s} {'truth':>7s} {'error':>7s} "
        f"{'90 % interval':>16s} {'in':>3s} {'Step Law':>8s}"
    )
    print(head, "-" * len(head), sep="\n")
    ours: list[tuple[float, bool, float]] = []
    both: list[tuple[float, float]] = []
    for source in SOURCES:
        path = folder / source.file
        if not path.exists():
            print(f"{source.file}: not there")
            continue
        for line, error, inside, width, step in judge(source, path, options):
            print(line)
            ours.append((error, inside, width))
            if step is not None:
                both.append((abs(error), abs(step)))
    errors = np.array([abs(e) for e, _, _ in ours])
    high = np.quantile(errors, 0.9)
    held, width = np.mean([i for _, i, _ in ours]), np.median([w for _, _, w in ours])
    print(f"\ngroups {len(ours)}: median |log2 error| {np.median(errors):.3f}, 90th percentile {high:.3f}")
    print(f"inside the 90 % interval {held:.1%}, median width {width:.2f}")
    if both:
        print(
            f"where Step Law speaks ({len(both)} groups): etastar {np.median([a for a, _ in both]):.3f}, "
            f"Step Law {np.median([b for _, b in both]):.3f} (medians of |log2 error|)"
        )


def judge(source: Source, path: Path, options: Options) -> list[tuple[str, float, bool, float, float | None]]:
    """One row for every (group, N) with three interior D or more."""
    table = read_runs(path, mapping=source.mapping, where=source.where).table
    if source.bare_params:
        position = table.column_names.index("params_nonembedding")
        table = conform_runs(table.set_column(position, "params_nonembedding", table["params"])).table
    rows = []
    columns = tuple(c for c in source.group if c in table.column_names)
    for group in build_groups(table, group_columns=columns):
        truth = estimate_group(group, options)[Quantity.LR]
        for params in np.unique(truth.params[truth.usable]):
            cells = np.flatnonzero(truth.usable & (truth.params == params))
            if len(cells) < 3:
                continue
            last = cells[np.argmax(truth.tokens[cells])]
            row = held_out(source, table, group.label, columns, truth.optima[last], truth.replicates[:, last], options)
            if row is not None:
                rows.append(row)
    return rows


def held_out(
    source: Source,
    table: pa.Table,
    label: str,
    columns: tuple[str, ...],
    optimum: Optimum,
    redraws: np.ndarray,
    options: Options,
) -> tuple[str, float, bool, float, float | None] | None:
    """Fit without the largest D, predict it."""
    smaller = keep_runs(table, f"tokens < {optimum.tokens * (1 - 1e-9)!r} AND params = {optimum.params!r}")
    found = [g for g in build_groups(smaller, group_columns=columns) if _same(g.label, label)]
    if not found:
        return None
    evidence = Evidence(found[0], estimate_group(found[0], options))
    target = Scale(optimum.params, optimum.tokens)
    answers = []
    for quantity in Quantity:
        said = predict_strategy(evidence, Axis.DATA, quantity, target)
        if said.log2_lr is not None:
            answers.append(widen(said, backtest(evidence, Axis.DATA, quantity, target)))
    if not answers:
        return None
    said = min(answers, key=lambda p: p.lr_sd)
    # the truth is a measurement too: its own error belongs to the comparison
    spread = said.lr_redraws + (redraws - optimum.log2_value)
    low, high = np.quantile(spread, [0.05, 0.95])
    error = said.log2_lr - optimum.log2_value
    inside = bool(low <= optimum.log2_value <= high)
    bare = optimum.params if source.bare_params else None
    step = STEP_LAW.lr(params=optimum.params, tokens=optimum.tokens, params_nonembedding=bare).lr
    step_error = None if step is None else float(np.log2(step) - optimum.log2_value)
    source_name, step_text = source.file.split("_")[0], "–" if step_error is None else f"{step_error:+.3f}"
    line = (
        f"{source_name:10s} {label[:46]:46s} {format_number(optimum.params):>6s} "
        f"{format_number(optimum.tokens):>10s} {said.cells:2d} {optimum.log2_value:7.2f} {error:+7.3f} "
        f"[{low:6.2f}, {high:6.2f}] {'yes' if inside else 'no':>3s} {step_text:>8s}"
    )
    return line, error, inside, float(high - low), step_error


def _same(label: str, whole: str) -> bool:
    """Columns with one value vanish from a label, so a part of the table may have a shorter one."""
    return set(filter(None, label.split(", "))) <= set(filter(None, whole.split(", "))) or not label


if __name__ == "__main__":
    main()
