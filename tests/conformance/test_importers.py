"""One suite over all trackers: the same runs, written by each real library, come in as the same tables.

The libraries live in an interpreter of their own (their pins clash with ours), named by ETASTAR_TRACKERS_PYTHON;
`make test-trackers` makes it.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "importers"))

from logical_runs import REFUSED, expected, expected_losses
from write_runs import LIBRARIES

from etastar.importers.into_study import carry_out, plan_import
from etastar.importers.sources import Imported, read_source
from etastar.store import read_runs, read_trajectories
from etastar.store.verify import verify_files

pytestmark = pytest.mark.trackers
ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("ETASTAR_TRACKERS_PYTHON", ROOT / ".venv-trackers" / "bin" / "python"))


@pytest.fixture(scope="module", params=LIBRARIES)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of logs, written by one library."""
    if not PYTHON.exists():
        pytest.skip(f"the trackers suite did not run: no {PYTHON}; make test-trackers makes it")
    folder = tmp_path_factory.mktemp(request.param) / "lögs"
    script = ROOT / "tests" / "importers" / "write_runs.py"
    command = [str(PYTHON), str(script), request.param, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.fixture(scope="module")
def imported(source: Path) -> Imported:
    return read_source(source)


def test_runs_are_those_that_were_written(imported: Imported) -> None:
    rows = sorted(imported.table.to_pylist(), key=lambda row: row["run"])
    for row, wanted in zip(rows, expected(), strict=True):
        for name, value in wanted.items():
            same = row[name] == value or (isinstance(value, float) and math.isnan(value) and math.isnan(row[name]))
            assert same, (wanted["run"], name, row[name], value)


def test_trajectories_are_those_that_were_written(imported: Imported) -> None:
    assert imported.trajectories is not None
    found: dict[str, list] = {}
    for row in imported.trajectories.to_pylist():
        if row["weight"] is None and (row["train_loss"] is not None or row["val_loss"] is not None):
            found.setdefault(row["run"], []).append((row["step"], row["train_loss"], row["val_loss"]))
    for name, wanted in expected_losses().items():
        assert str(found[name]) == str(wanted), name  # as text: NaN is NaN
    norms = [row for row in imported.trajectories.to_pylist() if row["run"] == "norms" and row["weight"] == "h.0.attn"]
    assert [row["step"] for row in norms] == list(range(4, 41, 4))
    assert {(row["weight_norm"], row["step_norm"], row["eff_lr"]) for row in norms} == {(4.0, 2.0**-4, 2.0**-6)}
    assert all(row["eff_lr_approximate"] for row in norms)


def test_doubts_are_said(imported: Imported) -> None:
    assert {run for run, _ in imported.refused} == REFUSED
    assert not imported.problems
    notes = "\n".join(imported.notes)
    assert "loss: the last eval/loss; also logged: eval/other/loss" in notes
    assert "1 runs count as crashed" in notes
    assert "mean_eff_lr of 1 runs is approximate: step_norm / weight_norm" in notes


def test_restarts_are_said_where_the_log_shows_them(source: Path, imported: Imported) -> None:
    said = any("restarted: " in note and "later write wins" in note for note in imported.notes)
    assert said == ("trainer" not in str(source))  # a Trainer resumes with the log of its checkpoint


def test_the_other_loss_may_be_asked_for(source: Path) -> None:
    found = read_source(source, mapping={"loss": "eval/other/loss"}, where="status = 'finished'")
    losses = {row["run"]: row["loss"] for row in found.table.to_pylist()}
    usual = {row["run"]: row for row in expected()}
    assert losses["größe-λ-🦊-9"] == usual["größe-λ-🦊-9"]["loss"] + 0.875


def test_importing_twice_is_importing_once(source: Path, imported: Imported, tmp_path: Path) -> None:
    study = tmp_path / "study"
    first = plan_import(imported, str(source), study)
    assert len(first.new) == imported.table.num_rows
    carry_out(first, imported, str(source))
    second = plan_import(read_source(source), str(source), study)
    assert (second.new, second.changed) == ((), ())
    carry_out(second, imported, str(source))
    assert read_runs(study).num_rows == imported.table.num_rows
    assert imported.trajectories is not None
    assert read_trajectories(study).num_rows == imported.trajectories.num_rows
    assert not [problem for problem in verify_files(study) if problem.wrong]
