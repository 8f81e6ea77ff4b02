"""Which tokenizer, how large is its vocabulary, and which token starts a document?

A tokenizer is a `tokenizer.json`: a user's file, one from the Hugging Face hub (`gpt2`), or a
byte-level BPE trained on the spot. What a corpus needs to know of it is read from the JSON itself,
so that ready-made tokens can be packed on a machine without the `tokenizers` package.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from etastar.errors import InputError

DOCUMENT = "<|endoftext|>"
_STARTS = (DOCUMENT, "<|begin_of_text|>", "<|startoftext|>", "<bos>", "<s>")
_SAMPLE_CHARACTERS = 8 << 20
_SAMPLE_READ = 16 * _SAMPLE_CHARACTERS


def describe(tokenizer_json: str, *, name: str, document_start: int | None) -> tuple[int, int]:
    """(vocabulary, document start) of a tokenizer.json."""
    try:
        content = json.loads(tokenizer_json)
        model, added = content["model"]["vocab"], content.get("added_tokens", [])
        ids = list(model.values()) if isinstance(model, dict) else list(range(len(model)))
        vocab = 1 + max([*ids, *(token["id"] for token in added)])
        special = {token["content"]: token["id"] for token in added}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{name} is not a tokenizer.json", hint="give a file written by the `tokenizers` package"
        ) from error
    if document_start is None:
        document_start = next((special[start] for start in _STARTS if start in special), None)
    if document_start is None:
        raise InputError(
            f"{name} has none of the tokens {', '.join(_STARTS)}",
            hint="say which token starts a document with --document-start ID",
        )
    if not 0 <= document_start < vocab:
        raise InputError(
            f"document start {document_start} is outside the vocabulary of {vocab}",
            hint="give the id of a token of the tokenizer",
        )
    return vocab, document_start


def read_tokenizer_json(name: str) -> str:
    """The text of a tokenizer file, or of the hub's tokenizer of that name."""
    path = Path(name)
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{name} cannot be read: {error}", hint="give a tokenizer.json") from error
    if path.suffix == ".json":
        raise InputError(f"{name} is not a file", hint="check --tokenizer, or write gpt2")
    tokenizers = _tokenizers()
    try:
        return tokenizers.Tokenizer.from_pretrained(name).to_str()
    except OSError as error:  # the hub's errors are OSErrors
        reason = " ".join(str(error).split()).partition(". ")[0]
        raise InputError(
            f"tokenizer {name!r} cannot be fetched from the Hugging Face hub: {reason}",
            hint="give a tokenizer.json with --tokenizer FILE, or train one with --train-bpe 4096",
        ) from error


def encoder(tokenizer_json: str, *, name: str) -> Callable[[list[str]], list[list[int]]]:
    """A function from documents to token ids; special tokens spelled out in a text stay text."""
    tokenizers = _tokenizers()
    try:
        tokenizer = tokenizers.Tokenizer.from_str(tokenizer_json)
    except Exception as error:
        if type(error) is not Exception:  # the package raises the bare class for what it cannot parse
            raise
        raise InputError(f"{name} cannot be used: {error}", hint="give a valid tokenizer.json") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True

    def encode(documents: list[str]) -> list[list[int]]:
        return [one.ids for one in tokenizer.encode_batch_fast(documents, add_special_tokens=False)]

    return encode


def train_bpe(documents: Iterable[str], *, vocab: int) -> str:
    """A byte-level BPE of (at most) `vocab` tokens, trained on a spread sample; token 0 starts documents."""
    if vocab < 257:
        raise InputError(
            f"--train-bpe {vocab} is below 257", hint="256 bytes and the document start come first"
        )
    tokenizers = _tokenizers()
    from tokenizers import decoders, models, pre_tokenizers, trainers

    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[DOCUMENT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(spread_sample(documents), trainer)
    return tokenizer.to_str()


def spread_sample(documents: Iterable[str]) -> list[str]:
    """Every n-th document, n a power of two that keeps the sample small; the format plays no part."""
    kept: list[tuple[int, str]] = []
    stride, size, read = 1, 0, 0
    for index, text in enumerate(documents):
        read += len(text)
        if index % stride == 0:
            kept.append((index, text))
            size += len(text)
        while size > _SAMPLE_CHARACTERS and len(kept) > 1:
            stride *= 2
            kept = [(at, one) for at, one in kept if at % stride == 0]
            size = sum(len(one) for _, one in kept)
        if read > _SAMPLE_READ:
            break
    return [text for _, text in kept]


def _tokenizers() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise InputError(
            "making tokens from text needs the package tokenizers", hint="pip install 'etastar[train]'"
        ) from error
    return tokenizers
