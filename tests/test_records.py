"""The door: what a runs table must hold, and what is said of one that does not."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etastar.errors import EtastarError, InputError
from etastar.records import RUN_SCHEMA, RunSpec, conform_runs, group_labels, runs_table

ROW = {"params": 1e8, "tokens": 1e10, "lr": 1e-3, "loss": 3.0}


def rows(*changes):
    return [ROW | change for change in changes]


def test_gives_every_column_of_the_contract_its_type():
    table = runs_table(rows({}, {"lr": 2e-3, "extra": "kept"}))
    for field in RUN_SCHEMA:
        assert table.schema.field(field.name).type == field.type
    assert table["extra"].to_pylist() == [None, "kept"]
    assert table["status"].to_pylist() == ["finished", "finished"]


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_is_a_diverged_row_counted_aloud(loss):
    conformed = conform_runs(pa.Table.from_pylist(rows({}, {"lr": 1.0, "loss": loss})))
    assert conformed.table["status"].to_pylist() == ["finished", "diverged"]
    assert any("1 rows" in note and "diverged" in note for note in conformed.notes)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"lr": 0.0}, "lr"),
        ({"lr": -1e-3}, "lr"),
        ({"params": math.inf}, "params"),
        ({"tokens": math.nan}, "tokens"),
        ({"tokens": None}, "tokens"),
        ({"loss": None}, "loss"),
        ({"status": "exploded"}, "exploded"),
        ({"mean_eff_lr": -1.0}, "mean_eff_lr"),
        ({"lr": "fast"}, "fast"),
    ],
)
def test_refuses_bad_values_by_name(change, named):
    with pytest.raises(InputError) as error:
        conform_runs(pa.Table.from_pylist([ROW | change]))
    assert named in str(error.value)
    assert error.value.hint


def test_missing_columns_are_named():
    with pytest.raises(InputError, match="tokens, loss"):
        conform_runs(pa.table({"params": [1.0], "lr": [1.0]}))
    with pytest.raises(InputError, match="empty"):
        conform_runs(pa.table({name: pa.array([], pa.float64()) for name in ROW}))


def test_the_same_run_with_two_losses_is_an_error_and_replicates_are_not():
    with pytest.raises(InputError, match="2 different losses"):
        runs_table(rows({"run": "a"}, {"run": "a", "loss": 3.1}))
    runs_table(rows({"run": "a"}, {"run": "b", "loss": 3.1}))
    runs_table(rows({"run": "a", "seed": 0}, {"run": "a", "seed": 1, "loss": 3.1}))
    unmarked = conform_runs(pa.Table.from_pylist(rows({}, {"loss": 3.1})))
    assert any("replicates" in note for note in unmarked.notes)


def test_runs_trained_differently_get_different_labels():
    table = runs_table(rows({"optimizer": "adamw"}, {"optimizer": "adam"}, {"optimizer": "adamw"}))
    labels = group_labels(table)
    assert labels[0] == labels[2] != labels[1]
    assert group_labels(runs_table(rows({}, {}))) == ["", ""]
    with pytest.raises(InputError, match="nothere"):
        group_labels(table, ["nothere"])


def test_decay_groups_by_steps_or_by_fraction_whichever_is_constant():
    fixed = runs_table(rows({"decay_steps": 100, "steps": 1000}, {"decay_steps": 100, "steps": 2000}))
    assert len(set(group_labels(fixed))) == 1
    fraction = runs_table(rows({"decay_steps": 100, "steps": 1000}, {"decay_steps": 200, "steps": 2000}))
    assert len(set(group_labels(fraction))) == 1
    neither = runs_table(rows({"decay_steps": 100, "steps": 1000}, {"decay_steps": 400, "steps": 2000}))
    assert len(set(group_labels(neither))) == 2


def test_run_id_names_what_is_trained():
    spec = RunSpec(params=1e8, tokens=1e9, lr=1e-3, seed=1)
    assert spec.run_id == RunSpec(seed=1, lr=1e-3, tokens=1e9, params=1e8).run_id
    assert spec.run_id != spec.model_copy(update={"seed": 2}).run_id


VALUES = st.one_of(
    st.none(),
    st.floats(width=32),
    st.integers(-3, 3),
    st.sampled_from(["", "x", "nan", "1e-3", "finished", "diverged", "🦊", "'; drop", "\x00"]),
    st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            ["params", "tokens", "lr", "loss", "status", "seed", "run", "optimizer", "steps", "mean_eff_lr"]
        ),
        st.lists(VALUES, min_size=3, max_size=3),
        min_size=3,
    )
)
def test_no_table_finds_another_exception(columns):
    try:
        table = pa.table({name: pa.array(values) for name, values in columns.items()})
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return  # Arrow itself cannot hold the mix
    try:
        found = conform_runs(table).table
    except EtastarError as error:
        assert error.hint
    else:
        loss = found["loss"].to_numpy(zero_copy_only=False).astype(float)
        finished = np.array(found["status"].to_pylist()) == "finished"
        assert np.isfinite(loss[finished]).all()
