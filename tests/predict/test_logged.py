"""Are the rows of a few runs read out of many, from wherever they lie, and is a damaged part named?"""

from __future__ import annotations

import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etastar.errors import InputError
from etastar.predict.logged import LoggedRows, read_trajectories
from etastar.records import TRAJECTORY_SCHEMA
from etastar.store import write_trajectories


def rows(run: str, weight: str | None = "q", steps: int = 5) -> pa.Table:
    found = [
        {"run": run, "step": k, "weight": weight, "weight_norm": 1.0 + k, "update_norm": 1.0} for k in range(steps)
    ]
    return pa.Table.from_pylist(found, schema=TRAJECTORY_SCHEMA)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    for part, runs in {"one": "ab", "two": "bc"}.items():
        write_trajectories(tmp_path, pa.concat_tables([rows(f"run-{part}-{r}") for r in runs]), part)
    write_trajectories(tmp_path, pa.concat_tables([rows("spread"), rows("losses", None)]), "three")
    write_trajectories(tmp_path, rows("spread", "k"), "zwei")
    return tmp_path


def test_the_rows_of_the_runs_that_are_asked_for(study: Path) -> None:
    found = read_trajectories(study)
    assert found is not None
    assert set(found.names) == {"run-one-a", "run-one-b", "run-two-b", "run-two-c", "spread"}  # "losses" has no matrix
    assert found.of({"run-two-c"})["run"].to_pylist() == ["run-two-c"] * 5
    assert found.of({"spread"})["weight"].to_pylist() == ["q"] * 5 + ["k"] * 5
    assert found.of({"nobody"}).num_rows == 0
    assert found.before(2).of({"spread"})["step"].to_pylist() == [0, 1, 0, 1]


def test_only_the_files_that_hold_them_are_read(study: Path) -> None:
    found = read_trajectories(study)
    assert found is not None
    (study / "trajectories" / "one.parquet").unlink()
    assert found.of({"run-two-b", "spread"}).num_rows == 15


@pytest.mark.parametrize("cut", [0.5, 0.98])
def test_a_damaged_part_is_named_and_the_others_are_read(study: Path, cut: float) -> None:
    path = study / "trajectories" / "one.parquet"
    path.write_bytes(path.read_bytes()[: int(cut * path.stat().st_size)])
    with pytest.warns(UserWarning, match=r"one\.parquet cannot be read and is left out"):
        found = read_trajectories(study)
    assert found is not None
    assert "run-two-b" in found.names
    assert "run-one-a" not in found.names


def test_a_value_that_was_changed_is_not_believed(study: Path) -> None:
    path = study / "trajectories" / "zwei.parquet"
    table = pq.read_table(path)
    norms = [value * 2 for value in table["weight_norm"].to_pylist()]
    pq.write_table(table.set_column(3, "weight_norm", pa.array(norms)), path)
    found = read_trajectories(study)
    assert found is not None
    with pytest.warns(UserWarning, match="not what was written"):
        assert found.of({"spread"})["weight"].to_pylist() == ["q"] * 5


def test_a_file_that_was_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    pq.write_table(rows("r"), path)
    for given in (path, tmp_path):
        found = read_trajectories(Path("nowhere"), given)
        assert found is not None
        assert list(found.names) == ["r"]
        assert found.of(["r"]).num_rows == 5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no file"),
        (b"no parquet", "cannot be read as Parquet"),
        (pa.table({"x": [1]}), "run"),
        (pa.table({"run": [1], "weight": ["q"]}), "step"),
    ],
)
def test_a_named_file_that_is_none(tmp_path: Path, content: bytes | pa.Table | None, message: str) -> None:
    path = tmp_path / "mine.parquet"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        pq.write_table(content, path)
    with pytest.raises(InputError, match=message):
        read_trajectories(Path("nowhere"), path)


def test_none_without_any(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_trajectories(tmp_path) is None
    with pytest.raises(InputError, match="no Parquet file with rows of a matrix"):
        read_trajectories(Path("nowhere"), tmp_path)


def test_rows_in_memory() -> None:
    found = LoggedRows.of_table(pa.concat_tables([rows("a"), rows("b"), rows("c", None)]))
    assert set(found.names) == {"a", "b"}
    assert found.of({"b"})["run"].to_pylist() == ["b"] * 5
