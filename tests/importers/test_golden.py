"""Files that the real libraries wrote, a few kB each, are read without any of those libraries."""

from __future__ import annotations

import functools
import math
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from logical_runs import expected, expected_losses

from etastar.importers.sources import read_source

GOLDEN = Path(__file__).parent / "golden"
KINDS = sorted(path.name.removesuffix(".tar.xz") for path in GOLDEN.glob("*.tar.xz"))


@functools.cache
def contents(kind: str) -> dict[str, bytes]:
    with tarfile.open(GOLDEN / f"{kind}.tar.xz") as archive:
        return {entry.name: archive.extractfile(entry).read() for entry in archive}  # type: ignore[union-attr]


def unpack(kind: str, folder: Path) -> Path:
    for name, content in contents(kind).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def test_there_is_one_for_every_library() -> None:
    assert len(KINDS) == 9


@pytest.mark.parametrize("kind", KINDS)
def test_golden_files_give_the_runs_that_were_written(kind: str, tmp_path: Path) -> None:
    found = read_source(unpack(kind, tmp_path))
    rows = {row["run"]: row for row in found.table.to_pylist()}
    assert len(rows) == (3 if kind == "trainer" else 4)
    for wanted in expected():
        row = rows.get(wanted["run"])
        for name, value in wanted.items() if row is not None else ():
            same = row[name] == value or (isinstance(value, float) and math.isnan(value) and math.isnan(row[name]))
            assert same, (wanted["run"], name, row[name], value)
    assert found.trajectories is not None
    named = found.trajectories.filter(found.trajectories["weight"].is_null()).to_pylist()
    for run in rows:
        losses = [(r["step"], r["train_loss"], r["val_loss"]) for r in named if r["run"] == run]
        assert str(losses) == str(expected_losses()[run])


def test_no_tracker_is_imported(tmp_path: Path) -> None:
    """All of it with the plain installation: no tracker, no torch, no network."""
    sources = [str(unpack(kind, tmp_path / kind)) for kind in KINDS]
    code = (
        "import sys\nfrom etastar.importers.sources import read_source\n"
        "for source in sys.argv[1:]: read_source(source)\n"
        "heavy = {'wandb', 'tensorboard', 'mlflow', 'trackio', 'transformers', 'lightning', 'torch', 'google.protobuf'}\n"
        "sys.exit(sorted(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, *sources], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_one_kind_may_be_asked_for(tmp_path: Path) -> None:
    """A folder with logs of two kinds: the one that knows more is read, the other named."""
    unpack("mlflow-sqlite", tmp_path / "a")
    unpack("lightning-csv", tmp_path / "b")
    both = read_source(tmp_path)
    assert both.kind == "an MLflow database"
    assert any("lightning logs are there too" in note for note in both.notes)
    asked = read_source(f"lightning:{tmp_path}")
    assert "Lightning" in asked.kind
    assert set(asked.table["run"].to_pylist()) == {f"b/{run}" for run in both.table["run"].to_pylist()}


@pytest.mark.parametrize("kind", ["wandb", "tensorboard", "mlflow-sqlite", "trainer", "trackio", "lightning-csv"])
def test_a_file_of_it_will_do(kind: str, tmp_path: Path) -> None:
    folder = unpack(kind, tmp_path)
    endings = ("*.wandb", "*tfevents*", "*.db", "trainer_state.json", "metrics.csv")
    file = next(p for ending in endings for p in sorted(folder.rglob(ending)) if "norms" not in str(p))
    if kind == "tensorboard":  # settings and scalars are in two files of a run
        file = file.parent
    assert read_source(file).table.num_rows >= 1
