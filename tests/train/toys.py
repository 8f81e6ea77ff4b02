"""Small specifications that train in a second or two."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from etastar.train.data import SyntheticCorpus
from etastar.train.engine import Engine
from etastar.train.optim import step_table
from etastar.train.spec import TrainSpec
from etastar.train.spec_file import build_spec
from etastar.train.state import TrainState

torch.set_num_threads(1)
CORPUS = SyntheticCorpus(vocab=64, seed=1, tokens=20_000, validation_tokens=4_000)


class Start(NamedTuple):
    """How far losses of two ways to compute a run may lie apart over its first steps."""

    steps: int
    atol: float


# Over more steps training amplifies rounding, and a tolerance for that would hide an error: what must hold
# for long is compared in float64.
FP32_START = Start(steps=3, atol=1e-4)
BF16_START = Start(steps=5, atol=5e-3)


def toy(*, gpt2: bool = False, **changes: Any) -> TrainSpec:
    """A two-layer model of width 16 on the synthetic language; `changes` are merged one level deep."""
    positions = "learned" if gpt2 else "rope"
    content: dict[str, Any] = {
        "model": {
            "width": 16,
            "layers": 2,
            "head_dim": 8,
            "vocab": 64,
            "context": 16,
            "positions": positions,
            "norm": "layernorm" if gpt2 else "rmsnorm",
            "qk_norm": not gpt2,
            "norm_embedding": not gpt2,
            "init": "gpt2" if gpt2 else "width",
        },
        "data": {
            "synthetic_vocab": 64,
            "synthetic_seed": 1,
            "synthetic_tokens": 20_000,
            "synthetic_validation_tokens": 4_000,
        },
        "schedule": {"warmup_steps": 4, "decay_steps": 6},
        "lrs": [2**-9, 2**-7, 2**-5],
        "horizons": [16, 24],
        "batch_sequences": 4,
        "eval_tokens": 1024,
        "execution": {"threads": 1, "device": "cpu", "log_every": 3, "checkpoint_every": 5},
    }
    for key, value in changes.items():
        content[key] = content.get(key, {}) | value if isinstance(value, dict) else value
    return build_spec(content)


def steps(
    spec: TrainSpec,
    count: int,
    *,
    state: TrainState | None = None,
    start: int = 0,
    horizon: int | None = None,
) -> tuple[TrainState, torch.Tensor, Engine]:
    """Take `count` steps of a spec by hand; the state, the losses (count, K) and the engine."""
    engine = Engine(spec, device=torch.device("cpu"), micro_batch=spec.execution.micro_batch or 10**6)
    state = state or engine.fresh_state()
    table = step_table(spec, start=start, stop=start + count, horizon=horizon, device=engine.device)
    losses = []
    for step in range(start, start + count):
        rows = CORPUS.batch(seed=spec.seed, step=step, sequences=spec.batch_sequences, length=spec.model.context)
        losses.append(engine.step(state, torch.from_numpy(rows), table[step - start]).loss)
    return state, torch.stack(losses), engine


def alone(spec: TrainSpec, index: int) -> TrainSpec:
    """The same spec with one of its learning rates."""
    return spec.model_copy(update={"lrs": (spec.lrs[index],)})
