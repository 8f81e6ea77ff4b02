"""Which parameters are watched, which are not, and is the reason said?"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from loops import OPTIMIZERS, small
from torch import nn

from etastar.errors import InputError
from etastar.monitor import StepMonitor
from etastar.monitor.names import parse_weight_metric, role, weight_metric
from etastar.monitor.watch import clean_name


def make(optimizer: torch.optim.Optimizer, model: Any = None, **options: Any) -> StepMonitor:
    return StepMonitor(optimizer, model, sinks=[], **options)


def test_embeddings_heads_and_vectors_are_left_out() -> None:
    model = small()
    monitor = make(torch.optim.AdamW(model.parameters()), model)
    assert monitor.weights == ("up.weight", "down.weight")
    assert monitor.left_out == {
        "embed.weight": "an embedding",
        "up.bias": "not a matrix",
        "norm.weight": "not a matrix",
        "norm.bias": "not a matrix",
        "head.weight": "an output head, one row a vocabulary entry",
    }


def test_embeddings_are_told_by_module_whatever_their_name() -> None:
    model = nn.ModuleDict({"a": nn.Embedding(50, 8), "b": nn.Linear(8, 8), "c": nn.Linear(8, 50, bias=False)})
    model["c"].weight = model["a"].weight  # tied
    monitor = make(torch.optim.AdamW(model.parameters()), model)
    assert monitor.weights == ("b.weight",)


def test_names_come_from_the_model_or_from_the_optimizer() -> None:
    model = small()
    for optimizer, named in (
        (torch.optim.AdamW(model.named_parameters()), None),
        (torch.optim.AdamW(model.parameters()), model.named_parameters()),
        (torch.optim.AdamW(model.parameters()), model),
    ):
        assert make(optimizer, named).weights == ("up.weight", "down.weight") or named is not model
    # without the model an untied head is told by its name alone
    assert "head.weight" in make(torch.optim.AdamW(model.named_parameters())).left_out
    assert make(torch.optim.AdamW(model.named_parameters())).left_out["head.weight"] == "an embedding by its name"


def test_without_names_embeddings_cannot_be_told() -> None:
    model = small()
    with pytest.raises(InputError, match="does not know its parameters' names"):
        make(torch.optim.AdamW(model.parameters()))
    muon = make(torch.optim.Muon([model.up.weight, model.down.weight]), include="*")
    assert muon.weights == ("group0.param0", "group0.param1")


def test_patterns() -> None:
    model = small()
    optimizer = torch.optim.AdamW(model.parameters())
    assert make(optimizer, model, include=["up.*"]).weights == ("up.weight",)
    assert make(optimizer, model, exclude="up.*").weights == ("down.weight",)
    # a pattern overrules the rules, and vectors stay out all the same
    assert make(optimizer, model, include="*").weights == ("embed.weight", "up.weight", "down.weight", "head.weight")
    with pytest.raises(InputError, match="no parameter is left to watch"):
        make(optimizer, model, include="nothing*")


def test_frozen_parameters_are_left_out() -> None:
    model = small()
    model.up.weight.requires_grad_(False)
    monitor = make(torch.optim.AdamW(model.parameters()), model)
    assert monitor.weights == ("down.weight",)
    assert monitor.left_out["up.weight"] == "not trained"


def test_another_models_optimizer_is_refused() -> None:
    with pytest.raises(InputError, match="none of the optimizer's parameters"):
        make(torch.optim.AdamW(small().parameters()), small())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "copy"}, "neither 'snapshot' nor 'reconstruct'"),
        ({"log_every": 0}, "not a number of steps"),
        ({"per": "layer"}, "not one of role, weight, none"),
        ({"sinks": "wandb"}, "neither 'auto' nor a list"),
        ({"sinks": [3]}, "cannot be called"),
        ({"split": {"up.*": 5}}, "33 rows, which 5 parts do not divide"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], said: str) -> None:
    model = small()
    with pytest.raises(InputError, match=said):
        StepMonitor(torch.optim.AdamW(model.parameters()), model, **{"sinks": [], **options})


def test_not_an_optimizer() -> None:
    with pytest.raises(InputError, match=r"expected a torch\.optim\.Optimizer, got int"):
        StepMonitor(3, small())  # type: ignore[arg-type]


class Subclass(torch.optim.AdamW):
    """Might step otherwise."""


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (lambda m: torch.optim.Adagrad(m.parameters()), "does not know .*Adagrad"),
        (lambda m: Subclass(m.parameters()), "does not know .*Subclass"),
        (lambda m: torch.optim.AdamW(m.parameters(), differentiable=True), "does not know differentiable"),
    ],
)
def test_reconstruct_refuses_what_it_does_not_know(kind: Any, said: str) -> None:
    model = small()
    with pytest.raises(InputError, match=said) as caught:
        make(kind(model), model, mode="reconstruct")
    assert "snapshot" in caught.value.hint


@pytest.mark.filterwarnings("ignore:.*watched weights are kept in")
def test_reconstruct_refuses_rounded_weights() -> None:
    model = small(dtype=torch.bfloat16)
    with pytest.raises(InputError, match=r"up\.weight is kept in bfloat16"):
        make(torch.optim.AdamW(model.parameters()), model, mode="reconstruct")


def test_reconstruct_says_when_the_gradient_is_gone() -> None:
    """An optimizer that drops gradients inside its step leaves nothing to go by."""
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_post_hook(lambda *_: optimizer.zero_grad())
    make(optimizer, model, mode="reconstruct")
    model(torch.arange(5)).sum().backward()
    with pytest.raises(InputError, match=r"gradient of up\.weight was gone"):
        optimizer.step()


def test_memory_is_stated() -> None:
    model = nn.Linear(4096, 4096, bias=False)
    for kind, per in (("snapshot", 4.0), ("reconstruct", 2.0)):
        memory = make(torch.optim.AdamW(model.parameters()), model, mode=kind).memory()
        assert memory.parameters == 4096**2
        assert memory.bytes_per_parameter == pytest.approx(per)
        assert "bytes each" in str(memory)


def test_wrappers_leave_no_trace_in_names() -> None:
    assert clean_name("module._orig_mod.h.0._checkpoint_wrapped_module.w") == "h.0.w"
    assert clean_name("_orig_mod.module.h.module.w") == "h.module.w"


def test_metric_names_round_trip() -> None:
    assert role("transformer.h.11.attn.c_attn.weight") == "transformer.h.attn.c_attn.weight"
    name = weight_metric("weight_norm", "h.3.w")
    assert name == "etastar/weight_norm/h.3.w"
    assert parse_weight_metric(name) == ("weight_norm", "h.3.w")
    assert parse_weight_metric("etastar/mean_eff_lr") is None
    assert parse_weight_metric("train/loss") is None


def test_every_known_optimizer_is_known() -> None:
    for kind in OPTIMIZERS.values():
        model = small()
        make(kind(model), model, mode="reconstruct")
