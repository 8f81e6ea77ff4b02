"""What was trained, as far as optimizer and model tell?

The columns of a run's row that need not be typed: sizes, optimizer and its settings. What cannot be told is
left unknown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from etastar.errors import InputError
from etastar.monitor.watch import Watched, clean_name
from etastar.records import RUN_COLUMNS

_POSITIONS = ("wpe", "pos_emb", "position_emb", "embed_pos", "positional")
_SETTLED = ("mean_eff_lr", "plateau_eff_lr", "steps", "run")  # the monitor's own to say


def model_sizes(model: nn.Module) -> dict[str, float]:
    """`params`: all parameters once, tied ones too, without a position table; and without any embedding."""
    unique = {id(p): (clean_name(name), p.numel()) for name, p in model.named_parameters()}
    tables = {id(m.weight) for m in model.modules() if isinstance(m, (nn.Embedding, nn.EmbeddingBag))}
    positions = sum(n for name, n in unique.values() if any(part in name.lower() for part in _POSITIONS))
    embeddings = sum(unique[key][1] for key in tables if key in unique)
    total = sum(n for _, n in unique.values())
    sizes = {"params": float(total - positions)}
    if embeddings and total > embeddings:
        sizes["params_nonembedding"] = float(total - embeddings)
    return sizes


def main_group(watched: Sequence[Watched]) -> int:
    """The group with most watched parameters: its learning rate is the run's."""
    counts: dict[int, int] = {}
    for weight in watched:
        counts[weight.group] = counts.get(weight.group, 0) + weight.param.numel() // weight.parts
    return max(counts, key=lambda group: counts[group])


def optimizer_columns(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> dict[str, Any]:
    """Name, weight decay and β₁ of the main group."""
    found: dict[str, Any] = {"optimizer": type(optimizer).__name__.lower()}
    decay = group.get("weight_decay")
    if decay is not None:
        found["weight_decay"] = float(decay)
    betas = group.get("betas")
    if betas is not None:
        found["beta1"] = float(betas[0])
    return found


def checked_columns(given: Mapping[str, Any]) -> dict[str, Any]:
    """Columns that a caller of `finish` adds, if the runs table has them."""
    known = [column.name for column in RUN_COLUMNS if column.name not in _SETTLED]
    for name in given:
        if name not in known:
            raise InputError(f"finish: {name!r} is no column to fill in", hint=f"columns are {', '.join(known)}")
    return {name: value for name, value in given.items() if value is not None}


def run_row(
    optimizer: torch.optim.Optimizer,
    group: Mapping[str, Any],
    sizes: Mapping[str, float],
    given: Mapping[str, Any],
    measured: Mapping[str, Any],
) -> dict[str, Any]:
    """A run's row: what was measured, what was given, and the rest from optimizer and model."""
    row = {**sizes, **optimizer_columns(optimizer, group), **measured, **checked_columns(given)}
    if not row["steps"] or not row["lr"]:
        raise InputError("finish: no step with a learning rate was seen", hint="call it after training, or give lr=…")
    if "params" not in row:
        raise InputError("finish: the number of parameters is not known", hint="give params=…, or the model")
    return row


def positive(value: float | None) -> float | None:
    """A number that can stand in a column of positive ones, else unknown."""
    return value if value is not None and math.isfinite(value) and value > 0 else None
