"""`etastar merge`: several studies into one, no row lost and none twice."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def merge_command(
    studies: Annotated[list[Path], typer.Argument(help="Folders of studies.")],
    to: Annotated[Path, typer.Option(help="The folder to make; it must not exist.")],
) -> None:
    """Merge studies; equal rows are kept once, contradicting ones stop it before anything is written."""
    from etastar.store.merge import merge_studies

    merged = merge_studies(studies, to)
    typer.echo(f"{merged.runs} runs in {merged.study}, {merged.equal} of them in more than one study")
    for note in merged.notes:
        typer.echo(f"note: {note}")
