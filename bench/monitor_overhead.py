"""What does StepMonitor cost on every step, in time and memory?

    python bench/monitor_overhead.py [--rounds 5] [--steps 30] [--batch 32] [--plain]

CUDA: GPT-2 124M, 32 × 1024 tokens, torch.compile, bf16 autocast, fused AdamW. Off, snapshot and
reconstruct take turns in blocks of steps on one model; times are between device events, medians over all steps
of all blocks; one step in ten is logged. Memory is the allocator's peak. The bars: 3 % of time, 5 % of memory.
On a CPU a small model shows the same as a ratio, in the process's own time, since a neighbour takes from the clock.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from etastar.monitor import StepMonitor

TIME_BAR, MEMORY_BAR = 0.03, 0.05
VARIANTS = ("off", "snapshot", "reconstruct")
LOG_EVERY = 10


class Block(nn.Module):
    """Attention and MLP of GPT-2."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """One block."""
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2 with a tied head."""

    def __init__(self, *, width: int, layers: int, heads: int, vocab: int, context: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean loss."""
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


@dataclass
class Seen:
    """What one variant took."""

    steps: list[float] = field(default_factory=list)  # ms
    optimizer: list[float] = field(default_factory=list)  # ms inside optimizer.step, hooks included
    peak: int = 0
    bytes_per_parameter: float = 0.0


class Clock:
    """Times between marks, in ms: device events on CUDA, else the process's own time."""

    def __init__(self, cuda: bool) -> None:
        self.cuda = cuda

    def mark(self) -> object:
        """Now."""
        if not self.cuda:
            return time.process_time()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, start: object, stop: object) -> float:
        """Milliseconds."""
        return start.elapsed_time(stop) if self.cuda else 1e3 * (stop - start)  # type: ignore[attr-defined, operator]


def block_of_steps(
    variant: str, steps: int, model: Gpt, optimizer: torch.optim.Optimizer, loss_of: Callable[[], Tensor], seen: Seen
) -> None:
    """Some steps under one variant, the first five not counted."""
    cuda = next(model.parameters()).is_cuda
    monitor = None
    if variant != "off":
        monitor = StepMonitor(optimizer, model, mode=variant, log_every=LOG_EVERY, sinks=[])  # type: ignore[arg-type]
        seen.bytes_per_parameter = monitor.memory().bytes_per_parameter
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    clock, marks = Clock(cuda), []
    for step in range(5 + steps):
        begin = clock.mark()
        loss_of().backward()
        before = clock.mark()
        if cuda and monitor is not None and step % LOG_EVERY:
            torch.cuda.set_sync_debug_mode("error")  # the host must not wait on a step that is not logged
        optimizer.step()
        if cuda:
            torch.cuda.set_sync_debug_mode("default")
        after = clock.mark()
        optimizer.zero_grad(set_to_none=True)
        marks.append((begin, before, after, clock.mark()))
    if cuda:
        torch.cuda.synchronize()
        seen.peak = max(seen.peak, torch.cuda.max_memory_allocated())
    seen.steps += [clock.between(a, d) for a, _, _, d in marks[5:]]
    seen.optimizer += [clock.between(b, c) for _, b, c, _ in marks[5:]]
    if monitor is not None:
        monitor.close()
    del monitor
    gc.collect()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--plain", action="store_true", help="without torch.compile")
    chosen = parser.parse_args()
    cuda = torch.cuda.is_available()
    device = "cuda" if cuda else "cpu"
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    shape = (
        {"width": 768, "layers": 12, "heads": 12, "vocab": 50304, "context": 1024}
        if cuda
        else {"width": 128, "layers": 4, "heads": 2, "vocab": 512, "context": 128}
    )
    batch = chosen.batch if cuda else 8
    model = Gpt(**shape).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, betas=(0.9, 0.95), fused=True)
    run = torch.compile(model) if cuda and not chosen.plain else model
    tokens = torch.randint(shape["vocab"], (batch, shape["context"] + 1), device=device)

    def loss_of() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=cuda):
            return run(tokens[:, :-1], tokens[:, 1:].contiguous())

    found = {variant: Seen() for variant in VARIANTS}
    block_of_steps("off", 5, model, optimizer, loss_of, Seen())  # compiles, and makes the optimizer's state
    for turn in range(chosen.rounds):
        order = VARIANTS if turn % 2 == 0 else VARIANTS[::-1]
        for variant in order:
            block_of_steps(variant, chosen.steps, model, optimizer, loss_of, found[variant])
    report(found, model, batch * shape["context"], cuda)
    agree(model, optimizer, loss_of)


def report(found: dict[str, Seen], model: Gpt, tokens: int, cuda: bool) -> None:
    """The table and the bars."""
    where = torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} threads"
    count = sum(p.numel() for p in model.parameters())
    print(f"{where}, torch {torch.__version__}, {count / 1e6:.1f}M parameters, {tokens} tokens a step")
    print(
        f"{'monitor':<12} {'step ms':>9} {'mean ms':>9} {'over':>8} {'optimizer ms':>13} {'over step':>10} {'peak GiB':>9} {'over':>8} {'bytes/param':>12}"
    )
    base = found["off"]
    missed = []
    for variant, seen in found.items():
        median, mean = statistics.median(seen.steps), statistics.mean(seen.steps)
        slower = median / statistics.median(base.steps) - 1
        inside = statistics.median(seen.optimizer)
        larger = seen.peak / base.peak - 1 if base.peak else float("nan")
        print(
            f"{variant:<12} {median:9.3f} {mean:9.3f} {slower:8.2%} {inside:13.3f} "
            f"{(inside - statistics.median(base.optimizer)) / statistics.median(base.steps):10.2%} "
            f"{seen.peak / 2**30:9.3f} {larger:8.2%} {seen.bytes_per_parameter:12.2f}"
        )
        if variant != "off":
            missed += [f"{variant} time"] * (slower > TIME_BAR) + [f"{variant} memory"] * (larger > MEMORY_BAR)
    if cuda:
        print("no host wait on steps that are not logged (sync debug mode: error)")
        print("bars (time 3 %, memory 5 %): " + (f"missed: {', '.join(missed)}" if missed else "met"))


def agree(model: Gpt, optimizer: torch.optim.Optimizer, loss_of: Callable[[], Tensor]) -> None:
    """Both modes on the same steps."""
    modes = ("snapshot", "reconstruct")
    monitors = [StepMonitor(optimizer, model, mode=mode, log_every=None, sinks=[]) for mode in modes]
    for _ in range(10):
        loss_of().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    means = [monitor.mean_eff_lr for monitor in monitors]
    print(
        f"mean eff. LR of ten steps: snapshot {means[0]:.8e}, reconstruct {means[1]:.8e} ({means[1] / means[0] - 1:+.1e})"
    )


if __name__ == "__main__":
    main()
