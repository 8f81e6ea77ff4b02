"""Are losses smooth in the learning rate, and how fast and how big is a step, on this machine?

    python bench/train_study.py smooth --corpus CORPUS --work WORK --out OUT    (11 LRs, two widths)
    python bench/train_study.py step   --out OUT                                (gpt2 at 512 × 1024)

Both print progress. `smooth` is resumable: the same command goes on from its last checkpoint in WORK; its
tables come as two parquet files a width under OUT, with a JSON of what was measured. `--toy` shrinks both
to a CPU's size. WORK holds checkpoints and must outlive the command for a resume.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

from etastar.errors import EtastarError
from etastar.store import read_runs, read_trajectories
from etastar.train.batches import open_corpus
from etastar.train.data import SyntheticCorpus
from etastar.train.engine import Engine, default_micro_batch, resolve_device
from etastar.train.loop import train
from etastar.train.optim import step_table
from etastar.train.presets import gpt2, octaves, rope
from etastar.train.progress import PlainReporter, Progress
from etastar.train.spec import DataSpec, Execution, ScheduleSpec, TrainSpec


class Meter(PlainReporter):
    """Plain lines, and the speeds that were reported."""

    def __init__(self) -> None:
        super().__init__(interval=10.0)
        self.speeds: list[float] = []

    def progress(self, progress: Progress) -> None:
        self.speeds.append(progress.tokens_per_second)
        super().progress(progress)


def smooth(given: argparse.Namespace) -> int:
    """Train the rope preset at two widths and describe the loss-vs-LR curves."""
    deadline = time.monotonic() + given.minutes * 60
    report: dict[str, Any] = {"machine": _machine(), "widths": {}}
    finished = True
    for width in given.widths:
        spec = _smooth_spec(width, given)
        meter, began = Meter(), time.monotonic()
        print(f"width {width}: {spec.model.params} parameters, {len(spec.lrs)} learning rates", flush=True)
        left = max(deadline - time.monotonic(), 1.0)
        result = train(spec, given.work / f"rope-{width}", reporter=meter, stop_after=left)
        seconds = time.monotonic() - began
        _tables(given.work / f"rope-{width}", given.out, f"rope-{width}")
        report["widths"][width] = {
            "params": spec.model.params,
            "seconds": seconds,
            "tokens_per_second_median": statistics.median(meter.speeds) if meter.speeds else None,
            "finished": result.finished,
            "curves": _curves(result.runs.to_pylist()),
        }
        finished &= result.finished
        _write(given.out / "smooth.json", report)
    return 0 if finished else 3


def _smooth_spec(width: int, given: argparse.Namespace) -> TrainSpec:
    if given.toy:
        return rope(
            width=64,
            layers=2,
            lrs=octaves(-10, -6),
            horizons=(60, 100),
            schedule=ScheduleSpec(warmup_steps=10, decay_steps=20),
            vocab=256,
            context=64,
            batch_sequences=8,
            eval_tokens=16_384,
            execution=Execution(log_every=10, checkpoint_every=50),
        )
    data = DataSpec(corpus=given.corpus)
    return rope(
        width=width,
        layers=4,
        lrs=octaves(given.low, given.high, per_octave=2),
        horizons=(2000, 4000),
        data=data,
        vocab=math.ceil(open_corpus(data).vocab / 64) * 64,
        context=256,
        batch_sequences=32,
        execution=Execution(log_every=50, checkpoint_every=1000, compile=given.compile, cuda_graph=given.cuda_graph),
    )


def _curves(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """For each horizon: losses in the order of the LR, where the lowest is, how far a cubic misses them."""
    curves = {}
    for horizon in sorted({row["steps"] for row in rows}):
        cells = sorted((row for row in rows if row["steps"] == horizon), key=lambda row: row["lr"])
        good = [cell for cell in cells if cell["status"] == "finished"]
        log2_lr = np.log2([cell["lr"] for cell in good])
        loss = np.array([cell["loss"] for cell in good])
        misfit = None
        if len(good) > 4:
            misfit = float(np.sqrt(np.mean((np.polyval(np.polyfit(log2_lr, loss, 3), log2_lr) - loss) ** 2)))
        lowest = int(np.argmin(loss)) if len(good) else -1
        curves[str(horizon)] = {
            "log2_lr": [math.log2(cell["lr"]) for cell in cells],
            "loss": [cell["loss"] for cell in cells],
            "mean_eff_lr": [cell["mean_eff_lr"] for cell in cells],
            "diverged": sum(cell["status"] == "diverged" for cell in cells),
            "minimum_inside": 0 < lowest < len(good) - 1,
            "turns": int(np.sum(np.diff(np.sign(np.diff(loss))) != 0)),  # 1: down, then up
            "cubic_rms": misfit,
        }
        shown = " ".join(f"{cell['loss']:.4f}" for cell in cells)
        print(
            f"  horizon {horizon}: {shown} | turns {curves[str(horizon)]['turns']} cubic rms {misfit}",
            flush=True,
        )
    return curves


def step(given: argparse.Namespace) -> int:
    """Time single steps of the gpt2 preset at the paper's batch, by micro-batches."""
    execution = Execution(micro_batch=given.micro_batch, compile=given.compile)
    schedule = ScheduleSpec(warmup_steps=given.steps // 4, decay_steps=given.steps // 4)
    lrs = octaves(-10, -10 + given.stack - 1)
    spec = gpt2(width=given.width, lrs=lrs, horizons=(given.steps,), schedule=schedule, execution=execution)
    if given.toy:
        small = {"layers": 2, "head_dim": 32, "width": 64, "vocab": 256, "context": 32}
        update = {"model": spec.model.model_copy(update=small), "batch_sequences": 8}
        spec = spec.model_copy(update=update)
    torch.set_num_threads(execution.threads)
    device = resolve_device(execution)
    corpus = SyntheticCorpus(vocab=spec.model.vocab, tokens=min(2_000_000, spec.batch_tokens * given.steps))
    micro = execution.micro_batch or default_micro_batch(spec, device)
    engine = Engine(spec, device=device, micro_batch=micro)
    state = engine.fresh_state()
    table = step_table(spec, start=0, stop=given.steps, horizon=given.steps, device=device)
    print(f"{spec.model.params} parameters × {given.stack}, micro-batches of {micro} on {device}", flush=True)
    seconds, losses = [], []
    for index in range(given.steps):
        size = {"sequences": spec.batch_sequences, "length": spec.model.context}
        batch = torch.from_numpy(corpus.batch(seed=0, step=index, **size)).to(device)
        _settle(device)
        began = time.perf_counter()
        result = engine.step(state, batch, table[index])
        _settle(device)
        seconds.append(time.perf_counter() - began)
        losses.append(result.loss.tolist())
        print(f"step {index}: {seconds[-1]:.3f} s, loss {losses[-1]}", flush=True)
    steady = statistics.median(seconds[len(seconds) // 4 :])  # the first steps compile
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else None
    tokens = spec.batch_tokens * given.stack
    report = {
        "machine": _machine(),
        "params": spec.model.params,
        "stack": given.stack,
        "batch_tokens": spec.batch_tokens,
        "micro_batch": micro,
        "first_step_seconds": seconds[0],
        "step_seconds_median": steady,
        "tokens_per_second": tokens / steady,
        "model_tflops": 6 * spec.model.params * tokens / steady / 1e12,
        "peak_memory_gib": None if peak is None else peak / 2**30,
        "losses": losses,
    }
    print({name: value for name, value in report.items() if name != "losses"}, flush=True)
    _write(given.out / f"step-{given.width}.json", report)
    return 0


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _machine() -> dict[str, str]:
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {"device": name, "torch": torch.__version__}


def _tables(study: Path, out: Path, name: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for kind, table in (("runs", read_runs(study)), ("trajectories", read_trajectories(study))):
        pq.write_table(table, out / f"{name}-{kind}.parquet", compression="zstd")


def _write(path: Path, report: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1))


def main() -> int:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("smooth", "step"))
    parser.add_argument("--corpus", help="a corpus folder")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("out/bench-train"))
    parser.add_argument("--minutes", type=float, default=8.0, help="save and stop after so long")
    parser.add_argument("--widths", type=int, nargs="+", default=[128, 256])
    parser.add_argument("--low", type=float, default=-11.0, help="log2 of the lowest learning rate")
    parser.add_argument("--high", type=float, default=-6.0, help="log2 of the highest")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--stack", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--micro-batch", type=int)
    parser.add_argument("--compile", default="auto", choices=("auto", "off", "default", "max-autotune"))
    parser.add_argument("--cuda-graph", action="store_true", help="smooth: record and replay the step")
    parser.add_argument("--toy", action="store_true")
    given = parser.parse_args()
    try:
        return smooth(given) if given.what == "smooth" else step(given)
    except EtastarError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
