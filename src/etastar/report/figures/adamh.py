"""Figure 7: where the effective learning rate is set by hand (AdamH), is its law straight, and cheaper to follow?

Left: η_eff* of AdamH along D. Right: ECR by budget at the longest horizon of one N, AdamH beside AdamW.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from etastar.estimate.cells import Group, Quantity
from etastar.laws.loglinear import Axis
from etastar.report.figures import style
from etastar.report.figures.missing import Missing, same_with
from etastar.report.figures.optimum import OptimumData, draw_panel, hollow
from etastar.report.figures.optimum import data as optimum_data
from etastar.report.figures.r2_ood import EFF
from etastar.report.view import StudyView, block_of, training_of
from etastar.scale import format_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "adamh"
LEAST = 1e-5  # an ECR below stands here on the logarithmic axis


@dataclass(frozen=True)
class EcrCurve:
    """ECR by budget of one optimizer's law along D, at the longest horizon."""

    optimizer: str
    quantity: str
    label: str
    budget_ratio: list[float]
    ecr: list[float]
    log2_lr_error: list[float | None]


@dataclass(frozen=True)
class AdamhData:
    """Both panels; `ecr` holds AdamH alone where no other optimizer trained that N."""

    law: OptimumData
    params: float
    tokens: float
    training: str
    ecr: list[EcrCurve]
    missing: list[Missing]


def data(view: StudyView) -> AdamhData | Missing:
    """AdamH's group beside the main one, at the largest N that both trained."""
    group = view.adamh
    if group is None:
        return Missing(NAME, "no run was trained by AdamH", same_with(view.main, "`optimizer.kind: adamh`"))
    law = optimum_data(view, Quantity.EFF_LR, group=group, name=NAME)
    if isinstance(law, Missing):
        return law
    shared = {b.params for b in group.blocks} & {b.params for b in view.main.blocks}
    params = max(shared, default=view.test_cells(group)[0])
    longest = float(block_of(group, params).tokens[-1])
    curves = [_curve(view, group, Quantity.EFF_LR, params, longest)]
    missing = []
    if view.main is not group and params in shared:
        curves += [_curve(view, view.main, quantity, params, longest) for quantity in (Quantity.EFF_LR, Quantity.LR)]
    else:
        missing.append(Missing(NAME, f"AdamW did not train N = {format_number(params)}", "the same stack with AdamW"))
    return AdamhData(
        law=law,
        params=params,
        tokens=longest,
        training=training_of(group),
        ecr=[curve for curve in curves if curve.budget_ratio],
        missing=missing,
    )


def _curve(view: StudyView, group: Group, quantity: Quantity, params: float, tokens: float) -> EcrCurve:
    found = view.evaluation(group, params=params, tokens=(tokens, tokens))
    rows = [] if isinstance(found, str) else [r for r in found.rows if (r.axis, r.quantity) == (Axis.DATA, quantity)]
    priced = [(row, row.ecr) for row in rows if row.ecr is not None]
    optimizer = str(group.conditions.get("optimizer") or "unknown")
    names = {"adamh": "AdamH", "adamw": "AdamW"}
    return EcrCurve(
        optimizer=optimizer,
        quantity=quantity.value,
        label=f"{names.get(optimizer.lower(), optimizer)}, {'η_eff' if quantity is Quantity.EFF_LR else 'η'}",
        budget_ratio=[row.budget_ratio for row, _ in priced],
        ecr=[ecr for _, ecr in priced],
        log2_lr_error=[row.log2_lr_error for row, _ in priced],
    )


def draw(found: AdamhData) -> Figure:
    """The law left, ECR by budget right; the law alone where no budget could be judged."""
    with style.paper():
        two = bool(found.ecr)
        figure, axes = style.canvas(style.TWO_COLUMNS if two else style.ONE_COLUMN, 2.6, 1, 2 if two else 1)
        draw_panel(axes[0], found.law.panels[0], "$\\eta_{\\mathrm{eff}}^*$")
        if two:
            _draw_ecr(axes[1], found.ecr)
        where = f"ECR at N = {style.short(found.params)}, D = {style.short(found.tokens)}"
        if any(e < LEAST for curve in found.ecr for e in curve.ecr):
            where += f", {100 * LEAST:g} % and below at {100 * LEAST:g} %"
        style.heading(
            figure, found.training, where, *hollow(found.law), *(missing.sentence for missing in found.missing)
        )
        return figure


def _draw_ecr(ax: Axes, curves: list[EcrCurve]) -> None:
    looks = {"adamh": (style.GREEN, "-", "D")}
    for curve in curves:
        solid = curve.quantity == Quantity.EFF_LR.value
        colour, dashes, marker = looks.get(curve.optimizer.lower(), (style.BLUE, "-" if solid else "--", "o"))
        face = colour if solid else "white"
        ax.plot(
            [100 * b for b in curve.budget_ratio], [100 * max(e, LEAST) for e in curve.ecr], ls=dashes, marker=marker,
            ms=2.5, mfc=face, color=colour, lw=1.0, label=curve.label.replace("η_eff", EFF),
        )  # fmt: skip
    ax.set_yscale("log")
    style.plain_log(ax.yaxis, [100 * max(e, LEAST) for curve in curves for e in curve.ecr])
    ax.set_xlabel("compute budget β (%)")
    ax.set_ylabel("extra compute ratio (%)")
    ax.legend(loc="best")
