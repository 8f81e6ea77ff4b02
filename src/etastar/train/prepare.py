"""How does text, or somebody's token file, become a corpus folder?

`prepare` reads the inputs in order, makes tokens, holds out every n-th document for validation and
writes shards with a journal; the manifest comes last. The same call after kill -9 goes on from the
journal and ends with the same bytes. `python -m etastar.train.prepare` does it on a machine that
has numpy and pydantic alone, where the inputs are tokens already.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from etastar.errors import EtastarError, InputError
from etastar.scale import format_number
from etastar.train.corpus_shards import JOURNAL, MANIFEST, TOKENIZER, check_sizes, read_manifest
from etastar.train.data import Corpus
from etastar.train.prepare_config import PrepareConfig
from etastar.train.prepare_pass import Pass
from etastar.train.prepare_progress import Progress, SilentProgress, progress_display
from etastar.train.prepare_vocabulary import settle_vocabulary
from etastar.train.prepare_writer import Journal, locked, read_journal, replace

__all__ = ["PrepareConfig", "main", "prepare", "run_prepare", "summary"]


def prepare(
    config: PrepareConfig,
    *,
    progress: Progress | None = None,
    commit_seconds: float = 2.0,
    wait: bool = False,
) -> Corpus:
    """Make the corpus folder, or go on making it, or find it made; `wait` for another process that does."""
    progress = progress or SilentProgress()
    sources = config.sources()
    fingerprint = config.fingerprint(sources)
    with locked(config.out, wait=wait):
        if (config.out / MANIFEST).exists():
            _check_made(config.out, fingerprint)
            progress.note(f"{config.out} is already prepared")
        else:
            _start(config.out, fingerprint, progress)
            try:
                vocabulary = settle_vocabulary(config, sources, progress)
                journal = read_journal(config.out) or Journal(fingerprint=fingerprint)
                Pass(config, sources, vocabulary, journal, progress).run(commit_seconds=commit_seconds)
            except EtastarError:
                journal = read_journal(config.out)
                if journal is not None and journal.is_new:
                    _clear(config.out)
                    if not any(config.out.iterdir()):
                        config.out.rmdir()
                raise
    return Corpus.open(config.out)


def _check_made(out: Path, fingerprint: str) -> None:
    manifest = read_manifest(out)
    if manifest.prepared_from.get("fingerprint") != fingerprint:
        raise InputError(
            f"{out} already holds a corpus of other inputs or settings",
            hint="choose another --out, or remove that folder",
        )
    check_sizes(out, manifest)
    (out / JOURNAL).unlink(missing_ok=True)  # there if it was killed right after the manifest


def _start(out: Path, fingerprint: str, progress: Progress) -> None:
    """Make sure that a journal of this preparation is there."""
    journal = read_journal(out)
    if journal is not None and journal.is_new and journal.fingerprint != fingerprint:
        _clear(out)
        journal = None
    if journal is None:
        strangers = sorted(path.name for path in out.iterdir() if path.name != f"{JOURNAL}.new")
        if strangers:
            raise InputError(f"{out} is not empty: it holds {strangers[0]}", hint="choose a new folder")
        replace(out / JOURNAL, Journal(fingerprint=fingerprint).model_dump_json())
    elif journal.fingerprint != fingerprint:
        raise InputError(
            f"{out} is an unfinished corpus of other inputs or settings",
            hint="repeat the first command, choose another --out, or remove that folder",
        )
    elif not journal.is_new:
        progress.note(f"going on after {journal.documents} documents")


def _clear(out: Path) -> None:
    """Take back what a preparation without a single commit has written, and only that."""
    for pattern in (f"{TOKENIZER}*", "train-*.u*", "validation-*.u*", f"{JOURNAL}*"):
        for path in out.glob(pattern):
            path.unlink()


def run_prepare(**settings: Any) -> Corpus:
    """`prepare` with settings as typed on a command line, with a display."""
    if settings.get("separator"):  # a shell hands \\n over as two characters
        settings["separator"] = settings["separator"].replace("\\n", "\n").replace("\\t", "\t")
    try:
        config = PrepareConfig(**settings)
    except ValidationError as error:
        first = error.errors()[0]
        option = str(first["loc"][0]).replace("_", "-").replace("hub", "hf")
        raise InputError(
            f"--{option} {first['input']}: {first['msg'].lower()}", hint="see `etastar data prepare --help`"
        ) from error
    progress = progress_display()
    try:
        corpus = prepare(config, progress=progress)
    finally:
        progress.close()
    return corpus


def summary(corpus: Corpus) -> str:
    """One line about a corpus."""
    return (
        f"{corpus.name}: {format_number(corpus.tokens)} training and "
        f"{format_number(corpus.validation_tokens)} validation tokens, vocabulary {corpus.vocab}, "
        f"identity {corpus.identity}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m etastar.train.prepare`: the command line without typer and rich."""
    parser = argparse.ArgumentParser(prog="python -m etastar.train.prepare", description=__doc__)
    parser.add_argument("inputs", nargs="+", help="files, folders, or hf:NAME")
    parser.add_argument("--out", required=True, help="the corpus folder to make")
    parser.add_argument("--validation", action="append", default=[], help="held-out input")
    parser.add_argument("--tokenizer", help="gpt2, or a tokenizer.json")
    parser.add_argument("--separator", help="cut text files into documents at this text")
    parser.add_argument("--column", default="text", help="text column of JSONL, Parquet and data sets")
    parser.add_argument("--hf-config", dest="hub_config")
    parser.add_argument("--hf-split", dest="hub_split", default="train")
    for option in ("--train-bpe", "--vocab", "--document-start", "--max-tokens"):
        parser.add_argument(option)
    parser.add_argument("--validation-every", default=50)
    parser.add_argument("--shard-tokens", default=1 << 26)
    settings = vars(parser.parse_args(arguments))
    try:
        print(summary(run_prepare(**settings)))
    except EtastarError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
