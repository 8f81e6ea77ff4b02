"""In which unit was that written? Tokens in billions, parameters in millions, a learning rate as a power of two.

A unit in a column's name is taken at its word. Without one, values that cannot be what they seem (a training
run of 40 tokens) are scaled where one reading alone makes sense, and said aloud; where two do, the user is asked.
"""

from __future__ import annotations

import re

import numpy as np
import polars as pl

from etastar.errors import InputError

_SCALES = {
    "k": 1e3, "thousand": 1e3, "thousands": 1e3, "m": 1e6, "mil": 1e6, "million": 1e6, "millions": 1e6,
    "b": 1e9, "bn": 1e9, "billion": 1e9, "billions": 1e9, "g": 1e9, "t": 1e12, "trillion": 1e12, "trillions": 1e12,
}  # fmt: skip
_SCALED = re.compile(rf"^(?P<base>.+?)(?:_in)?[_.\[(]+(?P<unit>{'|'.join(_SCALES)})[\])]?$")
_LOGARITHM = re.compile(
    r"^(?:(?P<before>log2|log10|ln)[_.(]?(?P<first>.+?)\)?|(?P<second>.+?)_(?P<after>log2|log10|ln))$"
)
_BASES = {"log2": 2.0, "log10": 10.0, "ln": float(np.e)}
_SMALL = 1e5  # no training run has fewer tokens, and no language model fewer parameters
_TOKENS_PER_PARAMETER = (0.3, 3000.0)


def split_unit(name: str) -> tuple[str, str] | None:
    """ "tokens_b" → ("tokens", "b"), "log2_lr" → ("lr", "log2"); None where a name has no unit."""
    if match := _LOGARITHM.match(name):
        return match["first"] or match["second"], match["before"] or match["after"]
    if match := _SCALED.match(name):
        return match["base"], match["unit"]
    return None


def in_units(frame: pl.DataFrame, name: str, unit: str) -> pl.DataFrame:
    """A column in its own unit → in the contract's."""
    value = pl.col(name).cast(pl.Float64, strict=False)
    if unit in _BASES:
        return frame.with_columns((pl.lit(_BASES[unit]) ** value).alias(name))
    return frame.with_columns((value * _SCALES[unit]).alias(name))


def guess_units(frame: pl.DataFrame, units: list[str]) -> pl.DataFrame:
    """Scale what cannot be in the contract's unit; `units` gains a sentence for each guess."""
    tokens, params = _finite(frame, "tokens"), _finite(frame, "params")
    if len(tokens) and tokens.max() < _SMALL and len(params) and not _counted(frame):
        frame = in_units(frame, "tokens", "b")
        units.append(f"tokens: values up to {tokens.max():g} read as billions")
        tokens = _finite(frame, "tokens")
    if len(params) and params.max() < _SMALL and len(tokens) and tokens.min() >= 100 * _SMALL:
        frame = _params(frame, params, tokens, units)
    return _rate(frame, units)


def _params(frame: pl.DataFrame, params: np.ndarray, tokens: np.ndarray, units: list[str]) -> pl.DataFrame:
    """Millions or billions: whichever alone gives a usual number of tokens for each parameter."""
    if np.median(params) <= 0:
        return frame  # refused later, by its row
    with np.errstate(over="ignore"):  # a value next to zero is neither
        ratio = np.median(tokens) / np.median(params)
    low, high = _TOKENS_PER_PARAMETER
    fits = [unit for unit in ("m", "b") if low <= ratio / _SCALES[unit] <= high]
    if len(fits) != 1:
        raise InputError(
            f"column params: values up to {params.max():g} may be millions or billions",
            hint="say which, e.g. --map params=params*1e6 (with your column's name)",
        )
    units.append(f"params: values up to {params.max():g} read as {'millions' if fits[0] == 'm' else 'billions'}")
    return in_units(frame, "params", fits[0])


def _rate(frame: pl.DataFrame, units: list[str]) -> pl.DataFrame:
    """A grid of powers of two, given by its exponents, is the one kind of negative rate that reads one way alone."""
    rates = _finite(frame, "lr")
    if not len(rates) or rates.max() >= 0:
        return frame
    if np.all(rates * 4 == np.round(rates * 4)) and -30 <= rates.min() < -6:
        units.append(f"lr: values from {rates.min():g} to {rates.max():g} read as log2")
        return in_units(frame, "lr", "log2")
    raise InputError(
        f"column lr: values from {rates.min():g} to {rates.max():g} seem to be a logarithm",
        hint="say which, e.g. --map lr=power(10, lr) (with your column's name)",
    )


def _counted(frame: pl.DataFrame) -> bool:
    """Do steps × batch_tokens say that the tokens are tokens, in a toy of a run?"""
    if not all(name in frame.columns and frame[name].dtype.is_numeric() for name in ("steps", "batch_tokens")):
        return False
    ratio = frame.select((pl.col("steps").cast(pl.Float64) * pl.col("batch_tokens") / pl.col("tokens")).median()).item()
    return ratio is not None and 0.1 < ratio < 10


def _finite(frame: pl.DataFrame, name: str) -> np.ndarray:
    if name not in frame.columns or not frame[name].dtype.is_numeric():
        return np.array([])
    values = frame[name].cast(pl.Float64).drop_nulls().to_numpy()
    return values[np.isfinite(values)]
