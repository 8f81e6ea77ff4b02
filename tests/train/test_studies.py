"""Can every study that is shipped be carried out?"""

from __future__ import annotations

from pathlib import Path

import pytest

from etastar.train.spec_file import load_spec

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*.yaml"))


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.name)
def test_study_is_a_whole_specification(file: Path) -> None:
    spec = load_spec(file)
    assert spec.name == file.stem
    assert len(spec.lrs) >= 3
    assert load_spec(file) == spec
