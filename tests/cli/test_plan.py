"""`etastar plan`: a file and a table, edited files priced again, and plans that cannot be."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import etastar
from etastar.plan.study_plan import load_plan

ASK = ("--preset", "gpt2", "--width", "2048", "--tokens", "100B")
FAST = ("--worlds", "0")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_issues_own_command(cli, here):
    said = cli("plan", *ASK, "--budget", "0.2", "--axis", "data", *FAST)
    assert said.code == 0, said
    shown = " ".join(said.stdout.split())
    for part in ("2^-15 … 2^-7", "19.95% of one target run", "15.68% of that sweep", "420", "wrote plan.yaml"):
        assert part in shown
    plan = load_plan(here / "plan.yaml")
    assert plan.adaptive
    assert {s.horizons for s in plan.stacks} == {(6650, 11500, 19900)}
    assert plan.target.params == 707002368


@pytest.mark.parametrize("axis", ["model", "both"])
def test_the_other_axes(cli, here, axis):
    found = cli("plan", *ASK, "--budget", "20.64%", "--axis", axis, "--json", *FAST).json
    widths = {s["width"] for s in found["plan"]["stacks"]}
    assert widths == ({256, 768} if axis == "model" else {512, 1024, 2048})
    assert found["price"]["budget_ratio"] <= 0.2064 + 1e-4
    assert found["price"]["true_ratio"] <= found["price"]["budget_ratio"] * (1 + 1e-9)
    assert found["expected"] is None


def test_a_plan_trains(cli, here):
    """What is written is what the trainer reads."""
    from etastar.train.spec_file import build_spec

    cli("plan", "--preset", "rope", "--width", "256", "--tokens", "200M", "--budget", "0.3", "--corpus", "synthetic",
        "--seeds", "2", "--cost", "true", *FAST)  # fmt: skip
    plan = load_plan(here / "plan.yaml")
    specs = [build_spec(plan.content_of(stack)) for stack in plan.stacks]
    assert {spec.seed for spec in specs} == {0, 1}
    assert {spec.model.vocab for spec in specs} == {256}
    assert all(spec.model.params == plan.params_of(stack) for spec, stack in zip(specs, plan.stacks, strict=True))


def test_an_edited_plan_is_priced_again(cli, here):
    cli("plan", *ASK, "--budget", "0.2", "--gpu", "A100", "--gpus", "3", *FAST)
    before = cli("plan", "plan.yaml", "--json", *FAST).json["price"]
    text = (here / "plan.yaml").read_text(encoding="utf-8")
    (here / "plan.yaml").write_text(text.replace("- 19900", "- 39800").replace("A100", "H200"), encoding="utf-8")
    after = cli("plan", "plan.yaml", "--json", *FAST).json["price"]
    assert after["flop"] / before["flop"] == pytest.approx((39_800 + 10_000) / (19_900 + 10_000))
    assert after["gpu_seconds"] / before["gpu_seconds"] == pytest.approx(after["flop"] / before["flop"] * 312 / 989)
    assert before["wall_seconds"] == pytest.approx(before["gpu_seconds"] / 3)
    (here / "plan.yaml").write_text(text.replace("- 6650", "- 665"), encoding="utf-8")
    cli("plan", "plan.yaml").refused("665", "warm-up")
    cli("plan", "plan.yaml", "--width", "512").refused("--width")


def test_the_expected_error_is_said_and_repeats(cli, here, runs):
    ask = ("plan", "--spec", "spec.yaml", "--width", "768", "--tokens", "100B", "--budget", "0.5", "--worlds", "3",
           "--json", "--force")  # fmt: skip
    spec = {"model": {"width": 768}, "lrs": [2.0**x for x in range(-14, -6)], "horizons": [10_000]}
    (here / "spec.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
    first = cli(*ask).json["expected"]
    assert first["worlds"] == 3
    assert first["median_error"] <= first["high_error"]
    assert cli(*ask).json["expected"] == first
    assert cli(*ask, "--seed", "3").json["expected"] != first
    own = cli(*ask, "--from", runs).json["expected"]
    assert own != first
    assert "like those of your study" in cli(*ask[:-2], "--force", "--from", runs).stdout
    cli(*ask, "--out", "new.yaml", "--from", here / "nothing.csv").refused("nothing.csv")
    assert not (here / "new.yaml").exists()


def test_a_plan_that_is_there_is_not_lost(cli, here):
    assert cli("plan", *ASK, "--budget", "0.2", *FAST).code == 0
    assert cli("plan", *ASK, "--budget", "0.2", *FAST).code == 0  # the same again
    kept = (here / "plan.yaml").read_text(encoding="utf-8")
    cli("plan", *ASK, "--budget", "0.4", *FAST).refused("plan.yaml", "--force")
    assert (here / "plan.yaml").read_text(encoding="utf-8") == kept
    assert cli("plan", *ASK, "--budget", "0.4", "--force", *FAST).code == 0
    assert sorted(p.name for p in here.iterdir()) == ["plan.yaml"]


IMPOSSIBLE = {
    "budget below the smallest run": (("--budget", "0.01"), ("0.01", "--budget 0.104")),
    "budget of zero": (("--budget", "0"), ("--budget",)),
    "budget of words": (("--budget", "lots"), ("lots",)),
    "no budget": ((), ("budget",)),
    "models below the budget": (("--budget", "0.05", "--axis", "model"), ("0.1214",)),
    "short horizon": (("--budget", "0.5", "--horizons", "5000,20000"), ("5000", "warm-up")),
    "dear horizons": (("--budget", "0.1", "--horizons", "10000,20000"), ("0.1573",)),
    "too many horizons": (("--budget", "0.2", "--points", "9"), ("9 horizons",)),
    "unknown GPU": (("--budget", "0.2", "--gpu", "abacus"), ("abacus", "H100")),
    "no GPU": (("--budget", "0.2", "--gpus", "0"), ("--gpus",)),
    "mfu": (("--budget", "0.2", "--mfu", "2"), ("--mfu",)),
    "seeds": (("--budget", "0.2", "--seeds", "0"), ("--seeds",)),
    "worlds": (("--budget", "0.2", "--worlds", "-1"), ("--worlds",)),
    "learning rates": (("--budget", "0.2", "--lrs", "2^-9"), ("--lrs",)),
    "a range of learning rates": (("--budget", "0.2", "--lrs", "2^-7:2^-15:1"), ("--lrs",)),
    "odd widths": (("--budget", "0.4", "--axis", "model", "--widths", "250,500"), ("250", "head_dim")),
    "one width": (("--budget", "0.4", "--axis", "model", "--widths", "256"), ("two are needed",)),
    "no place": (("--budget", "0.2", "--out", "nowhere/plan.yaml"), ("nowhere",)),
    "corpus": (("--budget", "0.2", "--corpus", "nowhere"), ("nowhere",)),
    "speed": (("--budget", "0.2", "--tokens-per-second", "-3"), ("--tokens-per-second",)),
    "schedule": (("--budget", "0.2", "--decay", "-5"), ("decay_steps",)),
    "batch": (("--budget", "0.2", "--batch", "0"), ("batch_sequences",)),
}


@pytest.mark.parametrize("case", IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_plans_that_cannot_be(cli, here, case):
    asked, words = case
    worlds = () if "--worlds" in asked else FAST
    cli("plan", *ASK, *asked, *worlds).refused(*words)
    assert list(here.iterdir()) == []  # nothing half-written


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("--preset", "gpt2", "--width", "2000", "--tokens", "100B", "--budget", "0.2"), ("2000", "2048")),
        (("--preset", "rope", "--width", "100", "--tokens", "1B", "--budget", "0.2"), ("100", "head_dim")),
        (("--preset", "gpt3", "--width", "2048", "--tokens", "100B", "--budget", "0.2"), ("gpt3",)),
        (("--preset", "gpt2", "--tokens", "100B", "--budget", "0.2"), ("--width",)),
        (("--preset", "gpt2", "--width", "2048", "--budget", "0.2"), ("--tokens",)),
        (("--preset", "gpt2", "--width", "2048", "--tokens", "1B", "--budget", "0.2"), ("warm-up",)),
        (("--preset", "gpt2", "--spec", "x.yaml", "--tokens", "100B"), ("--preset",)),
        (("--spec", "x.yaml", "--tokens", "100B", "--budget", "0.2"), ("x.yaml",)),
        (("no-plan.yaml",), ("no-plan.yaml",)),
        ((), ("--preset",)),
    ],
)
def test_targets_that_cannot_be(cli, here, asked, words):
    cli("plan", *asked, *FAST).refused(*words)


@pytest.mark.slow
def test_optimize_writes_the_best_plan(cli, here):
    ask = ("plan", "--preset", "gpt2", "--width", "512", "--tokens", "100B", "--budget", "0.2", "--cost", "true",
           "--optimize", "--worlds", "6")  # fmt: skip
    found = cli(*ask, "--json", "--force").json
    assert load_plan(here / "plan.yaml").model_dump(mode="json") == found["plan"]
    assert len(found["candidates"]) > 10
    assert found["candidates"][0]["worlds"] == 6
    again = cli(*ask, "--json", "--force").json
    assert again == found


def test_planning_does_not_need_torch(tmp_path):
    arguments = ["etastar", "plan", *ASK, "--budget", "0.2", "--worlds", "1"]
    code = f"import sys; sys.modules['torch'] = None; sys.argv = {arguments!r}; import etastar.cli; etastar.cli.main()"
    source = {**os.environ, "PYTHONPATH": str(Path(etastar.__file__).resolve().parents[1])}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "plan.yaml").exists()
