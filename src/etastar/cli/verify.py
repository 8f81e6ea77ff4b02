"""`etastar verify`: what is wrong with a study's folder, file by file."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Annotated

import typer

from etastar.errors import InputError


def verify_command(
    study: Annotated[Path, typer.Argument(help="A study's folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="JSON alone on stdout.")] = False,
) -> None:
    """Read every file of a study and say what is damaged, doubled or missing; exit code 1 if anything is."""
    from etastar.store.verify import verify_files

    if not study.is_dir():
        raise InputError(f"{str(study)!r} is no folder", hint="give a study's folder")
    found = verify_files(study)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # damaged parts are named in the list already
        try:
            from etastar.launch.check import verify_plan

            found += verify_plan(study)
        except ModuleNotFoundError as error:
            typer.echo(f"plan and specifications were not looked at: {error.name} is not installed", err=True)
    wrong = [problem for problem in found if problem.wrong]
    if as_json:
        shown = [{"file": p.file, "what": p.what, "wrong": p.wrong} for p in found]
        typer.echo(json.dumps({"study": str(study), "ok": not wrong, "problems": shown}))
    else:
        for problem in found:
            typer.echo(f"{'wrong' if problem.wrong else 'note '}  {problem}")
        typer.echo(f"{study}: {len(wrong)} problems" if wrong else f"{study}: nothing is wrong")
    raise typer.Exit(1 if wrong else 0)
