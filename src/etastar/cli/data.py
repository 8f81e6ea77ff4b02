"""`etastar data`: make a corpus to train on, and look at one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from etastar.errors import EtastarError
from etastar.scale import format_number

data_app = typer.Typer(help="Make a corpus to train on, and look at one.", no_args_is_help=True)


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """A bad input is two lines on standard error and exit code 2."""
    try:
        yield
    except EtastarError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from error


@data_app.command()
def prepare(
    inputs: Annotated[
        list[str],
        typer.Argument(
            help="Text, JSONL, Parquet or token (.u16, .u32) files, packed as .gz or .xz if you like; "
            "folders of them; or hf:NAME, a Hugging Face data set, streamed."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The corpus folder to make.")],
    validation: Annotated[
        list[str] | None, typer.Option(help="Held-out input, instead of every n-th document.")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="A tokenizer.json, or a name on the Hugging Face hub; by default gpt2.")
    ] = None,
    train_bpe: Annotated[
        str | None, typer.Option(help="Train a byte-level BPE of this many tokens on the input.")
    ] = None,
    vocab: Annotated[str | None, typer.Option(help="Vocabulary of token files, or a padded one.")] = None,
    document_start: Annotated[str | None, typer.Option(help="Token that starts a document.")] = None,
    column: Annotated[str, typer.Option(help="Text column of JSONL, Parquet and data sets.")] = "text",
    separator: Annotated[str | None, typer.Option(help=r"Cut text files into documents here, e.g. '\n\n'.")] = None,
    hf_config: Annotated[str | None, typer.Option(help="Configuration, e.g. sample-10BT.")] = None,
    hf_split: Annotated[str, typer.Option(help="Split of the data set to read.")] = "train",
    validation_every: Annotated[str, typer.Option(help="Hold out one document in so many.")] = "50",
    max_tokens: Annotated[str | None, typer.Option(help="Stop at so many training tokens: 1B.")] = None,
    shard_tokens: Annotated[str, typer.Option(help="Tokens a shard.")] = "2^26",
) -> None:
    """Make a corpus folder; stopped at any moment, the same command goes on."""
    with _one_line_errors():
        from etastar.train.prepare import run_prepare, summary

        try:
            corpus = run_prepare(
                inputs=tuple(inputs),
                out=out,
                validation=tuple(validation or ()),
                tokenizer=tokenizer,
                train_bpe=train_bpe,
                vocab=vocab,
                document_start=document_start,
                column=column,
                separator=separator,
                hub_config=hf_config,
                hub_split=hf_split,
                validation_every=validation_every,
                max_tokens=max_tokens,
                shard_tokens=shard_tokens,
            )
        except KeyboardInterrupt:
            typer.echo("stopped; the same command goes on from here", err=True)
            raise typer.Exit(130) from None
        typer.echo(summary(corpus))


@data_app.command()
def info(
    folder: Annotated[Path, typer.Argument(help="A corpus folder.")],
    verify: Annotated[bool, typer.Option("--verify", help="Read every token and check it.")] = False,
) -> None:
    """Say what a corpus holds, and whether it is whole."""
    with _one_line_errors():
        from etastar.train import corpus_shards

        manifest = corpus_shards.read_manifest(folder)
        if verify:
            corpus_shards.verify(folder, manifest)
        else:
            corpus_shards.check_sizes(folder, manifest)
        for split in ("train", "validation"):
            shards: tuple[corpus_shards.Shard, ...] = getattr(manifest, split)
            tokens = sum(shard.tokens for shard in shards)
            typer.echo(f"{split:<16}{format_number(tokens)} tokens ({tokens}) in {len(shards)} shards")
        lines = {
            "vocabulary": f"{manifest.vocab}, as {manifest.dtype}",
            "document start": manifest.document_start,
            "documents": f"{manifest.documents} (and {manifest.empty_documents} empty ones left out)",
            "tokenizer": manifest.tokenizer or "not kept",
            "identity": manifest.identity,
            "state": "whole: every shard matches its sha256" if verify else "whole by size (--verify reads it)",
        }
        for name, value in lines.items():
            typer.echo(f"{name:<16}{value}")
