"""Under which names do the monitor's numbers appear in a tracker?

Importers recognise these names, so a run logged today can be read back tomorrow. A per-weight metric is
`etastar/<statistic>/<weight>`; where weights are grouped by role, <weight> is the name without its layer
number and the value the mean over those weights.
"""

from __future__ import annotations

from etastar.train.statistics import STATISTICS

PREFIX = "etastar/"

STEP = "etastar/step"  # optimizer step t, from 0; skipped steps are not counted
LR = "etastar/lr"  # learning rate of the group with most watched parameters, at the step
EFF_LR = "etastar/eff_lr"  # η_eff at the step, mean over the watched weights
MEAN_EFF_LR = "etastar/mean_eff_lr"  # its mean over every step so far
PLATEAU_EFF_LR = "etastar/plateau_eff_lr"  # its mean over the steps at the peak learning rate
TRAIN_LOSS = "etastar/train_loss"  # as told to `observe`
VAL_LOSS = "etastar/val_loss"

# Written once, by `finish`: the run's row.
LOSS = "etastar/loss"
TOKENS = "etastar/tokens"
PARAMS = "etastar/params"
STEPS = "etastar/steps"
PEAK_LR = "etastar/peak_lr"

RUN_METRICS = {  # of the run's row: metric → column of the runs table
    LOSS: "loss",
    TOKENS: "tokens",
    PARAMS: "params",
    STEPS: "steps",
    PEAK_LR: "lr",
    MEAN_EFF_LR: "mean_eff_lr",
    PLATEAU_EFF_LR: "plateau_eff_lr",
}
STEP_METRICS = (STEP, LR, EFF_LR, MEAN_EFF_LR, PLATEAU_EFF_LR, TRAIN_LOSS, VAL_LOSS)


def weight_metric(statistic: str, weight: str) -> str:
    """The name of one statistic of one weight (or role)."""
    return f"{PREFIX}{statistic}/{weight}"


def parse_weight_metric(name: str) -> tuple[str, str] | None:
    """(statistic, weight) of a per-weight metric's name, or None."""
    if not name.startswith(PREFIX):
        return None
    statistic, _, weight = name.removeprefix(PREFIX).partition("/")
    return (statistic, weight) if weight and statistic in STATISTICS else None


def role(weight: str) -> str:
    """A weight's name without its layer numbers: `h.3.attn.c_proj.weight` → `h.attn.c_proj.weight`."""
    return ".".join(part for part in weight.split(".") if not part.isdigit())
