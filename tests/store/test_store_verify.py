"""Is every damage named, and does a merge lose or double nothing?"""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from etastar.errors import InputError
from etastar.store import read_runs, read_trajectories, write_runs, write_trajectories
from etastar.store.merge import merge_studies
from etastar.store.verify import verify_files


def _row(run: str, loss: float = 3.0, **more: object) -> dict[str, object]:
    return {"params": 1e6, "tokens": 1e7, "lr": 0.1, "loss": loss, "run": run, "spikes": 0} | more


def _study(folder: Path, *runs: str, loss: float = 3.0) -> Path:
    for run in runs:
        write_runs(folder, pa.Table.from_pylist([_row(run, loss)]), f"part-{run}")
        steps = pa.table({"run": [run] * 3, "step": [0, 5, 9], "eff_lr": [0.1, 0.2, 0.3]})
        write_trajectories(folder, steps, f"part-{run}-000-010")
    return folder


def test_a_good_study_has_no_problems(tmp_path: Path) -> None:
    assert verify_files(_study(tmp_path, "a", "b")) == []
    with pytest.raises(InputError, match="no such folder"):
        verify_files(tmp_path / "absent")


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, 20))])
def test_any_flipped_bit_is_found_or_changes_nothing(tmp_path: Path, seed: int) -> None:
    """Bits all over a part, one at a time: detected, or the same values are read."""
    folder = _study(tmp_path, "a")
    path = folder / "runs" / "part-a.parquet"
    content, good = path.read_bytes(), read_runs(folder)
    rng, missed = random.Random(seed), []
    for place in rng.sample(range(len(content)), 120):
        path.write_bytes(content[:place] + bytes([content[place] ^ (1 << rng.randrange(8))]) + content[place + 1 :])
        found = [problem for problem in verify_files(folder) if problem.wrong]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            same = read_runs(folder).select(good.column_names).equals(good) if not found else True
        if not same:
            missed.append(place)
    assert missed == []


@pytest.mark.parametrize("kind", ["runs", "trajectories"])
def test_a_truncated_part_is_named_and_left_out(tmp_path: Path, kind: str) -> None:
    folder = _study(tmp_path, "a", "b")
    path = sorted((folder / kind).iterdir())[0]
    path.write_bytes(path.read_bytes()[:-20])
    (problem,) = verify_files(folder)
    assert problem.file == f"{kind}/{path.name}"
    assert "damaged" in problem.what
    read = read_runs if kind == "runs" else read_trajectories
    with pytest.warns(UserWarning, match=path.name):
        assert set(read(folder)["run"].to_pylist()) == {"b"}


def test_doubled_rows_are_named(tmp_path: Path) -> None:
    folder = _study(tmp_path, "a")
    write_runs(folder, pa.Table.from_pylist([_row("a")]), "other")
    write_trajectories(folder, pa.table({"run": ["a"], "step": [5], "eff_lr": [0.2]}), "other-000-010")
    said = sorted(str(problem) for problem in verify_files(folder))
    assert "run a is in runs/other.parquet too, equal" in said[0]
    assert "1 rows of a are there twice" in said[1]
    write_runs(folder, pa.Table.from_pylist([_row("a", 2.0)]), "other")
    assert any("with other values" in str(problem) for problem in verify_files(folder))


def test_damaged_checkpoints_and_leftovers(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    folder = tmp_path / "checkpoints" / "stack"
    folder.mkdir(parents=True)
    file = folder / "trunk-000000001.safetensors"
    save_file({"x": torch.zeros(4)}, file, metadata={"etastar": "{}"})
    (folder / ".trunk-000000002.safetensors.ab.tmp").write_bytes(b"")
    assert [problem.wrong for problem in verify_files(tmp_path)] == [False]
    whole = file.read_bytes()
    for broken in (whole[:-1], whole + b"x", whole[:6], b"\xff" * 30):
        file.write_bytes(broken)
        assert [problem.wrong for problem in verify_files(tmp_path)] == [True, False]


def test_merge_keeps_every_row_once(tmp_path: Path) -> None:
    one, two = _study(tmp_path / "a", "x", "y"), _study(tmp_path / "b", "y", "z")
    merged = merge_studies([one, two], tmp_path / "c")
    assert (merged.runs, merged.equal) == (3, 1)
    assert sorted(read_runs(tmp_path / "c")["run"].to_pylist()) == ["x", "y", "z"]
    assert read_trajectories(tmp_path / "c").num_rows == 9
    assert verify_files(tmp_path / "c") == []


def test_a_contradiction_names_the_run_and_writes_nothing(tmp_path: Path) -> None:
    one, two = _study(tmp_path / "a", "x"), _study(tmp_path / "b", "x", loss=2.5)
    with pytest.raises(InputError, match=r"run x: .* has loss 3\.0, .* has 2\.5"):
        merge_studies([one, two], tmp_path / "c")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]
    damaged = next((one / "runs").iterdir())
    damaged.write_bytes(b"")
    with pytest.raises(InputError, match=r"part-x\.parquet"):
        merge_studies([one, two], tmp_path / "c")
    with pytest.raises(InputError, match="is there already"):
        merge_studies([one, two], tmp_path / "b")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


def test_merge_of_diverged_rows(tmp_path: Path) -> None:
    for name in ("a", "b"):
        table = pa.Table.from_pylist([_row("x", float("nan"), status="diverged")])
        write_runs(tmp_path / name, table, "part")
    assert merge_studies([tmp_path / "a", tmp_path / "b"], tmp_path / "c").runs == 1


def test_plain_parquet_for_everyone(tmp_path: Path) -> None:
    """DuckDB, pandas and polars read the parts as they lie there."""
    pandas = pytest.importorskip("pandas", reason="did not run: pandas is not installed")
    folder = _study(tmp_path, "a", "b", "c")
    pattern = str(folder / "runs" / "*.parquet")
    assert pl.read_parquet(pattern).height == 3
    assert len(pandas.read_parquet(folder / "runs")) == 3
    duckdb = pytest.importorskip("duckdb", reason="did not run: duckdb is not installed")
    found = duckdb.sql(f"SELECT count(DISTINCT run) FROM read_parquet('{pattern}')").fetchall()
    assert found == [(3,)]
