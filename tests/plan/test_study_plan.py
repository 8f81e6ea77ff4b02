"""The plan file: it round-trips, every number may be edited, and what cannot be is one line with a hint."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from etastar.errors import EtastarError, SpecError
from etastar.plan.gpus import GPUS, gpu_named
from etastar.plan.study_plan import build_plan, load_plan
from etastar.plan.training import read_training
from etastar.train.presets import gpt2, rope
from etastar.train.spec_file import build_spec

STACK = {"name": "a", "width": 256, "lrs": ["2^-10", "2^-9"], "horizons": ["10k", 20000]}
GOOD = {"spec": {"model": {}}, "stacks": [STACK]}


def test_a_plan_gives_the_trainer_its_specification():
    plan = build_plan({**GOOD, "spec": {"optimizer": {"kind": "adam"}, "model": {"layers": 4}}})
    spec = build_spec(plan.content_of(plan.stacks[0]))
    assert spec.model.width == 256
    assert spec.lrs == (2**-10, 2**-9)
    assert spec.horizons == (10_000, 20_000)
    assert plan.params_of(plan.stacks[0]) == spec.model.params
    assert plan.batch_tokens_of(plan.stacks[0]) == spec.batch_tokens


@pytest.mark.parametrize("spec", [gpt2(width=512), rope(width=128), gpt2(width=256, optimizer="adamh")])
def test_training_is_read_as_the_trainer_reads_it(spec):
    read = read_training(spec.model_dump(mode="json"))
    assert (read.params, read.batch_tokens) == (spec.model.params, spec.batch_tokens)
    assert [read.decay_of(h) for h in spec.horizons] == [spec.schedule.decay_of(h) for h in spec.horizons]
    # what is left out has the trainer's own default
    bare = {"model": {"width": 256}, "lrs": [0.1], "horizons": [10_000]}
    ours, theirs = read_training(bare), build_spec(bare)
    assert (ours.params, ours.batch_tokens) == (theirs.model.params, theirs.batch_tokens)
    assert ours.shortest() == theirs.schedule.warmup_steps + theirs.schedule.decay_steps


@given(
    widths=st.lists(st.integers(1, 20).map(lambda k: 128 * k), min_size=1, max_size=4, unique=True),
    lrs=st.lists(st.integers(-20, -1).map(lambda k: 2.0**k), min_size=1, max_size=8, unique=True),
    horizons=st.lists(st.integers(6000, 10**7), min_size=1, max_size=6, unique=True),
    adaptive=st.booleans(),
    gpu=st.sampled_from(sorted(GPUS)),
)
def test_yaml_round_trip(widths, lrs, horizons, adaptive, gpu):
    stacks = [{"name": f"w{w}", "width": w, "lrs": lrs, "horizons": horizons} for w in widths]
    plan = build_plan({"spec": {}, "stacks": stacks, "adaptive": adaptive, "hardware": {"gpu": gpu}})
    assert build_plan(yaml.safe_load(plan.to_yaml())) == plan


def changed(**changes):
    return {**GOOD, **changes}


def stacked(**changes):
    return {**GOOD, "stacks": [{**STACK, **changes}]}


BAD = {
    "horizon below warm-up + decay": (stacked(horizons=[5999]), "5999"),
    "width": (stacked(width=200), "200"),
    "width zero": (stacked(width=0), "width"),
    "negative LR": (stacked(lrs=[-0.1]), "lrs"),
    "LR twice": (stacked(lrs=[0.1, 0.1]), "twice"),
    "horizon twice": (stacked(horizons=[9000, 9000]), "twice"),
    "no LRs": (stacked(lrs=[]), "lrs"),
    "words": (stacked(lrs=["fast"]), "fast"),
    "nan": (stacked(lrs=[float("nan")]), "lrs"),
    "name with a slash": (stacked(name="../a"), "name"),
    "stack twice": (changed(stacks=[STACK, STACK]), "twice"),
    "no stacks": (changed(stacks=[]), "stacks"),
    "unknown key": (changed(colour="red"), "colour"),
    "missing": ({"stacks": [STACK]}, "spec"),
    "unknown GPU": (changed(hardware={"gpu": "abacus"}), "abacus"),
    "mfu": (changed(hardware={"mfu": 1.5}), "mfu"),
    "no gpus": (changed(hardware={"gpus": 0}), "gpus"),
    "speed of nothing": (changed(hardware={"tokens_per_second": {"b": 1e6}}), "'b'"),
    "version": (changed(version=99), "99"),
    "target": (changed(target={"params": 0, "tokens": 1e9}), "params"),
    "spec is no mapping": (changed(spec=[1]), "spec"),
    "model is no mapping": (changed(spec={"model": 3}), "model"),
    "schedule": (changed(spec={"schedule": {"kind": "stairs"}}), "stairs"),
    "decay fraction": (changed(spec={"schedule": {"decay_fraction": 7}}), "7"),
    "layers": (changed(spec={"model": {"layers": "many"}}), "many"),
    "batch": (changed(spec={"batch_sequences": 0}), "batch_sequences"),
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD.keys())
def test_what_cannot_be_is_one_line_with_a_hint(content, tmp_path):
    said, word = content
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(said), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_plan(path)
    assert word in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("text", ["", "[]", "just words", "a: [", "\x00", "- 1"])
def test_a_file_that_is_no_plan(tmp_path, text):
    path = tmp_path / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError):
        load_plan(path)
    with pytest.raises(SpecError, match="cannot be read"):
        load_plan(tmp_path / "not-there.yaml")


def test_a_gpu_of_ones_own_needs_its_peak():
    plan = build_plan(changed(hardware={"gpu": "abacus", "peak_flops": 1e12}))
    assert plan.hardware.peak == 1e12
    assert build_plan(changed(hardware={"gpu": "a100"})).hardware.peak == 312e12
    assert gpu_named("NVIDIA H100") == GPUS["H100"]
    assert gpu_named("4090") == GPUS["RTX4090"]
    with pytest.raises(EtastarError):
        gpu_named("")
