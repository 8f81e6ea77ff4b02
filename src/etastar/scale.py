"""How big is a run? Parameters, tokens, compute, and the way people write them.

`parse_number` reads "707M", "100B", "2^-9" and "3e-4" wherever a number is typed;
`Scale` is one point of the (N, D) plane.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from etastar.errors import InputError

# Beyond these a size or a learning rate is a slip, and its powers overflow
SMALLEST, LARGEST = 1e-24, 1e24

_SUFFIX = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_PLAIN = re.compile(r"^([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([kmbgt]?)$", re.IGNORECASE)
_POWER = re.compile(r"^(\d+(?:\.\d+)?)\s*(?:\^|\*\*)\s*\(?([+-]?\d+(?:\.\d+)?)\)?$")


def parse_number(text: str | float | int, *, what: str = "a number") -> float:
    """Read "707M", "100B", "0.52M", "2^-9", "2**-9.5", "3e-4" or a plain number.

    Examples:
        >>> parse_number("100B"), parse_number("2^-9")
        (100000000000.0, 0.001953125)
    """
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        return float(text)
    stripped = str(text).strip()
    if match := _POWER.match(stripped):
        try:
            value = float(match[1]) ** float(match[2])
        except (OverflowError, ZeroDivisionError):
            value = math.inf
    elif match := _PLAIN.match(stripped):
        value = float(match[1].replace("_", "")) * _SUFFIX[match[2].lower()]
    else:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{what}: cannot read {stripped[:60]!r}", hint="write 707M, 100B, 0.5T, 2^-9 or 3e-4")
    return value


def parse_positive(text: str | float | int, *, what: str) -> float:
    """`parse_number`, refusing zero and below."""
    value = parse_number(text, what=what)
    if value <= 0:
        raise InputError(f"{what}: {text} is not above zero", hint=f"give a positive {what}")
    return value


def parse_range(text: str, *, what: str) -> tuple[float, float]:
    """Read "50B:100B" as a closed interval; one value is both its ends."""
    low_text, _, high_text = str(text).partition(":")
    low = parse_positive(low_text, what=what)
    high = parse_positive(high_text, what=what) if high_text else low
    if high < low:
        raise InputError(f"{what}: {text} runs backwards", hint="write LOW:HIGH")
    return low, high


def format_number(value: float) -> str:
    """707000000 → "707M": the short form that `parse_number` reads back.

    Examples:
        >>> format_number(707e6), format_number(2.5e9)
        ('707M', '2.5B')
    """
    if not math.isfinite(value):
        return str(value)
    for suffix, unit in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= unit * 0.99995:
            return f"{value / unit:.4g}{suffix}"
    return f"{value:.4g}"


def format_lr(lr: float) -> str:
    """A learning rate for people: its value and its power of two."""
    return f"{lr:.3g} (2^{math.log2(lr):.2f})" if lr > 0 and math.isfinite(lr) else str(lr)


def gpt_params(width: int, *, layers: int = 12, vocab: int = 50304) -> int:
    """Parameters of a GPT: 12·L·d² in the blocks' matrices and V·d in the tied token embedding.

    The position table and the norm gains do not count; so the paper's six widths give its six sizes.

    Examples:
        >>> [round(gpt_params(width) / 1e6, 1) for width in (256, 512, 768, 1024, 1536, 2048)]
        [22.3, 63.5, 123.6, 202.5, 417.0, 707.0]
    """
    return 12 * layers * width**2 + vocab * width


def gpt_params_nonembedding(width: int, *, layers: int = 12) -> int:
    """The same count without the token embedding."""
    return gpt_params(width, layers=layers, vocab=0)


@dataclass(frozen=True, order=True)
class Scale:
    """One point of the (N, D) plane."""

    params: float
    tokens: float

    def __post_init__(self) -> None:
        for name in ("params", "tokens"):
            value = getattr(self, name)
            if not (isinstance(value, (int, float)) and math.isfinite(value) and value > 0):
                raise InputError(f"{name}: {value!r} is not a positive number", hint="write 707M or 100B")
            if not SMALLEST <= value <= LARGEST:
                raise InputError(
                    f"{name}: {value:g} is not between {SMALLEST:g} and {LARGEST:g}", hint="write 707M or 100B"
                )

    @classmethod
    def parse(cls, params: str | float, tokens: str | float) -> Scale:
        """Read both coordinates in any form that `parse_number` takes."""
        return cls(parse_positive(params, what="params"), parse_positive(tokens, what="tokens"))

    @property
    def compute(self) -> float:
        """C = 6·N·D, in FLOP: one full training run (Section 4 of the paper)."""
        return 6.0 * self.params * self.tokens

    def __str__(self) -> str:
        return f"N = {format_number(self.params)}, D = {format_number(self.tokens)}"
