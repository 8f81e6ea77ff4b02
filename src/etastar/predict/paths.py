"""To which group's runs do a study's trajectories belong?"""

from __future__ import annotations

import pyarrow as pa

from etastar.errors import InputError
from etastar.estimate.cells import Group
from etastar.predict.logged import LoggedRows
from etastar.predict.trunks import Paths, paths_of
from etastar.records import group_labels


def paths_by_group(
    table: pa.Table,
    trajectories: LoggedRows,
    groups: list[Group],
    group_columns: list[str] | None = None,
    *,
    insist: bool = False,
) -> tuple[dict[str, Paths], list[str]]:
    """Paths by group label, and notes on groups without; `insist` refuses a table that fits no run of a lone group."""
    labels = group_labels(table, group_columns)
    by_group: dict[str, Paths] = {}
    notes = []
    for group in groups:
        rows = table.filter(pa.array([label == group.label for label in labels]))
        try:
            by_group[group.label] = paths_of(rows, trajectories)
        except InputError as error:
            if insist and len(groups) == 1:
                raise
            notes.append(f"trajectories left aside: {error.message}")
    return by_group, notes
