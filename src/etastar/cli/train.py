"""`etastar train`: train a specification, or a preset, and watch it.

On a terminal a live table shows the loss of every learning rate, tokens/s and the time left; off a
terminal the same comes as plain lines. A training that was stopped goes on with the same command.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etastar.errors import EtastarError, InputError
from etastar.scale import format_number, parse_number, parse_positive

if TYPE_CHECKING:
    from rich.console import Console

    from etastar.train.progress import Cell, Progress, Reporter
    from etastar.train.spec import TrainSpec


def train_command(
    spec: Annotated[Path | None, typer.Argument(help="A training specification in YAML.")] = None,
    out: Annotated[Path, typer.Option(help="The study's folder; an unfinished one is gone on with.")] = Path(
        "out/study"
    ),
    preset: Annotated[str | None, typer.Option(help="In place of a specification: gpt2 or rope.")] = None,
    width: Annotated[int, typer.Option(help="Width of the preset's model.")] = 128,
    layers: Annotated[int, typer.Option(help="Layers of the rope preset.")] = 4,
    optimizer: Annotated[str, typer.Option(help="adamw, adam, adamh or muonh.")] = "adamw",
    corpus: Annotated[Path | None, typer.Option(help="A folder made by `etastar data prepare`, or default.")] = None,
    lrs: Annotated[str | None, typer.Option(help="Learning rates, e.g. 2^-10,2^-9,2^-8.")] = None,
    horizons: Annotated[str | None, typer.Option(help="Steps at which to evaluate, e.g. 2000,4000.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the initial weights and of the data's order.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads.")] = None,
    stop_after: Annotated[float | None, typer.Option(help="Save and stop after so many minutes.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the whole specification and train nothing.")] = False,
) -> None:
    """Train a stack of learning rates with its decay branches into a study's folder."""
    try:
        whole = _specification(spec, preset, width, layers, optimizer, corpus)
        whole = _changed(whole, lrs=lrs, horizons=horizons, seed=seed, device=device, threads=threads)
        if show:
            typer.echo(whole.to_yaml(), nl=False)
            return
        finished = _train(whole, out, stop_after)
    except EtastarError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("stopped; the same command goes on from the last checkpoint", err=True)
        raise typer.Exit(130) from None
    raise typer.Exit(0 if finished else 3)


def train_spec(path: Path, out: Path) -> bool:
    """Train a specification's file with a live display; False if it was stopped first."""
    from etastar.train.spec_file import load_spec

    return _train(load_spec(path), out, None)


def _train(spec: TrainSpec, out: Path, stop_after: float | None) -> bool:
    try:
        from etastar.train.loop import train
    except ModuleNotFoundError as error:
        raise InputError(
            f"training needs {error.name}, which is not installed", hint="pip install 'etastar[train]'"
        ) from None
    reporter = _reporter()
    with reporter:
        reporter.message(
            f"{spec.name}: {format_number(spec.model.params)} parameters × {len(spec.lrs)} learning rates, "
            f"{format_number(spec.batch_tokens)} tokens a step → {out}"
        )
        seconds = None if stop_after is None else stop_after * 60
        result = train(spec, out, reporter=reporter, stop_after=seconds)
        reporter.message(f"{result.runs.num_rows} rows in {out / 'runs'}")
    return result.finished


def _specification(
    path: Path | None, preset: str | None, width: int, layers: int, optimizer: str, corpus: Path | None
) -> TrainSpec:
    from etastar.train import presets
    from etastar.train.spec import DataSpec
    from etastar.train.spec_file import load_spec

    if (path is None) == (preset is None):
        raise InputError("give either a specification or --preset", hint="etastar train --preset rope --width 128")
    if path is not None:
        spec = load_spec(path)
        return spec if corpus is None else spec.model_copy(update={"data": DataSpec(corpus=str(corpus))})
    if optimizer not in ("adamw", "adam", "adamh", "muonh"):
        raise InputError(f"--optimizer: {optimizer[:40]!r} is not known", hint="adamw, adam, adamh or muonh")
    chosen: dict[str, Any] = {"width": width, "optimizer": optimizer, **_data(corpus)}
    if preset == "gpt2":
        return presets.gpt2(**chosen)
    if preset == "rope":
        return presets.rope(layers=layers, **chosen)
    raise InputError(f"--preset: {preset!r} is not known", hint="gpt2 or rope")


def _data(corpus: Path | None) -> dict[str, Any]:
    """The preset's data: a corpus and its vocabulary, or the synthetic language at its size."""
    from etastar.train.spec import DataSpec

    if corpus is None:
        data = DataSpec()
        return {"data": data, "vocab": data.synthetic_vocab, "eval_tokens": 32_768}
    from etastar.train.batches import open_corpus

    data = DataSpec(corpus=str(corpus))
    padded = math.ceil(open_corpus(data).vocab / 64) * 64
    return {"data": data, "vocab": padded}


def _changed(spec: TrainSpec, **given: Any) -> TrainSpec:
    """The specification with what was typed beside it, checked again as a whole."""
    from etastar.train.spec_file import build_spec

    content = spec.model_dump()
    if given["lrs"] is not None:
        content["lrs"] = [parse_number(text, what="--lrs") for text in given["lrs"].split(",") if text.strip()]
    if given["horizons"] is not None:
        texts = [text for text in given["horizons"].split(",") if text.strip()]
        content["horizons"] = [parse_positive(text, what="--horizons") for text in texts]
    if given["seed"] is not None:
        content["seed"] = given["seed"]
    content["execution"] |= {name: given[name] for name in ("device", "threads") if given[name] is not None}
    return build_spec(content, where="command line")


def _reporter() -> Any:
    from etastar.train.progress import PlainReporter

    return _LiveReporter() if sys.stdout.isatty() else _Lines(PlainReporter())


class _Lines:
    """Plain lines, as a context like the live display."""

    def __init__(self, inner: Reporter) -> None:
        self.message = inner.message
        self.progress = inner.progress
        self.evaluated = inner.evaluated

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class _LiveReporter:
    """A bar and a table that redraw themselves."""

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = console or Console()
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)

    def __enter__(self) -> _LiveReporter:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def message(self, text: str) -> None:
        """Print above the display."""
        self._console.print(text, markup=False, highlight=False)

    def progress(self, progress: Progress) -> None:
        """Redraw."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar

        from etastar.train.progress import eta_text

        head = (
            f"{progress.segment}  step {progress.step}  {progress.fraction:.0%}  "
            f"{format_number(progress.tokens_per_second)} tokens/s  {eta_text(progress)} left"
        )
        bar = ProgressBar(total=max(progress.total, 1), completed=progress.done, width=60)
        rows = zip(progress.lrs, progress.losses, progress.alive, strict=True)
        self._live.update(Group(head, bar, _table(rows, "training loss")))

    def evaluated(self, horizon: int, cells: list[Cell]) -> None:
        """Leave a finished branch's table above the display."""
        self._console.print(f"evaluated after {horizon} steps", highlight=False)
        rows = ((cell.lr, cell.loss, cell.status == "finished") for cell in cells)
        self._console.print(_table(rows, "validation loss", [cell.mean_eff_lr for cell in cells]))


def _table(rows: Any, loss_title: str, eff_lrs: list[float | None] | None = None) -> Any:
    from rich.table import Table

    shown = list(rows)
    good = [loss for _, loss, alive in shown if alive and math.isfinite(loss)]
    best = min(good, default=None)
    table = Table(box=None, pad_edge=False)
    for title in ("log2 LR", loss_title, *(["mean η_eff"] if eff_lrs else []), ""):
        table.add_column(title, justify="right")
    for index, (lr, loss, alive) in enumerate(shown):
        cells = [f"{math.log2(lr):g}", f"{loss:.4f}"]
        if eff_lrs:
            value = eff_lrs[index]
            cells.append("-" if value is None else f"{value:.3e}")
        mark = "diverged" if not alive else ("lowest" if loss == best else "")
        table.add_row(*cells, mark, style="red" if not alive else ("bold" if loss == best else ""))
    return table
