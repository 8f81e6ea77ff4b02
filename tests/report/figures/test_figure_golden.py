"""Do the figures still show the same numbers? Data, not pixels.

After a change that is meant to move them: `ETASTAR_WRITE_GOLDEN=1 python -m pytest tests/report/figures/test_figure_golden.py`,
and look at the difference. Lists are thinned to six values and rounded to five digits.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from etastar.report.figures import FIGURES
from etastar.report.view import StudyView

GOLDEN = Path(__file__).parents[2] / "golden" / "figures"
FROM_MINI = (
    "optimal-lr",
    "optimal-eff-lr",
    "eff-lr-weight-norm",
    "weight-norm-squared",
    "loss-lr-cubic",
    "weight-spread",
)


def shown(value: Any) -> Any:
    """A small JSON copy: long lists thinned, numbers rounded."""
    if isinstance(value, dict):
        return {key: shown(one) for key, one in value.items()}
    if isinstance(value, list):
        if len(value) > 6 and not isinstance(value[0], dict):
            last = len(value) - 1
            return {"length": len(value), "some": [shown(value[round(k * last / 5)]) for k in range(6)]}
        return [shown(one) for one in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def agree(new: Any, old: Any, where: str = "") -> None:
    """Numbers within a thousandth (other machines round otherwise), all else exactly."""
    if isinstance(old, dict):
        assert set(new) == set(old), where
        for key in old:
            agree(new[key], old[key], f"{where}.{key}")
    elif isinstance(old, list):
        assert len(new) == len(old), where
        for k, (a, b) in enumerate(zip(new, old, strict=True)):
            agree(a, b, f"{where}[{k}]")
    elif isinstance(old, float) and isinstance(new, (int, float)):
        assert math.isclose(new, old, rel_tol=1e-3, abs_tol=2e-4), f"{where}: {new} was {old}"
    else:
        assert new == old, where


def check(name: str, study: str, found: Any) -> None:
    path = GOLDEN / f"{study}-{name}.json"
    new = json.loads(json.dumps(shown(asdict(found)), allow_nan=False))
    if os.environ.get("ETASTAR_WRITE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(new, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    agree(new, json.loads(path.read_text(encoding="utf-8")), name)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_synthetic_study(figure, synthetic: StudyView) -> None:
    check(figure.name, "synthetic", figure.data(synthetic))


@pytest.mark.parametrize("figure", [f for f in FIGURES if f.name in FROM_MINI], ids=lambda figure: figure.name)
def test_trained_study(figure, mini: StudyView) -> None:
    check(figure.name, "mini", figure.data(mini))
