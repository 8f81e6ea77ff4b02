"""Every reason for doubt that a result can carry: a code for scripts, a sentence for people."""

from __future__ import annotations

import enum


class Flag(enum.StrEnum):
    """A documented doubt. `flag.value` is stable; `flag.sentence` explains it."""

    sentence: str

    def __new__(cls, code: str, sentence: str) -> Flag:
        member = str.__new__(cls, code)
        member._value_ = code
        member.sentence = sentence
        return member

    # one cell's optimum
    DIVERGED_ROWS = "diverged-rows", "some learning rates diverged; they are kept as rows and not fitted"
    BOUNDED_BY_DIVERGENCE = (
        "bounded-by-divergence",
        "the best finite learning rate lies next to one that diverged: the optimum may lie between",
    )
    RAW_MINIMUM_AT_EDGE = "raw-minimum-at-edge", "the lowest measured loss is at an end of the sweep, the fit's is not"
    QUADRATIC_FALLBACK = "quadratic-fallback", "too few learning rates for a cubic: a quadratic was fitted"
    NO_RESIDUAL_FREEDOM = "no-residual-freedom", "the fit goes through every point, so it cannot judge itself"
    UNSTABLE = "unstable", "more than a tenth of the noise redraws have no minimum inside the sweep"
    FLAT = "flat", "the interval is wider than half of the swept range"
    EFF_LR_NOT_MONOTONE = "eff-lr-not-monotone", "η_eff does not rise with the learning rate near the optimum"
    DEFINITIONS_DISAGREE = (
        "definitions-disagree",
        "η_eff* as the minimum of the fit in log η_eff and as the mean η_eff at η* differ by more than their error",
    )
    UNMARKED_REPLICATES = "unmarked-replicates", "rows repeat a cell without a seed or run that tells them apart"
    NOISE_UNKNOWN = "noise-unknown", "no replicates and no residual freedom: the interval lacks the noise"
    # laws and predictions
    TWO_CELLS = "two-cells", "the law goes through two cells: its straightness cannot be tested"
    CURVED = (
        "curved",
        "the law bends measurably: half of the bend is taken along to the target, and the interval holds any share of it",
    )
    FEW_CELLS = "few-cells", "fewer than four cells carry the law"
    BOUNDARY_CELLS = "boundary-cells", "cells whose optimum is at the edge of the sweep were left out of the law"
    UNFITTED_CELLS = "unfitted-cells", "cells without a usable minimum were left out of the law"
    FAR_EXTRAPOLATION = "far-extrapolation", "the target lies further from the cells than the cells span"
    INTERPOLATION = "interpolation", "the target lies inside the measured range"
    BELOW_MEASURED_RANGE = "below-measured-range", "the target lies below the measured range"
    MEASURED_MAP = "measured-map", "η comes from η_eff by the measured map of this study, extrapolated"
    MAP_ACROSS_PARAMS = "map-across-params", "the map from η_eff to η was carried over from other model sizes"
    THEORY_MAP = "theory-map", "η comes from η_eff by the theory of the weight norm, calibrated on this study"
    OTHER_SETTINGS = (
        "other-settings",
        "the target's λ, warm-up or schedule are not the sweep's: the theory carries η over, η_eff* is taken as the same",
    )
    SWEEP_SETTINGS = "sweep-settings", "this strategy knows the sweep's λ, warm-up and schedule alone, not the target's"
    OTHER_BATCH = "other-batch", "the target's batch is not the sweep's: outside the evidence"
    INTERVAL_OPEN = "interval-open", "part of the interval asks for an η_eff that no learning rate reaches"
    NO_BACKTEST = "no-backtest", "too few cells to test the strategy on a cell it has not seen"
    BACKTEST_WIDENED = "backtest-widened", "the interval was widened by the errors of the back-test"
    STRATEGIES_DISAGREE = "strategies-disagree", "another back-tested strategy's interval does not overlap this one's"
    OUTSIDE_SWEPT_RANGE = "outside-swept-range", "the predicted learning rate lies outside every swept range"
    PLATEAU_EFF_LR = "plateau-eff-lr", "η_eff is the plateau mean, not the paper's mean over all steps"
    # cost of a wrong learning rate
    LOCAL_SLOPE = "local-slope", "the loss power law is not identified: the local slope of the loss in log D is used"
    NO_COST = "no-cost", "too few data scales to price a wrong learning rate"
    NO_SAFE_RANGE = "no-safe-range", "no learning rate has an expected extra compute below 2 %"
    VARIED_CONDITIONS = "varied-conditions", "the runs differ in settings that are not part of their group"


def merge_flags(*parts: tuple[Flag, ...] | list[Flag]) -> tuple[Flag, ...]:
    """Union, in the order of the definitions above."""
    found = {flag for part in parts for flag in part}
    return tuple(flag for flag in Flag if flag in found)
