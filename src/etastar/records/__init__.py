"""The contract between the rooms: the runs table (one row a trained and evaluated cell), the trajectories table (one row
a run × step × weight), and `RunSpec`, what was trained.

Tables are pyarrow, so that the training path needs nothing heavier; `conform_runs` and `conform_trajectories` are the
door through which every table enters.
"""

from etastar.records.conform import Conformed, conform_runs, conform_trajectories, runs_table
from etastar.records.contract import (
    REQUIRED,
    RUN_COLUMNS,
    RUN_SCHEMA,
    TRAJECTORY_COLUMNS,
    TRAJECTORY_SCHEMA,
    Column,
    RunSpec,
    RunStatus,
    content_id,
)
from etastar.records.groups import GROUP_COLUMNS, group_labels

__all__ = [
    "GROUP_COLUMNS",
    "REQUIRED",
    "RUN_COLUMNS",
    "RUN_SCHEMA",
    "TRAJECTORY_COLUMNS",
    "TRAJECTORY_SCHEMA",
    "Column",
    "Conformed",
    "RunSpec",
    "RunStatus",
    "conform_runs",
    "conform_trajectories",
    "content_id",
    "group_labels",
    "runs_table",
]
