"""`etastar demo`: the whole way once, on a simulated study with the paper's grid."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow.parquet as pq
import typer
from rich.console import Console

from etastar.cli.evaluate import show_evaluation
from etastar.cli.predict import show_answer
from etastar.estimate.cells import Quantity, build_groups
from etastar.estimate.estimates import Options, estimate_group
from etastar.importers.tables import keep_runs
from etastar.laws.loglinear import Axis, all_laws
from etastar.predict.evaluate import evaluate
from etastar.predict.recommend import answer_from
from etastar.predict.strategies import Evidence
from etastar.scale import Scale, gpt_params
from etastar.simulate import Grid, World, simulate


def demo_command(
    out: Annotated[Path, typer.Option("--out", help="Where the simulated runs are written.")] = Path("out/demo"),
    seed: Annotated[int, typer.Option(help="Seed of the simulated noise.")] = 0,
) -> None:
    """Simulate the paper's study, fit it, predict 707M × 100B from D ≤ 20B, and say how far off that was."""
    console = Console()
    world, grid = World(trunk_noise=0.001, branch_noise=0.001), Grid()
    runs = simulate(world, grid, seed=seed)
    out.mkdir(parents=True, exist_ok=True)
    pq.write_table(runs, out / "runs.parquet")
    console.print(f"[bold]1. A simulated study[/]: {runs.num_rows} runs, 6 N × 39 D × 10 LRs → {out / 'runs.parquet'}")

    whole = build_groups(runs)[0]
    evidence = Evidence(whole, estimate_group(whole, Options(replicates=200)))
    console.print("\n[bold]2. Which quantity is straight?[/]")
    for quantity, estimates in evidence.estimates.items():
        laws = [law for law in all_laws(estimates) if law.axis is Axis.DATA]
        bent = sum(bool(law.curved) for law in laws)
        r = np.mean([law.pearson_r for law in laws if law.pearson_r is not None])
        console.print(
            f"   {'η*' if quantity is Quantity.LR else 'η_eff*'} along D: {bent} of {len(laws)} laws bend, r = {r:.4f}"
        )

    target = Scale(float(gpt_params(2048)), 100e9)
    console.print("\n[bold]3. Predict 707M × 100B from D ≤ 20B[/]")
    small = build_groups(keep_runs(runs, "tokens <= 20e9"))[0]
    answer = answer_from(Evidence(small, estimate_group(small)), target, 0.9)
    show_answer(console, answer, 0.9)
    truth = float(world.log2_optimal_lr(target.params, target.tokens))
    if answer.recommended is not None:
        missed = answer.recommended.log2_lr - truth
        inside = answer.recommended.log2_interval[0] <= truth <= answer.recommended.log2_interval[1]
        console.print(
            f"   the world's own optimum is 2^{truth:.2f}: missed by {missed:+.3f} octaves, "
            f"{'inside' if inside else 'outside'} the interval"
        )

    console.print("\n[bold]4. Every strategy at every budget, as in the paper's Table 1[/]")
    found = evaluate(evidence, params=target.params, tokens=(50e9, 100e9), budgets=(0.05, 0.6))
    show_evaluation(console, found)
