"""Which tokens will this preparation write?

Settles the tokenizer before the first token: a file, the hub's, one trained on the inputs, or,
where the inputs are tokens, only its size. It is kept in the corpus folder, and a resumed
preparation takes the kept one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from etastar.errors import InputError
from etastar.train.corpus_shards import TOKENIZER
from etastar.train.prepare_config import PrepareConfig
from etastar.train.prepare_documents import read_documents
from etastar.train.prepare_progress import Progress
from etastar.train.prepare_sources import Source
from etastar.train.prepare_tokenizer import describe, encoder, read_tokenizer_json, train_bpe
from etastar.train.prepare_writer import replace

_HELD_OUT = 1  # the second of every n documents: two documents are enough for a validation set


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Size, the token that starts a document, and, where the inputs are texts, the way to tokens."""

    size: int
    document_start: int
    encode: Callable[[list[str]], list[list[int]]] | None


def held_out(config: PrepareConfig, role: str, document: int) -> bool:
    """Does this document belong to validation?"""
    return role == "validation" or (role == "split" and document % config.validation_every == _HELD_OUT)


def settle_vocabulary(config: PrepareConfig, sources: list[Source], progress: Progress) -> Vocabulary:
    """Find, fetch or train the tokenizer, and keep it in the folder."""
    texts = sources[0].kind != "tokens"
    name = config.tokenizer or ("gpt2" if texts else None)
    if name is None:
        return _bare_vocabulary(config)
    kept = config.out / TOKENIZER
    if not kept.exists():
        replace(kept, _new_tokenizer(config, name, sources, progress))
    tokenizer_json = kept.read_text(encoding="utf-8")
    vocab, document_start = describe(tokenizer_json, name=name, document_start=config.document_start)
    if config.vocab is not None and config.vocab < vocab:
        raise InputError(
            f"--vocab {config.vocab} is below the tokenizer's {vocab}", hint="leave --vocab away, or raise it"
        )
    encode = encoder(tokenizer_json, name=name) if texts else None
    return Vocabulary(size=config.vocab or vocab, document_start=document_start, encode=encode)


def _bare_vocabulary(config: PrepareConfig) -> Vocabulary:
    if config.vocab is None:
        raise InputError(
            "the vocabulary of the token files is not known",
            hint="give the tokenizer they were made with (--tokenizer FILE), or --vocab N",
        )
    document_start = config.document_start or 0
    if document_start >= config.vocab:
        raise InputError(
            f"--document-start {document_start} is outside the vocabulary of {config.vocab}",
            hint="give the id of a token",
        )
    return Vocabulary(size=config.vocab, document_start=document_start, encode=None)


def _new_tokenizer(config: PrepareConfig, name: str, sources: list[Source], progress: Progress) -> str:
    if config.train_bpe is not None:
        progress.note(f"training a BPE of {config.train_bpe} tokens")
        trained = train_bpe(_training_texts(config, sources), vocab=config.train_bpe)
        found, _ = describe(trained, name="the new tokenizer", document_start=config.document_start)
        if found < config.train_bpe:
            progress.note(f"the text gives a BPE of {found} tokens only")
        return trained
    if not Path(name).is_file():
        progress.note(f"fetching the tokenizer {name} from the Hugging Face hub")
    return read_tokenizer_json(name)


def _training_texts(config: PrepareConfig, sources: list[Source]) -> Iterator[str]:
    """What a tokenizer may learn from: no held-out document."""
    document = 0
    for source in sources:
        if source.role == "validation":
            continue
        for text in read_documents(source, config.reading):
            if text:
                if not held_out(config, source.role, document):
                    yield text
                document += 1
        source.done = 0
