"""Sources beyond this machine: what their objects become, and what is said when they cannot be reached."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from etastar.errors import InputError
from etastar.importers.hub import read_hub
from etastar.importers.wandb_api import _run, read_wandb_api
from etastar.records import RunStatus


def test_a_run_of_wandbs_api() -> None:
    """The fields that wandb's public API documents; no server was asked."""
    history = [
        {"_step": 0, "_timestamp": 1.0, "loss": 3.0, "global_step": 10},
        {"_step": 1, "_timestamp": 2.0, "val/loss": 2.5, "loss": float("nan"), "note": "x"},
    ]
    one = SimpleNamespace(
        id="abc", name="größe", state="failed", config={"optim": {"lr": 1e-3}, "_wandb": {"x": 1}},
        summary={"val/loss": 2.5, "best": 2.25, "_step": 1, "hist": {"_type": "histogram"}},
        scan_history=lambda: iter(history),
    )  # fmt: skip
    run = _run(one, "team/project")
    assert (run.id, run.name, run.status) == ("abc", "größe", RunStatus.CRASHED)
    assert run.config == {"optim.lr": 1e-3}
    assert run.metrics["loss"].steps == [10]  # the second row belongs to the same step: the later write wins
    assert run.metrics["val/loss"].values == [2.5]
    assert run.metrics["best"].values == [2.25]


@pytest.mark.parametrize("address", ["", "one", "a/b/c/d", "/"])
def test_addresses_of_wandb(address: str) -> None:
    with pytest.raises(InputError, match="is not ENTITY/PROJECT"):
        read_wandb_api(address)


def test_without_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match="wandb is not installed"):
        read_wandb_api("team/project")
    with pytest.raises(InputError, match="huggingface_hub is not installed"):
        read_hub("owner/data")


@pytest.mark.trackers
def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    with pytest.raises(InputError, match="wandb:team/project"):
        read_wandb_api("team/project")


@pytest.mark.trackers
def test_a_hub_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(InputError, match="cannot be brought here"):
        read_hub("owner/no-such-data-set")
