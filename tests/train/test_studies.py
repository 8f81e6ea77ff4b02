"""Can every study that is shipped be carried out?"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from etastar.plan.study_plan import load_plan
from etastar.train.spec_file import build_spec, load_spec

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*.yaml"))
PLANS = [file for file in STUDIES if "stacks" in yaml.safe_load(file.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("file", [file for file in STUDIES if file not in PLANS], ids=lambda file: file.name)
def test_study_is_a_whole_specification(file: Path) -> None:
    spec = load_spec(file)
    assert spec.name == file.stem
    assert len(spec.lrs) >= 3
    assert load_spec(file) == spec


@pytest.mark.parametrize("file", PLANS, ids=lambda file: file.name)
def test_every_stack_of_a_plan_is_a_whole_specification(file: Path) -> None:
    plan = load_plan(file)
    assert plan.name == file.stem
    for stack in plan.stacks:
        spec = build_spec(plan.content_of(stack))
        assert (spec.lrs, spec.horizons, spec.model.width) == (stack.lrs, stack.horizons, stack.width)


def test_mini_sees_no_token_twice_and_its_decay_is_a_fifth_at_most() -> None:
    plan = load_plan(STUDIES[0].parent / "mini.yaml")
    for stack in plan.stacks:
        assert max(stack.horizons) * plan.batch_tokens_of(stack) < 128e6
        assert min(stack.horizons) >= 5 * plan.spec["schedule"]["decay_steps"]
