"""How does a small model keep a GPU busy when launching kernels takes longer than running them?

`GraphedStep` records one whole step as a CUDA graph and replays it: one launch a step. The step reads no
value back and every tensor of the state stays where it is, which is what a recording needs. The recording
belongs to one state and one batch shape; another state is recorded anew.
"""

from __future__ import annotations

import torch
from torch import Tensor

from etastar.train.engine import Engine, StepResult
from etastar.train.spec import TrainSpec
from etastar.train.state import TrainState

# Operations of a step below which launching its kernels one by one is slower than running them.
_SMALL_STEP = 1e13
_WARM_UP = 3  # steps before the recording: compilation, and the libraries' first-use allocations


def uses_graph(spec: TrainSpec, device: torch.device, ranks: int) -> bool:
    """Whether steps are recorded: as the spec says, and by itself where a step is small; one CUDA device alone."""
    if device.type != "cuda" or ranks > 1:
        return False
    asked = spec.execution.cuda_graph
    return 6.0 * spec.model.params * spec.batch_tokens * len(spec.lrs) < _SMALL_STEP if asked is None else asked


class GraphedStep:
    """`Engine.step`, recorded on its first call with a state and replayed from then on."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._state: TrainState | None = None

    def step(self, state: TrainState, batch: Tensor, row: Tensor) -> StepResult:
        """One optimizer step, as `Engine.step` takes it."""
        if self._state is not state or self._batch.shape != batch.shape:
            self._record(state, batch, row)
        self._batch.copy_(batch)
        self._row.copy_(row)
        self._graph.replay()
        # The recording writes its results to the same place every time: what is kept must be a copy.
        seen = self._result
        return StepResult(seen.loss.clone(), seen.statistics.clone(), seen.alive.clone())

    def _record(self, state: TrainState, batch: Tensor, row: Tensor) -> None:
        """Warm up and record on copies of the inputs, then put the state back as it was."""
        self._state, self._batch, self._row = state, batch.clone(), row.clone()
        before = {name: tensor.clone() for name, tensor in state.tensors().items()}
        side = torch.cuda.Stream(self._engine.device)
        side.wait_stream(torch.cuda.current_stream(self._engine.device))
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                self._engine.step(state, self._batch, self._row)
        torch.cuda.current_stream(self._engine.device).wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._result = self._engine.step(state, self._batch, self._row)
        for name, tensor in state.tensors().items():
            tensor.copy_(before[name])
        state.refresh()
