"""How are numbers and strategies said to people? One spelling for the page, the Markdown and the figures."""

from __future__ import annotations

import math
from typing import Any

from etastar.estimate.cells import Quantity
from etastar.laws.loglinear import Axis
from etastar.predict.strategies import Prediction
from etastar.scale import format_number

LONGEST_NAME = 200  # characters of a run's name that a page carries

_AXIS = {Axis.DATA: "along D", Axis.MODEL: "along N", Axis.JOINT: "joint"}


def strategy_words(axis: Axis, quantity: Quantity, *, inverted: bool) -> str:
    """ "along D, η_eff inverted": a strategy as people say it."""
    spoken = "η_eff inverted" if inverted else ("η" if quantity is Quantity.LR else "η_eff")
    return f"{_AXIS[axis]}, {spoken}"


def strategy_key(axis: Axis, quantity: Quantity, *, inverted: bool) -> str:
    """ "data-eff_lr": a strategy's name inside the page."""
    return f"{axis.value}-{'inverted' if inverted else quantity.value}"


def prediction_words(prediction: Prediction) -> str:
    """The strategy behind a prediction."""
    return strategy_words(prediction.axis, prediction.quantity, inverted=prediction.inverted)


def prediction_key(prediction: Prediction) -> str:
    """Its name inside the page."""
    return strategy_key(prediction.axis, prediction.quantity, inverted=prediction.inverted)


def lr_words(lr: float | None) -> str:
    """A learning rate as it is typed: three digits."""
    return "–" if lr is None or not math.isfinite(lr) else f"{lr:.3g}"


def power_words(log2_value: float | None, digits: int = 2) -> str:
    """2^-14.24."""
    return "–" if log2_value is None or not math.isfinite(log2_value) else f"2^{log2_value:.{digits}f}"


def power_html(log2_value: float | None, digits: int = 2) -> str:
    """2<sup>−14.24</sup>, for HTML and for plotly."""
    if log2_value is None or not math.isfinite(log2_value):
        return "–"
    return f"2<sup>{f'{log2_value:.{digits}f}'.replace('-', '−')}</sup>"


def sentence_words(text: str) -> str:
    """A clause as a sentence: a Latin letter first is raised (η is not Η), and it ends."""
    first = text[:1].upper() if text[:1].isascii() else text[:1]
    return f"{first}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}"


def percent_words(share: float | None, digits: int = 2) -> str:
    """0.0012 → "0.12 %"; what is huge gets no decimals."""
    if share is None or not math.isfinite(share):
        return "–"
    if 0 < share < 0.5 * 10.0 ** -(digits + 2):
        return f"< {10.0**-digits:g} %"
    return f"{100 * share:.{0 if abs(share) >= 10 else 1 if abs(share) >= 1 else digits}f} %"


def octave_words(octaves: float | None, *, signed: bool = False) -> str:
    """0.17 → "0.17 octaves"."""
    if octaves is None or not math.isfinite(octaves):
        return "–"
    return f"{octaves:{'+' if signed else ''}.2f} octaves"


def value_words(value: Any) -> str:
    """A setting: large numbers short, the rest as they are."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return format_number(float(value)) if abs(value) >= 1000 else f"{value:g}"
    return short_name(str(value))


def short_name(name: str, longest: int = LONGEST_NAME) -> str:
    """A name of any length as a page carries it; what is cut says how much."""
    return name if len(name) <= longest else f"{name[:longest]}… ({len(name):,} characters)"


def plot_text(text: str) -> str:
    """Text that plotly shows as it is: it reads tags and entities in labels, and a run's name may hold some."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
