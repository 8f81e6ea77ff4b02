"""Which settings did the paper train with, and which serve a small scale?

Each recipe returns a whole `TrainSpec`; change one with `spec.model_copy(update=…)` or the YAML.
"""

from __future__ import annotations

from collections.abc import Iterable

from etastar.train.spec import (
    DataSpec,
    EmbeddingSpec,
    Execution,
    ModelSpec,
    OptimizerSpec,
    ScheduleSpec,
    TrainSpec,
)

PAPER_WIDTHS = (256, 512, 768, 1024, 1536, 2048)


def octaves(low: float, high: float, *, per_octave: int = 1) -> tuple[float, ...]:
    """Learning rates from 2^low to 2^high, `per_octave` of them an octave, both ends included."""
    count = round((high - low) * per_octave)
    return tuple(2.0 ** (low + index / per_octave) for index in range(count + 1))


def gpt2(
    *,
    width: int,
    optimizer: str = "adamw",
    lrs: Iterable[float] | None = None,
    horizons: Iterable[int] | None = None,
    data: DataSpec | None = None,
    vocab: int = 50304,
    schedule: ScheduleSpec | None = None,
    eval_tokens: int = 10_000_000,
    seed: int = 0,
    execution: Execution | None = None,
) -> TrainSpec:
    """The paper's training set-up (its appendix), every value of it.

    12 layers, head dimension 128, learned positions, LayerNorm, 512 × 1024 tokens a step, β = 0.95/0.95,
    ε = 1e-8, λ = 0.1 (AdamW alone), embedding LR 0.0036, warm-up 1000 and decay 5000 steps, horizons of
    10k to 200k steps, 10M evaluation tokens, LRs 2^-15 … 2^-7 (2^-11 … 2^-7 for AdamH and MuonH).
    """
    hyperball = optimizer in ("adamh", "muonh")
    return TrainSpec(
        name=f"gpt2-{width}-{optimizer}",
        model=ModelSpec(width=width, layers=12, head_dim=128, vocab=vocab, context=1024),
        optimizer=OptimizerSpec(kind=optimizer, beta1=0.95, beta2=0.95, eps=1e-8),  # type: ignore[arg-type]
        embedding=EmbeddingSpec(lr=0.0036, beta1=0.9, beta2=0.95, eps=1e-8),
        schedule=schedule or ScheduleSpec(kind="wsd", warmup_steps=1000, decay_steps=5000),
        data=data or DataSpec(),
        lrs=tuple(lrs) if lrs is not None else octaves(-11 if hyperball else -15, -7),
        horizons=tuple(horizons) if horizons is not None else tuple(range(10_000, 200_001, 5_000)),
        batch_sequences=512,
        eval_tokens=eval_tokens,
        seed=seed,
        execution=execution or Execution(checkpoint_every=2500),
    )


def rope(
    *,
    width: int,
    layers: int = 4,
    optimizer: str = "adamw",
    lrs: Iterable[float] | None = None,
    horizons: Iterable[int] = (2000, 4000),
    data: DataSpec | None = None,
    vocab: int = 8192,
    context: int = 256,
    batch_sequences: int = 32,
    schedule: ScheduleSpec | None = None,
    eval_tokens: int = 1_000_000,
    seed: int = 0,
    execution: Execution | None = None,
) -> TrainSpec:
    """A GPT that is smooth in the learning rate at small scale: RoPE, RMSNorm without gain, QK-norm.

    The embedding is normalised and matrices start at N(0, 1/√width), because over these LRs at width 128
    (2000 steps, one seed) the loss then has a single valley, 0.010 rms from a cubic; with neither its slope
    changes sign 8 times (0.053 rms), with one of the two 4 or 5 times (0.064, 0.026).
    Head dimension 64; warm-up 200 and decay 400 steps; 11 LRs in half octaves, 2^-11 … 2^-6
    (2^-10 … 2^-5 for AdamH and MuonH, whose LR is the effective one).
    """
    hyperball = optimizer in ("adamh", "muonh")
    return TrainSpec(
        name=f"rope-{width}x{layers}-{optimizer}",
        model=ModelSpec(
            width=width,
            layers=layers,
            head_dim=64,
            vocab=vocab,
            context=context,
            positions="rope",
            norm="rmsnorm",
            qk_norm=True,
            norm_embedding=True,
            init="width",
        ),
        optimizer=OptimizerSpec(kind=optimizer),  # type: ignore[arg-type]
        embedding=EmbeddingSpec(),
        schedule=schedule or ScheduleSpec(kind="wsd", warmup_steps=200, decay_steps=400),
        data=data or DataSpec(),
        lrs=tuple(lrs) if lrs is not None else octaves(*((-10, -5) if hyperball else (-11, -6)), per_octave=2),
        horizons=tuple(horizons),
        batch_sequences=batch_sequences,
        eval_tokens=eval_tokens,
        seed=seed,
        execution=execution or Execution(),
    )
