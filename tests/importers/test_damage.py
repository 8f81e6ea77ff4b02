"""Truncated, flipped and hostile files of every kind: what can be read is read, the rest is named, nothing is raised
but `EtastarError`, and no length in a file makes the reader allocate more than the file holds."""

from __future__ import annotations

import json
import os
import pickle
import sqlite3
import struct
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_golden import KINDS, unpack

from etastar.errors import EtastarError
from etastar.importers.framing import masked_crc32c, tf_records, wandb_records
from etastar.importers.hparams import read_hparams
from etastar.importers.long import read_lightning
from etastar.importers.mlflow import read_mlflow_database, read_mlruns
from etastar.importers.raw import Gathered, RawRun
from etastar.importers.sources import read_source
from etastar.importers.tensorboard import read_tensorboard
from etastar.importers.trackio import read_trackio_database
from etastar.importers.trainer_state import read_trainer_states
from etastar.importers.wandb_files import read_wandb_files
from etastar.importers.wire import WireError, fields
from etastar.records import RunStatus

FILES = {
    "wandb": ("*run00002.wandb", read_wandb_files),
    "tensorboard": ("größe*/*tfevents*", read_tensorboard),
    "lightning-csv": ("größe*/metrics.csv", read_lightning),
    "trainer": ("größe*/trainer_state.json", read_trainer_states),
    "trackio": ("*.db", lambda paths, root: read_trackio_database(paths[0], root)),
    "mlflow-sqlite": ("*.db", lambda paths, root: read_mlflow_database(paths[0], root)),
}


def points(gathered: Gathered) -> dict[tuple[str, str], list[tuple[int, float]]]:
    return {
        (run.name, name): list(zip(series.steps, series.values, strict=True))
        for run in gathered.runs
        for name, series in run.metrics.items()
    }


def said(gathered: Gathered) -> list[str]:
    return [*gathered.problems, *(problem for run in gathered.runs for problem in run.problems)]


@pytest.mark.parametrize("kind", ["wandb", "tensorboard", "lightning-csv"])
def test_every_truncation_keeps_what_is_before_it(kind: str, tmp_path: Path) -> None:
    pattern, read = FILES[kind]
    folder = unpack(kind, tmp_path)
    path = max(folder.rglob(pattern), key=lambda p: p.stat().st_size)
    content = path.read_bytes()
    whole = points(read([path], folder))
    counts = []
    quiet = 0
    # every byte of the first and the last records, where they begin and end differently; every seventh between
    edge = 700
    for length in (n for n in range(len(content)) if n < edge or n > len(content) - edge or n % 7 == 0):
        path.write_bytes(content[:length])
        found = read([path], folder)
        for key, series in points(found).items():
            assert series == whole[key][: len(series)], (length, key)
        counts.append(sum(len(series) for series in points(found).values()))
        quiet += not said(found)
        assert kind != "wandb" or all(run.status is RunStatus.CRASHED for run in found.runs)
    assert counts == sorted(counts)
    assert counts[-1] >= sum(map(len, whole.values())) - 4
    # a cut is silent only where it falls between two records
    records = {"wandb": wandb_records, "tensorboard": tf_records}
    path.write_bytes(content)
    between = len(list(records[kind](path))) if kind in records else content.count(b"\n")
    assert quiet <= between + 1


def test_truncated_json_and_databases_are_named(tmp_path: Path) -> None:
    for kind in ("trainer", "trackio", "mlflow-sqlite"):
        pattern, read = FILES[kind]
        folder = unpack(kind, tmp_path / kind)
        path = next(folder.rglob(pattern))
        content = path.read_bytes()
        for k in range(60):
            path.write_bytes(content[: len(content) * k // 60])
            found = read([path], folder)
            assert said(found) or points(found), (kind, k)
        path.write_bytes(content[: len(content) * 9 // 10])
        assert said(read([path], folder))


def test_a_torn_metric_file_of_mlflow(tmp_path: Path) -> None:
    folder = unpack("mlflow-files", tmp_path)
    path = next(p for p in folder.rglob("metrics/loss"))
    content = path.read_bytes()
    run = path.parents[1]
    for length in range(0, len(content), 3):
        path.write_bytes(content[:length])
        (found,) = read_mlruns([run], folder).runs
        lines = content[:length].count(b"\n")
        assert len(found.metrics["loss"].steps if "loss" in found.metrics else []) == lines
        assert bool(found.problems) == (content[:length].rpartition(b"\n")[2] != b"")


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_flipped_bytes_raise_nothing_else(kind: str, tmp_path_factory: pytest.TempPathFactory, data) -> None:
    folder = unpack(kind, tmp_path_factory.mktemp(kind))
    path = data.draw(st.sampled_from(sorted(p for p in folder.rglob("*") if p.is_file())))
    content = bytearray(path.read_bytes())
    if content:
        for _ in range(data.draw(st.integers(1, 4))):
            # half of the damage in the first hundred bytes, where headers are
            top = min(len(content), data.draw(st.sampled_from([100, len(content)])))
            content[data.draw(st.integers(0, top - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content))
    try:
        assert read_source(folder).table.num_rows > 0
    except EtastarError as error:
        assert error.hint


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_fields_or_a_wire_error(message: bytes) -> None:
    try:
        size = sum(len(field.value) if isinstance(field.value, bytes) else 1 for field in fields(message))
    except WireError:
        return
    assert size <= len(message)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(content=st.binary(max_size=400), mark=st.booleans())
def test_any_bytes_are_records_or_sentences(tmp_path: Path, content: bytes, mark: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes((b":W&B\xe1\xbe\x00" if mark else b"") + content)
    for read in (wandb_records, tf_records):
        for record in read(path):
            assert isinstance(record, str) or len(record) <= len(content)


@pytest.mark.parametrize("length", [2**31, 2**60, 2**64 - 1])
def test_a_length_is_believed_only_if_the_bytes_are_there(tmp_path: Path, length: int) -> None:
    header = struct.pack("<Q", length)
    (tmp_path / "events.out.tfevents.1.host").write_bytes(header + struct.pack("<I", masked_crc32c(header)) + b"x" * 64)
    varint = b"\x12" + bytes([*([0xFF] * 8), 0x7F])  # field 2, of 2^63 − 1 bytes
    data = varint + b"y" * 20
    crc = zlib.crc32(data, zlib.crc32(b"\x01"))
    (tmp_path / "run-x.wandb").write_bytes(b":W&B\xe1\xbe\x00" + struct.pack("<IHB", crc, len(data), 1) + data)
    tracemalloc.start()
    events = read_tensorboard([tmp_path / "events.out.tfevents.1.host"], tmp_path)
    runs = read_wandb_files([tmp_path / "run-x.wandb"], tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20
    assert "ends within a record" in said(events)[0]
    assert "cannot be understood" in said(runs)[0]


def test_pickles_are_never_opened_and_tags_never_obeyed(tmp_path: Path) -> None:
    folder = unpack("trainer", tmp_path)
    mark = tmp_path / "opened"

    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(mark),)

    for run in folder.glob("*/trainer_state.json"):
        run.with_name("training_args.bin").write_bytes(pickle.dumps(Trap()))
    (tmp_path / "hparams.yaml").write_text(f"lr: 0.5\nx: !!python/object/apply:os.mkdir ['{mark}']\n")
    assert read_hparams(tmp_path / "hparams.yaml", tmp_path)[0]["lr"] == 0.5
    assert read_source(folder).table.num_rows == 3
    assert not mark.exists()


def test_a_small_yaml_cannot_become_a_large_table(tmp_path: Path) -> None:
    lines = ["a0: &a0 {x: 1, y: 2}"]
    lines += [f"a{k}: &a{k} {{p: *a{k - 1}, q: *a{k - 1}, r: *a{k - 1}}}" for k in range(1, 25)]
    (tmp_path / "hparams.yaml").write_text("\n".join(lines))
    assert len(read_hparams(tmp_path / "hparams.yaml", tmp_path)[0]) <= 20_000


def test_views_are_no_tables(tmp_path: Path) -> None:
    """A database whose `metrics` is a view that counts for ever is not asked."""
    connection = sqlite3.connect(tmp_path / "mlflow.db")
    connection.execute("CREATE TABLE runs (run_uuid TEXT, name TEXT, status TEXT)")
    connection.execute(
        "CREATE VIEW metrics AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT x AS key FROM c"
    )
    connection.commit()
    connection.close()
    with pytest.raises(EtastarError):
        read_source(tmp_path)


def test_names_that_no_table_and_no_terminal_can_hold(tmp_path: Path) -> None:
    rows = [{"step": 1, "eval_loss": 2.0, "a\0b": 1.0, "\ud800": 2.0}, {"step": 2, "eval_loss": 1.5}]
    state = {"global_step": 2, "max_steps": 2, "log_history": rows}
    folder = tmp_path / "\x1b[31mred\n"
    folder.mkdir()
    (folder / "trainer_state.json").write_text(json.dumps(state))
    (folder / "config.json").write_text(json.dumps({"n_params": 5, "learning_rate": 1e-3, "x\0": "\ud800\x1b[2J"}))
    found = read_source(tmp_path, mapping={"tokens": "1B"})
    assert found.table["run"].to_pylist() == ["�[31mred�"]
    assert found.table["loss"].to_pylist() == [1.5]


def test_deep_json_is_no_recursion(tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_text('{"log_history": [], "x": ' + "[" * 100_000 + "]" * 100_000 + "}")
    (tmp_path / "config.json").write_text("{" * 10)
    with pytest.raises(EtastarError, match="no run could be read"):
        read_source(tmp_path)


def test_what_is_unreadable_is_named_beside_what_is_not(tmp_path: Path) -> None:
    folder = unpack("wandb", tmp_path)
    broken = next(folder.rglob("*run00009.wandb"))
    content = broken.read_bytes()
    broken.write_bytes(content[: len(content) // 3])
    found = read_source(folder)
    assert found.table.num_rows + len(found.refused) == 4
    assert any("run00009.wandb: ends within a record" in problem for problem in found.problems)


def test_entries_of_the_wrong_kind_are_counted(tmp_path: Path) -> None:
    state = {"global_step": 2, "log_history": [{"step": 1, "loss": 3.0}, {"loss": 2.0}, 7, {"step": "x"}]}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    (run,) = read_trainer_states([tmp_path / "trainer_state.json"], tmp_path).runs
    assert isinstance(run, RawRun)
    assert run.metrics["loss"].values == [3.0]
    assert "3 entries of log_history have no step" in run.problems[0]
