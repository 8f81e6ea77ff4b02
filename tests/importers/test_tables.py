"""Foreign files: the same table from every format, columns by any name, conventions of trackers."""

import json
import math

import polars as pl
import pytest

from etastar.errors import InputError
from etastar.importers.expressions import keep
from etastar.importers.tables import parse_mapping, read_runs
from etastar.simulate import Grid, World, simulate

ROWS = [
    {"params": 1e8, "tokens": 1e9, "lr": 2.0**-k, "loss": 3.0 + 0.01 * (k - 10) ** 2, "optimizer": "adamw", "seed": 1}
    for k in range(7, 14)
]


def lines(path, rows):
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return path


@pytest.fixture
def study():
    return pl.from_arrow(simulate(World(diverges_above=2.0), Grid(widths=(256,), tokens=(5e9, 1e10)), seed=2))


def test_every_format_gives_the_same_table(tmp_path, study):
    study.write_parquet(tmp_path / "runs.parquet")
    study.write_csv(tmp_path / "runs.csv")
    study.write_csv(tmp_path / "runs.tsv", separator="\t")
    lines(tmp_path / "runs.jsonl", study.to_dicts())  # as Python writes it, NaN and all
    whole = read_runs(tmp_path / "runs.parquet").table
    assert whole.num_rows == study.height
    for name in ("runs.csv", "runs.tsv", "runs.jsonl"):
        other = read_runs(tmp_path / name).table
        assert other.schema.names == whole.schema.names
        assert other.schema.types == whole.schema.types
        for column in whole.column_names:
            left, right = other[column].to_pylist(), whole[column].to_pylist()
            for a, b in zip(left, right, strict=True):
                assert a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b)), (name, column)


def test_a_study_folder_is_the_sum_of_its_parts(tmp_path, study):
    (tmp_path / "runs").mkdir()
    study.head(5).write_parquet(tmp_path / "runs" / "a.parquet")
    study.slice(5).with_columns(pl.lit(1.5).alias("extra")).write_parquet(tmp_path / "runs" / "b.parquet")
    table = read_runs(tmp_path).table
    assert table["run"].to_pylist() == study["run"].to_list()
    assert table["extra"].to_pylist()[:6] == [None] * 5 + [1.5]


def test_parts_of_different_kinds_do_not_fit_together(tmp_path):
    (tmp_path / "runs").mkdir()
    pl.DataFrame(ROWS).write_parquet(tmp_path / "runs" / "a.parquet")
    pl.DataFrame(ROWS).with_columns(pl.lit([1]).alias("lr")).write_parquet(tmp_path / "runs" / "b.parquet")
    with pytest.raises(InputError) as error:
        read_runs(tmp_path)
    assert error.value.hint


def test_file_names_are_no_patterns(tmp_path):
    lines(tmp_path / "[ab]*.jsonl", ROWS)
    pl.DataFrame(ROWS).write_csv(tmp_path / "[ab]?.csv")
    assert read_runs(tmp_path / "[ab]*.jsonl").table.num_rows == len(ROWS)
    assert read_runs(tmp_path / "[ab]?.csv").table.num_rows == len(ROWS)


@pytest.mark.parametrize(
    ("params", "tokens", "lr", "loss"),
    [
        ("N", "D", "learning_rate", "val_loss"),
        ("n_params", "train_tokens", "Peak LR", "eval/loss"),
        ("config.n_params", "config.tokens", "config/learning-rate", "summary.eval/loss"),
        ("size", "num_tokens", "max_lr", "validation_loss"),
    ],
)
def test_names_are_recognised_and_said(tmp_path, params, tokens, lr, loss):
    names = {"params": params, "tokens": tokens, "lr": lr, "loss": loss}
    pl.DataFrame(ROWS).rename(names).write_csv(tmp_path / "runs.csv")
    found = read_runs(tmp_path / "runs.csv")
    assert found.table["lr"].to_pylist() == [row["lr"] for row in ROWS]
    for own, foreign in names.items():
        assert found.mapped[own] == foreign
        assert f"column {foreign!r} read as {own}" in found.notes


def test_own_names_win_over_aliases_and_a_mapping_over_both(tmp_path):
    frame = pl.DataFrame(ROWS).with_columns(pl.lit(7.0).alias("val_loss"), pl.lit(9.0).alias("third"))
    frame.write_csv(tmp_path / "runs.csv")
    assert read_runs(tmp_path / "runs.csv").table["loss"][3].as_py() == 3.0
    mapped = read_runs(tmp_path / "runs.csv", mapping={"loss": "third"}).table
    assert set(mapped["loss"].to_pylist()) == {9.0}
    assert mapped["file_loss"][3].as_py() == 3.0
    assert "third" not in mapped.column_names


def test_a_mapping_may_swap_two_columns(tmp_path):
    pl.DataFrame(ROWS).rename({"params": "tokens", "tokens": "params"}).write_csv(tmp_path / "runs.csv")
    table = read_runs(tmp_path / "runs.csv", mapping={"params": "tokens", "tokens": "params"}).table
    assert set(table["params"].to_pylist()) == {1e8}
    assert set(table["tokens"].to_pylist()) == {1e9}


def test_a_foreign_group_column_is_kept_and_not_used(tmp_path):
    pl.DataFrame(ROWS).with_columns(pl.lit("sweep-3").alias("group")).write_csv(tmp_path / "runs.csv")
    found = read_runs(tmp_path / "runs.csv")
    assert set(found.table["file_group"].to_pylist()) == {"sweep-3"}
    assert found.table["group"].null_count == len(ROWS)
    assert any("file_group" in note for note in found.notes)
    mapped = read_runs(tmp_path / "runs.csv", mapping={"group": "group"}).table
    assert set(mapped["group"].to_pylist()) == {"sweep-3"}


def test_numbers_are_read_as_people_write_them(tmp_path):
    text = "size,tokens,lr,loss\n1.2b, 100B ,2^-9,3.1\n130m,20B,1e-3,nan\n130m,20B,2e-3,inf\n"
    (tmp_path / "runs.csv").write_text(text)
    found = read_runs(tmp_path / "runs.csv", where="lr > 0 AND tokens >= 20e9")
    assert found.table["params"].to_pylist() == [1.2e9, 130e6, 130e6]
    assert found.table["tokens"].to_pylist() == [100e9, 20e9, 20e9]
    assert found.table["lr"][0].as_py() == 2.0**-9
    assert found.table["status"].to_pylist() == ["finished", "diverged", "diverged"]
    assert any("1.2B" in note for note in found.notes)


def test_where_may_drop_the_rows_that_hold_no_number(tmp_path):
    (tmp_path / "runs.csv").write_text("N,D,lr,loss\n1e8,1e9,1e-3,3.1\n1e8,1e9,2e-3,failed\n")
    with pytest.raises(InputError, match="failed"):
        read_runs(tmp_path / "runs.csv")
    assert read_runs(tmp_path / "runs.csv", where="loss != 'failed'").table["loss"].to_pylist() == [3.1]


def test_what_is_missing_is_worked_out_aloud(tmp_path):
    rows = [
        {"N": 1e8, "steps": 1000, "batch_tokens": 5e5, "cooldown": 0.2, "lr": 1e-3 * k, "loss": 3.0, "diverged": k > 2}
        for k in range(1, 5)
    ]
    pl.DataFrame(rows).write_parquet(tmp_path / "runs.parquet")
    found = read_runs(tmp_path / "runs.parquet")
    assert set(found.table["tokens"].to_pylist()) == {5e8}
    assert set(found.table["decay_steps"].to_pylist()) == {200}
    assert found.table["status"].to_pylist() == ["finished", "finished", "diverged", "diverged"]
    for word in ("steps × batch_tokens", "cooldown × steps", "2 rows kept as diverged"):
        assert any(word in note for note in found.notes)


def test_states_of_trackers(tmp_path):
    states = ["finished", "Finished", "crashed", "failed", "killed", "running", "completed"]
    frame = pl.DataFrame(ROWS).with_columns(pl.Series("state", states))
    frame.write_csv(tmp_path / "runs.csv")
    found = read_runs(tmp_path / "runs.csv")
    assert found.table["status"].to_pylist() == ["finished"] * 2 + ["crashed"] * 4 + ["finished"]
    assert any("3 runs did not finish" in note for note in found.notes)


def test_nan_in_an_optional_column_is_unknown(tmp_path):
    frame = pl.DataFrame(ROWS).with_columns(pl.lit(math.nan).alias("mean_eff_lr"), pl.lit(math.nan).alias("steps"))
    frame.write_parquet(tmp_path / "runs.parquet")
    found = read_runs(tmp_path / "runs.parquet")
    assert found.table["mean_eff_lr"].null_count == found.table["steps"].null_count == len(ROWS)
    assert any("7 NaN read as unknown" in note for note in found.notes)


def test_two_columns_of_one_name_are_said(tmp_path):
    (tmp_path / "runs.csv").write_text("params,tokens,lr,loss,lr\n1e8,1e9,1e-3,3.1,5\n")
    found = read_runs(tmp_path / "runs.csv")
    assert found.table["lr"].to_pylist() == [1e-3]
    assert any("two columns are called 'lr'" in note for note in found.notes)


def test_what_is_missing_is_explained(tmp_path):
    (tmp_path / "runs.csv").write_text("optimizer,size,chinchilla,lr,loss\nadamw,1.2b,1,0.002,2.9\n")
    with pytest.raises(InputError) as error:
        read_runs(tmp_path / "runs.csv")
    assert "no column for tokens among" in error.value.message
    assert "chinchilla" in error.value.message
    assert "--map tokens=TOKENS" in error.value.hint
    assert "steps and batch_tokens" in error.value.hint


def test_mapping_is_parsed():
    assert parse_mapping("params=N, tokens = D") == {"params": "N", "tokens": "D"}
    assert parse_mapping("loss=eval/a=b") == {"loss": "eval/a=b"}
    assert parse_mapping(None) == {}


def test_keep_counts_what_it_drops():
    frame = pl.DataFrame(ROWS)
    kept, dropped = keep(frame, "lr >= 0.001 AND optimizer = 'adamw'")
    assert kept.height + dropped == len(ROWS)
    assert kept["lr"].min() >= 0.001
    assert keep(frame, "lr = max(lr)")[0].height == 1


def test_an_integer_of_forty_digits_is_a_number(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("params,tokens,lr,loss,more\n1e6,1e9,0.1,3.0,99999999999999999999999\n")
    assert read_runs(path).table["more"].to_pylist() == [99999999999999999999999.0]


def test_a_zero_byte_in_a_name_is_one_line(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("params,tokens,lr,loss,mo\0re\n1e6,1e9,0.1,3.0,1\n")
    with pytest.raises(InputError, match="zero byte"):
        read_runs(path)
