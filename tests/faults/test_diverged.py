"""Is a run that diverged left out of the fit even where its last loss looks like any other?"""

from __future__ import annotations

import numpy as np

from etastar.estimate.cells import build_groups
from etastar.records import runs_table


def test_a_diverged_row_with_a_finite_loss_is_not_fitted() -> None:
    rows = [
        {"params": 1e8, "tokens": 1e9, "lr": 2.0**-k, "loss": 3.0 + 0.01 * (k - 9) ** 2, "run": f"r{k}", "seed": 0}
        for k in range(5, 14)
    ]
    rows[0] |= {"status": "diverged", "loss": 2.5}
    (group,) = build_groups(runs_table(rows))
    (block,) = group.blocks
    ((fitted,),) = np.nonzero(~np.isfinite(block.loss[0]))
    assert block.log2_lr[fitted] == -5
    assert block.diverged[0].sum() == 1
