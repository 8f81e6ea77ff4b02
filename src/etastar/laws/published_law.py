"""When may a law from the literature speak about a target, and what must it say beside the number?

The contract of `etastar.laws.published`: a law is a value that names its source, its N, its range and its
training; asked about a target, it answers with a learning rate and flags, or with none and the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from etastar.errors import InputError

Counts = Literal["with embedding", "without embedding", "none"]
Range = tuple[float, float] | None

# Documented codes of `PublishedPrediction.flags`.
FLAGS = {
    "outside_params_range": "the target's N, as the law counts it, lies outside the range it was fitted on",
    "outside_tokens_range": "the target's D lies outside the range the law was fitted on",
    "outside_compute_range": "the target's C lies outside the range the law was fitted on",
    "other_tokens_per_param": "the law has no D: it was fitted at one D/N, and this one is over 2x away",
    "other_batch": "the target's batch differs by over 2x from the batch the law belongs to",
    "other_params": "the law carries an optimum along D alone, and the reference was measured at another N",
    "attention_flops_left_out": "C was taken as 6·N·D; the law's counts attention too, so lr is a bit high",
}
_VALIDITY_FLAGS = frozenset(
    {"outside_params_range", "outside_tokens_range", "outside_compute_range", "other_tokens_per_param"}
)
_TOLERANCE = 2.0  # "differs by over 2x": one octave, the step of the paper's own learning-rate grid


@dataclass(frozen=True, kw_only=True)
class ReferenceOptimum:
    """An optimum somebody measured, from which a law without a usable constant can start."""

    lr: float
    tokens: float
    params: float | None = None

    def __post_init__(self) -> None:
        require_positive(self.lr, "reference lr")
        require_positive(self.tokens, "reference tokens", least=1.0)
        require_positive(self.params, "reference params", optional=True, least=1.0)


@dataclass(frozen=True, kw_only=True)
class Target:
    """The run a law is asked about; what is unknown stays None."""

    params: float
    tokens: float
    params_nonembedding: float | None = None
    batch_tokens: float | None = None
    flops_per_token: float | None = None
    reference: ReferenceOptimum | None = None

    def __post_init__(self) -> None:
        for name in ("params", "tokens", "params_nonembedding", "batch_tokens", "flops_per_token"):
            require_positive(getattr(self, name), name, optional=name not in ("params", "tokens"), least=1.0)
        if self.params_nonembedding is not None and self.params_nonembedding > self.params:
            raise InputError(
                f"params_nonembedding: {self.params_nonembedding:g} is above params, {self.params:g}",
                hint="params counts the token embedding once, params_nonembedding leaves it out",
            )

    @property
    def size_without_embedding(self) -> float:
        """`params_nonembedding`, for laws that need it: a law checks first that it is known."""
        if self.params_nonembedding is None:
            raise InputError("params_nonembedding is not known", hint="give params_nonembedding")
        return self.params_nonembedding

    @property
    def nonembedding_compute(self) -> float:
        """C without embedding: M·D where M is known, else 6·N·D, which leaves attention out."""
        if self.flops_per_token is not None:
            return self.flops_per_token * self.tokens
        return 6.0 * self.size_without_embedding * self.tokens

    @property
    def measured(self) -> ReferenceOptimum:
        """The reference, for laws that need one: a law checks first that it is there."""
        if self.reference is None:
            raise InputError("no reference optimum is known", hint="give a ReferenceOptimum(lr=, tokens=)")
        return self.reference


@dataclass(frozen=True)
class PublishedPrediction:
    """What one law says; `lr` is None where it may not speak, and `reason` then says why."""

    law: PublishedLaw
    lr: float | None
    reason: str | None = None
    batch_tokens: float | None = None
    outside_validity: bool = False
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PublishedLaw:
    """A law from the literature: its formula, and everything that says where the formula holds."""

    name: str
    citation: str
    formula: str
    counts: Counts
    params_range: Range = None
    tokens_range: Range = None
    compute_range: Range = None
    tokens_per_param: float | None = None
    optimizer: str
    batch: str
    schedule: str
    notes: str
    verified: str
    transfers: Literal["nothing", "tokens", "params and tokens"] = "nothing"
    rate: Callable[[Target], float] = field(repr=False, compare=False)
    batch_rule: Callable[[Target], float] | None = field(default=None, repr=False, compare=False)

    def lr(
        self,
        *,
        params: float,
        tokens: float,
        params_nonembedding: float | None = None,
        batch_tokens: float | None = None,
        flops_per_token: float | None = None,
        reference: ReferenceOptimum | None = None,
    ) -> PublishedPrediction:
        """The law's learning rate at a target, or None and the reason why it has none.

        `flops_per_token` is DeepSeek's M (training FLOPs a token, attention in, embedding out), used by
        that law alone; `reference` is a measured optimum, for laws that only transfer one.
        """
        target = Target(
            params=params,
            tokens=tokens,
            params_nonembedding=params_nonembedding,
            batch_tokens=batch_tokens,
            flops_per_token=flops_per_token,
            reference=reference,
        )
        if reason := self._missing(target):
            return PublishedPrediction(self, None, reason)
        rate = self.rate(target)
        if not 0 < rate < math.inf:
            return PublishedPrediction(self, None, f"the formula gives {rate:.3g}, which is no learning rate")
        batch = self.batch_rule(target) if self.batch_rule else None
        flags = self._flags(target, batch)
        return PublishedPrediction(self, rate, None, batch, not _VALIDITY_FLAGS.isdisjoint(flags), flags)

    def _missing(self, target: Target) -> str | None:
        knows_compute = self.compute_range is not None and target.flops_per_token is not None
        if self.counts == "without embedding" and target.params_nonembedding is None and not knows_compute:
            return "its N is without embedding, and params_nonembedding is not known"
        if self.transfers != "nothing" and target.reference is None:
            return "it carries a measured optimum over, and no reference (lr, tokens) is given"
        if self.transfers == "params and tokens" and target.reference and target.reference.params is None:
            return "it carries a measured optimum along N as well, and the reference has no params"
        return None

    def _flags(self, target: Target, batch: float | None) -> tuple[str, ...]:
        found = []
        size = target.params_nonembedding if self.counts == "without embedding" else target.params
        if size is not None and _outside(size, self.params_range):
            found.append("outside_params_range")
        if _outside(target.tokens, self.tokens_range):
            found.append("outside_tokens_range")
        if self.compute_range and _outside(target.nonembedding_compute, self.compute_range):
            found.append("outside_compute_range")
        if self.tokens_per_param and size and _apart(target.tokens / size, self.tokens_per_param):
            found.append("other_tokens_per_param")
        if batch and target.batch_tokens and _apart(target.batch_tokens, batch):
            found.append("other_batch")
        if self.compute_range and target.flops_per_token is None:
            found.append("attention_flops_left_out")
        measured_at = target.reference.params if target.reference else None
        if self.transfers == "tokens" and measured_at not in (None, target.params):
            found.append("other_params")
        return tuple(found)


def require_positive(value: float | None, what: str, *, optional: bool = False, least: float = 0.0) -> None:
    """Refuse what is not a finite number above zero (and not below `least`: counts start at one)."""
    if value is None and optional:
        return
    if not (isinstance(value, (int, float)) and math.isfinite(value) and value > 0 and value >= least):
        expected = f"a number of at least {least:g}" if least else "a positive number"
        raise InputError(f"{what}: {value!r} is not {expected}", hint=f"give {expected} for {what}")


def _outside(value: float, bounds: Range) -> bool:
    # A part in a thousand: the ends are written to three or four digits.
    return bounds is not None and not bounds[0] * 0.999 <= value <= bounds[1] * 1.001


def _apart(value: float, other: float) -> bool:
    return not 1 / _TOLERANCE <= value / other <= _TOLERANCE
