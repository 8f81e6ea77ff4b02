"""Inversion and diagnosis as a user meets them: `predict` with a target's settings, `theory` on a study."""

import math

import numpy as np
import pyarrow as pa
import pytest

from etastar.records import runs_table
from etastar.store.parts import write_runs, write_trajectories
from etastar.theory.recursion import run_recursion

FAST = ("--replicates", "50", "--json")
TARGET = ("--params", "123.6M", "--tokens", "80B")


@pytest.fixture(scope="module")
def plain(cli, runs):
    return cli("predict", runs, *TARGET, *FAST).json


def test_inverted_rows_stand_beside_the_others_and_name_their_road(plain):
    by_axis = {p["axis"]: p for p in plain["predictions"] if p["inverted"]}
    twin = next(p for p in plain["predictions"] if p["axis"] == "data" and p["quantity"] == "eff_lr")
    assert "closed form" in by_axis["data"]["source"]
    assert by_axis["data"]["lr"] == twin["lr"]
    assert by_axis["data"]["backtest"]["rms_log2_lr_error"] == twin["backtest"]["rms_log2_lr_error"]


def test_the_diagnosis_has_regimes_timescales_and_the_bend(cli, runs, plain):
    found = plain["diagnosis"]
    assert found["reason"] is None
    assert [round(math.log2(one["lr"])) for one in found["swept"]] == list(range(-14, -6))
    target, steps = found["target"], 80e9 / 2**19
    assert target["lr"] == plain["recommended"]["lr"]
    assert target["relaxations"] == pytest.approx(2 * target["lr"] * 0.1 * steps, rel=1e-4)
    assert target["timescale"] == pytest.approx(1 / (target["lr"] * 0.1 * steps), rel=1e-4)
    bend = found["bend"]
    assert bend["curvature"] > 0
    assert bend["octaves_at_target"] > 0.1  # the paper's world bends up
    assert bend["measured_interval"][0] < bend["measured_curvature"] < bend["measured_interval"][1]
    assert "straight η law" in found["trust"]
    said = cli("predict", runs, *TARGET, "--replicates", "50").stdout
    assert "Regimes" in said
    assert "straight η law" in said
    assert "closed form" in said


def test_the_target_s_settings_move_the_answer_and_are_stated(cli, runs, plain):
    light = cli("predict", runs, *TARGET, "--weight-decay", "0.02", *FAST).json
    best = light["recommended"]
    assert best["inverted"]
    assert best["conditions"]["weight_decay"] == 0.02
    assert "other-settings" in best["flags"]
    assert best["lr"] > plain["recommended"]["lr"]  # less decay: the norm shrinks less, η must be larger
    big = cli("predict", runs, *TARGET, "--batch-tokens", "2M", *FAST).json
    assert "other-batch" in big["recommended"]["flags"]


def test_a_weight_decay_for_a_given_lr(cli, runs, plain):
    lr = plain["recommended"]["lr"]
    found = cli("predict", runs, *TARGET, "--solve-weight-decay", str(lr * 0.9), *FAST).json["weight_decay"]
    assert found["value"] > 0.1
    low, high = found["log2_interval"]
    assert low is None or low < math.log2(found["value"]) < high


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--warmup", "300k"), ("warm-up",)),
        (("--schedule", "zigzag"), ("zigzag",)),
        (("--weight-decay", "-1"), ("below zero",)),
        (("--batch-tokens", "10"), ("steps",)),
        (("--solve-weight-decay", "0.5"), ("decay only raises",)),
        (("--trajectories", "nowhere.parquet"), ("nowhere.parquet",)),
    ],
)
def test_impossible_targets_are_refused_in_words(cli, runs, arguments, words):
    cli("predict", runs, *TARGET, *arguments, *FAST).refused(*words)


def test_settings_that_are_not_known_cannot_be_changed(cli, study, write):
    path = write(study.drop("warmup_steps"))
    cli("predict", path, *TARGET, "--weight-decay", "0.2", *FAST).refused("warmup_steps")
    assert "warmup_steps" in cli("predict", path, *TARGET, *FAST).json["diagnosis"]["reason"]


@pytest.fixture(scope="module")
def no_decay(tmp_path_factory):
    """A constant-LR Adam study of one matrix that obeys the λ = 0 law, as a study folder."""
    folder, steps, lrs = tmp_path_factory.mktemp("adam"), 800, 2.0 ** np.arange(-10.0, -2.0)
    walked = run_recursion(np.ones(steps), lr=lrs, weight_decay=0.0, beta1=0.9, weight_norm0=1.0, update_norm=5.0)
    common = {
        "params": 1e6, "tokens": steps * 100.0, "optimizer": "adam", "weight_decay": 0.0, "beta1": 0.9, "seed": 0,
        "batch_tokens": 100.0, "schedule": "constant", "steps": steps, "warmup_steps": 0, "decay_steps": 0,
    }  # fmt: skip
    rows = [
        common | {"lr": lr, "loss": 3.0 + float(np.exp(-walked.eff_lr[:, k].sum())), "trunk": f"t{k}", "run": f"r{k}",
                  "mean_eff_lr": float(walked.eff_lr[:, k].mean())}
        for k, lr in enumerate(lrs)
    ]  # fmt: skip
    logged = [
        {"run": f"t{k}", "step": t, "weight": "w", "weight_norm": walked.weight_norm[t, k], "update_norm": 5.0,
         "update_dot_weight": walked.update_dot_weight[t, k], "eff_lr": walked.eff_lr[t, k]}
        for k in range(len(lrs))
        for t in range(0, steps, 4)
    ]  # fmt: skip
    write_runs(folder, runs_table(rows), "all")
    write_trajectories(folder, pa.Table.from_pylist(logged), "all")
    return folder


def test_theory_on_a_study_without_decay_checks_the_collapse(cli, no_decay):
    found = cli("theory", no_decay, "--json").json
    assert found["factor_theory"] == pytest.approx(19)
    assert [w["factor"] for w in found["weights"]] == pytest.approx([19], rel=0.02)
    check = found["no_decay"]
    assert check["law_error"] < 0.05
    assert sum(check["collapsed"]) >= 2
    assert check["words"].startswith("collapsed")
    assert check["loss_correlation"] < -0.9
    said = " ".join(cli("theory", no_decay).stdout.split())
    assert "λ = 0: collapsed" in said


def test_theory_answers_by_the_calibrated_network(cli, no_decay):
    lr = 2.0**-7
    (one,) = cli("theory", no_decay, "--lr", str(lr), "--json").json["diagnosis"]
    back = cli("theory", no_decay, "--eff-lr", str(one["mean_eff_lr"]), "--json").json["lr"]
    assert back["value"] == pytest.approx(lr, rel=0.01)
    for arguments, word in (
        (("--eff-lr", "0.9"), "above the"),
        (("--lr", "2^-7", "--equilibrium"), "no equilibrium"),
        (("--lr", "2^-7", "--steps", "100", "--warmup", "200"), "warm-up"),
        (("--params", "5B"), "trajectories"),
    ):
        refused = cli("theory", no_decay, *arguments)
        assert refused.code == 2
        assert word in refused.stderr
        assert "hint:" in refused.stderr


def test_theory_needs_trajectories(cli, runs):
    refused = cli("theory", runs)
    assert refused.code == 2
    assert "no trajectories" in refused.stderr
