"""At which learning rate is the loss lowest, and how sure is that? One cell's answer as a value."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from etastar.estimate.cells import Quantity
from etastar.estimate.flags import Flag
from etastar.estimate.polynomial import polynomial


class Status(enum.StrEnum):
    """The outcome of a fit; only INTERIOR carries an optimum."""

    sentence: str

    def __new__(cls, code: str, sentence: str) -> Status:
        member = str.__new__(cls, code)
        member._value_ = code
        member.sentence = sentence
        return member

    INTERIOR = "INTERIOR", "the minimum lies inside the swept range"
    AT_BOUNDARY = "AT_BOUNDARY", "the loss is lowest at an end of the swept range: widen the sweep"
    NO_MINIMUM = "NO_MINIMUM", "the fit has no minimum inside the swept range"
    TOO_FEW_POINTS = "TOO_FEW_POINTS", "fewer finite losses than the fit needs"


@dataclass(frozen=True)
class Polynomial:
    """A cell's fit: Σ c_k u^k with u = (x − center) / scale, x the log2 of `coordinate`."""

    coordinate: Quantity
    center: float
    scale: float
    coefficients: tuple[float, ...]
    near: tuple[float, float]  # the log2 η range of the points that carry the fit

    def __call__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        return polynomial((x - self.center) / self.scale, np.array(self.coefficients))


@dataclass(frozen=True)
class Optimum:
    """The optimal learning rate (or η_eff) of one cell. log2 values are NaN unless INTERIOR."""

    group: str
    params: float
    tokens: float
    quantity: Quantity
    status: Status
    log2_value: float
    log2_interval: tuple[float, float]
    log2_sd: float
    loss: float
    curvature: float  # second derivative of the loss in octaves²
    r2: float
    degree: int | None
    fitted_in: Quantity  # the logarithm in which the losses were fitted
    points: int
    flags: tuple[Flag, ...] = ()
    polynomial: Polynomial | None = None

    @property
    def value(self) -> float | None:
        """The optimum itself, or None where there is none."""
        return 2.0**self.log2_value if self.status is Status.INTERIOR else None
