"""What is a run, and what may a table of runs hold? Columns, units, types, and `RunSpec`, what was trained."""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from etastar.scale import LARGEST, SMALLEST


class RunStatus(enum.StrEnum):
    """How a run ended."""

    FINISHED = "finished"
    DIVERGED = "diverged"
    CRASHED = "crashed"


@dataclass(frozen=True)
class Column:
    """One column of a contract table: its type, its unit and what it means."""

    name: str
    type: pa.DataType
    unit: str
    meaning: str
    required: bool = False
    low: float | None = None  # the range that a value must lie in, where there is one
    high: float | None = None

    @property
    def positive(self) -> bool:
        """Values are logarithmed, so zero and below mean nothing."""
        return self.low is not None and self.low > 0


_POSITIVE: dict[str, Any] = {"low": SMALLEST, "high": LARGEST}

RUN_COLUMNS: tuple[Column, ...] = (
    Column("params", pa.float64(), "parameters", "N, the token embedding once", required=True, **_POSITIVE),
    Column("tokens", pa.float64(), "tokens", "D, the decay included", required=True, **_POSITIVE),
    Column("lr", pa.float64(), "", "peak learning rate η", required=True, **_POSITIVE),
    Column("loss", pa.float64(), "nats (or the user's unit)", "loss after the decay", required=True),
    Column("mean_eff_lr", pa.float64(), "", "mean η_eff over all steps and matrices", **_POSITIVE),
    Column("plateau_eff_lr", pa.float64(), "", "the same between warm-up and decay", **_POSITIVE),
    Column("params_nonembedding", pa.float64(), "parameters", "N without embeddings", **_POSITIVE),
    Column("optimizer", pa.string(), "", "adamw, adam, adamh, …"),
    Column("weight_decay", pa.float64(), "", "λ, as in torch (η·λ a step)", low=0.0, high=LARGEST),
    Column("beta1", pa.float64(), "", "Adam's β₁", low=0.0, high=1.0),
    Column("batch_tokens", pa.float64(), "tokens", "B, tokens a step", **_POSITIVE),
    Column("schedule", pa.string(), "", "wsd, cosine, constant, …"),
    Column("steps", pa.int64(), "steps", "T, the decay included", low=0.0),
    Column("warmup_steps", pa.int64(), "steps", "warm-up", low=0.0),
    Column("decay_steps", pa.int64(), "steps", "decay to zero", low=0.0),
    Column("seed", pa.int64(), "", "seed of init and data order"),
    Column("trunk", pa.string(), "", "the shared constant-LR trunk: cells of one trunk share its noise"),
    Column("run", pa.string(), "", "the run's own name"),
    Column("status", pa.string(), "", "finished | diverged | crashed"),
    Column("group", pa.string(), "", "cells of one group may be fitted together"),
)

TRAJECTORY_COLUMNS: tuple[Column, ...] = (
    Column("run", pa.string(), "", "the run", required=True),
    Column("step", pa.int64(), "steps", "optimizer step t", required=True),
    Column("weight", pa.string(), "", "the matrix; null for a row of the whole run"),
    Column("weight_norm", pa.float64(), "", "‖w_t‖₂ before the step"),
    Column("grad_norm", pa.float64(), "", "‖g_t‖₂"),
    Column("step_norm", pa.float64(), "", "‖w_{t+1} − w_t‖₂"),
    Column("update_norm", pa.float64(), "", "‖u_t‖₂, the optimizer's update before the LR"),
    Column("update_dot_weight", pa.float64(), "", "⟨u_t, w_t⟩"),
    Column("eff_lr", pa.float64(), "", "η_eff(t) = ‖ŵ_{t+1} − ŵ_t‖₂"),
    Column("train_loss", pa.float64(), "nats", "training loss at the step"),
    Column("val_loss", pa.float64(), "nats", "validation loss at the step"),
)

RUN_SCHEMA = pa.schema([pa.field(c.name, c.type) for c in RUN_COLUMNS])
TRAJECTORY_SCHEMA = pa.schema([pa.field(c.name, c.type) for c in TRAJECTORY_COLUMNS])
REQUIRED = tuple(c.name for c in RUN_COLUMNS if c.required)


class RunSpec(BaseModel):
    """What was trained: everything of a runs row that is chosen before training.

    `run_id` hashes exactly this, so two machines that train the same thing name it the same.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    params: float = Field(gt=0)
    tokens: float = Field(gt=0)
    lr: float = Field(gt=0)
    params_nonembedding: float | None = None
    optimizer: str | None = None
    weight_decay: float | None = None
    beta1: float | None = None
    batch_tokens: float | None = None
    schedule: str | None = None
    steps: int | None = None
    warmup_steps: int | None = None
    decay_steps: int | None = None
    seed: int | None = None
    trunk: str | None = None

    @property
    def run_id(self) -> str:
        """Twelve hex digits of a hash over the specification."""
        return content_id(self.model_dump())


def content_id(content: Mapping[str, Any]) -> str:
    """Twelve hex digits that name a JSON-like content, independent of key order."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
