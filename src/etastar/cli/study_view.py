"""How does a verb get from what was typed to a view of the study?"""

from __future__ import annotations

from pathlib import Path

from etastar.cli.options import Loaded
from etastar.predict.logged import LoggedRows, read_trajectories
from etastar.report.view import StudyView


def view_of(source: str, loaded: Loaded, *, group: str | None, trajectories: Path | None) -> StudyView:
    """The study as figures and pages see it; trajectories of a folder, a named file, or out of a tracker's logs."""
    path = Path(source)
    found = read_trajectories(path, trajectories)
    if found is None and loaded.trajectories is not None:
        found = LoggedRows.of_table(loaded.trajectories)
    return StudyView(
        name=path.stem or path.resolve().name,
        table=loaded.table,
        groups=tuple(loaded.groups),
        options=loaded.options,
        eff_column=loaded.eff_column,
        trajectories=found,
        group_columns=tuple(part.strip() for part in group.split(",") if part.strip()) if group else None,
        notes=loaded.notes,
    )
