"""How fast is a step against nanoGPT's on the same shape, and how far from the floor?

    python bench/h200.py --nanogpt PATH [--shapes w256,w768,...] [--out OUT] [--profile] [--fp8]
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
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from etastar.train.engine import Engine
from etastar.train.graph import GraphedStep, uses_graph
from etastar.train.head import CHUNK_ELEMENTS
from etastar.train.optim import step_table
from etastar.train.presets import octaves, rope
from etastar.train.spec import Execution
from h200_sides import SHAPES, Ours, Peer, Shape, timed

PEAK = 990e12  # dense bf16 by the datasheet: what MFU is stated against


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
    _clear()
    torch.cuda.reset_peak_memory_stats()
    seconds = timed(ours.graph, steps=given.steps, warm=10)
    row["graph"] = _rates(shape, seconds, stack=shape.stack)
    if given.kernels != "plain":
        row["statistics"] = ours.statistics_cost(given.steps)
    if given.fp8:
        del ours
        _clear()
        torch.cuda.reset_peak_memory_stats()
        ours = Ours(shape, execution.model_copy(update={"head": "fp8"}))
        fp8 = ours.graph if uses_graph(ours.spec, ours.engine.device, 1) else ours.eager
        row["fp8 head"] = _rates(shape, timed(fp8, steps=given.steps, warm=10), stack=shape.stack)
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
