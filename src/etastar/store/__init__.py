"""A study's runs and trajectories on disk."""

from etastar.store.parts import (
    parts,
    read_part,
    read_runs,
    read_trajectories,
    write_atomically,
    write_runs,
    write_trajectories,
)

__all__ = [
    "parts",
    "read_part",
    "read_runs",
    "read_trajectories",
    "write_atomically",
    "write_runs",
    "write_trajectories",
]
