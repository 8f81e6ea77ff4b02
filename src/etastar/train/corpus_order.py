"""In which order does an epoch visit the windows of a corpus?

A keyed permutation of 0 … count−1 that is computed one element at a time, so that the batch of any
step is known without the steps before it and a corpus of 10¹⁰ windows needs no table. It is a
Feistel network on a rows × columns rectangle that barely holds `count` cells; a cell outside is
walked on until it lands inside, which keeps the map exact for every count.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache

import numpy as np

_ROUNDS = 6


@lru_cache(maxsize=16)
def _keys(*, seed: int, epoch: int) -> np.ndarray:
    """One 64-bit key a round; neighbouring seeds and epochs share nothing."""
    digest = hashlib.blake2b(f"etastar window order/{seed}/{epoch}".encode(), digest_size=8 * _ROUNDS)
    return np.frombuffer(digest.digest(), dtype="<u8")


def _mix(values: np.ndarray, key: np.ndarray) -> np.ndarray:
    """A 64-bit avalanche of each value under one key (array arithmetic wraps, as is meant here)."""
    mixed = (values + key) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xD6E8FEB86659FD93)
    return mixed >> np.uint64(24)  # the high bits mix best, and adding a coordinate cannot wrap


def _shuffle_once(cells: np.ndarray, rows: np.uint64, columns: np.uint64, keys: np.ndarray) -> np.ndarray:
    """One pass of the network: each round shifts one coordinate by a hash of the other, hence a bijection."""
    row, column = np.divmod(cells, columns)
    for turn in range(_ROUNDS):
        key = keys[turn : turn + 1]
        if turn % 2 == 0:
            row = (row + _mix(column, key)) % rows
        else:
            column = (column + _mix(row, key)) % columns
    return row * columns + column


def shuffled(positions: np.ndarray, *, count: int, seed: int, epoch: int) -> np.ndarray:
    """The windows at these positions of the epoch's order; a bijection of range(count) for each key.

    >>> sorted(shuffled(np.arange(5), count=5, seed=7, epoch=0).tolist())
    [0, 1, 2, 3, 4]
    """
    side = math.isqrt(count - 1) + 1
    rows, columns = np.uint64(side), np.uint64(-(-count // side))
    keys = _keys(seed=seed, epoch=epoch)
    cells = _shuffle_once(positions.astype(np.uint64), rows, columns, keys)
    outside = np.flatnonzero(cells >= count)
    while outside.size:  # the cycle of an inside cell leads back inside: fewer than one row to walk over
        cells[outside] = _shuffle_once(cells[outside], rows, columns, keys)
        outside = outside[cells[outside] >= count]
    return cells.astype(np.int64)
