"""The studies that come with the package: found by name, whole, and what their data card says."""

import shutil
from pathlib import Path

import pytest

import etastar
from etastar.errors import InputError
from etastar.estimate.cells import Quantity
from etastar.estimate.optimum import Status
from etastar.shipped import named, shipped_names, shipped_path
from etastar.store.verify import verify_files


def test_names_lead_to_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shipped_names() == ("mini",)
    assert named("mini") == str(shipped_path("mini"))
    assert named("other") == "other"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mini").mkdir()
    assert named("mini") == "mini"  # one's own folder comes first
    with pytest.raises(InputError, match="not shipped"):
        shipped_path("maxi")


def test_mini_is_what_its_card_says() -> None:
    study = etastar.load_study("mini")
    assert study.table.num_rows == 1292
    assert len(study.groups) == 3
    optima = [o for group in study.groups for o in study.estimates(group)[Quantity.LR].optima]
    assert len(optima) == 68
    assert {o.status for o in optima} == {Status.INTERIOR}
    assert set(study.table["epochs"].to_pylist()) == {1}  # no run repeats data


def test_mini_is_whole() -> None:
    assert verify_files(shipped_path("mini")) == []


def test_the_next_width_adds_to_it(tmp_path: Path) -> None:
    """What is trained of width 384 is whole, and beside the shipped parts its cells join their group."""
    begun = Path(__file__).parents[1] / "studies" / "mini-384"
    assert verify_files(begun) == []
    for folder in (shipped_path("mini"), begun):
        shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    study = etastar.load_study(tmp_path)
    assert study.table.num_rows == 1292 + 154
    assert len(study.groups) == 3
