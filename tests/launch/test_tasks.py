"""Which tasks are missing, and does a stack go on with models of another?"""

from __future__ import annotations

from pathlib import Path

import pytest
from studies import SIX, assert_same, plan_of, small, tables, undisturbed

from etastar.errors import InputError, SpecError
from etastar.launch.drive import LaunchOptions, launch, missing_tasks
from etastar.launch.graph import packs, parse_task
from etastar.launch.on_inline import InlineExecutor
from etastar.launch.study import RunIndex, Study, open_study, prepare, read_record
from etastar.plan.study_plan import StudyPlan
from etastar.store import read_events, read_runs
from etastar.store.verify import verify_files


def quiet(text: str) -> None:
    """Not of interest."""


def run(plan: StudyPlan, folder: Path, **options: bool) -> Study:
    study = prepare(plan, folder)
    assert launch(study, InlineExecutor(folder), LaunchOptions(**options), say=quiet).finished
    return study


def one(lrs: list[float], horizons: list[int]) -> StudyPlan:
    return plan_of([{"name": "a", "width": 32, "lrs": lrs, "horizons": horizons}])


def test_learning_rates_that_miss_the_same_train_together(tmp_path: Path) -> None:
    (record,) = prepare(one(SIX[:4], [12, 18]), tmp_path).stacks
    wanted = dict.fromkeys(record.spec.lrs, record.spec.horizons)
    (whole,) = packs(record, wanted, set())
    assert whole.record == record
    assert whole.missing == (12, 18)
    there = {record.run_id(lr, 12) for lr in SIX[:4]}
    (later,) = packs(record, wanted, there)
    assert later.record.id == record.id
    assert later.missing == (18,)
    there |= {record.run_id(SIX[0], 18)}
    (rest,) = packs(record, wanted, there)
    assert rest.record.spec.lrs == tuple(SIX[1:4])
    there -= {record.run_id(SIX[3], 12)}
    groups = packs(record, wanted, there)
    assert [(g.record.spec.lrs, g.missing) for g in groups] == [(tuple(SIX[1:3]), (18,)), ((SIX[3],), (12, 18))]
    assert packs(record, wanted, set(record.cells().values())) == []


def test_tasks_in_pieces(tmp_path: Path) -> None:
    study = prepare(one(SIX[:2], [12, 18]), tmp_path)
    tasks = missing_tasks(study, LaunchOptions(split=True))
    assert [(t.kind, t.horizon, t.ready) for t in tasks] == [
        ("trunk", None, True), ("branch", 12, False), ("branch", 18, False)
    ]  # fmt: skip
    assert parse_task(tasks[1].id) == (study.stacks[0].id, 12)
    with pytest.raises(InputError, match="is not known"):
        parse_task("abc@half")


def test_an_edited_plan_trains_only_what_is_new(tmp_path: Path) -> None:
    """A learning rate and a horizon more: the old rows stay, models go on, and all is as if made at once."""
    run(one(SIX[1:4], [12, 18]), tmp_path / "grown")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "grown" / "runs").iterdir()}
    study = run(one(SIX[:4], [12, 18, 24]), tmp_path / "grown")
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in before.items())
    whole = run(one(SIX[:4], [12, 18, 24]), tmp_path / "whole")
    mine, theirs = tables(study.path), tables(whole.path)
    packing = ["stack"]  # provenance: how many models trained together
    assert mine[0].drop_columns(packing).equals(theirs[0].drop_columns(packing))
    assert mine[1].equals(theirs[1])
    assert [p for p in verify_files(study.path) if p.wrong] == []
    assert len(list((study.path / "plans").iterdir())) == 1


def test_fewer_learning_rates_go_on_from_the_checkpoint_of_more(tmp_path: Path) -> None:
    run(one(SIX[:4], [12]), tmp_path / "cut")
    run(one([SIX[2], SIX[0]], [12, 18]), tmp_path / "cut")
    said = [e["text"] for e in read_events(tmp_path / "cut") if e["event"] == "message"]
    assert any("goes on at step 6 with models of a" in text for text in said)
    whole = tables(run(one(SIX[:4], [12, 18]), tmp_path / "whole").path)[0].drop_columns(["stack"])
    mine = tables(tmp_path / "cut")[0].drop_columns(["stack"])
    kept = set(mine["run"].to_pylist())
    assert mine.to_pylist() == [row for row in whole.to_pylist() if row["run"] in kept]
    assert mine.num_rows == 6


def test_a_damaged_part_is_trained_again(tmp_path: Path) -> None:
    study = run(small(), tmp_path / "study")
    part = sorted((study.path / "runs").iterdir())[0]
    part.write_bytes(part.read_bytes()[:-9])
    with pytest.warns(UserWarning, match=part.name):
        run(small(), study.path)
    assert_same(study.path, undisturbed(small(), tmp_path / "plain"))


def test_a_study_is_opened_from_its_folder_alone(tmp_path: Path) -> None:
    study = prepare(small(), tmp_path)
    assert open_study(tmp_path).stacks == study.stacks
    record = study.stacks[0]
    path = tmp_path / "specs" / f"{record.id}.yaml"
    path.write_text(path.read_text().replace("seed: 0", "seed: 7"))
    with pytest.raises(InputError, match="not what its name says"):
        read_record(tmp_path, record.id)
    with pytest.raises(InputError, match="no such stack"):
        read_record(tmp_path, "absent")
    with pytest.raises(InputError, match="no specification of the stack"):
        open_study(tmp_path)


def test_stacks_that_train_the_same_run_are_refused(tmp_path: Path) -> None:
    stacks = [{"name": n, "width": 32, "lrs": SIX[:2], "horizons": [12]} for n in ("a", "b")]
    with pytest.raises(SpecError, match="'a' and 'b' train the same run"):
        prepare(plan_of(stacks), tmp_path / "study")
    assert not (tmp_path / "study").exists()


def test_the_index_sees_new_and_changed_parts(tmp_path: Path) -> None:
    index = RunIndex(tmp_path)
    assert index.there() == set()
    undisturbed(one(SIX[:1], [12]), tmp_path)
    assert index.there() == set(read_runs(tmp_path)["run"].to_pylist())
