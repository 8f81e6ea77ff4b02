"""What can a test train on, with structure to learn and nothing to download?

A seeded language. Each document is a walk: the next token comes from one of two sparse Zipf
tables, a coarse one that looks at the last token and a fine one that also looks at the group of
the token before it. A model first learns frequencies, then pairs, then triples, so its loss falls
over many steps and depends smoothly on the learning rate; the entropy it can reach is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_BRANCHES = 8
_GROUPS = 8
_FINE_SHARE = 0.5
_DOCUMENT = 193  # no factor in common with usual sequence lengths: documents start anywhere in a window
DOCUMENT_START = 0


@dataclass(frozen=True, kw_only=True)
class SyntheticLanguage:
    """The tables of one seed: `coarse[last]` and `fine[before % groups, last]`, followers by rank."""

    coarse: np.ndarray
    fine: np.ndarray
    rank_probabilities: np.ndarray

    @classmethod
    def of(cls, *, vocab: int, seed: int) -> SyntheticLanguage:
        """Draw followers with Zipf frequencies, so that unigrams are skewed as in text."""
        rng = np.random.Generator(np.random.PCG64([seed % (1 << 63), vocab, 0x5E7A]))
        weights = 1.0 / np.arange(1, vocab)  # token 0 never follows: it starts documents alone
        words = rng.permutation(np.arange(1, vocab))
        draw = np.cumsum(weights) / weights.sum()
        rank = 1.0 / np.arange(1, _BRANCHES + 1) ** 1.5

        def followers(*shape: int) -> np.ndarray:
            return words[np.searchsorted(draw, rng.random(shape))]

        return cls(
            coarse=followers(vocab, _BRANCHES),
            fine=followers(_GROUPS, vocab, _BRANCHES),
            rank_probabilities=rank / rank.sum(),
        )

    def write(self, *, tokens: int, rng: np.random.Generator) -> np.ndarray:
        """A stream of whole documents, cut to `tokens`; all documents are walked at once."""
        documents = -(-tokens // _DOCUMENT)
        ranks = np.searchsorted(np.cumsum(self.rank_probabilities)[:-1], rng.random((_DOCUMENT, documents)))
        from_fine = rng.random((_DOCUMENT, documents)) < _FINE_SHARE
        stream = np.empty((_DOCUMENT, documents), dtype=np.uint32)
        before = last = stream[0] = np.full(documents, DOCUMENT_START)
        for position in range(1, _DOCUMENT):
            rank = ranks[position]
            token = np.where(
                from_fine[position], self.fine[before % _GROUPS, last, rank], self.coarse[last, rank]
            )
            stream[position] = token
            before, last = last, token
        return np.ascontiguousarray(stream.T).reshape(-1)[:tokens]

    def probability(self, before: np.ndarray, last: np.ndarray, token: np.ndarray) -> np.ndarray:
        """P(token | before, last) inside a document: the language's own model of itself."""
        fine = (self.fine[before % _GROUPS, last] == token[..., None]) @ self.rank_probabilities
        coarse = (self.coarse[last] == token[..., None]) @ self.rank_probabilities
        return _FINE_SHARE * fine + (1 - _FINE_SHARE) * coarse
