"""What scripts may rely on: the shapes of --json, the choice of columns, groups and filters."""

import math

import polars as pl
import pyarrow.parquet as pq
import pytest

from etastar.estimate.flags import Flag
from etastar.estimate.optimum import Status

OPTIMUM = {"params", "tokens", "quantity", "optimum", "log2_interval", "status", "r2", "flags", "group"}
LAW = {"axis", "quantity", "fixed", "slope", "intercept", "slope_interval", "pearson_r", "curvature", "curved",
       "cells", "group"}  # fmt: skip
PREDICTION = {"axis", "quantity", "value", "lr", "log2_interval", "cells", "pearson_r", "group", "flags"}
RECOMMENDED = {"lr", "log2_interval", "axis", "quantity", "expected_ecr", "safe_range", "conditions", "cost", "flags"}
SCORE = {"axis", "quantity", "budget_ratio", "value", "log2_error", "log2_lr_error", "loss_gap", "ecr", "r2_ood",
         "r2_ood_lr", "true_cost", "reason"}  # fmt: skip
FAST = ("--replicates", "50", "--json")
TARGET = ("--params", "123.6M", "--tokens", "80B")
CODES = {flag.value for flag in Flag}


@pytest.fixture(scope="module")
def fitted(cli, runs):
    return cli("fit", runs, *FAST).json


@pytest.fixture(scope="module")
def predicted(cli, runs):
    return cli("predict", runs, *TARGET, *FAST).json


def test_fit_gives_an_optimum_for_every_cell_and_quantity(fitted):
    assert set(fitted) == {"optima", "laws"}
    assert len(fitted["optima"]) == 2 * 3 * 4
    for optimum in fitted["optima"]:
        assert set(optimum) >= OPTIMUM
        assert optimum["quantity"] in ("lr", "eff_lr")
        assert optimum["status"] in {status.value for status in Status}
        assert set(optimum["flags"]) <= CODES
        if optimum["status"] == "INTERIOR":
            low, high = optimum["log2_interval"]
            assert low < high
            assert low - 1 < math.log2(optimum["optimum"]) < high + 1
        else:
            assert optimum["optimum"] is None
            assert optimum["log2_interval"] is None


def test_fit_gives_the_four_laws_and_the_joint_one(fitted):
    for law in fitted["laws"]:
        assert set(law) >= LAW
        if law["axis"] == "joint":
            assert set(law["slope"]) == set(law["slope_interval"]) == {"tokens", "params"}
            assert law["fixed"] is None
        else:
            low, high = law["slope_interval"]
            assert low <= law["slope"] <= high
    assert {(law["axis"], law["quantity"]) for law in fitted["laws"]} == {
        (axis, quantity) for axis in ("data", "model", "joint") for quantity in ("lr", "eff_lr")
    }


def test_two_cells_have_no_correlation_and_no_curvature(cli, runs):
    laws = cli("fit", runs, "--where", "tokens <= 10e9", *FAST).json["laws"]
    pairs = [law for law in laws if law["cells"] == 2]
    assert pairs
    for law in pairs:
        assert law["pearson_r"] is None
        assert law["curvature"] is None
        assert law["curved"] is None
        assert "two-cells" in law["flags"]


def test_predict_gives_every_strategy_and_one_recommendation(predicted):
    assert set(predicted) == {"target", "predictions", "recommended", "abstained", "diagnosis"}
    assert predicted["target"]["params"] == 123.6e6
    assert predicted["target"]["tokens"] == 80e9
    assert [(p["axis"], p["quantity"]) for p in predicted["predictions"] if not p["inverted"]] == [
        (axis, quantity) for axis in ("data", "model", "joint") for quantity in ("lr", "eff_lr")
    ]
    assert [p["axis"] for p in predicted["predictions"] if p["inverted"]] == ["data", "model", "joint"]
    for prediction in predicted["predictions"]:
        assert set(prediction) >= PREDICTION
        assert set(prediction["flags"]) <= CODES
        assert (prediction["value"] is None) == (prediction["log2_interval"] is None)
        if prediction["lr"] is None:
            assert prediction["reason"]
    best = predicted["recommended"]
    assert set(best) >= RECOMMENDED
    assert predicted["abstained"] is None
    assert best["log2_interval"][0] < math.log2(best["lr"]) < best["log2_interval"][1]
    assert best["conditions"]["optimizer"] == "adamw"
    assert best["conditions"]["batch_tokens"] == 2**19
    assert set(best["cost"]) >= {"budget_ratio", "true_ratio"}


def test_predict_abstains_with_a_reason(cli, runs):
    found = cli("predict", runs, *TARGET, "--where", "tokens = 5e9 AND params > 1e8", *FAST).json
    assert found["recommended"] is None
    assert found["abstained"]
    assert all(p["lr"] is None and p["reason"] for p in found["predictions"])


def test_evaluate_scores_every_strategy_and_budget(cli, runs):
    asked = ("--params", "123.6M", "--tokens", "20B:40B", "--json")
    found = cli("evaluate", runs, *asked, "--budgets", "0.05:0.8").json
    assert found["test_tokens"] == [20e9, 40e9]
    for score in found["scores"]:
        assert set(score) >= SCORE
        assert (score["value"] is None) <= bool(score["reason"])
    assert {(s["axis"], s["quantity"]) for s in found["scores"]} == {
        (axis, quantity) for axis in ("data", "model") for quantity in ("lr", "eff_lr")
    }
    assert all(s["value"] is not None for s in found["scores"])
    # two smaller sizes cost 69 % here: a narrower range buys none, and says so
    narrow = cli("evaluate", runs, *asked).json
    model = [s for s in narrow["scores"] if s["axis"] == "model"]
    assert [s["quantity"] for s in model] == ["eff_lr", "lr"]
    assert all(s["value"] is None and s["budget_ratio"] is None and "0.05:0.6" in s["reason"] for s in model)
    one = cli("evaluate", runs, "--params", "123.6M", "--tokens", "40B", "--json").json
    assert {score["r2_ood"] for score in one["scores"]} == {None}


def test_evaluate_lists_what_it_cannot_compute_with_a_reason(cli, study, write):
    found = cli("evaluate", write(study.drop("mean_eff_lr")), "--params", "123.6M", "--tokens", "40B", "--json").json
    blind = [score for score in found["scores"] if score["quantity"] == "eff_lr"]
    assert blind
    assert all(score["value"] is None and score["reason"] for score in blind)
    assert any("η_eff" in score["reason"] for score in blind)


def test_several_groups_are_predicted_each_and_none_is_recommended(cli, study, write):
    other = study.with_columns(pl.lit("it's").alias("optimizer"), pl.col("run") + "-b", pl.col("lr") * 2)
    path = write(pl.concat([study, other]))
    found = cli("predict", path, *TARGET, *FAST).json
    assert found["recommended"] is None
    assert "--where" in found["abstained"]
    assert {p["group"] for p in found["predictions"]} == {"optimizer=adamw", "optimizer=it's"}
    said = cli("predict", path, *TARGET, "--replicates", "50")
    hinted = said.stdout.replace("\n", " ").partition('--where "')[2].partition('"')[0]
    assert hinted.startswith("optimizer = '")
    assert cli("predict", path, *TARGET, *FAST, "--where", hinted).json["recommended"] is not None
    assert cli("predict", path, *TARGET, *FAST, "--where", "optimizer = 'it''s'").json["recommended"] is not None
    cli("evaluate", path, "--params", "123.6M", "--tokens", "40B", "--json").refused("--where", "it's")
    # on purpose together: the same cells hold both, and the runs stay apart by name
    assert (
        len({p["group"] for p in cli("predict", path, *TARGET, *FAST, "--group", "schedule").json["predictions"]}) == 1
    )


def test_usual_names_are_recognised_and_said(cli, study, write):
    renamed = study.rename({"params": "N", "tokens": "D", "lr": "config.learning-rate", "loss": "eval/loss"})
    path = write(renamed, "foreign.csv")
    said = cli("fit", path, "--replicates", "50")
    for note in ("'N' read as params", "'D' read as tokens", "'config.learning-rate' read as lr", "'eval/loss' read"):
        assert note in said.stdout
    assert cli("fit", path, *FAST).json == cli("fit", write(study, "own.csv"), *FAST).json


def test_map_overrides_what_a_name_suggests(cli, study, write, fitted):
    shuffled = study.rename({"params": "tokens", "tokens": "params"})
    found = cli("fit", write(shuffled), "--map", "params=tokens,tokens=params", *FAST).json
    assert found == fitted


def test_where_keeps_rows_and_fit_where_limits_the_laws(cli, runs, study, write):
    kept = cli("fit", runs, "--where", "tokens <= 10e9 AND optimizer = 'adamw'", *FAST).json
    assert {o["tokens"] for o in kept["optima"]} == {5e9, 10e9}
    limited = cli("fit", runs, "--fit-where", "tokens <= 10e9", *FAST).json
    assert limited == kept
    # expressions see mapped names and the file's other columns
    path = write(study.rename({"tokens": "D"}).with_columns(pl.col("params").rank("dense").alias("my size")))
    found = cli("fit", path, "--where", 'tokens > 6e9 AND "my size" = 2', *FAST).json
    assert {o["params"] for o in found["optima"]} == {sorted(set(study["params"]))[1]}


def test_published_laws_stand_beside_the_answer(cli, runs):
    found = cli("predict", runs, *TARGET, "--published", *FAST).json["published"]
    assert {"law", "lr", "reason", "flags"} <= set(found[0])
    spoken = {p["law"]: p["lr"] for p in found}
    assert 1e-5 < spoken["Step Law"] < 1e-1
    assert all(p["lr"] is not None or p["reason"] for p in found)
    assert "Step Law" in cli("predict", runs, *TARGET, "--published", "--replicates", "50").stdout


def test_level_widens_every_interval(cli, runs):
    def widths(level):
        optima = cli("fit", runs, "--level", level, *FAST).json["optima"]
        return [o["log2_interval"][1] - o["log2_interval"][0] for o in optima if o["log2_interval"]]

    assert all(a < b for a, b in zip(widths("0.5"), widths("0.999"), strict=True))


def test_same_seed_same_answer(cli, runs, fitted):
    assert cli("fit", runs, *FAST).json == fitted
    assert cli("fit", runs, "--seed", "5", *FAST).json != fitted


def test_simulate_writes_what_fit_reads(cli, tmp_path):
    grid = ("--widths", "256", "--tokens", "5B:20B:5B", "--lrs", "-12:-8:1", "--seeds", "2")
    for name in ("runs.parquet", "[red]runs.csv"):
        path = tmp_path / name
        said = cli("simulate", "--out", path, *grid)
        assert said.code == 0
        assert name in said.stdout
        assert len(cli("fit", path, *FAST).json["optima"]) == 8
    assert pq.read_table(tmp_path / "runs.parquet").num_rows == 2 * 4 * 5
    assert sorted(p.name for p in tmp_path.iterdir()) == ["[red]runs.csv", "runs.parquet"]


def test_what_a_file_calls_things_is_never_taken_as_markup(cli, study, write):
    odd = study.with_columns(pl.lit("[/bold]\x1b[31m").alias("[red]x\ny"), pl.lit("[/red]").alias("optimizer"))
    path = write(odd)
    assert "[/red]" in cli("predict", path, *TARGET, "--replicates", "50").stdout
    assert cli("fit", path, "--replicates", "50").code == 0
    cli("fit", path, "--where", "nothere = 1").refused("[red]x y")
    two = odd.with_columns(
        pl.when(pl.col("params") > 1e8).then(pl.lit("[/x]")).otherwise("optimizer").alias("optimizer")
    )
    assert "optimizer=[/x]" in cli("fit", write(two), "--replicates", "50").stdout
