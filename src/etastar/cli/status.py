"""`etastar status`: where a study stands, once or live, from its folder alone."""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from etastar.cli.looks import make_console, make_table
from etastar.errors import InputError
from etastar.records import group_labels
from etastar.scale import format_number
from etastar.store import read_runs

if TYPE_CHECKING:
    from etastar.launch.status import StackStatus, StudyStatus

_STYLE = {"done": "green", "running": "bold", "failed": "red", "interrupted": "yellow", "waiting": "dim"}


def status_command(
    study: Annotated[Path, typer.Argument(help="A study's folder.")],
    watch: Annotated[bool, typer.Option("--watch", help="Draw it again every few seconds, until all is done.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="JSON alone on stdout.")] = False,
    serve: Annotated[bool, typer.Option("--serve", help="Serve the report as a page that follows the study.")] = False,
    host: Annotated[
        str, typer.Option("--host", help="Where to serve; beyond 127.0.0.1 whoever reaches it can read the study.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to serve on; 0: any free one.")] = 8787,
    params: Annotated[str | None, typer.Option("--params", help="The page's target N; default: the plan's.")] = None,
    tokens: Annotated[str | None, typer.Option("--tokens", help="The page's target D; default: the plan's.")] = None,
) -> None:
    """Show what of a study is done, running, failed or waiting; with --serve, as a page in the browser."""
    if serve:
        from etastar.cli.status_page import serve_study

        serve_study(study, params, tokens, host, port, every)
        return
    if not (study / "plan.yaml").is_file() and (study / "runs").is_dir():
        _show_rows(study, as_json)  # of `etastar train`, `import` or `simulate`: no plan says what is missing
        return
    try:
        from etastar.launch.status import status_of
        from etastar.launch.study import open_study
    except ModuleNotFoundError as error:
        raise InputError(
            f"status needs {error.name}, which is not installed", hint="pip install 'etastar[train]'"
        ) from None
    opened = open_study(study)
    if as_json:
        typer.echo(json.dumps(status_of(opened).to_json()))
        return
    if not watch:
        _show(status_of(opened))
        return
    try:
        _watch(lambda: status_of(opened), every)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _watch(look: Any, every: float) -> None:
    """Live on a terminal; off one, lines again and again when something has changed."""
    if sys.stdout.isatty():
        from rich.live import Live

        with Live(_table(look()), refresh_per_second=4) as live:
            while not (now := look()).finished:
                live.update(_table(now))
                time.sleep(every)
            live.update(_table(now))
        return
    shown = ""
    while True:
        now = look()
        text = "\n".join(_line(stack) for stack in now.stacks)
        if text != shown:
            typer.echo(text)
            shown = text
        if now.finished:
            return
        time.sleep(every)


def _show(status: StudyStatus) -> None:
    if sys.stdout.isatty():
        make_console().print(_table(status))
    else:
        typer.echo(f"{status.name}: launcher {status.launcher or 'none'}")
        for stack in status.stacks:
            typer.echo(_line(stack))
    for made in status.decisions:
        changed = [f"stops 2^{math.log2(lr):g}" for lr in made["stop"]]
        changed += [f"adds 2^{math.log2(lr):g}" for lr in made["add"]]
        typer.echo(f"{made['stack']} after {made['horizon']}: {', '.join(changed) or 'no change'}")


def _show_rows(study: Path, as_json: bool) -> None:
    """What a folder without a plan holds, by group and N."""
    table = read_runs(study)
    labels = group_labels(table)
    found: dict[tuple[str, float], dict[str, Any]] = {}
    for label, row in zip(labels, table.select(["params", "tokens", "lr", "status"]).to_pylist(), strict=True):
        one = found.setdefault(
            (label, row["params"]), {"runs": 0, "diverged": 0, "crashed": 0, "lrs": set(), "tokens": set()}
        )
        one["runs"] += 1
        one["lrs"].add(row["lr"])
        one["tokens"].add(row["tokens"])
        if row["status"] in one:
            one[row["status"]] += 1
    rows = [
        {"group": label, "params": n, **one, "lrs": len(one["lrs"]), "tokens": sorted(one["tokens"])}
        for (label, n), one in sorted(found.items())
    ]
    if as_json:
        typer.echo(json.dumps({"name": study.resolve().name, "plan": None, "rows": rows}))
        return
    columns = ("N", "runs", "LRs", "D", "longest D", "diverged", "crashed", "group")
    shown = make_table(f"{study.resolve().name}: {table.num_rows} runs, no plan", *columns, left=("group",))
    for row in rows:
        shown.add_row(
            format_number(row["params"]), str(row["runs"]), str(row["lrs"]), str(len(row["tokens"])),
            format_number(row["tokens"][-1]), str(row["diverged"]), str(row["crashed"]), escape(row["group"]),
        )  # fmt: skip
    make_console().print(shown)
    typer.echo("what is missing only a plan can say; --serve shows the report of these runs as they come")


def _progress(stack: StackStatus) -> str:
    if stack.state == "failed":
        return stack.reason
    if stack.state != "running" or stack.fraction is None:
        return ""
    left = "" if stack.seconds_left is None else f", {_time(stack.seconds_left)} left"
    pace = "" if stack.tokens_per_second is None else f", {format_number(stack.tokens_per_second)} tokens/s"
    return f"{stack.segment} {stack.fraction:.0%}{pace}{left}"


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else (f"{minutes}m{rest:02d}s" if minutes else f"{rest}s")


def _line(stack: StackStatus) -> str:
    parts = [
        f"{stack.name}: {stack.state}",
        f"{stack.done} of {stack.cells} cells",
        f"{format_number(stack.params)} parameters × {stack.lrs}",
        _progress(stack),
        stack.where,
    ]
    return "  ".join(part for part in parts if part)


def _table(status: StudyStatus) -> Any:
    from rich.table import Table

    title = f"{escape(status.name)}  launcher: {escape(status.launcher) or 'none'}"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in ("stack", "N", "LRs", "cells", "state", "progress", "where", "seen"):
        table.add_column(name, justify="right" if name in ("N", "LRs", "cells", "seen") else "left")
    for stack in status.stacks:
        seen = "" if stack.seen is None else f"{_time(stack.seen)} ago"
        table.add_row(
            escape(stack.name),
            format_number(stack.params),
            str(stack.lrs),
            f"{stack.done}/{stack.cells}",
            stack.state,
            escape(_progress(stack)),
            escape(stack.where),
            seen,
            style=_STYLE[stack.state],
        )
    return table
