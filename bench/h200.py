"""How fast is a step against nanoGPT's on the same shape, and how far from the floor?

    python bench/h200.py --nanogpt PATH [--shapes w256,w768,...] [--out OUT] [--profile]
    python bench/h200.py --scaling [--out OUT]                      (cost against stack, width and batch)

PATH is a checkout of karpathy/nanoGPT (its model.py is imported as it is). Both train the same GPT on the same
random tokens in one process: bf16 products, AdamW, no clipping; nanoGPT under torch.compile with the fused AdamW. nanoGPT
trains one learning rate at a time, etastar the whole stack. Times are medians over steps between device events,
after a warm-up. MFU counts 6N + 12·L·d·T operations a token against 990 TFLOP/s; the floor is the larger
of operations (causal attention counted half) over the measured product rate and bytes over the measured copy rate.
Every shape is followed by the times of its parts, and statistics on every step against none.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from etastar.train.engine import Engine
from etastar.train.graph import GraphedStep
from etastar.train.head import CHUNK_ELEMENTS, losses_and_grads
from etastar.train.kernel_step import FusedStep
from etastar.train.optim import rule_for, step_table
from etastar.train.presets import octaves, rope
from etastar.train.spec import EmbeddingSpec, Execution, ModelSpec, OptimizerSpec, ScheduleSpec, TrainSpec

PEAK = 990e12  # dense bf16 by the datasheet: what MFU is stated against


@dataclass(frozen=True)
class Shape:
    """One row of the table."""

    name: str
    width: int
    layers: int
    head_dim: int
    vocab: int
    context: int
    batch: int
    stack: int

    @property
    def tokens(self) -> int:
        """Tokens a step of one model."""
        return self.batch * self.context

    @property
    def flops(self) -> float:
        """Operations a token by the usual count, attention not halved."""
        blocks = 12 * self.layers * self.width**2 + self.vocab * self.width
        return 6.0 * blocks + 12.0 * self.layers * self.width * self.context


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("w256", 256, 12, 128, 50304, 1024, 64, 1),
        Shape("w768", 768, 12, 128, 50304, 1024, 32, 1),
        Shape("w2048", 2048, 12, 128, 50304, 1024, 16, 1),
        Shape("stack128", 128, 4, 64, 4096, 256, 64, 12),
        Shape("stack256", 256, 6, 64, 8192, 256, 64, 12),
    )
}


def timed(step: Callable[[], Any], *, steps: int, warm: int) -> float:
    """Median seconds of a step."""
    for _ in range(warm):
        step()
    torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in pairwise(marks)) / 1e3


def ceilings() -> tuple[float, float]:
    """Measured operations/s of a large bf16 product on random data, and bytes/s of a large copy."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = timed(lambda: a @ b, steps=30, warm=10)
    source = torch.randn(2**29, device="cuda")
    target = torch.empty_like(source)
    copy = timed(lambda: target.copy_(source), steps=20, warm=5)
    return 2 * 8192**3 / product, 2 * source.nbytes / copy


def floor_seconds(shape: Shape, product_rate: float, copy_rate: float) -> tuple[float, float]:
    """Seconds for a stack's step by operations alone and by bytes alone."""
    causal = shape.flops - 6.0 * shape.layers * shape.width * shape.context
    d = shape.width
    # Each activation that a layer must keep: written, read forward, read backward, its gradient written and read.
    layer = 5 * (14 * d * 2 + 2 * d * 4)
    head = 5 * shape.vocab * 2  # logits: written, read, gradient written, read by two products
    matrices = 12 * shape.layers * d**2 + shape.vocab * d
    state = matrices * (8 + 16 + 4 + 2)  # weight, two moments, gradient, copy
    size = shape.stack * (shape.tokens * (shape.layers * layer + head) + state)
    return shape.stack * shape.tokens * causal / product_rate, size / copy_rate


def spec_of(shape: Shape, execution: Execution) -> TrainSpec:
    """The shape as the paper's GPT: learned positions, LayerNorm with gains, tied embedding."""
    return TrainSpec(
        name=shape.name,
        model=ModelSpec(
            width=shape.width,
            layers=shape.layers,
            head_dim=shape.head_dim,
            vocab=shape.vocab,
            context=shape.context,
        ),
        optimizer=OptimizerSpec(beta1=0.9, beta2=0.95),
        embedding=EmbeddingSpec(),
        schedule=ScheduleSpec(kind="constant", warmup_steps=0),
        lrs=octaves(-12, -12 + shape.stack / 4 - 0.25, per_octave=4) if shape.stack > 1 else (2.0**-11,),
        horizons=(10_000,),
        batch_sequences=shape.batch,
        eval_tokens=shape.context,
        execution=execution,
    )


class Ours:
    """etastar's step on one shape."""

    def __init__(self, shape: Shape, execution: Execution) -> None:
        self.spec = spec_of(shape, execution)
        device = torch.device("cuda")
        micro = execution.micro_batch or shape.batch
        self.engine = Engine(self.spec, device=device, micro_batch=micro)
        self.state = self.engine.fresh_state()
        self.rows = step_table(self.spec, start=0, stop=4, horizon=None, device=device)
        self.batch = torch.randint(0, shape.vocab, (shape.batch, shape.context + 1), device=device)
        self.graphed = GraphedStep(self.engine)

    def eager(self) -> None:
        """One step, kernels launched one by one."""
        self.engine.step(self.state, self.batch, self.rows[3])

    def graph(self) -> None:
        """One step, replayed."""
        self.graphed.step(self.state, self.batch, self.rows[3])

    def statistics_cost(self, steps: int) -> float:
        """What statistics on every step add to a recorded step, as a fraction; the two are timed in turns."""
        engine = Engine(self.spec, device=self.engine.device, micro_batch=self.engine.micro_batch)
        quiet_rules = {name: rule_for(self.spec, name) for name in self.state.params}
        quiet, nothing = FusedStep(quiet_rules, statistics=False), None

        def move(*given: Any) -> torch.Tensor:
            nonlocal nothing
            quiet(*given)
            if nothing is None:
                nothing = torch.zeros(len(self.spec.lrs), 1, 6, device=engine.device, dtype=torch.float64)
            return nothing

        engine._move = move
        without = GraphedStep(engine)
        times: dict[str, list[float]] = {"with": [], "without": []}
        for _ in range(3):
            times["with"].append(timed(self.graph, steps=steps, warm=5))
            times["without"].append(
                timed(lambda: without.step(self.state, self.batch, self.rows[3]), steps=steps, warm=5)
            )
        return statistics.median(times["with"]) / statistics.median(times["without"]) - 1

    def parts(self, steps: int) -> dict[str, float]:
        """Median milliseconds of forward, loss, backward, gradient norms and optimizer with and without statistics."""
        engine, state, row = self.engine, self.state, self.rows[3]
        leaves = state.leaves()
        tokens, targets = self.batch[:, :-1].contiguous(), self.batch[:, 1:].reshape(-1)
        names = ("forward", "loss", "backward", "norms", "optimizer", "optimizer without statistics")
        spent: dict[str, list[float]] = {name: [] for name in names}
        quiet = FusedStep({name: rule_for(self.spec, name) for name in state.params}, statistics=False)
        for turn in range(steps + 5):
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(len(names) + 1)]
            marks[0].record()
            done = engine._model.forward(leaves, tokens)
            marks[1].record()
            with torch.no_grad():
                _, to_hidden, to_table = losses_and_grads(
                    done.hidden.detach(), state.table(), targets, total=targets.numel(), errors=engine._errors,
                    logits=engine._logits,
                )  # fmt: skip
            marks[2].record()
            grads = engine._model.backward(leaves, done, to_hidden, to_table)
            marks[3].record()
            with torch.no_grad():
                norms = engine._norms(grads)
                marks[4].record()
                weights = {name: weight.detach() for name, weight in state.params.items()}
                shadow = {name: weight.detach() for name, weight in state.shadow.items()}
                rest = (weights, grads, state.optimizer, engine.lrs, row, norms > 0, None, shadow)
                engine._move(*rest)
                marks[5].record()
                quiet(*rest)
                marks[6].record()
            torch.cuda.synchronize()
            if turn >= 5:
                for name, a, b in zip(names, marks[:-1], marks[1:], strict=True):
                    spent[name].append(a.elapsed_time(b))
        return {name: round(statistics.median(values), 3) for name, values in spent.items()}


class Peer:
    """nanoGPT's step on one shape, as its train.py takes it, without clipping."""

    def __init__(self, shape: Shape, path: Path) -> None:
        sys.path.insert(0, str(path))
        from model import GPT, GPTConfig  # pyright: ignore[reportMissingImports]

        config = GPTConfig(
            block_size=shape.context,
            vocab_size=shape.vocab,
            n_layer=shape.layers,
            n_head=shape.width // shape.head_dim,
            n_embd=shape.width,
            dropout=0.0,
            bias=False,
        )
        model = GPT(config).cuda()
        self.optimizer = model.configure_optimizers(0.1, 2.0**-11, (0.9, 0.95), "cuda")
        self.model: Any = torch.compile(model)
        batch = torch.randint(0, shape.vocab, (shape.batch, shape.context + 1), device="cuda")
        self.x, self.y = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()

    def step(self) -> None:
        """One step."""
        with torch.autocast("cuda", torch.bfloat16):
            _, loss = self.model(self.x, self.y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def measure(shape: Shape, given: argparse.Namespace, rates: tuple[float, float]) -> dict[str, Any]:
    """One shape: the peer, then the stack; times, memory, parts."""
    row: dict[str, Any] = asdict(shape)
    if given.nanogpt:
        torch.cuda.reset_peak_memory_stats()
        began = time.monotonic()
        peer = Peer(shape, given.nanogpt)
        first = _first(peer.step, began)
        row["peer"] = _rates(shape, timed(peer.step, steps=given.steps, warm=10), stack=1) | first
        if given.profile:
            _profile(peer.step, f"nanoGPT {shape.name}")
        del peer
        _clear()
    torch.cuda.reset_peak_memory_stats()
    began = time.monotonic()
    execution = Execution(device="cuda", kernels=given.kernels, residual=given.residual, micro_batch=given.micro_batch)
    ours = Ours(shape, execution)
    first = _first(ours.eager, began)
    row["eager"] = _rates(shape, timed(ours.eager, steps=given.steps, warm=10), stack=shape.stack) | first
    if given.profile:
        _profile(ours.eager, f"etastar {shape.name}")
    if given.kernels != "plain" and not given.micro_batch:
        row["parts_ms"] = ours.parts(20)
    seconds = timed(ours.graph, steps=given.steps, warm=10)
    row["graph"] = _rates(shape, seconds, stack=shape.stack)
    if given.kernels != "plain":
        row["statistics"] = ours.statistics_cost(given.steps)
    if given.fp8:
        del ours
        _clear()
        torch.cuda.reset_peak_memory_stats()
        ours = Ours(shape, execution.model_copy(update={"head": "fp8"}))
        row["fp8 head"] = _rates(shape, timed(ours.eager, steps=given.steps, warm=10), stack=shape.stack)
    ops, size = floor_seconds(shape, *rates)
    row["floor"] = {"operations_ms": ops * 1e3, "bytes_ms": size * 1e3}
    del ours
    _clear()
    _print(row)
    return row


def scaling(given: argparse.Namespace) -> int:
    """Tokens/s of the `rope` preset against the stack, the width and the batch, one at a time from a base."""
    rows = []
    base = {"width": 128, "stack": 11, "sequences": 32}
    tries = [base | {"stack": stack} for stack in (1, 2, 4, 8, 11, 16, 24)]
    tries += [base | {"width": width} for width in (192, 256, 384, 512)]
    tries += [base | {"sequences": sequences} for sequences in (8, 16, 64, 128)]
    for one in tries:
        spec = rope(
            width=one["width"],
            lrs=octaves(-12, -12 + (one["stack"] - 1) / 4, per_octave=4),
            batch_sequences=one["sequences"],
            execution=Execution(device="cuda", residual="fp32"),
        )
        engine = Engine(spec, device=torch.device("cuda"), micro_batch=one["sequences"])
        state, graphed = engine.fresh_state(), GraphedStep(engine)
        table = step_table(spec, start=300, stop=301, horizon=None, device=engine.device)
        batch = torch.randint(0, spec.model.vocab, (one["sequences"], spec.model.context + 1), device="cuda")
        began = time.monotonic()
        seconds = timed(partial(graphed.step, state, batch, table[0]), steps=given.steps, warm=5)
        rate = spec.batch_tokens * one["stack"] / seconds
        rows.append(one | {"ms": seconds * 1e3, "tokens_per_second": rate, "first_steps_s": time.monotonic() - began})
        print(
            f"width {one['width']:4d}  stack {one['stack']:3d}  batch {spec.batch_tokens:6d} tokens: "
            f"{seconds * 1e3:7.2f} ms  {rate / 1e6:7.2f}M tokens/s",
            flush=True,
        )
        del engine, state, graphed
        _clear()
        _write(given.out, "scaling.json", rows)
    return 0


def _write(out: Path | None, name: str, content: Any) -> None:
    if out:
        out.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(json.dumps(content, indent=1))


def _first(step: Callable[[], Any], began: float) -> dict[str, float]:
    """What the first step took: building, compiling or reading what was compiled before."""
    step()
    torch.cuda.synchronize()
    return {"first_step_s": time.monotonic() - began}


def _rates(shape: Shape, seconds: float, *, stack: int) -> dict[str, float]:
    rate = shape.tokens * stack / seconds
    return {
        "ms": seconds * 1e3,
        "tokens_per_second": rate,
        "mfu": rate * shape.flops / PEAK,
        "memory_gib": torch.cuda.max_memory_allocated() / 2**30,
    }


def _print(row: dict[str, Any]) -> None:
    floor = max(row["floor"].values())
    print(f"\n{row['name']}: floor {floor:.2f} ms ({row['floor']})", flush=True)
    base = row.get("peer")
    for name in ("peer", "eager", "graph", "fp8 head"):
        if name in row:
            one = row[name]
            ratio = one["tokens_per_second"] / base["tokens_per_second"] if base else float("nan")
            print(
                f"  {name:8s} {one['ms']:8.2f} ms  {one['tokens_per_second'] / 1e6:7.3f}M tokens/s  "
                f"MFU {one['mfu']:5.1%}  {one['memory_gib']:6.1f} GiB  {ratio:5.2f}x"
                + (f"  (first step after {one['first_step_s']:.1f} s)" if "first_step_s" in one else ""),
                flush=True,
            )
    if "statistics" in row:
        print(f"  statistics on every step: {row['statistics']:+.1%} of the step", flush=True)
    if "parts_ms" in row:
        print(f"  parts: {row['parts_ms']}", flush=True)


def _profile(step: Callable[[], Any], title: str) -> None:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    events = sorted(seen.key_averages(), key=lambda event: -event.device_time_total)
    whole = sum(event.device_time_total for event in events)
    print(f"\n-- {title}: {whole / 3e3:.2f} ms of kernels a step")
    for event in events[:28]:
        print(f"   {event.device_time_total / 3e3:7.3f} ms  {event.count // 3:4d}x  {event.key[:110]}")


def _clear() -> None:
    gc.collect()
    torch._dynamo.reset()
    torch.cuda.empty_cache()


def main() -> int:
    """Measure the shapes that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nanogpt", type=Path, help="a checkout of nanoGPT")
    parser.add_argument("--scaling", action="store_true", help="cost against stack, width and batch; no peer")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--kernels", default="auto", choices=("auto", "plain", "triton"))
    parser.add_argument("--residual", default="auto", choices=("auto", "fp32"))
    parser.add_argument("--micro-batch", type=int)
    parser.add_argument("--fp8", action="store_true", help="a row with the head's logits in fp8 beside the others")
    parser.add_argument("--profile", action="store_true", help="print the longest kernels of both")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--chunk", type=int, help="log2 of the logits in a chunk, to try another")
    given = parser.parse_args()
    if given.chunk:
        CHUNK_ELEMENTS["cuda"] = 2**given.chunk
    if not torch.cuda.is_available():
        print("error: no CUDA device\nhint: run it on a machine with a GPU", file=sys.stderr)
        return 2
    if given.scaling:
        return scaling(given)
    torch.set_float32_matmul_precision("high")
    rates = ceilings()
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}: products {rates[0] / 1e12:.0f} TFLOP/s, "
        f"copy {rates[1] / 1e12:.2f} TB/s",
        flush=True,
    )
    rows = []
    for name in given.shapes.split(","):
        rows.append(measure(SHAPES[name], given, rates))
        _write(given.out, "h200.json", {"rates": rates, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
