"""What is the mean of a scattered curve in a sliding window, and how wide is the scatter there?"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def sliding(x: ArrayLike, y: ArrayLike, half_width: float) -> tuple[Array, Array]:
    """(mean, standard deviation) of y over the points within `half_width` of each x, x rising."""
    at, values = np.asarray(x, float), np.asarray(y, float)
    low = np.searchsorted(at, at - half_width * (1 + 1e-9), side="left")
    high = np.searchsorted(at, at + half_width * (1 + 1e-9), side="right")
    parts = [values[a:b] for a, b in zip(low, high, strict=True)]
    return np.array([part.mean() for part in parts]), np.array([part.std() for part in parts])
