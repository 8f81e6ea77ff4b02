"""A study on disk: Parquet parts when done, JSON lines while running, claims on what is being written."""

from etastar.store.disk import write_atomically
from etastar.store.journal import Journal, read_events
from etastar.store.lease import HeldError, Lease, LostError, acquire, holder
from etastar.store.parts import (
    DamagedPartError,
    checked_part,
    parts,
    read_parquet,
    read_part,
    read_runs,
    read_trajectories,
    sweep_leftovers,
    write_runs,
    write_trajectories,
)

__all__ = [
    "DamagedPartError",
    "HeldError",
    "Journal",
    "Lease",
    "LostError",
    "acquire",
    "checked_part",
    "holder",
    "parts",
    "read_events",
    "read_parquet",
    "read_part",
    "read_runs",
    "read_trajectories",
    "sweep_leftovers",
    "write_atomically",
    "write_runs",
    "write_trajectories",
]
