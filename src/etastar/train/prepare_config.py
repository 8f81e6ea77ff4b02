"""What is asked of a preparation, and is a second call the same one?"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from etastar.errors import InputError
from etastar.scale import parse_number
from etastar.train.prepare_sources import Reading, Source, find_sources


class PrepareConfig(BaseModel):
    """What to prepare. Inputs are files, folders or `hf:NAME`; `validation` inputs replace the hold-out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    inputs: tuple[str, ...] = Field(min_length=1)
    out: Path
    validation: tuple[str, ...] = ()
    tokenizer: str | None = None
    train_bpe: int | None = None
    vocab: int | None = Field(default=None, gt=0, le=1 << 32)
    document_start: int | None = Field(default=None, ge=0)
    column: str = "text"
    separator: str | None = Field(default=None, min_length=1)
    hub_config: str | None = None
    hub_split: str = "train"
    validation_every: int = Field(default=50, ge=2)
    max_tokens: int | None = Field(default=None, ge=1)
    shard_tokens: int = Field(default=1 << 26, ge=1)

    @field_validator(
        "train_bpe",
        "vocab",
        "document_start",
        "validation_every",
        "max_tokens",
        "shard_tokens",
        mode="before",
    )
    @classmethod
    def _number(cls, value: object, info: ValidationInfo) -> object:
        """Numbers as people type them: 64M, 1B, 2^26."""
        if not isinstance(value, str):
            return value
        return parse_number(value, what=f"--{str(info.field_name).replace('_', '-')}")

    @property
    def reading(self) -> Reading:
        """How documents are cut out of the inputs."""
        return Reading(
            column=self.column,
            separator=self.separator,
            hub_config=self.hub_config,
            hub_split=self.hub_split,
        )

    def sources(self) -> list[Source]:
        """All inputs in reading order: validation first, so that `max_tokens` cannot cut it off."""
        role = "train" if self.validation else "split"
        sources = [*find_sources(self.validation, role="validation"), *find_sources(self.inputs, role=role)]
        of_tokens = {source.kind == "tokens" for source in sources}
        if len(of_tokens) > 1:
            raise InputError(
                "token files and texts cannot be mixed in one corpus", hint="prepare one or the other"
            )
        if of_tokens == {True} and self.train_bpe is not None:
            raise InputError(
                "--train-bpe needs text, the inputs are tokens", hint="give --tokenizer FILE or --vocab N"
            )
        if self.train_bpe is not None and self.tokenizer is not None:
            raise InputError("--tokenizer and --train-bpe exclude each other", hint="give one of them")
        return sources

    def fingerprint(self, sources: list[Source]) -> str:
        """A hash of all that the bytes depend on: files by name, size and time, not by folder."""
        settings = self.model_dump(mode="json", exclude={"inputs", "validation", "out", "tokenizer"})
        tokenizer = self.tokenizer
        if tokenizer is not None and Path(tokenizer).is_file():
            tokenizer = hashlib.sha256(Path(tokenizer).read_bytes()).hexdigest()
        content = [settings, tokenizer, [source.signature for source in sources]]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]
