"""Do weights and effective learning rates move as the theory says?"""

from __future__ import annotations

import numpy as np

from etastar.estimate.cells import Quantity
from etastar.report.figures import loss_curves
from etastar.report.figures.missing import Missing
from etastar.report.results.claim import Claim, Verdict, untested
from etastar.report.view import StudyView, block_of
from etastar.scale import format_lr, format_number

NEAR_SLOPE = 0.15  # of the regimes' 1 and ½
HELD_OUT = 0.05  # relative error of η_eff in a stretch that the constants have not seen
COLLAPSED = 0.25  # share of the learning rates' span that η_eff may keep


def regimes(view: StudyView) -> Claim:
    """Local slopes of log η_eff in log η at both ends of the sweep, at the longest horizon."""
    title = "two regimes: η_eff ∝ η for small η, ∝ √η for large η"
    paper = "before equilibrium log η_eff rises with log η at slope 1, in equilibrium at slope ½"
    params, _ = view.test_cells(view.main)
    block = block_of(view.main, params)
    x, y = block.log2_lr, block.log2_eff_lr[-1]
    known = np.isfinite(y)
    x, y = x[known], y[known]
    if len(x) < 4:
        return untested(title, paper, "fewer than four learning rates with η_eff")
    slopes = np.diff(y) / np.diff(x)
    low, high = float(slopes[0]), float(slopes.min())
    steepest = f"2^{(x[:-1] + x[1:])[int(slopes.argmin())] / 2:.2f}".replace("-", "−")
    lines = (
        f"N = {format_number(params)}, longest horizon: slope {low:.2f} at {format_lr(2.0 ** float(x[0]))}, least "
        f"{high:.2f} about {steepest}, {float(slopes[-1]):.2f} at {format_lr(2.0 ** float(x[-1]))}",
    )
    ends = abs(low - 1) <= NEAR_SLOPE, abs(high - 0.5) <= NEAR_SLOPE
    verdict = Verdict.SUPPORTED if all(ends) else Verdict.INDISTINCT if any(ends) else Verdict.CONTRADICTED
    rule = f"supported if the slope at the smallest η is within {NEAR_SLOPE} of 1 and the least one within {NEAR_SLOPE} of ½"
    return Claim(title, paper, lines, rule, verdict)


def theory_fit(view: StudyView) -> Claim:
    """Constants fitted on the first half of the path, judged on its last quarter."""
    title = "the weight-norm dynamics foresee η_eff(t)"
    paper = "‖u_t‖ is about constant, ⟨u, w⟩ follows from β₁, and ‖w_t‖² and η_eff(t) with them"
    params, _ = view.test_cells(view.main)
    found = view.theory_report(view.main, params)
    if isinstance(found, str):
        return untested(title, paper, found)
    near = [one for one in found.lrs if one.near_optimum and np.isfinite(one.held_out_bias)]
    if not near:
        return untested(title, paper, "no learning rate near the optimum has a path long enough to hold out")
    mean = max(abs(one.held_out_bias) for one in near)
    middle = max(one.held_out_median for one in near)
    figures = [one.figures for one in near]
    lines = (
        f"N = {format_number(params)}, η within an octave of η*, last quarter from the first half: mean over matrices off by "
        f"{mean:.1%} at most, the median matrix by {middle:.1%}",
        f"‖u_t‖ against a constant {np.median([f.update_norm for f in figures]):.1%}, −⟨u,w⟩/‖u‖ "
        f"{np.median([f.correlation for f in figures]):.1%} with Adam's β₁ and "
        f"{np.median([f.correlation_fitted for f in figures]):.1%} with a fitted factor, ‖w‖² "
        f"{np.median([f.weight_norm for f in figures]):.1%} and {np.median([f.weight_norm_fitted for f in figures]):.1%}",
    )
    rule = f"supported if the mean over matrices is foreseen to {HELD_OUT:.0%}"
    return Claim(title, paper, lines, rule, Verdict.SUPPORTED if mean <= HELD_OUT else Verdict.CONTRADICTED)


def no_decay(view: StudyView) -> Claim:
    """Adam without weight decay: one η_eff(t) and one loss for all large η."""
    title = "without weight decay large learning rates collapse onto one η_eff(t) and one loss"
    paper = "for Adam without decay η_eff(t) forgets η once it is large, and the loss is nearly flat in log η"
    group = view.no_decay
    if group is None:
        return untested(title, paper, "no run was trained by Adam without weight decay")
    params = group.blocks[-1].params
    found = view.no_decay_report(group, params)  # shared with its figure
    if found is None:
        return untested(title, paper, "no constant-η stack with trajectories")
    share = found.spread_octaves / found.free_spread_octaves
    lines = (
        f"N = {format_number(params)}: above {format_lr(found.collapse_lr)} the final η_eff spans "
        f"{found.spread_octaves:.2f} octaves over learning rates that span {found.free_spread_octaves:.2f}",
        f"the loss spans {found.loss_range:.3f} there, {found.loss_range_all:.3f} over all",
    )
    flat = found.loss_range < COLLAPSED * found.loss_range_all
    verdicts = {(True, True): Verdict.SUPPORTED, (False, False): Verdict.CONTRADICTED}
    rule = f"supported if η_eff and the loss both keep less than {COLLAPSED:.0%} of their free span, contradicted if neither"
    return Claim(title, paper, lines, rule, verdicts.get((bool(share < COLLAPSED), bool(flat)), Verdict.INDISTINCT))


def spread(view: StudyView) -> Claim:
    """η_eff of the matrices about their mean."""
    title = "matrices differ in η_eff, and the regimes survive their mean"
    paper = "effective learning rates differ between weights; after averaging the two regimes still exist"
    params, _ = view.test_cells(view.main)
    found = view.theory_report(view.main, params)
    if isinstance(found, str):
        return untested(title, paper, found)
    values = [one.spread_octaves for one in found.lrs if np.isfinite(one.spread_octaves)]
    if not values:
        return untested(title, paper, "η_eff of single matrices was not logged")
    there = regimes(view).verdict
    lines = (
        f"N = {format_number(params)}: standard deviation over matrices {min(values):.2f} to {max(values):.2f} octaves, by η",
        f"two regimes in the mean: {there.value}",
    )
    return Claim(title, paper, lines, "the verdict on the regimes, which are read off the mean", there)


def degrees(view: StudyView) -> Claim:
    """R² of the paper's cubic and quadratic fits; adjusted, because a cubic contains the quadratic."""
    title = "a cubic follows the loss better than a quadratic"
    paper = "the loss rises faster below the optimum, so R² of a quadratic is lower than that of a cubic"
    lines, gains = [], []
    for quantity, name in ((Quantity.LR, "log η"), (Quantity.EFF_LR, "log η_eff")):
        for block in view.main.blocks:
            fits = [loss_curves.data(view, quantity, degree, block.params) for degree in (3, 2)]
            found = [_adjusted(fit) for fit in fits if not isinstance(fit, Missing)]
            if len(found) < 2 or found[0] is None or found[1] is None:
                continue
            gains.append(found[0] - found[1])
            lines.append(f"{name}, N = {format_number(block.params)}: adjusted R² {found[0]:.4f} and {found[1]:.4f}")
    if not gains:
        return untested(title, paper, "no cell has enough learning rates")
    verdict = Verdict.SUPPORTED if min(gains) > 0 else Verdict.CONTRADICTED if max(gains) <= 0 else Verdict.INDISTINCT
    return Claim(title, paper, tuple(lines), "supported if the cubic's is higher at every N, medians over D", verdict)


def _adjusted(fit: loss_curves.LossCurvesData) -> float | None:
    """Median R², each side of it divided by its degrees of freedom."""
    if fit.median_r2 is None:
        return None
    points = int(np.median([len(panel.loss) for panel in fit.panels]))
    return 1 - (1 - fit.median_r2) * (points - 1) / (points - fit.degree - 1)
