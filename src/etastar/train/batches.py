"""How do the tokens of a step reach the device before the device waits for them?

Opens a spec's corpus, checks that it fits the model, and fetches one batch ahead in a thread. A batch is
a pure function of (seed, step); a rank takes its own rows of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from etastar.errors import SpecError
from etastar.train.corpus_default import default_corpus
from etastar.train.data import Corpus, SyntheticCorpus
from etastar.train.spec import DEFAULT_CORPUS, DataSpec, TrainSpec

VOCAB_PADDING = 128  # a model's vocabulary may be rounded up by less than this (50257 → 50304)


def open_corpus(data: DataSpec) -> Corpus:
    """The corpus a spec names."""
    if data.corpus == DEFAULT_CORPUS:
        return default_corpus(vocab=data.default_vocab)
    if data.corpus is not None:
        return Corpus.open(data.corpus)
    return SyntheticCorpus(
        vocab=data.synthetic_vocab,
        seed=data.synthetic_seed,
        tokens=data.synthetic_tokens,
        validation_tokens=data.synthetic_validation_tokens,
    )


def check_corpus(spec: TrainSpec, corpus: Corpus) -> None:
    """Refuse a corpus whose vocabulary or length does not fit, before anything is trained."""
    if not corpus.vocab <= spec.model.vocab < corpus.vocab + VOCAB_PADDING:
        raise SpecError(
            f"model.vocab: {spec.model.vocab}, but the corpus has a vocabulary of {corpus.vocab}",
            hint=f"set model.vocab: {corpus.vocab}, or round it up by less than {VOCAB_PADDING}",
        )
    corpus.batch(seed=spec.seed, step=0, sequences=1, length=spec.model.context)
    corpus.validation(sequences=eval_sequences(spec), length=spec.model.context)


def eval_sequences(spec: TrainSpec) -> int:
    """Validation sequences of the spec's evaluation tokens."""
    return spec.eval_tokens // spec.model.context


@dataclass(frozen=True)
class Feed:
    """This rank's share of every batch, on the device."""

    spec: TrainSpec
    corpus: Corpus
    device: torch.device
    rank: int = 0
    ranks: int = 1

    def batches(self, start: int, stop: int) -> Iterator[Tensor]:
        """Batches of steps start … stop−1, each fetched while the one before is in use."""
        with ThreadPoolExecutor(max_workers=1) as ahead:
            coming = ahead.submit(self._rows, start)
            for step in range(start, stop):
                rows = coming.result()
                if step + 1 < stop:
                    coming = ahead.submit(self._rows, step + 1)
                yield rows.to(self.device, non_blocking=True)

    def validation(self) -> Tensor:
        """This rank's rows of the fixed validation set, on the CPU."""
        rows = self.corpus.validation(sequences=eval_sequences(self.spec), length=self.spec.model.context)
        return torch.from_numpy(rows[self.rank :: self.ranks].copy())

    def epochs(self, horizon: int) -> int:
        """Epochs that a run of `horizon` steps touches: above one, it has seen data again."""
        size = {"sequences": self.spec.batch_sequences, "length": self.spec.model.context}
        return self.corpus.epoch(step=horizon - 1, **size) + 1

    def _rows(self, step: int) -> Tensor:
        rows = self.corpus.batch(
            seed=self.spec.seed,
            step=step,
            sequences=self.spec.batch_sequences,
            length=self.spec.model.context,
        )
        tensor = torch.from_numpy(rows[self.rank :: self.ranks].copy())
        return tensor.pin_memory() if self.device.type == "cuda" else tensor
