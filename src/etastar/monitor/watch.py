"""Which parameters of an optimizer are watched?

The paper's η_eff is a mean over weight matrices, embeddings out. So a parameter is watched if it is
trained, has two dimensions or more, and is neither an embedding nor an output head: told by its module
where the model is given (an `nn.Embedding`, or a matrix with one row a vocabulary entry), and by its name.
`include` and `exclude` are shell patterns over names; a parameter that `include` matches is watched even
if its name looks like an embedding's. What is left out is kept with its reason.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from etastar.errors import InputError

Named = nn.Module | Iterable[tuple[str, Tensor]]

# Parts of a dotted name that mean an embedding, a position table or an output head in the usual code bases.
_EMBEDDING_PARTS = ("embed", "wte", "wpe", "lm_head", "tok_emb", "pos_emb", "position_emb")
_HEADS = ("output.weight", "head.weight", "unembed.weight")
# What wrappers put into names: torch.compile, DDP, activation checkpointing.
_WRAPPERS = ("_orig_mod.", "module.", "_checkpoint_wrapped_module.")
_LOW = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Watched:
    """One weight: a parameter, or one of the equal parts along dimension 0 that `split` cuts it into."""

    name: str
    param: Tensor
    group: int
    part: int = 0
    parts: int = 1

    @property
    def low_precision(self) -> bool:
        """Kept in bf16 or fp16, where a step rounds to the weight's own grid."""
        return self.param.dtype in _LOW


@dataclass(frozen=True)
class Selection:
    """What is watched, in the order of the optimizer's groups, and what is not and why."""

    watched: tuple[Watched, ...]
    left_out: Mapping[str, str]


def unwrapped(optimizer: Any) -> torch.optim.Optimizer:
    """The torch optimizer inside what accelerate or Lightning wrap around it."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = inner
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InputError(
            f"StepMonitor: expected a torch.optim.Optimizer, got {type(optimizer).__name__}",
            hint="give the optimizer whose step() moves the weights; ForeignOptimizer wraps one that is not torch's",
        )
    return optimizer


def select(
    optimizer: torch.optim.Optimizer,
    model: Named | None,
    *,
    include: Sequence[str] | str | None,
    exclude: Sequence[str] | str,
    split: Mapping[str, int],
) -> Selection:
    """The weights to watch among the optimizer's parameters."""
    names = _names(optimizer, model, named_only=include is None)
    embeddings = _embeddings(model) if isinstance(model, nn.Module) else {}
    wanted, unwanted = _patterns(include), _patterns(exclude)
    watched: list[Watched] = []
    left_out: dict[str, str] = {}
    for index, group in enumerate(optimizer.param_groups):
        for param in group["params"]:
            name = names.get(id(param)) or f"group{index}.param{len(left_out) + len(watched)}"
            reason = _reason(name, param, wanted, unwanted, embeddings)
            if reason is None:
                watched += _parts(name, param, index, split)
            else:
                left_out[name] = reason
    if not watched:
        seen = ", ".join(f"{name} ({reason})" for name, reason in list(left_out.items())[:4])
        raise InputError(
            f"no parameter is left to watch: {seen}",
            hint="name the matrices with include=['*.weight'], or drop patterns from exclude",
        )
    _warn_of_rounding(watched)
    return Selection(tuple(watched), left_out)


def _patterns(given: Sequence[str] | str | None) -> tuple[str, ...]:
    if given is None:
        return ()
    return (given,) if isinstance(given, str) else tuple(given)


def clean_name(name: str) -> str:
    """A parameter's name without what wrappers add to it."""
    for wrapper in _WRAPPERS:
        # a "module." that is part of the model's own names stands behind a dot and stays
        name = name.removeprefix(wrapper) if wrapper == "module." else name.replace(wrapper, "")
    return name


def _names(optimizer: torch.optim.Optimizer, model: Named | None, *, named_only: bool) -> dict[int, str]:
    """Names by parameter identity, from the model or from the groups of an optimizer that was given names."""
    if model is not None:
        pairs = model.named_parameters() if isinstance(model, nn.Module) else model
        found = {id(param): name for name, param in pairs}
        if any("_fsdp_wrapped_module" in name for name in found.values()):
            raise InputError(
                "the model is wrapped by FullyShardedDataParallel (FSDP1), whose shards have lost their matrices' shapes",
                hint="shard it with torch.distributed.fsdp.fully_shard (FSDP2)",
            )
        known = [p for group in optimizer.param_groups for p in group["params"] if id(p) in found]
        if not known:
            raise InputError(
                "none of the optimizer's parameters is among the model's",
                hint="give the model whose parameters this optimizer trains",
            )
        return {key: clean_name(name) for key, name in found.items()}
    given = {
        id(param): clean_name(name)
        for group in optimizer.param_groups
        for name, param in zip(group.get("param_names", ()), group["params"], strict=False)
    }
    if not given and named_only:
        raise InputError(
            "the optimizer does not know its parameters' names, so embeddings cannot be told from other matrices",
            hint="write StepMonitor(optimizer, model), or include='*' if all its matrices are to be watched",
        )
    return given


def _embeddings(model: nn.Module) -> dict[int, str]:
    """Parameters of embedding modules, and matrices with one row (or column) a vocabulary entry, by identity."""
    tables = [m for m in model.modules() if isinstance(m, (nn.Embedding, nn.EmbeddingBag))]
    found = {id(table.weight): "an embedding" for table in tables}
    vocabulary = max((table.num_embeddings for table in tables), default=0)
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.out_features == vocabulary:
            found.setdefault(id(module.weight), "an output head, one row a vocabulary entry")
    return found


def _reason(
    name: str, param: Tensor, wanted: tuple[str, ...], unwanted: tuple[str, ...], embeddings: Mapping[int, str]
) -> str | None:
    """Why a parameter is left out, or None."""
    if not param.requires_grad:
        return "not trained"
    if param.is_complex():
        return "complex"
    if any(fnmatchcase(name, pattern) for pattern in unwanted):
        return "excluded"
    if param.ndim < 2:
        return "not a matrix"
    if wanted:
        return None if any(fnmatchcase(name, pattern) for pattern in wanted) else "not included"
    if id(param) in embeddings:
        return embeddings[id(param)]
    lowered = name.lower()
    if any(part in lowered for part in _EMBEDDING_PARTS) or lowered in _HEADS:
        return "an embedding by its name"
    return None


def _parts(name: str, param: Tensor, group: int, split: Mapping[str, int]) -> list[Watched]:
    count = next((count for pattern, count in split.items() if fnmatchcase(name, pattern)), 1)
    if count == 1:
        return [Watched(name, param, group)]
    if hasattr(param, "to_local"):
        raise InputError(f"split: {name} is sharded over ranks", hint="leave it whole, or split it before sharding")
    if count < 1 or param.shape[0] % count:
        raise InputError(
            f"split: {name} has {param.shape[0]} rows, which {count} parts do not divide",
            hint="give the number of equal matrices that lie one below the other, e.g. 3 for q, k and v",
        )
    return [Watched(f"{name}[{part}]", param, group, part, count) for part in range(count)]


def _warn_of_rounding(watched: Sequence[Watched]) -> None:
    low = [weight.name for weight in watched if weight.low_precision]
    if low:
        kinds = ", ".join(sorted({str(w.param.dtype).removeprefix("torch.") for w in watched if w.low_precision}))
        warnings.warn(
            f"{len(low)} of {len(watched)} watched weights are kept in {kinds} ({low[0]}, …): "
            "their steps round to the weights' own grid, and η_eff is that of the rounded steps",
            stacklevel=4,
        )
