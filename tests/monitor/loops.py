"""A small model, a plain training loop, and η_eff by its definition in float64 beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from etastar.monitor import StepMonitor

torch.set_num_threads(1)

Make = Callable[[nn.Module], torch.optim.Optimizer]


class Small(nn.Module):
    """Embedding, two matrices with odd shapes, a norm and an untied head."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.embed = nn.Embedding(17, 12)
        self.up, self.down = nn.Linear(12, 33), nn.Linear(33, 12, bias=False)
        self.norm = nn.LayerNorm(12)
        self.head = nn.Linear(12, 17, bias=False)
        self.to(dtype)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        return self.head(self.norm(x + self.down(torch.tanh(self.up(x)))))


def small(seed: int = 0, dtype: torch.dtype = torch.float32) -> Small:
    torch.manual_seed(seed)
    return Small(dtype)


def batch(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 + step)
    tokens = torch.randint(17, (2, 32), generator=generator)
    return tokens[0], tokens[1]


def loss_of(model: nn.Module, step: int) -> Tensor:
    tokens, targets = batch(step)
    return nn.functional.cross_entropy(model(tokens).float(), targets)


def eff_lr(before: Tensor, after: Tensor) -> float:
    """The definition, in float64."""
    before, after = before.detach().double(), after.detach().double()
    return float((after / after.norm() - before / before.norm()).norm())


@dataclass
class Reference:
    """What the definition says, step by step: a list of η_eff a step, one a watched weight."""

    seen: list[list[float]] = field(default_factory=list)

    @property
    def mean(self) -> float:
        return sum(sum(row) / len(row) for row in self.seen) / len(self.seen)


def watched_values(monitor: StepMonitor) -> list[Tensor]:
    return [
        w.param.detach().clone() if w.parts == 1 else w.param.detach().chunk(w.parts)[w.part].clone()
        for w in monitor.watched
    ]


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, monitor: StepMonitor, steps: int, *, start: int = 0
) -> Reference:
    """Plain steps under a monitor, with the definition beside it."""
    reference = Reference()
    for step in range(start, start + steps):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        before = watched_values(monitor)
        optimizer.step()
        reference.seen.append([eff_lr(b, a) for b, a in zip(before, watched_values(monitor), strict=True)])
    return reference


def matrices(model: nn.Module) -> list[Tensor]:
    return [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n and "head" not in n]


OPTIMIZERS: dict[str, Make] = {
    "adamw-fused": lambda m: torch.optim.AdamW(m.parameters(), lr=1e-3, weight_decay=0.1, fused=True),
    "adamw-foreach": lambda m: torch.optim.AdamW(m.parameters(), lr=1e-3, weight_decay=0.1, foreach=True),
    "adamw-loop": lambda m: torch.optim.AdamW(m.parameters(), lr=1e-3, weight_decay=0.1, foreach=False),
    "adamw-amsgrad": lambda m: torch.optim.AdamW(m.parameters(), lr=1e-3, weight_decay=0.1, amsgrad=True),
    "adam": lambda m: torch.optim.Adam(m.parameters(), lr=1e-3),
    "adam-l2": lambda m: torch.optim.Adam(m.parameters(), lr=1e-3, weight_decay=0.1),
    "adam-maximize": lambda m: torch.optim.Adam(m.parameters(), lr=1e-3, weight_decay=0.1, maximize=True),
    "sgd": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, weight_decay=0.1),
    "sgd-momentum": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9),
    "sgd-momentum-fused": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, fused=True),
    "sgd-momentum-l2": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.1),
    "sgd-nesterov": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "sgd-maximize": lambda m: torch.optim.SGD(
        m.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1, maximize=True
    ),
    "muon": lambda m: torch.optim.Muon(matrices(m), lr=0.02),
    "muon-rms": lambda m: torch.optim.Muon(
        matrices(m), lr=0.02, nesterov=False, weight_decay=0.3, adjust_lr_fn="match_rms_adamw"
    ),
}
