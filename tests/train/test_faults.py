"""What does a user see when memory, disk or the specification does not suffice?"""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from test_loop import Silent, rows, run
from toys import CORPUS, toy

from etastar.errors import EtastarError, InputError, SpecError
from etastar.store import read_runs
from etastar.train import model
from etastar.train.batches import check_corpus
from etastar.train.data import SyntheticCorpus
from etastar.train.engine import resolve_device
from etastar.train.loop import train
from etastar.train.spec_file import build_spec, load_spec


def _memory_of(patch: pytest.MonkeyPatch, sequences: int) -> None:
    """A device that holds the activations of so many sequences."""
    original = model.final_hidden

    def limited(spec: Any, params: Any, tokens: torch.Tensor, compute: torch.dtype) -> torch.Tensor:
        if tokens.shape[0] > sequences:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(spec, params, tokens, compute)

    patch.setattr("etastar.train.engine.final_hidden", limited)


def test_out_of_memory_halves_once_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run(toy(execution={"micro_batch": 2}), tmp_path / "asked")
    _memory_of(monkeypatch, 2)
    reporter = Silent()
    result = train(toy(), tmp_path / "forced", corpus=CORPUS, reporter=reporter)
    assert any("micro-batches of 2 sequences" in text for text in reporter.messages)
    assert rows(result.runs, "run") == rows(expected, "run")


def test_out_of_memory_twice_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _memory_of(monkeypatch, 1)
    with pytest.raises(SpecError, match="out of memory") as raised:
        train(toy(), tmp_path, corpus=CORPUS, reporter=Silent())
    assert "micro_batch" in raised.value.hint


def _train_on_a_small_disk(study: Path, limit: int, told: Path) -> int:
    """A real write error: in a forked process, no file may grow beyond `limit` bytes."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            train(toy(), study, corpus=CORPUS, reporter=Silent())
        except EtastarError as error:
            told.write_text(str(error))
            code = 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_full_disk_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    spec = toy()
    train(spec, tmp_path / "a", corpus=CORPUS, reporter=Silent(), stop_after=0)
    held = (path for path in (tmp_path / "a").rglob("*.*") if path.is_file() and "lease" not in path.name)
    before = {path: path.read_bytes() for path in held}
    assert _train_on_a_small_disk(tmp_path / "a", 20_000, tmp_path / "told") == 2
    told = (tmp_path / "told").read_text()
    assert "no space left" in told
    assert "hint: free some space" in told
    after = {path: path.read_bytes() for path in before}
    assert after == before
    assert not list((tmp_path / "a").rglob("*.tmp"))
    run(spec, tmp_path / "a")
    run(spec, tmp_path / "b")
    assert rows(read_runs(tmp_path / "a"), "run") == rows(read_runs(tmp_path / "b"), "run")


BAD = [
    ({"model": {"width": 20}}, r"model.width: 20 is not a multiple of head_dim 8"),
    ({"horizons": [9]}, r"horizons: 9 steps are fewer than the 4 of warm-up and 6 of decay"),
    ({"horizons": []}, r"horizons: the list is empty"),
    ({"horizons": [20, 20]}, r"horizons: 20 is there twice"),
    ({"lrs": []}, r"lrs: the list is empty"),
    ({"lrs": [0.01, 0]}, r"lrs: 0 is not above zero"),
    ({"lrs": [-0.1]}, r"lrs: -0.1 is not above zero"),
    ({"lrs": ["2^-9", 2**-9]}, r"lrs: 0.00195312 is there twice"),
    ({"lrs": [float("nan")]}, r"lrs: nan"),
    ({"lrs": ["fast"]}, r"cannot read 'fast'"),
    ({"optimizer": {"kind": "adamh", "weight_decay": 0.1}}, r"adamh has no weight decay"),
    ({"optimizer": {"kind": "sgd"}}, r"optimizer.kind: 'sgd'"),
    ({"optimizer": {"kind": "adam"}, "embedding": {"weight_decay": 0.1}}, r"Adam without decay"),
    ({"eval_tokens": 4}, r"eval_tokens: 4 is less than one sequence"),
    ({"model": {"widht": 20}}, r"model.widht: is not a known setting"),
    ({"batch_sequences": 0}, r"batch_sequences: '0'"),
    ({"model": {"head_dim": 1, "width": 4}}, r"RoPE turns pairs"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_specs_are_one_line_and_a_hint(change: dict[str, Any], message: str) -> None:
    with pytest.raises(EtastarError, match=message) as raised:
        toy(**change)
    assert "\n" not in raised.value.message
    assert raised.value.hint


def test_missing_settings_are_named() -> None:
    with pytest.raises(SpecError, match="model: is missing"):
        build_spec({"lrs": [0.1], "horizons": [10_000]})


def test_vocabulary_mismatch() -> None:
    for vocab in (32, 5000):
        with pytest.raises(SpecError, match=rf"model\.vocab: {vocab}, but the corpus has a vocabulary of 64"):
            check_corpus(toy(model={"vocab": vocab}), CORPUS)
    check_corpus(toy(model={"vocab": 128}), CORPUS)  # rounded up for the hardware


def test_corpus_too_short() -> None:
    short = SyntheticCorpus(vocab=64, seed=1, tokens=10, validation_tokens=4000)
    with pytest.raises(InputError, match="training tokens"):
        check_corpus(toy(), short)
    with pytest.raises(InputError, match="validation tokens"):
        check_corpus(toy(eval_tokens=100_000), CORPUS)


def test_unknown_device_is_refused() -> None:
    for name in ("gpu9", "meta"):
        with pytest.raises(SpecError, match=r"execution\.device"):
            resolve_device(toy(execution={"device": name}).execution)


def test_yaml_goes_round(tmp_path: Path) -> None:
    spec = toy(lrs=["2^-9", 0.01])
    file = tmp_path / "spec.yaml"
    file.write_text(spec.to_yaml())
    assert load_spec(file) == spec
    for text, message in (
        ("- 1", "expected settings"),
        ("a: [", "not YAML"),
        ("!!python/object:os.x {}", "not YAML"),
    ):
        file.write_text(text)
        with pytest.raises(SpecError, match=message):
            load_spec(file)
    with pytest.raises(SpecError, match="cannot be read"):
        load_spec(tmp_path / "absent.yaml")


def test_bare_entry_point_ends_with_2_on_a_bad_spec(tmp_path: Path) -> None:
    from etastar.train.__main__ import main

    file = tmp_path / "spec.yaml"
    file.write_text(yaml.safe_dump({"model": {"width": 100}, "lrs": [0.1], "horizons": [10_000]}))
    assert main([str(file), "--out", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()


def test_run_id_names_what_is_trained_and_nothing_else() -> None:
    spec = toy()
    name = spec.run_id(2**-9, 16, data_identity="x")
    moved = toy(execution={"micro_batch": 1, "device": "cpu", "threads": 2}, name="other", lrs=[2**-9, 2**-3])
    assert moved.run_id(2**-9, 16, data_identity="x") == name
    settled = toy(optimizer={"weight_decay": 0.1}, embedding={"weight_decay": 0.1})
    assert settled.run_id(2**-9, 16, data_identity="x") == name
    changes: list[dict[str, Any]] = [
        {"seed": 1}, {"model": {"layers": 3}}, {"optimizer": {"beta1": 0.9}}, {"embedding": {"lr": 0.1}},
        {"schedule": {"decay_steps": 5}}, {"batch_sequences": 8}, {"eval_tokens": 512},
        {"model": {"norm_embedding": False}}, {"model": {"init": "gpt2"}},
    ]  # fmt: skip
    others = {toy(**change).run_id(2**-9, 16, data_identity="x") for change in changes}
    others |= {spec.run_id(2**-8, 16, data_identity="x"), spec.run_id(2**-9, 24, data_identity="x")}
    others.add(spec.run_id(2**-9, 16, data_identity="y"))
    assert len(others) == len(changes) + 3
    assert name not in others
    shorter = toy(schedule={"decay_steps": 5}).trunk_id(2**-9, data_identity="x")
    assert shorter == spec.trunk_id(2**-9, data_identity="x")  # the trunk does not know its branches' decay


def test_every_worker_sets_the_specs_threads(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        run(toy(execution={"threads": 2}, horizons=[12]), tmp_path)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
