"""How do documents, read in order, end up as shards and a manifest?

One pass over the sources from the journal's place on: read a group, make tokens, hand each
document to its split, now and then make all of it safe. The manifest is the last thing written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace as changed
from pathlib import Path

import numpy as np

from etastar.errors import InputError
from etastar.train.corpus_shards import JOURNAL, MANIFEST, TOKENIZER, Manifest, Shard
from etastar.train.prepare_config import PrepareConfig
from etastar.train.prepare_documents import read_documents
from etastar.train.prepare_pieces import read_pieces
from etastar.train.prepare_progress import Progress
from etastar.train.prepare_sources import Source
from etastar.train.prepare_vocabulary import Vocabulary, held_out
from etastar.train.prepare_writer import Journal, SplitWriter, replace, written

_GROUP = 1 << 20  # characters or tokens handled between two looks at the clock
_Entry = tuple[int, int, str | np.ndarray]


class Pass:
    """The state of one pass: two writers and the place reached."""

    def __init__(
        self,
        config: PrepareConfig,
        sources: list[Source],
        vocabulary: Vocabulary,
        journal: Journal,
        progress: Progress,
    ) -> None:
        self._config, self._sources, self._vocabulary, self._progress = config, sources, vocabulary, progress
        self._reading = changed(
            config.reading, vocab=vocabulary.size, document_start=vocabulary.document_start
        )
        self._dtype = "uint16" if vocabulary.size <= 1 << 16 else "uint32"
        self._writers = {
            split: SplitWriter(
                config.out, split, dtype=self._dtype, shard_tokens=config.shard_tokens, state=state
            )
            for split, state in (("train", journal.train), ("validation", journal.validation))
        }
        self.journal = journal
        self._total = 0 if any(s.kind == "hub" for s in sources) else sum(s.size for s in sources)
        for source in sources[: journal.source]:
            source.done = source.size

    def run(self, *, commit_seconds: float) -> None:
        """Read to the end of the inputs, or to `max_tokens`, and write the manifest."""
        last_commit = time.monotonic()
        for group in self._groups():
            self._take(group)
            self._show()
            if self._full():
                break
            if time.monotonic() - last_commit >= commit_seconds:
                self._commit()
                last_commit = time.monotonic()
        self._finish()

    def _items(self) -> Iterator[_Entry]:
        """(source, items of it read so far, document or piece), from the journal's place on."""
        first, skipped = self.journal.source, self.journal.item
        for at in range(first, len(self._sources)):
            source = self._sources[at]
            skip = skipped if at == first else 0
            reader = read_pieces if source.kind == "tokens" else read_documents
            for number, item in enumerate(reader(source, self._reading, skip=skip), start=skip + 1):
                yield at, number, item
            source.done = source.size

    def _groups(self) -> Iterator[list[_Entry]]:
        group: list[_Entry] = []
        size = 0
        for entry in self._items():
            group.append(entry)
            size += len(entry[2])
            if size >= _GROUP:
                yield group
                group, size = [], 0
        if group:
            yield group

    def _take(self, group: list[_Entry]) -> None:
        """Hand every document of the group to its split, and move the place behind it."""
        documents, empty = self.journal.documents, self.journal.empty_documents
        for (at, _, _), tokens in zip(group, self._encoded(group), strict=True):
            if self._full():
                break
            if not tokens.size:
                empty += 1
                continue
            role = self._sources[at].role
            if held_out(self._config, role, documents):
                self._writers["validation"].add(tokens)
            else:
                self._writers["train"].add(tokens[: self._room()])
            whole = self._vocabulary.encode is not None or role == "split"
            documents += 1 if whole else int(np.count_nonzero(tokens == self._vocabulary.document_start))
        place = {"source": group[-1][0], "item": group[-1][1]}
        self.journal = self.journal.model_copy(
            update=place | {"documents": documents, "empty_documents": empty}
        )

    def _encoded(self, group: list[_Entry]) -> Iterator[np.ndarray]:
        """Tokens of each item, the document start before each text; none for an empty document."""
        if self._vocabulary.encode is None:
            yield from (np.asarray(item) for _, _, item in group)
            return
        start = [self._vocabulary.document_start]
        for ids in self._vocabulary.encode([str(item) for _, _, item in group]):
            yield np.array(start + ids if ids else [], dtype=np.uint32)

    def _room(self) -> int | None:
        limit = self._config.max_tokens
        return None if limit is None else limit - self._writers["train"].tokens

    def _full(self) -> bool:
        return self._room() == 0

    def _show(self) -> None:
        tokens = sum(writer.tokens for writer in self._writers.values())
        done = sum(source.done for source in self._sources)
        self._progress.advance(done=done, total=self._total, tokens=tokens)

    def _commit(self) -> None:
        splits = {split: writer.settle() for split, writer in self._writers.items()}
        self.journal = self.journal.model_copy(update=splits)
        replace(self._config.out / JOURNAL, self.journal.model_dump_json())

    def _finish(self) -> None:
        shards = {split: writer.finish() for split, writer in self._writers.items()}
        out = self._config.out
        for split, found in shards.items():
            if not found:  # another attempt will differ in its settings: forget this one's place
                replace(out / JOURNAL, Journal(fingerprint=self.journal.fingerprint).model_dump_json())
                self.journal = Journal(fingerprint=self.journal.fingerprint)
                raise InputError(
                    f"the inputs leave no {split} tokens: every {self._config.validation_every}th document "
                    "is held out, from the second on",
                    hint="cut files into documents with --separator, or give --validation FILE",
                )
        replace(out / MANIFEST, self._manifest(**shards).model_dump_json(indent=1) + "\n")
        with written(out):
            (out / JOURNAL).unlink(missing_ok=True)

    def _manifest(self, *, train: tuple[Shard, ...], validation: tuple[Shard, ...]) -> Manifest:
        names = [s.name if s.kind == "hub" else Path(s.name).name for s in self._sources]
        return Manifest(
            dtype="uint16" if self._dtype == "uint16" else "uint32",
            vocab=self._vocabulary.size,
            document_start=self._vocabulary.document_start,
            train=train,
            validation=validation,
            documents=self.journal.documents,
            empty_documents=self.journal.empty_documents,
            tokenizer=TOKENIZER if (self._config.out / TOKENIZER).exists() else None,
            prepared_from={"fingerprint": self.journal.fingerprint, "inputs": names[:1000]},
        )
