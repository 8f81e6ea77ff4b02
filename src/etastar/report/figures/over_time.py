"""What did one matrix do over training, LR by LR? The curves that several figures draw."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from etastar.estimate.cells import Group
from etastar.predict.trunks import Path
from etastar.report.figures import style
from etastar.report.figures.missing import Missing, no_trajectories
from etastar.report.figures.sliding import sliding
from etastar.report.view import StudyView
from etastar.scale import format_number
from etastar.theory.trajectories import Trajectory

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]

SMOOTHING = 0.05  # half-width of the sliding mean, as a share of the step it is at
_QUERY = re.compile(r"(^|[._/])(q|wq|q_proj|query|q_lin)($|[._/])")
_FUSED = re.compile(r"(^|[._/])(c_attn|qkv|in_proj|attn|attention)")


@dataclass(frozen=True)
class LrCurve:
    """One learning rate: a smoothed quantity over steps."""

    lr: float
    log2_lr: float
    step: list[int]
    value: list[float]


@dataclass(frozen=True)
class Chosen:
    """The trajectories that a figure shows: one N, one matrix of every path."""

    params: float
    weight: str
    paths: tuple[Path, ...]
    matrices: tuple[Trajectory, ...]  # one a path, LRs rising; from the end of the warm-up
    warmup_steps: int


def choose(view: StudyView, group: Group, figure: str, params: float | None = None) -> Chosen | Missing:
    """The query matrix of the first attention layer at the largest N with trajectories (or at `params`)."""
    paths = view.paths(group)
    if not paths:
        return no_trajectories(figure, group)
    size = params or max(paths)
    if size not in paths:
        sizes = ", ".join(format_number(n) for n in sorted(paths))
        return Missing(figure, f"no trajectories at N = {format_number(size)} (there are {sizes})", "its own runs")
    own = paths[size]
    weight = query_of([one.weight for one in own[0].matrices])
    pairs = [(path, one) for path in own for one in path.matrices if one.weight == weight]
    warmup = group.conditions.get("warmup_steps")
    start = max(1, int(warmup)) if isinstance(warmup, (int, float)) else 1
    return Chosen(size, weight, tuple(p for p, _ in pairs), tuple(m.since(start) for _, m in pairs), start)


def query_of(names: list[str]) -> str:
    """The query projection of the first layer by its name; a fused one, else the first matrix there is."""
    for pattern in (_QUERY, _FUSED):
        found = [name for name in names if pattern.search(name.lower())]
        if found:
            return min(found, key=lambda name: [int(number) for number in re.findall(r"\d+", name)] or [0])
    return names[0]


def curves(chosen: Chosen, quantity: Callable[[Trajectory], Array]) -> list[LrCurve]:
    """A quantity of the chosen matrix, smoothed; step 0 and steps without a positive value are left out."""
    return [smoothed(path.lr, one.step, quantity(one)) for path, one in zip(chosen.paths, chosen.matrices, strict=True)]


def smoothed(lr: float, step: NDArray[np.int64], values: Array) -> LrCurve:
    """One curve, its sliding mean over steps."""
    known = np.isfinite(values) & (values > 0) & (step > 0)
    steps, kept = step[known], values[known]
    mean, _ = sliding(np.log(steps), kept, SMOOTHING)
    return LrCurve(lr, float(np.log2(lr)), steps.tolist(), mean.tolist())


def draw_curves(ax: Axes, found: Sequence[LrCurve], colours: Sequence[Any]) -> None:
    """Curves of all learning rates in one panel: log2 upwards, steps from the first on."""
    for curve, colour in zip(found, colours, strict=True):
        ax.plot(curve.step, np.log2(curve.value), color=colour, lw=1.1)
    values = np.log2([v for curve in found for v in curve.value])
    style.steps_axis(ax, [step for curve in found for step in curve.step])
    style.log2_axis(ax.yaxis, float(values.min()) - 0.1, float(values.max()) + 0.1)
