"""What of a training specification decides a plan's price? Its model's size, its batch, its schedule.

The plan's `spec` is the trainer's mapping; this reads the few settings that planning needs, with the trainer's
own defaults where the mapping leaves one out. It imports nothing of the trainer, so planning runs without torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from etastar.errors import EtastarError, SpecError
from etastar.scale import gpt_params, gpt_params_nonembedding, parse_number

BYTES_A_PARAMETER = 12  # a checkpoint: fp32 weight and two moments


@dataclass(frozen=True)
class Training:
    """One model under one schedule, as far as its price goes."""

    width: int
    layers: int
    head_dim: int
    vocab: int
    context: int
    batch_sequences: int
    schedule: str
    warmup_steps: int
    decay_steps: int
    decay_fraction: float | None
    keep_branch_points: bool

    @property
    def params(self) -> int:
        """N, the token embedding counted once."""
        return gpt_params(self.width, layers=self.layers, vocab=self.vocab)

    @property
    def params_nonembedding(self) -> int:
        """N without the embedding."""
        return gpt_params_nonembedding(self.width, layers=self.layers)

    @property
    def batch_tokens(self) -> int:
        """Tokens a step."""
        return self.batch_sequences * self.context

    def decay_of(self, horizon: float) -> float:
        """Steps of the decay that ends at `horizon`."""
        if self.schedule != "wsd":
            return 0
        return self.decay_steps if self.decay_fraction is None else round(self.decay_fraction * horizon)

    def shortest(self) -> int:
        """The fewest steps that hold warm-up and decay."""
        if self.schedule == "wsd" and self.decay_fraction is not None:
            horizon = max(self.warmup_steps, 1)
            while horizon < self.warmup_steps + self.decay_of(horizon):
                horizon = self.warmup_steps + int(self.decay_of(horizon))
            return horizon
        return max(self.warmup_steps + int(self.decay_of(0)), 1)

    def steps(self, horizons: Sequence[float]) -> float:
        """Steps that one learning rate takes: its trunk once, and every decay; a cosine shares nothing."""
        leaves = [0.0 if self.schedule == "cosine" else h - self.decay_of(h) for h in horizons]
        return max(leaves) + sum(h - left for h, left in zip(horizons, leaves, strict=True))

    def check_horizon(self, horizon: float, *, where: str) -> None:
        """Refuse a horizon that cannot hold its warm-up and decay."""
        if horizon < self.warmup_steps + self.decay_of(horizon):
            raise SpecError(
                f"{where}: {horizon:g} steps are fewer than the {self.warmup_steps} of warm-up and "
                f"{self.decay_of(horizon):g} of decay",
                hint=f"at least {self.shortest()} steps, or shorten the schedule",
            )


def read_training(content: Mapping[str, Any], *, where: str = "spec") -> Training:
    """The settings that planning needs, from the trainer's mapping with `model.width` in it."""
    model, schedule = _part(content, "model", where), _part(content, "schedule", where)
    execution = _part(content, "execution", where)
    kind = schedule.get("kind", "wsd")
    if kind not in ("wsd", "constant", "cosine"):
        raise SpecError(f"{where}.schedule.kind: {str(kind)[:40]!r} is not known", hint="wsd, constant or cosine")
    fraction = schedule.get("decay_fraction")
    training = Training(
        width=_whole(model, "width", None, f"{where}.model"),
        layers=_whole(model, "layers", 12, f"{where}.model"),
        head_dim=_whole(model, "head_dim", 128, f"{where}.model"),
        vocab=_whole(model, "vocab", 50304, f"{where}.model"),
        context=_whole(model, "context", 1024, f"{where}.model"),
        batch_sequences=_whole(content, "batch_sequences", 512, where),
        schedule=kind,
        warmup_steps=_whole(schedule, "warmup_steps", 1000, f"{where}.schedule", least=0),
        decay_steps=_whole(schedule, "decay_steps", 5000, f"{where}.schedule", least=0),
        decay_fraction=None if fraction is None else _fraction(fraction, f"{where}.schedule.decay_fraction"),
        keep_branch_points=bool(execution.get("keep_branch_points", False)),
    )
    if training.width % training.head_dim:
        up = -(-training.width // training.head_dim) * training.head_dim
        raise SpecError(
            f"{where}.model.width: {training.width} is not a multiple of head_dim {training.head_dim}",
            hint=f"take width {up}, or a head_dim that divides it",
        )
    return training


def _part(content: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    part = content.get(name, {})
    if not isinstance(part, Mapping):
        raise SpecError(f"{where}.{name}: {str(part)[:40]!r} is not a mapping", hint=f"write settings under {name}:")
    return part


def _whole(part: Mapping[str, Any], name: str, default: int | None, where: str, *, least: int = 1) -> int:
    value = part.get(name, default)
    try:
        number = parse_number(value, what=name) if isinstance(value, (int, float, str)) else None
    except EtastarError:
        number = None
    if number is None or isinstance(value, bool) or not (number.is_integer() and number >= least):
        shown = "is missing" if value is None else f"{str(value)[:40]!r} is not a whole number of at least {least}"
        raise SpecError(f"{where}.{name}: {shown}", hint="`etastar train --preset gpt2 --show` prints every setting")
    return int(number)


def _fraction(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise SpecError(f"{where}: {str(value)[:40]!r} is not between 0 and 1", hint="0.2 is a fifth of the horizon")
    return float(value)
