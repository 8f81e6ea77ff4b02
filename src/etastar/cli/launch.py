"""`etastar launch`: run a plan here, on Ray or on Slurm, and go on with it after anything."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from etastar.errors import InputError

if TYPE_CHECKING:
    from etastar.launch.drive import Outcome
    from etastar.launch.study import Study


def launch_command(
    plan: Annotated[Path, typer.Argument(help="A plan in YAML, or the folder of a study to go on with.")],
    out: Annotated[
        Path | None, typer.Option(help="The study's folder; what is there already is not done again.")
    ] = None,
    on: Annotated[str, typer.Option(help="inline, local, ray or slurm.")] = "local",
    option: Annotated[
        list[str] | None, typer.Option(help="Of the executor, NAME=VALUE; a misspelt name lists them. Repeatable.")
    ] = None,
    split_branches: Annotated[
        bool, typer.Option("--split-branches", help="Every branch a task of its own, beside its trunk.")
    ] = False,
    adaptive: Annotated[str | None, typer.Option(help="on or off, in place of what the plan says.")] = None,
    retries: Annotated[
        int, typer.Option(min=0, help="Of a task that crashed or was lost without getting further.")
    ] = 3,
    grace: Annotated[float, typer.Option(min=0, help="Seconds that workers get to save on Ctrl-C.")] = 30.0,
    print_commands: Annotated[
        bool, typer.Option("--print-commands", help="Print the command of every missing task and run none.")
    ] = False,
) -> None:
    """Run what is missing of a plan; kill it at any moment and launch again."""
    try:
        from etastar.launch.drive import LaunchOptions, launch
    except ModuleNotFoundError as error:
        raise InputError(
            f"launching needs {error.name}, which is not installed", hint="pip install 'etastar[train]'"
        ) from None
    from etastar.launch.choose import EXECUTORS, make_executor, parse_options

    if on not in EXECUTORS:
        raise InputError(f"--on {on[:40]!r} is not known", hint=", ".join(EXECUTORS))
    if adaptive not in (None, "on", "off"):
        raise InputError(f"--adaptive {adaptive[:40]!r} is not known", hint="on or off")
    options = parse_options(option or [])
    study = _study(plan, out)
    wanted = study.plan.adaptive if adaptive is None else adaptive == "on"
    how = LaunchOptions(split=split_branches, retries=retries, grace=grace, adaptive=wanted)
    if print_commands:
        _print_commands(study, how)
        return
    executor = make_executor(on, study.path, study.stacks, options)
    cells = sum(len(record.cells()) for record in study.stacks)
    typer.echo(f"{study.plan.name}: {len(study.stacks)} stacks, {cells} cells, on {on} → {study.path}")
    outcome = launch(study, executor, how, say=typer.echo)
    _tell(study, outcome)


def _study(plan: Path, out: Path | None) -> Study:
    from etastar.launch.study import prepare
    from etastar.plan.study_plan import load_plan

    if plan.is_dir() and out is None:
        return prepare(load_plan(plan / "plan.yaml"), plan.resolve())
    loaded = load_plan(plan)
    folder = out or Path("out") / loaded.name
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder}: is a file", hint="give a folder")
    return prepare(loaded, folder.resolve())


def _print_commands(study: Study, how: object) -> None:
    from etastar.launch.drive import LaunchOptions, missing_tasks
    from etastar.launch.graph import command_of

    assert isinstance(how, LaunchOptions)
    tasks = missing_tasks(study, how)
    for task in tasks:
        after = f"  # {task.name}" + ("" if task.ready else f", after {', '.join(task.needs)}")
        typer.echo(shlex.join(command_of(study.path, task)) + after)


def _tell(study: Study, outcome: Outcome) -> None:
    from etastar.store import read_runs

    rows = read_runs(study.path).num_rows
    if outcome.stopped:
        typer.echo(f"stopped with {outcome.missing} cells to go; launch again to go on", err=True)
        raise typer.Exit(130)
    for name, reason in outcome.failed.items():
        typer.echo(f"failed: {name}: {reason}", err=True)
    for name in outcome.skipped:
        typer.echo(f"not begun: {name}", err=True)
    typer.echo(f"{rows} rows in {study.path / 'runs'}, {outcome.missing} cells missing")
    if not outcome.finished:
        typer.echo(
            "hint: `etastar status` and the logs folder say more; launching again does what is missing", err=True
        )
        raise typer.Exit(1)
