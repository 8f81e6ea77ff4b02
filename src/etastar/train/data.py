"""Which tokens does step t see?

A `Corpus` answers with a pure function of (seed, step): a branch, a resumed run and another
machine see the same tokens. The corpus is cut into windows of `length` + 1 tokens that overlap by
one, so every token is a target once; an epoch visits each window once, in an order keyed by
(seed, epoch). Validation comes from documents that training never sees.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from etastar.errors import InputError
from etastar.train.corpus_order import shuffled
from etastar.train.corpus_shards import Manifest, TokenStream, check_sizes, read_manifest
from etastar.train.corpus_synthetic import SyntheticLanguage

__all__ = ["Corpus", "SyntheticCorpus"]


class Corpus:
    """Tokens to train on, tokens to validate on.

    `vocab` bounds every token, `tokens` counts the training tokens, `validation_tokens` the held-out
    ones; `identity` is a hash of the content, and goes into run ids.
    """

    def __init__(
        self, *, vocab: int, identity: str, train: TokenStream, held_out: TokenStream, name: str
    ) -> None:
        self.vocab = vocab
        self.identity = identity
        self.name = name
        self.tokens = train.tokens
        self.validation_tokens = held_out.tokens
        self._train = train
        self._held_out = held_out

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.tokens} tokens, vocabulary {self.vocab}>"

    @classmethod
    def open(cls, path: str | Path) -> Corpus:
        """Memory-map a folder made by `etastar data prepare`; shards of a wrong size are refused by name."""
        folder = Path(path)
        manifest: Manifest = read_manifest(folder)
        check_sizes(folder, manifest)
        return Corpus(
            vocab=manifest.vocab,
            identity=manifest.identity,
            train=TokenStream.map(folder, manifest.train, manifest.dtype),
            held_out=TokenStream.map(folder, manifest.validation, manifest.dtype),
            name=str(folder),
        )

    def windows(self, *, length: int) -> int:
        """How many windows of this length an epoch visits."""
        _at_least_one(length=length)
        count = (self.tokens - 1) // length
        if count < 1:
            raise InputError(
                f"corpus {self.name} has {self.tokens} training tokens, one window needs {length + 1}",
                hint="prepare more text, or train on shorter sequences",
            )
        return count

    def batch(self, *, seed: int, step: int, sequences: int, length: int) -> np.ndarray:
        """The (sequences, length + 1) int64 tokens of one step: inputs are [:, :-1], targets [:, 1:]."""
        count = self.windows(length=length)
        first = self._first(step=step, sequences=sequences)
        order = np.arange(first, first + sequences, dtype=np.int64)
        epochs, positions = np.divmod(order, count)
        for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
            here = epochs == epoch
            positions[here] = shuffled(positions[here], count=count, seed=seed, epoch=epoch)
        return self._read(self._train, positions * length, length)

    def epoch(self, *, step: int, sequences: int, length: int) -> int:
        """The epoch that the last sequence of this step belongs to: above 0, the run has repeated data."""
        first = self._first(step=step, sequences=sequences)
        return (first + sequences - 1) // self.windows(length=length)

    def validation(self, *, sequences: int, length: int) -> np.ndarray:
        """Fixed (sequences, length + 1) held-out tokens, spread evenly over the validation documents."""
        _at_least_one(sequences=sequences, length=length)
        count = max(self.validation_tokens - 1, 0) // length
        if count < sequences:
            raise InputError(
                f"corpus {self.name} has {self.validation_tokens} validation tokens, "
                f"{sequences} sequences of {length} need {sequences * length + 1}",
                hint=f"evaluate on at most {count * length} tokens, or hold out more documents",
            )
        starts = np.arange(sequences, dtype=np.int64) * count // sequences * length
        return self._read(self._held_out, starts, length)

    @staticmethod
    def _first(*, step: int, sequences: int) -> int:
        _at_least_one(sequences=sequences)
        if step < 0:
            raise InputError(f"step {step} is below 0", hint="steps are counted from 0")
        return step * sequences

    def _read(self, stream: TokenStream, starts: np.ndarray, length: int) -> np.ndarray:
        rows = stream.windows(starts, length + 1)
        if rows.max() >= self.vocab:  # an embedding lookup out of range would kill a GPU run without a reason
            row, column = np.argwhere(rows >= self.vocab)[0]
            raise InputError(
                f"{stream.name_at(int(starts[row] + column))} holds token {rows[row, column]}, "
                f"vocabulary is {self.vocab}",
                hint="check the corpus with `etastar data info --verify`, then prepare it again",
            )
        return rows


class SyntheticCorpus(Corpus):
    """A seeded language in memory, for tests: same methods, nothing to download.

    `entropy` is the loss, in nats a token, of a model that knows the language; training approaches it.
    """

    def __init__(
        self, *, vocab: int = 256, seed: int = 0, tokens: int = 1_000_000, validation_tokens: int = 65_536
    ) -> None:
        if vocab < 16:
            raise InputError(
                f"vocab {vocab} is below 16", hint="the synthetic language needs 16 tokens or more"
            )
        _at_least_one(tokens=tokens, validation_tokens=validation_tokens)
        language = SyntheticLanguage.of(vocab=vocab, seed=seed)
        train, held_out = (
            language.write(tokens=count, rng=np.random.Generator(np.random.PCG64([seed % (1 << 63), part])))
            for part, count in enumerate((tokens, validation_tokens))
        )
        content = hashlib.sha256(f"{vocab}/".encode())
        for part in (train, held_out):
            content.update(part.astype("<u4").tobytes())
        super().__init__(
            vocab=vocab,
            identity=content.hexdigest()[:32],
            train=TokenStream([train], ["synthetic train"]),
            held_out=TokenStream([held_out], ["synthetic validation"]),
            name=f"synthetic (vocabulary {vocab}, seed {seed})",
        )
        self.entropy = _entropy(language, held_out.astype(np.int64))


def _entropy(language: SyntheticLanguage, stream: np.ndarray) -> float:
    """Mean of −ln P over the tokens whose two predecessors lie in the same document."""
    before, last, token = stream[:-2], stream[1:-1], stream[2:]
    inside = (last != 0) & (token != 0)
    return float(-np.log(language.probability(before[inside], last[inside], token[inside])).mean())


def _at_least_one(**sizes: int) -> None:
    for what, value in sizes.items():
        if value < 1:
            raise InputError(f"{what} {value} is below 1", hint=f"give a positive {what}")
