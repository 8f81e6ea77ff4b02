"""Units in names, units by their size, and expressions in --map."""

from __future__ import annotations

import polars as pl
import pytest

from etastar.errors import InputError
from etastar.importers.columns import parse_mapping
from etastar.importers.sources import read_source
from etastar.importers.units import split_unit


def table(tmp_path, **columns):
    pl.DataFrame(columns).write_csv(tmp_path / "runs.csv")
    return tmp_path / "runs.csv"


@pytest.mark.parametrize(
    ("name", "parts"),
    [("tokens_b", ("tokens", "b")), ("d_in_billions", ("d", "billions")), ("params_m", ("params", "m")),
     ("tokens(b)", ("tokens", "b")), ("log2_lr", ("lr", "log2")), ("lr_log10", ("lr", "log10")), ("lr", None),
     ("log2(lr)", ("lr", "log2")), ("num_params", None)],
)  # fmt: skip
def test_units_in_names(name, parts) -> None:
    assert split_unit(name) == parts


def test_a_unit_in_a_name_is_taken_at_its_word(tmp_path) -> None:
    found = read_source(
        table(tmp_path, params_M=[124.0, 350.0], tokens_B=[2.5, 5.0], log2_lr=[-9, -10], loss=[3.0, 2.9])
    )
    assert found.table["params"].to_pylist() == [124e6, 350e6]
    assert found.table["tokens"].to_pylist() == [2.5e9, 5e9]
    assert found.table["lr"].to_pylist() == [2.0**-9, 2.0**-10]
    assert len(found.units) == 3


def test_values_that_cannot_be_are_scaled_aloud(tmp_path) -> None:
    found = read_source(table(tmp_path, N=[124, 350], D=[2.5, 5.0], lr=[-9.5, -10.0], loss=[3.0, 2.9]))
    assert found.table["params"].to_pylist() == [124e6, 350e6]
    assert found.table["tokens"].to_pylist() == [2.5e9, 5e9]
    assert found.table["lr"].to_pylist() == [2.0**-9.5, 2.0**-10]
    assert "tokens: values up to 5 read as billions" in found.units
    assert "params: values up to 350 read as millions" in found.units
    assert "lr: values from -10 to -9.5 read as log2" in found.units


@pytest.mark.parametrize("lr", [[-3.0, -3.5], [-6.9, -7.6]])
def test_a_logarithm_that_may_be_two_is_asked_for(tmp_path, lr) -> None:
    with pytest.raises(InputError, match="seem to be a logarithm") as error:
        read_source(table(tmp_path, N=[1e8, 1e8], D=[1e9, 1e9], lr=lr, loss=[3.0, 2.9]))
    assert "power(10, lr)" in error.value.hint
    rates = read_source(tmp_path / "runs.csv", mapping=parse_mapping("lr=power(10, lr)")).table["lr"].to_pylist()
    assert rates == pytest.approx([10.0**x for x in lr])


def test_a_toy_that_counts_its_tokens_is_left_alone(tmp_path) -> None:
    toy = table(tmp_path, N=[9000], D=[1280], steps=[40], batch_tokens=[32], lr=[1e-3], loss=[3.0])
    found = read_source(toy)
    assert found.table["tokens"].to_pylist() == [1280]
    assert found.units == ()


def test_millions_or_billions_is_asked_where_both_would_do(tmp_path) -> None:
    with pytest.raises(InputError, match="millions or billions"):
        read_source(table(tmp_path, N=[1.0], D=[1e9], lr=[1e-3], loss=[3.0]))


def test_expressions(tmp_path) -> None:
    path = table(tmp_path, size=["1.2b"], chinchilla=[2], lr=[1e-3], loss=[3.0])
    found = read_source(path, mapping=parse_mapping("tokens=params*20*chinchilla,seed=7"))
    assert found.table["tokens"].to_pylist() == [48e9]
    assert found.table["seed"].to_pylist() == [7]
    assert found.mapped["tokens"] == "params*20*chinchilla"


def test_a_renamed_column_still_counts_under_its_own_name(tmp_path) -> None:
    path = table(tmp_path, N=[1e8], iters=[100], lr=[1e-3], loss=[3.0])
    found = read_source(path, mapping=parse_mapping("steps=iters,tokens=iters*1e6"))
    assert found.table["tokens"].to_pylist() == [1e8]
    assert found.table["steps"].to_pylist() == [100]
    assert "iters" not in found.table.column_names


def test_commas_inside_brackets_and_quotes_do_not_split() -> None:
    assert parse_mapping('lr=power(2, k),loss="a,b"') == {"lr": "power(2, k)", "loss": '"a,b"'}


def test_a_mapping_file(tmp_path) -> None:
    path = table(tmp_path, a=[1e8], b=[1e9], c=[1e-3], d=[3.0])
    (tmp_path / "map.yaml").write_text("params: a\ntokens: b * 2\nlr: c\nloss: d\n")
    found = read_source(path, mapping=parse_mapping(f"@{tmp_path / 'map.yaml'}"))
    assert found.table["tokens"].to_pylist() == [2e9]
    for text in ("- a", "x: [", "nonsense: a"):
        (tmp_path / "bad.yaml").write_text(text)
        with pytest.raises(InputError):
            parse_mapping(f"@{tmp_path / 'bad.yaml'}")
    with pytest.raises(InputError):
        parse_mapping("@/nothere.yaml")


def test_a_table_of_steps_becomes_runs(tmp_path) -> None:
    rows = {"run": [], "iter": [], "N": [], "lr": [], "max_steps": [], "batch_tokens": [], "val_loss": []}
    for k in range(3):
        for step in (10, 20, 30):
            values = (f"r{k}", step, 1e8, 2.0**-k, 30, 1000, 4.0 - step / 100 + k)
            for name, value in zip(rows, values, strict=True):
                rows[name].append(value)
    frame = pl.DataFrame(rows).rename({"N": "n_params"})
    frame.write_parquet(tmp_path / "steps.parquet")
    found = read_source(tmp_path / "steps.parquet")
    assert found.table["loss"].to_pylist() == [3.7, 4.7, 5.7]
    assert found.table["tokens"].to_pylist() == [30_000] * 3
    assert found.trajectories is not None
    assert found.trajectories.num_rows == 9
    assert any("one row a step: 3 runs by 'run'" in note for note in found.notes)


def test_a_folder_of_tables(tmp_path) -> None:
    """As a data set from the hub lies on disk."""
    (tmp_path / "data").mkdir()
    for k in range(2):
        frame = pl.DataFrame({"run": [f"r{k}"] * 2, "step": [1, 2], "params": [1e8] * 2, "tokens": [1e9] * 2,
                              "lr": [2.0**-k] * 2, "val_loss": [3.0, 2.0]})  # fmt: skip
        frame.write_parquet(tmp_path / "data" / f"train-{k}.parquet")
    assert read_source(tmp_path).table["run"].to_pylist() == ["r0", "r1"]
    assert read_source(f"hf:{tmp_path}").table["loss"].to_pylist() == [2.0, 2.0]
