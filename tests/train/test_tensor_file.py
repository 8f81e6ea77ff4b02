"""Do tensors come back as they were, and is every other file refused?"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from etastar.store.tensor_digest import DamagedTensorsError
from etastar.train.tensor_file import read_tensors, write_tensors

TENSORS = {
    "half": torch.randn(3, 5).to(torch.bfloat16),
    "wide": torch.randn(2, 2, dtype=torch.float64),
    "flags": torch.tensor([True, False, True]),
    "counts": torch.arange(7),
    "turned": torch.arange(6.0).view(2, 3).t(),
    "none": torch.empty(0, 4),
}


def test_they_come_back_and_anyone_can_read_them(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a", TENSORS, {"stack": "s", "step": 3})
    content, found = read_tensors(tmp_path / "a")
    assert content == {"stack": "s", "step": 3}
    for other in (found, load_file(tmp_path / "a")):
        assert other.keys() == TENSORS.keys()
        assert all(
            torch.equal(other[name], TENSORS[name]) and other[name].dtype == TENSORS[name].dtype for name in TENSORS
        )
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_every_flipped_byte_and_every_cut_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_tensors(path, {"x": torch.arange(5.0)}, {"stack": "s"})
    whole = path.read_bytes()
    for place in range(len(whole)):
        for damaged in (whole[:place], whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :]):
            path.write_bytes(damaged)
            with pytest.raises(DamagedTensorsError):
                read_tensors(path)


def test_a_file_without_a_digest_is_refused(tmp_path: Path) -> None:
    save_file({"x": torch.zeros(3)}, tmp_path / "a", metadata={"etastar": "{}"})
    with pytest.raises(DamagedTensorsError, match="has no digest"):
        read_tensors(tmp_path / "a")
