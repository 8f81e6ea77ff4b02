"""Find η*, the learning rate for a large pretraining run, from runs that cost a fraction of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etastar.report.view import StudyView

__all__ = ["__version__", "load_study"]
__version__ = "0.1.0"


def load_study(source: str) -> StudyView:
    """A study by the name it is shipped under ("mini"), or from a study folder or a runs file.

    >>> study = load_study("mini")
    >>> study.table.num_rows
    1292
    """
    # loaded when first asked for: the training path starts without the analysis' libraries
    from etastar.report.view import read_study
    from etastar.shipped import named

    return read_study(named(source))
