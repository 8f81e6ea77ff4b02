"""`etastar import`, and every verb straight on a tracker's logs."""

import json
import sqlite3

import polars as pl
import pyarrow as pa
import pytest

TARGET = ("--params", "123.6M", "--tokens", "80B")
FAST = ("--replicates", "50", "--json")


@pytest.fixture(scope="module")
def logs(study, tmp_path_factory):
    """The study as Lightning's CSVLogger would have left it: a folder a run."""
    folder = tmp_path_factory.mktemp("logs")
    for k, row in enumerate(study.to_dicts()):
        run = folder / f"run-{k:03d}"
        run.mkdir()
        settings = {
            "n_params": row["params"], "tokens": row["tokens"], "learning_rate": row["lr"],
            "optimizer": row["optimizer"], "weight_decay": row["weight_decay"], "beta1": row["beta1"],
            "batch_tokens": row["batch_tokens"], "schedule": row["schedule"], "max_steps": row["steps"],
            "warmup_steps": row["warmup_steps"], "decay_steps": row["decay_steps"], "seed": row["seed"],
            "trunk": row["trunk"],
        }  # fmt: skip
        known = {name: value for name, value in settings.items() if value is not None}
        (run / "hparams.yaml").write_text(json.dumps(known))
        steps = row["steps"] or 100
        eff_lr = "" if row["mean_eff_lr"] is None else row["mean_eff_lr"]
        (run / "metrics.csv").write_text(
            f"epoch,step,val_loss,etastar/mean_eff_lr\n0,1,9.5,\n0,{steps},{row['loss']!r},{eff_lr}\n"
        )
    return folder


def test_predict_on_logs_is_predict_on_the_table(cli, runs, logs):
    direct = cli("predict", logs, *TARGET, *FAST).json
    table = cli("predict", runs, *TARGET, *FAST).json
    assert direct["recommended"]["lr"] == pytest.approx(table["recommended"]["lr"], rel=1e-6)
    assert len(direct["predictions"]) == len(table["predictions"])


def test_an_imported_study_gives_the_same_answer(cli, logs, tmp_path):
    said = cli("import", logs, "--to", tmp_path / "study")
    assert said.code == 0, said.stderr
    for word in ("Lightning", "96 runs", "Columns", "learning_rate", "Written to", "96 new"):
        assert word in " ".join(said.stdout.split())
    direct = cli("fit", logs, *FAST).json
    assert cli("fit", tmp_path / "study", *FAST).json["optima"] == direct["optima"]
    again = cli("import", logs, "--to", tmp_path / "study", "--json").json
    assert (again["new"], again["changed"], again["same"]) == (0, 0, 96)
    assert cli("verify", tmp_path / "study").code == 0


def test_imported_trajectories_lie_beside_a_studys_own(cli, logs, study, tmp_path):
    """Theirs have a column more; the theory reads both."""
    from etastar.store import write_runs, write_trajectories

    own = study.head(1).with_columns(pl.lit("own").alias("run"), pl.lit("own").alias("trunk")).to_arrow()
    write_runs(tmp_path / "study", own, "own")
    steps = pa.table({"run": ["own"] * 40, "step": range(0, 400, 10), "weight": ["w"] * 40,
                      "weight_norm": [4.0] * 40, "update_norm": [1.0] * 40})  # fmt: skip
    write_trajectories(tmp_path / "study", steps, "own")
    assert cli("import", logs, "--to", tmp_path / "study").code == 0
    found = cli("predict", tmp_path / "study", *TARGET, *FAST)
    assert found.code == 0, found.stderr


def test_evaluate_on_logs(cli, logs):
    found = cli("evaluate", logs, "--params", "123.6M", "--tokens", "20B:40B", "--json")
    assert found.code == 0, found.stderr


def test_a_dry_run_writes_nothing(cli, logs, tmp_path):
    said = cli("import", logs, "--to", tmp_path / "study", "--dry-run")
    assert "Would be written" in said.stdout
    assert not (tmp_path / "study").exists()
    alone = cli("import", logs, "--dry-run", "--json").json
    assert (alone["runs"], alone["written"]) == (96, False)


def test_what_was_guessed_and_refused_is_shown(cli, tmp_path):
    for name, settings in (("a", {"n_layer": 2, "n_embd": 64}), ("b", {}), ("c", {})):
        (tmp_path / "logs" / name).mkdir(parents=True)
        known = {"learning_rate": 1e-3, "batch_size": 4, "seq_len": 128, **settings}
        (tmp_path / "logs" / name / "hparams.yaml").write_text(json.dumps(known))
        (tmp_path / "logs" / name / "metrics.csv").write_text("epoch,step,val_loss,extra/loss_val\n0,9,3.5,1.0\n0,9\n")
    said = cli("import", tmp_path / "logs", "--dry-run")
    text = " ".join(said.stdout.replace("│", " ").split())
    for word in ("guessed batch_tokens: the number of devices is not recorded", "50304 is assumed", "Refused: 2 runs",
                 "no params: no setting like", "b, c", "unreadable", "1 lines are not whole", "counted from"):  # fmt: skip
        assert word in text, text


def test_rows_of_a_table_are_refused_one_by_one(cli, tmp_path):
    rows = ["1e8,1e9,1e-3,3.0,", "1e8,1e9,0,3.0,", ",1e9,1e-3,3.1,", "1e8,1e9,2e-3,,", "1e8,1e9,4e-3,,crashed"]
    (tmp_path / "runs.csv").write_text("\n".join(["params,tokens,lr,loss,state", *rows]) + "\n")
    found = cli("import", tmp_path / "runs.csv", "--dry-run", "--json").json
    assert found["runs"] == 2
    assert [(one["run"], one["why"].split()[0]) for one in found["refused"]] == [
        ("row 1", "lr"), ("row 2", "params"), ("row 3", "no"),
    ]  # fmt: skip
    cli("fit", tmp_path / "runs.csv", "--json").refused("column params")
    (tmp_path / "none.csv").write_text("params,tokens,lr,loss\n1e8,1e9,0,3.0\n")
    cli("import", tmp_path / "none.csv", "--dry-run").refused("column lr: row 0 holds 0.0")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nothere", ["no file 'nothere'"]),
        ("tensorboard:nothere", ["no file or folder"]),
        ("hf:nothere", ["is not OWNER/DATASET"]),
        ("wandb:only-a-name", ["wandb:only-a-name"]),
    ],
)
def test_sources_that_are_not_there(cli, tmp_path, monkeypatch, source, words):
    monkeypatch.chdir(tmp_path)
    cli("import", source, "--dry-run").refused(*words)
    cli("predict", source, *TARGET, "--json").refused(*words)


def test_folders_and_files_of_no_known_kind(cli, tmp_path):
    (tmp_path / "empty").mkdir()
    cli("import", tmp_path / "empty", "--dry-run").refused("nothing in the folder is known")
    (tmp_path / "run.wandb").write_bytes(b"")
    cli("import", tmp_path / "run.wandb", "--dry-run").refused("no run could be read")
    sqlite3.connect(tmp_path / "x.db").execute("CREATE TABLE t (a)").connection.commit()
    cli("import", tmp_path / "x.db", "--dry-run").refused("no database of MLflow or Trackio")
    cli("import", f"mlflow:{tmp_path}", "--dry-run").refused("holds no mlflow logs")


def test_where_to(cli, logs, tmp_path):
    cli("import", logs).refused("--to is missing")
    (tmp_path / "file").write_text("x")
    cli("import", logs, "--to", tmp_path / "file").refused("is a file")
    cli("import", logs, "--to", tmp_path / "file" / "deeper").refused()
