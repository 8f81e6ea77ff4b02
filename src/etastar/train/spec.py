"""What exactly is trained, and what of it makes it another run?

`TrainSpec` is one trunk: a model, its optimizers, a schedule, a corpus, K learning rates that train as
one stack, and the horizons at which a branch decays and is evaluated. `run_id` hashes what names
a run; `Execution` (device, micro-batch, threads, …) is provenance and stays out of the name.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, model_validator

from etastar.errors import SpecError
from etastar.records import content_id
from etastar.scale import gpt_params, gpt_params_nonembedding
from etastar.settings import Number, Settings, Whole

DEFAULT_CORPUS = "default"


Count = Annotated[Whole, Field(gt=0)]


class ModelSpec(Settings):
    """A GPT. Matrices a block: q, k, v, out (width²) and up, down (4·width²); the head is tied.

    `norm_embedding` takes the stream through an RMS-norm where it begins, after look-up and learned
    positions. `init` is the spread of the matrices, N(0, 0.02) or N(0, 1/√width), projections into the
    stream divided by √(2·layers) in both; the embedding is N(0, 0.02) always.
    """

    width: Count
    layers: Count = 12
    head_dim: Count = 128
    vocab: Count = 50304
    context: Count = 1024
    positions: Literal["learned", "rope"] = "learned"
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    qk_norm: bool = False
    norm_embedding: bool = False
    init: Literal["gpt2", "width"] = "gpt2"

    @model_validator(mode="after")
    def _heads_divide(self) -> ModelSpec:
        if self.width % self.head_dim:
            next_up = -(-self.width // self.head_dim) * self.head_dim
            raise SpecError(
                f"model.width: {self.width} is not a multiple of head_dim {self.head_dim}",
                hint=f"take width {next_up}, or a head_dim that divides it",
            )
        if self.positions == "rope" and self.head_dim % 2:
            raise SpecError(f"model.head_dim: RoPE turns pairs, and {self.head_dim} is odd", hint="take 64 or 128")
        return self

    @property
    def heads(self) -> int:
        """Attention heads."""
        return self.width // self.head_dim

    @property
    def params(self) -> int:
        """N: the blocks' matrices and the token embedding once."""
        return gpt_params(self.width, layers=self.layers, vocab=self.vocab)

    @property
    def params_nonembedding(self) -> int:
        """N without the token embedding."""
        return gpt_params_nonembedding(self.width, layers=self.layers)


class OptimizerSpec(Settings):
    """The optimizer of the blocks' matrices; `train/optim.py` says which parameter gets which rule."""

    kind: Literal["adamw", "adam", "adamh", "muonh"] = "adamw"
    beta1: float = Field(default=0.95, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    eps: Number = Field(default=1e-8, gt=0)
    weight_decay: Number | None = Field(default=None, ge=0)  # null: 0.1 for adamw; the others have none
    decay: Literal["coupled", "independent"] = "coupled"  # η·λ a step as in torch, or λ whatever η is
    clip: Number | None = Field(default=None, gt=0)  # per model of the stack; null: no clipping

    @model_validator(mode="after")
    def _decay_is_used(self) -> OptimizerSpec:
        if self.kind != "adamw" and self.weight_decay:
            raise SpecError(
                f"optimizer.weight_decay: {self.weight_decay:g}, but {self.kind} has no weight decay",
                hint="set weight_decay: 0, or kind: adamw",
            )
        return self

    @property
    def decay_rate(self) -> float:
        """λ, settled: the paper's 0.1 for AdamW where nothing is said."""
        return (0.1 if self.kind == "adamw" else 0.0) if self.weight_decay is None else self.weight_decay


class EmbeddingSpec(Settings):
    """The embedding's own optimizer: AdamW beside AdamW, else Adam without decay; same schedule."""

    lr: Number = Field(default=0.0036, gt=0)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    eps: Number = Field(default=1e-8, gt=0)
    weight_decay: Number | None = Field(default=None, ge=0)  # null: 0.1 beside adamw, none beside the others


class ScheduleSpec(Settings):
    """Warm-up, then constant with a linear decay to zero (wsd), constant, or cosine to zero."""

    kind: Literal["wsd", "constant", "cosine"] = "wsd"
    warmup_steps: Annotated[Whole, Field(ge=0)] = 1000
    decay_steps: Annotated[Whole, Field(ge=0)] = 5000
    decay_fraction: float | None = Field(default=None, gt=0, le=1)  # of the horizon, for decay_steps

    def decay_of(self, horizon: int) -> int:
        """Steps of the decay that ends at `horizon`."""
        if self.kind != "wsd":
            return 0
        return self.decay_steps if self.decay_fraction is None else round(self.decay_fraction * horizon)


class DataSpec(Settings):
    """A folder of shards, `default` (Python's standard library), or (null) a seeded synthetic language."""

    corpus: str | None = None
    default_vocab: Count = 4096
    synthetic_vocab: Count = 256
    synthetic_tokens: Count = 1_000_000
    synthetic_validation_tokens: Count = 65_536
    synthetic_seed: int = 0


class Execution(Settings):
    """How it is computed: none of this names a run."""

    device: str = "auto"  # auto, cpu, cuda, cuda:1
    precision: Literal["auto", "bf16", "fp32", "fp64"] = "auto"  # auto: bf16 on CUDA, fp32 on CPU
    micro_batch: Count | None = None  # sequences a forward pass; null: from the memory at hand
    threads: Count = 1  # CPU threads of every worker: bitwise promises hold for equal counts
    compile: Literal["auto", "off", "default", "max-autotune"] = "auto"  # of the plain path; auto: on CUDA
    kernels: Literal["auto", "triton", "plain"] = "auto"  # auto: Triton on CUDA; plain is the reference
    residual: Literal["auto", "fp32"] = "auto"  # the stream between blocks under Triton; auto: as the products
    head: Literal["auto", "fp8"] = "auto"  # auto: as the products; fp8: training logits, 3 % faster at width 768
    cuda_graph: bool | None = None  # CUDA: record a step and replay it; null: where steps are small
    deterministic: bool = False  # CUDA: bitwise repeatable kernels, slower
    checkpoint_every: Count = 1000  # steps
    checkpoint_seconds: Annotated[Number, Field(ge=0)] = (
        0.0  # a branch point this soon after the last checkpoint stays in memory alone
    )
    log_every: Count = 100  # steps between trajectory rows
    eval_every: Count | None = None  # steps between validation losses on the way; null: at horizons alone
    keep_branch_points: bool = False  # keep every branch point, e.g. to try another decay


class TrainSpec(Settings):
    """One trunk of K learning rates and its branches."""

    name: str = "study"
    model: ModelSpec
    optimizer: OptimizerSpec = OptimizerSpec()
    embedding: EmbeddingSpec = EmbeddingSpec()
    schedule: ScheduleSpec = ScheduleSpec()
    data: DataSpec = DataSpec()
    lrs: tuple[Number, ...]
    horizons: tuple[Whole, ...]  # steps, the decay included
    batch_sequences: Count = 512
    eval_tokens: Count = 10_000_000
    seed: int = 0  # of the initial weights and of the order of the data
    execution: Execution = Execution()

    @model_validator(mode="after")
    def _can_be_carried_out(self) -> TrainSpec:
        _check_lrs(self.lrs)
        _check_horizons(self.horizons, self.schedule)
        if self.optimizer.kind != "adamw" and self.embedding.weight_decay:
            raise SpecError(
                f"embedding.weight_decay: {self.embedding.weight_decay:g}, but beside {self.optimizer.kind} "
                "the embedding uses Adam without decay",
                hint="leave embedding.weight_decay out",
            )
        if self.eval_tokens < self.model.context:
            raise SpecError(
                f"eval_tokens: {self.eval_tokens} is less than one sequence of {self.model.context}",
                hint="evaluate on at least context tokens; the paper takes 10M",
            )
        return self

    @property
    def embedding_decay(self) -> float:
        """λ of the embedding's optimizer, settled."""
        if self.optimizer.kind != "adamw":
            return 0.0
        return 0.1 if self.embedding.weight_decay is None else self.embedding.weight_decay

    @property
    def batch_tokens(self) -> int:
        """B: tokens a step."""
        return self.batch_sequences * self.model.context

    def trunk_content(self, *, data_identity: str) -> dict[str, Any]:
        """What a constant-LR trunk depends on, without its learning rate: nothing of decay or evaluation."""
        optimizer = self.optimizer.model_dump() | {"weight_decay": self.optimizer.decay_rate}
        embedding = self.embedding.model_dump() | {"weight_decay": self.embedding_decay}
        return {
            "model": self.model.model_dump(),
            "optimizer": optimizer,
            "embedding": embedding,
            "cosine": self.schedule.kind == "cosine",
            "warmup_steps": self.schedule.warmup_steps,
            "batch_sequences": self.batch_sequences,
            "seed": self.seed,
            "data": data_identity,
        }

    def run_id(self, lr: float, horizon: int, *, data_identity: str) -> str:
        """The name of one trained and evaluated cell."""
        return content_id(
            self.trunk_content(data_identity=data_identity)
            | {"lr": lr, "horizon": horizon, "decay_steps": self.schedule.decay_of(horizon)}
            | {"eval_tokens": self.eval_tokens}
        )

    def trunk_id(self, lr: float, *, data_identity: str) -> str:
        """The name of the constant-LR trunk of one learning rate."""
        return content_id(self.trunk_content(data_identity=data_identity) | {"lr": lr})

    def stack_id(self, *, data_identity: str) -> str:
        """The name of this packing of learning rates: its checkpoints lie under it."""
        return content_id(self.trunk_content(data_identity=data_identity) | {"lrs": list(self.lrs)})

    def to_yaml(self) -> str:
        """The whole specification as YAML that `spec_file.load_spec` reads back."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


def _check_lrs(lrs: tuple[float, ...]) -> None:
    if not lrs:
        raise SpecError("lrs: the list is empty", hint="give learning rates, e.g. lrs: [2^-10, 2^-9, 2^-8]")
    for lr in lrs:
        if not (math.isfinite(lr) and lr > 0):
            raise SpecError(f"lrs: {lr:g} is not above zero", hint="write 2^-9 or 0.002")
    if len(set(lrs)) < len(lrs):
        twice = next(lr for lr in lrs if lrs.count(lr) > 1)
        raise SpecError(f"lrs: {twice:g} is there twice", hint="replicates are other seeds: train another spec")


def _check_horizons(horizons: tuple[int, ...], schedule: ScheduleSpec) -> None:
    if not horizons:
        raise SpecError("horizons: the list is empty", hint="give steps at which to evaluate, e.g. [2000, 4000]")
    if len(set(horizons)) < len(horizons):
        twice = next(h for h in horizons if horizons.count(h) > 1)
        raise SpecError(f"horizons: {twice} is there twice", hint="name each horizon once")
    for horizon in horizons:
        needed = schedule.warmup_steps + schedule.decay_of(horizon)
        if horizon < max(needed, 1):
            raise SpecError(
                f"horizons: {horizon} steps are fewer than the {schedule.warmup_steps} of warm-up "
                f"and {schedule.decay_of(horizon)} of decay",
                hint="lengthen the horizon, or shorten schedule.warmup_steps and decay_steps",
            )
