"""`etastar simulate`: a world with a known law, to try everything else on."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import typer
from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape

from etastar.errors import InputError, SpecError
from etastar.scale import gpt_params, parse_positive
from etastar.simulate import Grid, Shape, Straight, World, simulate, simulate_trajectories
from etastar.store import write_runs, write_trajectories

MOST_ROWS = 2_000_000
MOST_DIAL = 20.0
_SHARES = (0.1, 0.25, 0.5, 1.0)  # of the longest D, at which runs without decay are evaluated


def simulate_command(
    out: Annotated[
        Path, typer.Option("--out", help="runs.parquet or runs.csv; or a folder: a whole study.", show_default=False)
    ],
    straight: Annotated[Straight, typer.Option(help="Whose optimum is log-linear.")] = Straight.EFF_LR,
    shape: Annotated[Shape, typer.Option(help="How the loss rises away from the optimum.")] = Shape.CUBIC,
    widths: Annotated[
        str, typer.Option(help="GPT widths, 12 layers, vocabulary 50304.")
    ] = "256,512,768,1024,1536,2048",
    tokens: Annotated[str, typer.Option(help="D: a list, or FROM:TO:STEP.")] = "5B:100B:2.5B",
    lrs: Annotated[str, typer.Option(help="log2 η: a list, or FROM:TO:STEP.")] = "-16:-7:1",
    seeds: Annotated[int, typer.Option(help="Seeds a cell.")] = 1,
    seed_noise: Annotated[float, typer.Option(help="Loss noise common to a seed.")] = 0.0,
    trunk_noise: Annotated[float, typer.Option(help="Loss noise of a trunk, shared along D.")] = 0.001,
    branch_noise: Annotated[float, typer.Option(help="Loss noise of a branch.")] = 0.001,
    noise_growth: Annotated[float, typer.Option(help="Octaves of noise per octave of η above η*.")] = 0.0,
    bend: Annotated[float, typer.Option(help="Bend of the law along D, octaves per octave².")] = 0.0,
    asymmetry: Annotated[float, typer.Option(help="How much faster the loss rises below η*.")] = 0.5,
    diverges_above: Annotated[float | None, typer.Option(help="Runs this many octaves above η* diverge.")] = None,
    missing: Annotated[float, typer.Option(help="Share of runs that were never made.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the world's noise.")] = 0,
) -> None:
    """Write the runs of a synthetic world; the defaults are the paper's grid (6 N × 39 D × 10 LRs).

    Given a folder, it writes what the paper trained: these runs, AdamH and Adam without weight decay at one N, and
    trajectories of all of them, by the theory.

    Example: etastar simulate --out runs.parquet --branch-noise 0.002 && etastar fit runs.parquet
    """
    if out.suffix not in (".parquet", ".csv", ""):
        raise InputError(f"--out: {out.name!r} is neither .parquet nor .csv", hint="name a file such as runs.parquet")
    if out.suffix == "" and _taken(out):
        raise InputError(f"--out: {str(out)[:80]!r} is there already, and no empty folder", hint="name a new folder")
    if not out.parent.exists():
        raise InputError(f"--out: no folder {str(out.parent)!r}", hint="create it first")
    _refuse_extremes(
        {"--seed-noise": seed_noise, "--trunk-noise": trunk_noise, "--branch-noise": branch_noise,
         "--noise-growth": noise_growth, "--bend": bend, "--asymmetry": asymmetry, "--diverges-above": diverges_above},
        seeds=seeds, seed=seed,
    )  # fmt: skip
    dials: dict[str, Any] = {
        "straight": straight, "shape": shape, "seed_noise": seed_noise, "trunk_noise": trunk_noise,
        "branch_noise": branch_noise, "noise_growth": noise_growth, "bend_tokens": bend, "asymmetry": asymmetry,
        "diverges_above": diverges_above,
    }  # fmt: skip
    try:
        world = World(**dials)
        grid = Grid(
            widths=tuple(int(w) for w in _numbers(widths, "--widths", within=(1, 1e6))),
            tokens=tuple(_numbers(tokens, "--tokens", within=(1, 1e18))),
            log2_lrs=tuple(_numbers(lrs, "--lrs", positive=False, within=(-60, 20))),
            seeds=seeds,
            missing=missing,
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise SpecError(
            f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}, got {first['input']!r}"[:200],
            hint="see etastar simulate --help",
        ) from None
    rows = len(grid.widths) * len(grid.tokens) * len(grid.log2_lrs) * grid.seeds
    if rows > MOST_ROWS:
        raise InputError(f"the grid has {rows} runs, more than {MOST_ROWS}", hint="fewer widths, tokens, lrs or seeds")
    if out.suffix == "":
        written = sum(_write_study(out, one, own, seed) for one, own in _paper_study(world, grid))
    else:
        table = simulate(world, grid, seed=seed)
        _write(table, out)
        written = table.num_rows
    Console(soft_wrap=True).print(f"wrote {written} runs to {escape(str(out))}")


def _paper_study(world: World, grid: Grid) -> list[tuple[World, Grid]]:
    """The world itself; beside it AdamH, and Adam at constant LR without decay, at the second width."""
    one = (sorted(grid.widths)[min(1, len(grid.widths) - 1)],)
    params, tokens = float(gpt_params(one[0])), (min(grid.tokens), max(grid.tokens))
    held = world.model_copy(update={"optimizer": "adamh"})
    optima = [float(held.log2_optimal_lr(params, d)) for d in tokens]
    low, high = math.floor(min(optima)) - 2, math.ceil(max(optima)) + 2
    # AdamW's η_eff goes with √η: half octaves of AdamH's η are as fine
    around = [low + 0.5 * k for k in range(2 * (high - low) + 1)]
    free = world.model_copy(update={"optimizer": "adam", "decay_steps": 0, "diverges_above": None})
    four = tuple(dict.fromkeys(min(grid.tokens, key=lambda d: abs(d - share * tokens[1])) for share in _SHARES))
    return [
        (world, grid),
        (held, grid.model_copy(update={"widths": one, "log2_lrs": tuple(around)})),
        (free, grid.model_copy(update={"widths": one, "tokens": tuple(sorted(four))})),
    ]


def _write_study(out: Path, world: World, grid: Grid, seed: int) -> int:
    table = simulate(world, grid, seed=seed)
    try:
        write_runs(out, table, world.optimizer)
        write_trajectories(out, simulate_trajectories(world, grid), world.optimizer)
    except OSError as error:
        raise InputError(f"--out: cannot write {out.name!r}: {error.strerror}", hint="choose another place") from None
    return table.num_rows


def _taken(out: Path) -> bool:
    """Is something there that a study would be mixed with? A place that cannot be looked at is refused when written."""
    with contextlib.suppress(OSError):
        return out.exists() and (not out.is_dir() or any(out.iterdir()))
    return False


def _refuse_extremes(dials: dict[str, float | None], *, seeds: int, seed: int) -> None:
    """Dials far from any training overflow the world's formulas."""
    for name, value in dials.items():
        if value is not None and not abs(value) <= MOST_DIAL:
            raise InputError(f"{name}: {value} is not between -{MOST_DIAL:g} and {MOST_DIAL:g}", hint="see --help")
    if not 1 <= seeds <= 10_000:
        raise InputError(f"--seeds: {seeds} is not between 1 and 10000", hint="1 is the default")
    if not 0 <= seed < 2**63:
        raise InputError(f"--seed: {seed} is not between 0 and 2^63", hint="0 is the default")


def _write(table: pa.Table, out: Path) -> None:
    """Write beside the target first, so that a broken write leaves the old file whole."""
    partial = out.with_name(f".{out.name}.partial")
    try:
        if out.suffix == ".csv":
            pacsv.write_csv(table, partial)
        else:
            pq.write_table(table, partial)
        partial.replace(out)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise InputError(f"--out: cannot write {out.name!r}: {error.strerror}", hint="choose another place") from None


def _numbers(text: str, what: str, *, positive: bool = True, within: tuple[float, float]) -> list[float]:
    """ "5B,10B" or "5B:100B:2.5B" (ends included), each once."""
    values = list(dict.fromkeys(_spelled(text, what, positive)))
    outside = [value for value in values if not within[0] <= value <= within[1]]
    if outside:
        raise InputError(
            f"{what}: {outside[0]:g} is not between {within[0]:g} and {within[1]:g}", hint="see etastar simulate --help"
        )
    if not values:
        raise InputError(f"{what}: no value in {text[:40]!r}", hint="write a list, or FROM:TO:STEP")
    return values


def _spelled(text: str, what: str, positive: bool) -> list[float]:
    read = (lambda part: parse_positive(part, what=what)) if positive else (lambda part: _plain(part, what))
    if ":" not in text:
        return [read(part) for part in text.split(",") if part.strip()]
    parts = text.split(":")
    if len(parts) != 3:
        raise InputError(f"{what}: {text!r} is neither a list nor FROM:TO:STEP", hint="write 5B:100B:2.5B")
    low, high, step = read(parts[0]), read(parts[1]), parse_positive(parts[2], what=what)
    spans = (high - low) / step
    if not 0 <= spans < 10_000:
        raise InputError(f"{what}: {text[:40]!r} has {spans + 1:.4g} values", hint="between 1 and 10000 values")
    count = int(round(spans, 6)) + 1
    return [low + step * k for k in range(count)]


def _plain(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{what}: cannot read {text!r}", hint="log2 of a learning rate, e.g. -10") from None
