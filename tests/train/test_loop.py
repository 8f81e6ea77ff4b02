"""Is a branch an uninterrupted run, and does an interrupted training end as an undisturbed one?"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from toys import CORPUS, steps, toy

from etastar.errors import SpecError
from etastar.store import HeldError, acquire, read_runs, read_trajectories
from etastar.train.checkpoint import CheckpointFolder, Mark, expendable
from etastar.train.engine import Engine
from etastar.train.loop import train
from etastar.train.progress import Cell, Progress
from etastar.train.spec import TrainSpec


class Silent:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)

    def progress(self, progress: Progress) -> None:
        self.last = progress

    def evaluated(self, horizon: int, cells: list[Cell]) -> None:
        self.messages.append(f"evaluated {horizon}")


def run(spec: TrainSpec, study: Path) -> pa.Table:
    return train(spec, study, corpus=CORPUS, reporter=Silent()).runs


def rows(table: pa.Table, *keys: str) -> list[dict[str, object]]:
    return table.sort_by([(key, "ascending") for key in keys]).to_pylist()


def same_study(left: Path, right: Path) -> None:
    """Both tables equal, to the last bit."""
    assert rows(read_runs(left), "run") == rows(read_runs(right), "run")
    keys = ("run", "step", "weight")
    assert rows(read_trajectories(left), *keys) == rows(read_trajectories(right), *keys)


def branches(table: pa.Table, horizon: int) -> list[dict[str, object]]:
    return [row for row in rows(table, "lr") if row["steps"] == horizon]


@pytest.mark.parametrize("kind", ["adamw", "muonh"])
def test_branch_equals_an_uninterrupted_run(tmp_path: Path, kind: str) -> None:
    """Rows of a trunk with two branches = rows of two runs that had one horizon each, bit for bit."""
    spec = toy(optimizer={"kind": kind})
    together = run(spec, tmp_path / "both")
    for horizon in spec.horizons:
        lone = run(spec.model_copy(update={"horizons": (horizon,)}), tmp_path / str(horizon))
        assert branches(together, horizon) == branches(lone, horizon)


def test_branch_equals_a_run_that_never_heard_of_branches(tmp_path: Path) -> None:
    """The same by hand: every step taken in one go, no checkpoint, no trunk."""
    spec = toy()
    table = run(spec, tmp_path)
    for horizon in spec.horizons:
        state, _, engine = steps(spec, horizon, horizon=horizon)
        held_out = torch.from_numpy(CORPUS.validation(sequences=64, length=16))
        losses = engine.evaluate(state, held_out)
        assert [row["loss"] for row in branches(table, horizon)] == pytest.approx(losses.tolist(), rel=1e-7)
        mean, plateau = state.tally.means()
        assert [row["mean_eff_lr"] for row in branches(table, horizon)] == mean.tolist()
        assert [row["plateau_eff_lr"] for row in branches(table, horizon)] == plateau.tolist()


def test_rows_hold_what_was_trained(tmp_path: Path) -> None:
    spec = toy()
    table = run(spec, tmp_path)
    assert table.num_rows == 6
    row = branches(table, 24)[1]
    assert (row["tokens"], row["steps"], row["decay_steps"], row["lr"]) == (24 * 64, 24, 6, 2**-7)
    assert (row["params"], row["status"], row["optimizer"]) == (spec.model.params, "finished", "adamw")
    trunks = {row["lr"]: row["trunk"] for row in branches(table, 16)}
    assert {row["lr"]: row["trunk"] for row in branches(table, 24)} == trunks
    assert len(set(trunks.values())) == 3
    paths = read_trajectories(tmp_path)
    trunk_rows = [r for r in paths.to_pylist() if r["run"] == row["trunk"] and r["weight"] is None]
    assert sorted(r["step"] for r in trunk_rows) == [0, 3, 6, 9, 12, 15]
    own_rows = [r for r in paths.to_pylist() if r["run"] == row["run"] and r["weight"] == "blocks.0.q"]
    assert sorted(r["step"] for r in own_rows) == [18, 21]
    final = [r for r in paths.to_pylist() if r["run"] == row["run"] and r["val_loss"] is not None]
    assert [(r["step"], r["val_loss"]) for r in final] == [(24, row["loss"])]


def test_validation_on_the_way_changes_nothing_else(tmp_path: Path) -> None:
    plain = run(toy(), tmp_path / "plain")
    watched = run(toy(execution={"eval_every": 8}), tmp_path / "watched")
    assert rows(plain, "run") == rows(watched, "run")
    seen = [row for row in read_trajectories(tmp_path / "watched").to_pylist() if row["val_loss"] is not None]
    trunks = set(plain["trunk"].to_pylist())
    assert sorted(row["step"] for row in seen if row["run"] in trunks) == [8] * 3 + [16] * 3
    assert all(1 < row["val_loss"] < 6 for row in seen)


def test_running_again_trains_nothing_and_a_new_horizon_only_its_part(tmp_path: Path) -> None:
    spec = toy()
    run(spec, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    run(spec, tmp_path)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    longer = spec.model_copy(update={"horizons": (16, 24, 40)})
    taken: list[int] = []
    original = Engine.step

    def counted(self, state, batch, row):  # type: ignore[no-untyped-def]
        taken.append(int(row[7]))
        return original(self, state, batch, row)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "step", counted)
        table = run(longer, tmp_path)
    assert taken == list(range(18, 40))  # on from the trunk's last checkpoint, 24 − 6
    fresh = run(longer, tmp_path.with_name("fresh"))
    assert branches(table, 40) == branches(fresh, 40)


def test_an_earlier_horizon_can_be_added(tmp_path: Path) -> None:
    run(toy(horizons=[24]), tmp_path / "a")
    run(toy(horizons=[12, 24]), tmp_path / "a")
    run(toy(horizons=[12, 24]), tmp_path / "b")
    same_study(tmp_path / "a", tmp_path / "b")


def test_cosine_and_constant(tmp_path: Path) -> None:
    for kind in ("cosine", "constant"):
        spec = toy(schedule={"kind": kind}, horizons=[8, 12])
        table = run(spec, tmp_path / kind)
        lone = run(spec.model_copy(update={"horizons": (12,)}), tmp_path / f"{kind}-12")
        assert branches(table, 12) == branches(lone, 12)
        assert {row["schedule"] for row in table.to_pylist()} == {kind}
    cosine = read_runs(tmp_path / "cosine").to_pylist()
    assert all(row["trunk"] == row["run"] and row["plateau_eff_lr"] is None for row in cosine)


def test_time_that_is_up_loses_nothing(tmp_path: Path) -> None:
    spec = toy()
    result = train(spec, tmp_path / "cut", corpus=CORPUS, reporter=Silent(), stop_after=0)
    assert not result.finished
    while not result.finished:
        result = train(spec, tmp_path / "cut", corpus=CORPUS, reporter=Silent(), stop_after=0.05)
    run(spec, tmp_path / "whole")
    same_study(tmp_path / "cut", tmp_path / "whole")


def _train_and_strike(study: Path, after: float | None) -> int:
    """Train in a forked process and kill it after so many seconds; its exit code, −9 if struck in time."""
    child = os.fork()
    if child == 0:
        train(toy(), study, corpus=CORPUS, reporter=Silent())
        os._exit(0)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("kills", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_kill_9_then_start_again_gives_the_same_bits(tmp_path: Path, kills: int) -> None:
    run(toy(), tmp_path / "undisturbed")
    began = time.monotonic()
    run(toy(), tmp_path / "timed")
    span = time.monotonic() - began
    rng = random.Random(kills)
    struck = study = 0
    while struck < kills:
        # strike somewhere in what a run takes, over and over, until one survives; then a new study
        code = _train_and_strike(tmp_path / f"study{study}", rng.uniform(0, span * 0.8))
        assert code in (0, -signal.SIGKILL)
        struck += code != 0
        study += code == 0
    assert _train_and_strike(tmp_path / f"study{study}", None) == 0
    for index in range(study + 1):
        same_study(tmp_path / "undisturbed", tmp_path / f"study{index}")


def test_damaged_checkpoint_is_named_and_not_used(tmp_path: Path) -> None:
    spec = toy()
    train(spec, tmp_path / "a", corpus=CORPUS, reporter=Silent(), stop_after=0)
    (file,) = (tmp_path / "a").rglob("trunk-*.safetensors")
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.warns(UserWarning, match=r"trunk-.* cannot be read"):
        run(spec, tmp_path / "a")
    run(spec, tmp_path / "b")
    assert rows(read_runs(tmp_path / "a"), "run") == rows(read_runs(tmp_path / "b"), "run")


def test_checkpoint_of_another_spec_is_refused(tmp_path: Path) -> None:
    train(toy(), tmp_path / "a", corpus=CORPUS, reporter=Silent(), stop_after=0)
    other = toy(seed=5)
    (file,) = (tmp_path / "a").rglob("trunk-*.safetensors")
    target = tmp_path / "b" / "checkpoints" / other.stack_id(data_identity=CORPUS.identity) / file.name
    target.parent.mkdir(parents=True)
    target.write_bytes(file.read_bytes())
    with pytest.raises(SpecError, match="checkpoint of another spec"):
        run(other, tmp_path / "b")
    assert target.read_bytes() == file.read_bytes()


def test_checkpoint_of_another_precision_is_refused(tmp_path: Path) -> None:
    train(toy(), tmp_path, corpus=CORPUS, reporter=Silent(), stop_after=0)
    with pytest.raises(SpecError, match=r"is torch\.float32"):
        run(toy(execution={"precision": "fp64"}), tmp_path)


def test_only_needed_checkpoints_stay(tmp_path: Path) -> None:
    run(toy(), tmp_path / "few")
    assert [path.name for path in (tmp_path / "few").rglob("*.safetensors")] == ["trunk-000000018.safetensors"]
    run(toy(execution={"keep_branch_points": True}), tmp_path / "kept")
    kept = sorted(path.name for path in (tmp_path / "kept").rglob("*.safetensors"))
    assert kept == ["trunk-000000010.safetensors", "trunk-000000018.safetensors"]


def test_checkpoints_of_a_recorded_branch_go_on_the_next_start(tmp_path: Path) -> None:
    """As after a kill between the row and the clean-up."""
    run(toy(), tmp_path)
    (trunk,) = tmp_path.rglob("trunk-*.safetensors")
    left = trunk.with_name("branch-24-6-000000020.safetensors")
    left.write_bytes(b"half")
    run(toy(), tmp_path)
    assert not left.exists()
    assert trunk.exists()


def test_retention_follows_the_branch_graph() -> None:
    trunks = [Mark("trunk", step) for step in (5, 10, 15, 20)]
    branch = [Mark("branch-30-6", 25), Mark("branch-30-6", 28)]
    gone = expendable([*trunks, *branch], leaves=[12, 30], running="branch-30-6", keep=[5])
    assert gone == {Mark("trunk", 15), Mark("branch-30-6", 25)}
    assert expendable(trunks, leaves=[], running=None, keep=[]) == set(trunks[:-1])


def test_two_processes_do_not_train_one_stack(tmp_path: Path) -> None:
    spec = toy()
    folder = tmp_path / "checkpoints" / spec.stack_id(data_identity=CORPUS.identity)
    claim = acquire(folder, "trunk")
    with pytest.raises(HeldError, match="another process"):
        run(spec, tmp_path)
    claim.release()
    assert run(spec, tmp_path).num_rows == 6


@pytest.mark.parametrize("kind", ["wsd", "cosine", "constant"])
def test_in_pieces_as_in_one(tmp_path: Path, kind: str) -> None:
    """The trunk alone, then every branch from its point, in any order: the same rows to the last bit."""
    spec = toy(schedule={"kind": kind}, horizons=[16, 18, 24])
    run(spec, tmp_path / "whole")
    cut = tmp_path / "cut"
    train(spec, cut, corpus=CORPUS, reporter=Silent(), only="trunk")
    assert read_runs(cut).num_rows == 0
    for horizon in (24, 16, 18):
        train(spec, cut, corpus=CORPUS, reporter=Silent(), only=horizon)
    same_study(tmp_path / "whole", cut)
    assert len(list(cut.rglob("*.safetensors"))) <= 1


def test_a_branch_without_its_point_says_so_and_the_trunk_makes_it_again(tmp_path: Path) -> None:
    spec = toy()
    with pytest.raises(SpecError, match="branch point is not there"):
        train(spec, tmp_path, corpus=CORPUS, reporter=Silent(), only=16)
    train(spec, tmp_path, corpus=CORPUS, reporter=Silent(), only="trunk")
    (point,) = tmp_path.rglob("trunk-000000010.safetensors")
    point.write_bytes(point.read_bytes()[:-50])
    with pytest.warns(UserWarning, match="cannot be read"), pytest.raises(SpecError, match="branch point"):
        train(spec, tmp_path, corpus=CORPUS, reporter=Silent(), only=16)
    train(spec, tmp_path, corpus=CORPUS, reporter=Silent(), only="trunk")
    for horizon in spec.horizons:
        train(spec, tmp_path, corpus=CORPUS, reporter=Silent(), only=horizon)
    run(spec, tmp_path / "whole")
    same_study(tmp_path / "whole", tmp_path)


def test_a_stop_that_is_asked_for_saves_at_once(tmp_path: Path) -> None:
    spec = toy(execution={"checkpoint_every": 1000, "log_every": 7})
    for count in range(1, 40, 9):
        asked = iter(range(count))
        stop = lambda asked=asked: next(asked, None) is None  # noqa: E731
        result = train(spec, tmp_path / "cut", corpus=CORPUS, reporter=Silent(), should_stop=stop)
        assert result.finished or list((tmp_path / "cut").rglob("*.safetensors"))
    run(spec, tmp_path / "cut")
    run(spec, tmp_path / "whole")
    same_study(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize("held_bytes", [0, 1 << 30])
def test_branch_points_in_memory_or_read_back_give_the_same_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_bytes: int
) -> None:
    """With long checkpoint_seconds a branch point stays off the disk where memory has it, and only there."""
    monkeypatch.setattr("etastar.train.place._HELD_BYTES", held_bytes)
    spec = toy(execution={"checkpoint_every": 1000, "checkpoint_seconds": 1e9})
    saved = []
    save = CheckpointFolder.save
    monkeypatch.setattr(
        CheckpointFolder, "save", lambda self, mark, *rest: (saved.append(mark.step), save(self, mark, *rest))
    )
    run(spec, tmp_path / "whole")
    assert saved == ([18] if held_bytes else [10, 18])  # the last trunk is always there for a later horizon
    run(toy(), tmp_path / "plain")
    same_study(tmp_path / "plain", tmp_path / "whole")
    for count in (12, 19, 25):  # in the first branch, in the second stretch of the trunk, in the second branch
        asked = iter(range(count))
        stop = lambda asked=asked: next(asked, None) is None  # noqa: E731
        train(spec, tmp_path / "cut", corpus=CORPUS, reporter=Silent(), should_stop=stop)
    run(spec, tmp_path / "cut")
    same_study(tmp_path / "plain", tmp_path / "cut")


def test_repeated_data_is_said(tmp_path: Path) -> None:
    spec = toy(batch_sequences=64, horizons=[24])
    reporter = Silent()
    result = train(spec, tmp_path, corpus=CORPUS, reporter=reporter)
    assert any("epochs" in text for text in reporter.messages)
    assert set(result.runs["epochs"].to_pylist()) == {2}


def test_checkpoint_folder_ignores_strangers(tmp_path: Path) -> None:
    (tmp_path / "notes.safetensors").write_bytes(b"x")
    (tmp_path / ".trunk-000000001.safetensors.77.tmp").write_bytes(b"x")
    (tmp_path / ".branch-9-3-000000001.safetensors.77.tmp").write_bytes(b"x")
    folder = CheckpointFolder(tmp_path, stack_id="s")
    with folder.claimed("trunk"):
        assert folder.marks() == []
    left = sorted(path.name for path in tmp_path.iterdir() if "lease" not in path.name)
    assert left == [".branch-9-3-000000001.safetensors.77.tmp", "notes.safetensors"]  # that one is another's
