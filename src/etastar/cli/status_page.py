"""`etastar status --serve`: the report of a study that is still running, on a page that keeps up with it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from etastar.cli.report import planned_target
from etastar.errors import EtastarError, InputError
from etastar.report.section import Progress, Section, study_section, waiting_section
from etastar.report.serve import Live, is_loopback, make_server
from etastar.report.tables import Column, table
from etastar.report.view import read_study
from etastar.scale import Scale

if TYPE_CHECKING:
    from etastar.launch.status import StudyStatus

_COLUMNS = (
    Column("name", "stack", "text"), Column("params", "N", "scale"), Column("lrs", "LRs", "int"),
    Column("done", "done", "int"), Column("cells", "runs", "int"), Column("state", "state", "text"),
    Column("segment", "at", "text"), Column("fraction", "of it", "percent"),
    Column("tokens_per_second", "tokens/s", "scale"), Column("minutes_left", "minutes left"), Column("where", "where", "text"),
    Column("reason", "reason", "text"),
)  # fmt: skip


def serve_study(study: Path, params: str | None, tokens: str | None, host: str, port: int, every: float) -> None:
    """Serve until Ctrl-C."""
    look = _status_of(study)
    asked = Scale.parse(params, tokens) if params is not None and tokens is not None else planned_target(study)

    def progress() -> Progress | None:
        return None if look is None else progress_of(look())

    server = make_server(host, port)
    try:
        typer.echo(f"reading {study} …")
        server.live = Live(
            stamp=lambda: stamp_of(study),
            sections=lambda: [live_section(study, asked, progress())],
            progress=progress,
            every=every,
        )
        shown = f"[{host}]" if ":" in host else host
        typer.echo(f"serving {study} at http://{shown}:{server.server_address[1]}/ (Ctrl-C ends it)")
        if not is_loopback(host):
            said = (
                f"--host {host}: whoever reaches this machine there can read the study's numbers; there is no password"
            )
            typer.echo(said, err=True)
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    finally:
        server.server_close()
        if server.live is not None:
            server.live.close()


def live_section(study: Path, asked: Scale | None, progress: Progress | None) -> Section:
    """The study as it is now; before the first run has finished, its progress and why there is no number."""
    name = study.resolve().name
    if not _run_files(study):
        return waiting_section(
            name, "No run has finished yet. The page fills itself as runs do.", folder=study, progress=progress
        )
    try:
        view = read_study(study)
        group = view.main
        target = asked or Scale(group.blocks[-1].params, 2 * float(group.blocks[-1].tokens[-1]))
        intro = (
            ""
            if asked
            else "No target was named (--params, --tokens): the page asks for twice the longest D of the largest N."
        )
        return study_section(view, target, title=name, intro=intro, folder=study, progress=progress)
    except EtastarError as error:
        return waiting_section(
            name, f"The runs so far carry no report: {error.message}.", folder=study, progress=progress
        )


def stamp_of(study: Path) -> Hashable:
    """Names, sizes and times of the runs' files and of the plan: what changes when there is something new."""
    found = []
    for path in [*_run_files(study), study / "plan.yaml"]:
        try:
            stat = path.stat()
        except OSError:
            continue
        found.append((path.name, stat.st_size, stat.st_mtime_ns))
    return tuple(found)


def progress_of(status: StudyStatus) -> Progress:
    """A study's status as the page shows it."""
    rows = [
        (
            s.name, s.params, s.lrs, s.done, s.cells, s.state, s.segment, s.fraction, s.tokens_per_second,
            None if s.seconds_left is None else s.seconds_left / 60, s.where, s.reason,
        )
        for s in status.stacks
    ]  # fmt: skip
    done, cells = sum(s.done for s in status.stacks), sum(s.cells for s in status.stacks)
    states = [s.state for s in status.stacks]
    counted = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    words = f"{done} of {cells} runs done; stacks: {counted}"
    return Progress(words, done, cells, status.finished, table("Stacks of the study", _COLUMNS, rows))


def _run_files(study: Path) -> list[Path]:
    found = [*study.glob("runs*.parquet"), *study.glob("runs/*.parquet")]
    return sorted(path for path in found if not path.name.startswith("."))


def _status_of(study: Path) -> Callable[[], StudyStatus] | None:
    """How to look at a study that was launched; None for a folder without a plan, or without the trainer's packages."""
    if not study.is_dir():
        raise InputError(f"no folder {str(study)[:80]!r}", hint="name a study's folder")
    if not (study / "plan.yaml").is_file():
        return None
    try:
        from etastar.launch.status import status_of
        from etastar.launch.study import open_study
    except ModuleNotFoundError:
        return None
    opened = open_study(study)
    return lambda: status_of(opened)
