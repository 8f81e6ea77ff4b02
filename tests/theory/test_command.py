"""`etastar theory` as a user types it."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from etastar.cli.theory import theory_command

APP = typer.Typer()
APP.command("theory")(theory_command)


def ask(*arguments: str):
    return CliRunner().invoke(APP, list(arguments))


def test_the_issue_s_question():
    answer = ask("--lr", "2^-16", "--weight-decay", "0.1", "--steps", "20k", "--json")
    assert answer.exit_code == 0
    (one,) = json.loads(answer.stdout)["diagnosis"]
    assert one["decay_time"] == pytest.approx(327_680)
    assert one["regime"] == "pre-equilibrium"


def test_an_eff_lr_comes_back_from_its_lr():
    first = json.loads(ask("--eff-lr", "0.003", "--steps", "5k", "--warmup", "500", "--json").stdout)
    lr = first["lr"]["value"]
    again = json.loads(ask("--lr", str(lr), "--steps", "5k", "--warmup", "500", "--json").stdout)
    assert again["diagnosis"][0]["mean_eff_lr"] == pytest.approx(0.003, rel=1e-3)


def test_tables_and_the_bend_are_shown():
    answer = ask("--lr", "2^-10,2^-12", "--steps", "40k", "--sweep-steps", "5k,10k", "--schedule", "constant")
    assert answer.exit_code == 0
    assert "equilibrium" in answer.stdout
    assert "straight η law" in " ".join(answer.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--lr", "2^-10"], "steps"),
        (["--steps", "1k"], "lr"),
        (["--lr", "fast", "--steps", "1k"], "fast"),
        (["--lr", "-1", "--steps", "1k"], "above zero"),
        (["--lr", "2^-10", "--steps", "1k", "--warmup", "2k"], "warm-up"),
        (["--eff-lr", "0.9", "--steps", "10k"], "above the"),
        (["--eff-lr", "0.5", "--steps", "10k", "--optimizer", "adam"], "without weight decay"),
        (["--lr", "20", "--steps", "1k"], "below 1"),
        (["--lr", "2^-10", "--steps", "1k", "--optimizer", "lion"], "lion"),
        (["--lr", "2^-10", "--steps", "1k", "--beta1", "1"], "beta1"),
        (["--lr", "2^-10", "--steps", "100B"], "20M"),
        (["--lr", "2^-10", "--steps", "1k", "--sweep-steps", "500"], "horizons"),
        (["--lr", "2^-10", "--steps", "1k", "--weight-decay", "-1"], "weight decay"),
    ],
)
def test_bad_requests_are_two_lines_and_exit_2(arguments, word):
    answer = ask(*arguments)
    assert answer.exit_code == 2
    assert answer.stdout == ""
    assert word in answer.stderr
    assert "hint: " in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 2
