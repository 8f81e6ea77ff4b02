"""Every figure and table of the paper, one module each: `data(view)` first, `draw(data)` second.

`FIGURES` lists them in the paper's order. A data function returns a frozen dataclass of plain lists and numbers, or
`Missing`: why the study cannot supply it, and which run would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from etastar.estimate.cells import Quantity
from etastar.report.figures import (
    adamh,
    against_theory,
    ecr,
    extrapolation,
    loss_curves,
    no_decay,
    norms,
    optimum,
    r2_ood,
    table_one,
    weight_spread,
)
from etastar.report.figures.against_theory import Kind
from etastar.report.figures.missing import Missing
from etastar.report.view import StudyView

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "Missing", "PaperFigure"]


@dataclass(frozen=True)
class PaperFigure:
    """A figure that is drawn, or a table that is written (`write` gives its text by file ending)."""

    name: str
    number: str
    label: str  # the paper's
    title: str
    data: Callable[[StudyView], Any]
    draw: Callable[[Any], Figure] | None = None
    write: Callable[[Any], dict[str, str]] | None = None


def _loss(quantity: Quantity, degree: int) -> Callable[[StudyView], Any]:
    return partial(loss_curves.data, quantity=quantity, degree=degree)


def _theory(kind: Kind) -> Callable[[StudyView], Any]:
    return partial(against_theory.data, kind=kind)


LR, EFF = Quantity.LR, Quantity.EFF_LR

FIGURES: tuple[PaperFigure, ...] = (
    PaperFigure("extrapolation", "Figure 1", "fig:how_to_fit", "Training sets of equal compute along D and along N",
                extrapolation.data, extrapolation.draw),
    PaperFigure("optimal-lr", "Figure 2", "fig:eta_combined", "η* against D and against N",
                partial(optimum.data, quantity=LR), optimum.draw),
    PaperFigure("optimal-eff-lr", "Figure 3", "fig:eff_eta_combined", "η_eff* against D and against N",
                partial(optimum.data, quantity=EFF), optimum.draw),
    PaperFigure("r2-ood", "Figure 4a", "fig:ood", "R²_OOD by budget, four strategies", r2_ood.data, r2_ood.draw),
    PaperFigure("ecr-r2", "Figure 4b", "fig:compute_vs_ood", "ECR against 1 − R²_OOD", ecr.data, ecr.draw),
    PaperFigure("table-1", "Table 1", "tab:prediction_table", "Prediction error, loss gap and ECR by budget",
                table_one.data, write=table_one.write),
    PaperFigure("adam-no-decay", "Figure 5", "fig:efflr_adam_nowd", "Adam without weight decay: η_eff(t) and loss",
                no_decay.data, no_decay.draw),
    PaperFigure("eff-lr-weight-norm", "Figure 6", "fig:efflr_weight_norm_vs_t", "η_eff(t) and the weight norm",
                norms.data, norms.draw),
    PaperFigure("adamh", "Figure 7", "fig:adamh", "AdamH: its law, and its ECR beside AdamW's",
                adamh.data, adamh.draw),
    PaperFigure("update-norm", "Figure 8", "fig:optimizer_norm_vs_t", "‖u_t‖ over training",
                _theory(Kind.UPDATE_NORM), against_theory.draw),
    PaperFigure("correlation", "Figure 9", "fig:correlation_vs_t", "−⟨u_t, w_t⟩/‖u_t‖ and its theory",
                _theory(Kind.CORRELATION), against_theory.draw),
    PaperFigure("weight-norm-squared", "Figure 10", "fig:wt_square_vs_t", "‖w_t‖² and its theory",
                _theory(Kind.WEIGHT_NORM), against_theory.draw),
    PaperFigure("loss-lr-cubic", "Figure 11", "fig:val_loss_vs_log2lr", "Cubic of the loss in log η",
                _loss(LR, 3), loss_curves.draw),
    PaperFigure("loss-eff-lr-cubic", "Figure 12", "fig:val_loss_vs_log2efflr", "Cubic of the loss in log η_eff",
                _loss(EFF, 3), loss_curves.draw),
    PaperFigure("loss-lr-quadratic", "Figure 13", "fig:val_loss_vs_log2lr_quadratic", "Quadratic in log η",
                _loss(LR, 2), loss_curves.draw),
    PaperFigure("loss-eff-lr-quadratic", "Figure 14", "fig:val_loss_vs_log2efflr_quadratic", "Quadratic in log η_eff",
                _loss(EFF, 2), loss_curves.draw),
    PaperFigure("weight-spread", "Figure 15", "fig:efflr_difference", "η_eff across matrices",
                weight_spread.data, weight_spread.draw),
)  # fmt: skip
