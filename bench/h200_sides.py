"""Whose steps does bench/h200.py time? etastar's on a shape, and nanoGPT's on the same."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from etastar.train.engine import Engine
from etastar.train.graph import GraphedStep
from etastar.train.head import losses_and_grads
from etastar.train.kernel_step import FusedStep
from etastar.train.optim import rule_for, step_table
from etastar.train.presets import octaves
from etastar.train.spec import EmbeddingSpec, Execution, ModelSpec, OptimizerSpec, ScheduleSpec, TrainSpec


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
                    logits_from=engine._logits,
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
            del done, to_hidden, to_table, grads  # the next turn must not hold two passes
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
