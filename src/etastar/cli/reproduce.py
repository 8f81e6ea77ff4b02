"""`etastar reproduce`: the paper's figures, its Table 1 and its claims, from a study's own runs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from etastar.errors import InputError
from etastar.report.figures.files import FORMATS
from etastar.shipped import named, shipped_names


def reproduce_command(
    study: Annotated[str, typer.Argument(help="A study folder, or the name of a shipped one.")] = "mini",
    out: Annotated[Path, typer.Option("--out", help="Folder for figures/ and RESULTS.md.")] = Path("out/reproduce"),
    formats: Annotated[str, typer.Option("--format", help=f"Of the figures: {', '.join(FORMATS)}.")] = "png",
    jobs: Annotated[int, typer.Option("--jobs", help="Processes; by default one a core, at most four.")] = 0,
    check: Annotated[
        Path | None,
        typer.Option(
            "--check", help="Compare RESULTS.md with this file; exit 1 if a byte differs.", show_default=False
        ),
    ] = None,
) -> None:
    """Test every claim of the paper on a study, draw every figure, write RESULTS.md.

    Each claim has our figure, its interval, the rule that decides it, and a verdict. The same study gives the same bytes.

    Example: etastar reproduce mini --out out/reproduce --check docs/RESULTS.md
    """
    # matplotlib is imported by those who draw alone
    from etastar.report.reproduce import reproduce

    folder = Path(named(study))
    if not (folder / "runs").is_dir():
        raise InputError(
            f"study: {study[:80]!r} has no runs", hint=f"give a study folder, or one of {', '.join(shipped_names())}"
        )
    wanted = tuple(dict.fromkeys(part.strip().lower() for part in formats.split(",") if part.strip()))
    if not wanted or set(wanted) - set(FORMATS):
        raise InputError(f"--format: {formats[:60]!r} is not known", hint=f"one or more of {', '.join(FORMATS)}")
    if check is not None and not check.is_file():
        raise InputError(f"--check: no file {str(check)!r}", hint="name a RESULTS.md")
    console, began = Console(highlight=False, soft_wrap=True), time.monotonic()
    command = f"etastar reproduce {study}"
    for done in reproduce(folder, out, command, wanted, jobs or min(4, os.cpu_count() or 1)):
        console.print(f"{time.monotonic() - began:5.1f} s  {done.part}")
        for one in done.outcomes:
            if one.missing is not None:
                console.print(f"         [dim]{escape(one.name)}: {escape(one.missing)}[/]")
    page = out / "RESULTS.md"
    console.print(f"wrote {escape(str(page))} and {escape(str(out / 'figures'))}")
    if check is not None:
        same = page.read_bytes() == check.read_bytes()
        console.print(f"{escape(str(check))}: {'the same bytes' if same else 'differs'}")
        raise typer.Exit(0 if same else 1)
