"""Are a study's parts there whole or not at all?"""

from __future__ import annotations

import errno
from pathlib import Path

import pyarrow as pa
import pytest

from etastar.errors import InputError
from etastar.store import (
    parts,
    read_runs,
    read_trajectories,
    write_atomically,
    write_runs,
    write_trajectories,
)


def _runs(lr: float, loss: float = 3.0, **more: object) -> pa.Table:
    row = {"params": 1e6, "tokens": 1e7, "lr": lr, "loss": loss, "run": f"r{lr}"}
    return pa.Table.from_pylist([row | more])


def test_parts_come_back_together(tmp_path: Path) -> None:
    write_runs(tmp_path, _runs(0.1), "a")
    write_runs(tmp_path, _runs(0.2, spikes=3), "b")
    table = read_runs(tmp_path)
    assert table["lr"].to_pylist() == [0.1, 0.2]
    assert table["spikes"].to_pylist() == [None, 3]
    assert table["status"].to_pylist() == ["finished", "finished"]
    write_trajectories(tmp_path, pa.table({"run": ["r"], "step": [4]}), "a")
    assert read_trajectories(tmp_path)["step"].to_pylist() == [4]


def test_an_empty_study_has_empty_tables(tmp_path: Path) -> None:
    assert read_runs(tmp_path / "absent").num_rows == 0
    assert "eff_lr" in read_trajectories(tmp_path).column_names


def test_writing_a_part_again_replaces_it(tmp_path: Path) -> None:
    write_runs(tmp_path, _runs(0.1, 3.0), "a")
    write_runs(tmp_path, _runs(0.1, 2.0), "a")
    assert read_runs(tmp_path)["loss"].to_pylist() == [2.0]


def test_a_damaged_part_is_named_and_the_rest_read(tmp_path: Path) -> None:
    write_runs(tmp_path, _runs(0.1), "a")
    damaged = write_runs(tmp_path, _runs(0.2), "b")
    content = damaged.read_bytes()
    for broken in (content[: len(content) // 2], b"", b"PAR1" + b"x" * 50):
        damaged.write_bytes(broken)
        with pytest.warns(UserWarning, match=r"b\.parquet cannot be read"):
            assert read_runs(tmp_path)["lr"].to_pylist() == [0.1]


def test_a_table_outside_the_contract_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no column loss"):
        write_runs(tmp_path, pa.table({"params": [1.0], "tokens": [1.0], "lr": [1.0]}), "a")
    assert parts(tmp_path, "runs") == []


def test_a_write_that_fails_leaves_the_old_part(tmp_path: Path) -> None:
    path = write_runs(tmp_path, _runs(0.1), "a")
    before = path.read_bytes()

    def half(temporary: Path) -> None:
        temporary.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(InputError, match="no space left"):
        write_atomically(path, half)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["a.parquet"]
