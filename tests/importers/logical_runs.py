"""The same runs for every tracker: what is written by each library, and what must come out of each reader.

Plain data and no imports beyond the standard library: the writers run in another interpreter. Losses and rates
are multiples of powers of two, so that trackers that keep float32 (TensorBoard) lose nothing.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

PARAMS = 7616  # a GPT-2 of 2 layers, width 16 and 64 tokens, its position table not counted
PARAMS_NONEMBEDDING = 6592
BATCH_TOKENS = 32  # two sequences of 16
STEPS = 40
EVERY = 4
EFF_LR = 2.0**-7


class Logical(NamedTuple):
    """One run: its settings, its rows of metrics in the order of writing, and how it ended."""

    name: str
    config: dict[str, Any]
    rows: list[tuple[int, dict[str, float]]]
    crashes: bool = False


def settings(lr: float, seed: int = 0) -> dict[str, Any]:
    """A configuration by the names that trainers use."""
    return {
        "n_params": PARAMS, "params_nonembedding": PARAMS_NONEMBEDDING, "learning_rate": lr, "max_steps": STEPS,
        "batch_tokens": BATCH_TOKENS, "optimizer": "adamw", "weight_decay": 0.125, "adam_beta1": 0.875,
        "lr_scheduler_type": "cosine", "warmup_steps": 4, "seed": seed,
    }  # fmt: skip


def loss_at(lr: float, step: int) -> float:
    """A parabola in log2 lr that falls with the steps; a multiple of 1/1024."""
    return 3.0 + round(1024 * (0.02 * (math.log2(lr) + 9) ** 2 + 1.0 / (1 + step))) / 1024


def rows_of(lr: float, first: int = EVERY, last: int = STEPS, shift: float = 0.0) -> list[tuple[int, dict[str, float]]]:
    """Training loss every four steps, two validation losses at half time and at the end."""
    rows = []
    for step in range(first, last + 1, EVERY):
        row = {"loss": loss_at(lr, step) + shift}
        if step % (STEPS // 2) == 0:
            row |= {"eval/loss": loss_at(lr, step) + 0.125 + shift, "eval/other/loss": loss_at(lr, step) + 1.0}
        rows.append((step, row))
    rows[-1][1]["etastar/mean_eff_lr"] = EFF_LR
    return rows


def with_norms(rows: list[tuple[int, dict[str, float]]]) -> list[tuple[int, dict[str, float]]]:
    """Norms of two matrices instead of η_eff: 1/64 and 1/128 of their weights a step."""
    for _, row in rows:
        row.pop("etastar/mean_eff_lr", None)
        for weight, ratio in (("h.0.attn", 2.0**-6), ("h.0.mlp", 2.0**-7)):
            row |= {f"weight_norm/{weight}": 4.0, f"step_norm/{weight}": 4.0 * ratio}
    return rows


def diverged(rows: list[tuple[int, dict[str, float]]]) -> list[tuple[int, dict[str, float]]]:
    """The last validation loss is no number."""
    rows[-1][1]["eval/loss"] = math.nan
    return rows


def without_validation(rows: list[tuple[int, dict[str, float]]]) -> list[tuple[int, dict[str, float]]]:
    """Nobody validated."""
    return [(step, {k: v for k, v in row.items() if not k.startswith("eval/")}) for step, row in rows]


RUNS: list[Logical] = [
    *(Logical(f"größe-λ-🦊-{k}", settings(2.0**-k), rows_of(2.0**-k)) for k in range(7, 12)),
    Logical("crashed at half time", settings(2.0**-9, 1), rows_of(2.0**-9, last=STEPS // 2), crashes=True),
    Logical("diverged", settings(2.0**-5), diverged(rows_of(2.0**-5))),
    Logical("not validated", settings(2.0**-9, 2), without_validation(rows_of(2.0**-9))),
    Logical(
        "restarted", settings(2.0**-9, 3), rows_of(2.0**-9, last=24, shift=0.5) + rows_of(2.0**-9, first=16)
    ),
    Logical("norms", settings(2.0**-9, 4), with_norms(rows_of(2.0**-9))),
]  # fmt: skip
REFUSED = {"not validated"}


def expected() -> list[dict[str, Any]]:
    """The runs table that every reader must give, by run."""
    rows = []
    for run in RUNS:
        if run.name in REFUSED:
            continue
        last = {name: value for _, row in run.rows for name, value in row.items()}
        status = "crashed" if run.crashes else "diverged" if math.isnan(last["eval/loss"]) else "finished"
        rows.append(
            {
                "params": float(PARAMS), "tokens": float(STEPS * BATCH_TOKENS), "lr": run.config["learning_rate"],
                "loss": last["eval/loss"], "mean_eff_lr": (2.0**-6 + 2.0**-7) / 2 if run.name == "norms" else EFF_LR,
                "params_nonembedding": float(PARAMS_NONEMBEDDING), "optimizer": "adamw", "weight_decay": 0.125,
                "beta1": 0.875, "batch_tokens": float(BATCH_TOKENS), "schedule": "cosine", "steps": STEPS,
                "warmup_steps": 4, "seed": run.config["seed"], "run": run.name, "status": status,
                "eff_lr_approximate": run.name == "norms",
            }
        )  # fmt: skip
    return sorted(rows, key=lambda row: row["run"])


def expected_losses() -> dict[str, list[tuple[int, float | None, float | None]]]:
    """(step, training loss, validation loss) of each run, after the restart is sorted out."""
    found = {}
    for run in RUNS:
        if run.name in REFUSED:
            continue
        by_step = dict(run.rows)
        found[run.name] = [(s, row.get("loss"), row.get("eval/loss")) for s, row in sorted(by_step.items())]
    return found
