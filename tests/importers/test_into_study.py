"""Importing twice is importing once; what changed is replaced, what contradicts is refused, what is gone stays."""

from __future__ import annotations

import warnings

import polars as pl
import pytest

from etastar.errors import InputError
from etastar.importers.into_study import carry_out, plan_import
from etastar.importers.sources import read_source
from etastar.store import read_runs
from etastar.store.verify import verify_files


@pytest.fixture
def rows():
    return [{"run": f"r{k}", "params": 1e8, "tokens": 1e9, "lr": 2.0**-k, "loss": 3.0 + k / 8} for k in range(7, 11)]


@pytest.fixture
def import_rows(tmp_path):
    def import_rows(rows, name="runs.csv"):
        path = tmp_path / name
        pl.DataFrame(rows).write_csv(path)
        imported = read_source(path)
        plan = plan_import(imported, str(path), tmp_path / "study")
        carry_out(plan, imported, str(path))
        return plan

    return import_rows


def losses(tmp_path):
    table = read_runs(tmp_path / "study")
    return dict(zip(table["run"].to_pylist(), table["loss"].to_pylist(), strict=True))


def test_what_changed_is_replaced_and_counted(tmp_path, rows, import_rows) -> None:
    assert len(import_rows(rows).new) == 4
    again = import_rows(rows)
    assert (len(again.same), again.new, again.changed) == (4, (), ())
    rows[1]["loss"] = 2.5
    changed = import_rows(rows)
    assert changed.changed == ("r8",)
    assert losses(tmp_path)["r8"] == 2.5
    assert len(losses(tmp_path)) == 4


def test_what_is_gone_from_the_source_stays(tmp_path, rows, import_rows) -> None:
    import_rows(rows)
    plan = import_rows(rows[:2])
    assert set(plan.kept) == {"r9", "r10"}
    assert len(losses(tmp_path)) == 4


def test_equal_runs_of_another_source_are_left_there(tmp_path, rows, import_rows) -> None:
    import_rows(rows)
    plan = import_rows([*rows, {**rows[0], "run": "more"}], "copy.csv")
    assert (plan.new, len(plan.elsewhere)) == (("more",), 4)
    assert len(losses(tmp_path)) == 5
    assert not [problem for problem in verify_files(tmp_path / "study") if problem.wrong]


def test_a_contradiction_writes_nothing(tmp_path, rows, import_rows) -> None:
    import_rows(rows)
    before = losses(tmp_path)
    with pytest.raises(InputError, match="'r7' is there already"):
        import_rows([{**rows[0], "loss": 9.0}, {**rows[0], "run": "new"}], "other.csv")
    assert losses(tmp_path) == before


def test_rows_without_names_get_lasting_ones(tmp_path, rows, import_rows) -> None:
    bare = [{key: value for key, value in row.items() if key != "run"} for row in rows]
    first = import_rows([*bare, bare[0]])
    assert any("no run name" in note for note in first.notes)
    assert len(set(losses(tmp_path))) == 5
    assert len(import_rows([*bare, bare[0]]).same) == 5


def test_a_run_with_several_horizons_is_a_trunk(tmp_path, rows, import_rows) -> None:
    more = [{**rows[0], "tokens": 1e9 * k, "loss": 3.0 - k / 10} for k in (1, 2, 4)]
    import_rows(more)
    table = read_runs(tmp_path / "study")
    assert table["run"].to_pylist() == ["r7@1B", "r7@2B", "r7@4B"]
    assert set(table["trunk"].to_pylist()) == {"r7"}


def test_a_damaged_earlier_import_is_written_anew(tmp_path, rows, import_rows) -> None:
    plan = import_rows(rows)
    part = tmp_path / "study" / "runs" / f"{plan.part}.parquet"
    part.write_bytes(part.read_bytes()[:100])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_rows(rows)
    assert len(losses(tmp_path)) == 4


def test_a_file_is_no_study(tmp_path, rows) -> None:
    pl.DataFrame(rows).write_csv(tmp_path / "runs.csv")
    with pytest.raises(InputError, match="is a file"):
        plan_import(read_source(tmp_path / "runs.csv"), "x", tmp_path / "runs.csv")
