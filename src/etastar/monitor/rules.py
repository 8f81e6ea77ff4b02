"""How does a known optimizer move a weight, given its state after the step?

Every rule here has the form w_{t+1} = (1 − s)·w_t − r·d: a direction d that can be computed from what is in memory
after the step, a rate r and a share s that decay takes. Then w_t follows from w_{t+1}, and nothing needs a
copy. Exact types alone: a subclass may step otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from etastar.errors import InputError
from etastar.monitor.scalars import GroupVectors
from etastar.monitor.sums import Moments
from etastar.monitor.watch import Watched
from etastar.monitor.workspace import Batch, fill, foreach, local, pick

Groups = Sequence[Mapping[str, Any]]


def decoupled(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> bool | None:
    """Whether decay stands beside the update u_t (AdamW, Muon) or inside it; None for an optimizer not known."""
    kind = type(optimizer)
    if kind in (torch.optim.AdamW, torch.optim.Adam):
        return bool(group.get("decoupled_weight_decay", kind is torch.optim.AdamW))
    if kind is torch.optim.Muon:
        return True
    return False if kind is torch.optim.SGD else None


def rate_factors(optimizer: torch.optim.Optimizer, watched: Sequence[Watched], device: torch.device) -> Tensor | None:
    """By what the learning rate of each weight is multiplied before it meets the update; Muon's depends on the shape."""
    if type(optimizer) is not torch.optim.Muon:
        return None
    factors = [_muon_factor(optimizer.param_groups[w.group].get("adjust_lr_fn"), tuple(w.param.shape)) for w in watched]
    return torch.tensor(factors, dtype=torch.float64, device=device)


def _muon_factor(adjust: str | None, shape: tuple[int, ...]) -> float:
    rows, columns = shape[:2]
    if adjust is None or adjust == "original":
        return math.sqrt(max(1.0, rows / columns))
    return 0.2 * math.sqrt(max(rows, columns)) if adjust == "match_rms_adamw" else 1.0


def needs_grad(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> bool:
    """Whether the direction is made of the gradient too, which must then outlive the step."""
    if type(optimizer) is torch.optim.SGD:
        return not group["momentum"] or group["nesterov"]
    return type(optimizer) is torch.optim.Muon and group["nesterov"]


@dataclass(frozen=True)
class Move:
    """A step: `direction` is c·d, or writes it into a batch; r·d = scale × that; `share` is s."""

    direction: Moments | Callable[[Batch], None]
    scale: Tensor
    share: Tensor


Rule = Callable[[], Move]


def rule_for(optimizer: torch.optim.Optimizer, watched: Sequence[Watched], vectors: GroupVectors) -> Rule:
    """The rule of an optimizer, or an error that says what is not known."""
    kind = type(optimizer)
    makers = {torch.optim.AdamW: _adam, torch.optim.Adam: _adam, torch.optim.SGD: _sgd, torch.optim.Muon: _muon}
    if kind not in makers:
        raise InputError(
            f"mode='reconstruct' does not know {kind.__module__}.{kind.__qualname__}",
            hint="use mode='snapshot', which works for every optimizer, or torch's Adam, AdamW, SGD or Muon",
        )
    if any(optimizer.param_groups[g].get("differentiable") for g in vectors.slices):
        raise InputError("mode='reconstruct' does not know differentiable=True", hint="use mode='snapshot'")
    low = next((w for w in watched if w.low_precision), None)
    if low is not None:
        kept = str(low.param.dtype).removeprefix("torch.")
        raise InputError(
            f"mode='reconstruct': {low.name} is kept in {kept}, where the step taken is not the step computed",
            hint="use mode='snapshot', which sees the rounded step",
        )
    return makers[kind](optimizer, watched, vectors)


def _lr_and_decay(groups: Groups, vectors: GroupVectors) -> tuple[Tensor, Tensor]:
    return vectors.option("lr", groups, "lr"), vectors.option("weight_decay", groups, "weight_decay")


def _adam(optimizer: torch.optim.Optimizer, watched: Sequence[Watched], vectors: GroupVectors) -> Rule:
    """d = m̂ / (√v̂ + ε) = m/(√v + ε√c₂) · √c₂/c₁ with the bias corrections c₁, c₂."""

    def move() -> Move:
        groups, states = optimizer.param_groups, _states(optimizer, watched)
        lr, decay = _lr_and_decay(groups, vectors)
        beta1, beta2 = (vectors.option(f"beta{i + 1}", groups, "betas", i) for i in range(2))
        eps = vectors.option("eps", groups, "eps")
        steps = _steps(states, vectors)
        root = (1 - beta2.pow(steps)).sqrt()
        spread = {g: groups[g].get("amsgrad") for g in vectors.slices}
        second = [
            _part(s, "max_exp_avg_sq" if spread[w.group] else "exp_avg_sq")
            for w, s in zip(watched, states, strict=True)
        ]
        first = [_part(s, "exp_avg") for s in states]
        apart = vectors.vector("apart", {g: float(bool(decoupled(optimizer, groups[g]))) for g in vectors.slices})
        # no step yet: c₁ is zero and so is m
        scale = lr * root / (1 - beta1.pow(steps)).clamp_min(1e-300)
        return Move(Moments(first, second, eps * root), scale, lr * decay * apart)

    return move


def _sgd(optimizer: torch.optim.Optimizer, watched: Sequence[Watched], vectors: GroupVectors) -> Rule:
    """d = the momentum buffer, which holds the decay; without it, or under Nesterov, decay is taken off w_t apart."""

    def move() -> Move:
        groups, states = optimizer.param_groups, _states(optimizer, watched)
        lr, decay = _lr_and_decay(groups, vectors)
        momentum = vectors.option("momentum", groups, "momentum")
        options = [groups[weight.group] for weight in watched]
        grads = [_grad(w) if needs_grad(optimizer, o) else None for w, o in zip(watched, options, strict=True)]
        signed = vectors.vector("sign", {g: -1.0 if groups[g]["maximize"] else 1.0 for g in vectors.slices})
        buffers = [_part(s, "momentum_buffer") if o["momentum"] else None for s, o in zip(states, options, strict=True)]
        apart = vectors.vector("apart", {g: float(needs_grad(optimizer, groups[g])) for g in vectors.slices})
        # d = ±g + μ·buffer under Nesterov, the buffer alone otherwise
        weight_of_buffer = torch.where(apart > 0, momentum, torch.ones_like(momentum))

        def direct(batch: Batch) -> None:
            fill(batch, buffers)
            batch.rows.mul_(weight_of_buffer[batch.owners].to(batch.rows)[:, None])
            batch.rows.mul_(signed[batch.owners].to(batch.rows)[:, None])
            pairs = [(v, g) for v, g in zip(batch.views, pick(batch, grads), strict=True) if g is not None]
            if pairs:
                foreach._foreach_add_([view for view, _ in pairs], [grad for _, grad in pairs])

        # the gradient enters with sign +: the whole direction is turned instead
        return Move(direct, lr * signed, lr * decay * apart)

    return move


def _muon(optimizer: torch.optim.Optimizer, watched: Sequence[Watched], vectors: GroupVectors) -> Rule:
    """d = the momentum's nearest orthogonal matrix, by torch's own iteration run once more."""
    try:
        from torch.optim._muon import _zeropower_via_newtonschulz as orthogonal
    except ImportError:
        raise InputError("this torch keeps Muon's iteration elsewhere", hint="use mode='snapshot'") from None
    if any(hasattr(weight.param, "to_local") for weight in watched):
        raise InputError("mode='reconstruct' cannot orthogonalise shards under Muon", hint="use mode='snapshot'")
    factors = rate_factors(optimizer, watched, vectors.device)
    assert factors is not None

    def direction(weight: Watched) -> Tensor | None:
        group, buffer = optimizer.param_groups[weight.group], optimizer.state[weight.param].get("momentum_buffer")
        if buffer is None:
            return None
        grad = _grad(weight) if group["nesterov"] else None
        update = buffer if grad is None else grad.lerp(buffer, group["momentum"])
        return orthogonal(update, group["ns_coefficients"], group["ns_steps"], group["eps"])

    def move() -> Move:
        lr, decay = _lr_and_decay(optimizer.param_groups, vectors)
        last: dict[int, Tensor | None] = {}  # of the parameter that the last block belonged to

        def direct(batch: Batch) -> None:
            found: dict[int, Tensor | None] = {}
            for block in batch.blocks:
                weight = watched[block.weight]
                if id(weight.param) not in last:
                    last.clear()
                    last[id(weight.param)] = direction(weight)
                found[block.weight] = last[id(weight.param)]
            fill(batch, [found.get(index) for index in range(len(watched))])

        return Move(direct, lr * factors, lr * decay)

    return move


def _states(optimizer: torch.optim.Optimizer, watched: Sequence[Watched]) -> list[Mapping[str, Any]]:
    return [optimizer.state.get(weight.param, {}) for weight in watched]


def _part(state: Mapping[str, Any], key: str) -> Tensor | None:
    tensor = state.get(key)
    if tensor is None:
        return None
    if torch.finfo(tensor.dtype).bits < 32:
        kept = str(tensor.dtype).removeprefix("torch.")
        raise InputError(
            f"mode='reconstruct': the optimizer keeps {key} in {kept}, rounded after the step was taken",
            hint="use mode='snapshot'",
        )
    return local(tensor)


def _grad(weight: Watched) -> Tensor | None:
    return None if weight.param.grad is None else local(weight.param.grad)


def _steps(states: Sequence[Mapping[str, Any]], vectors: GroupVectors) -> Tensor:
    """Adam's step counts, (weights,): on the device already under fused or capturable, else on the host."""
    counts = [state.get("step") for state in states]
    if all(isinstance(count, Tensor) and count.device.type != "cpu" for count in counts):
        return torch.stack([local(count) for count in counts]).to(vectors.device, torch.float64)  # type: ignore[arg-type]
    numbers = [0.0 if count is None else float(count) for count in counts]
    if all(len(set(numbers[place])) == 1 for place in vectors.slices.values()):
        return vectors.vector("step", {g: numbers[place][0] for g, place in vectors.slices.items()})
    return torch.tensor(numbers, dtype=torch.float64, device=vectors.device)
