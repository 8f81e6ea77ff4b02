"""What can a first run train on, with nothing shipped and nothing downloaded?

The source of the Python standard library, which every machine has: real English and code. A file
is a document; a byte-level BPE is trained on it on the spot; the result is kept in a cache folder.
"""

from __future__ import annotations

import os
import platform
import sysconfig
from pathlib import Path

from etastar.errors import InputError
from etastar.train.corpus_shards import MANIFEST
from etastar.train.data import Corpus
from etastar.train.prepare import PrepareConfig, prepare
from etastar.train.prepare_progress import Progress, progress_display

_NOT_SOURCE = {
    "site-packages",
    "dist-packages",
    "__pycache__",
    "encodings",  # character tables: numbers without a language
    "data",  # inputs of tests, some broken on purpose
    "badsyntax",
}


def cache_folder() -> Path:
    """ETASTAR_CACHE, or XDG_CACHE_HOME/etastar, or ~/.cache/etastar."""
    if chosen := os.environ.get("ETASTAR_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "etastar"


def standard_library_files() -> list[Path]:
    """The .py files of this Python's standard library that are UTF-8 text, sorted."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = [path for path in root.rglob("*.py") if not _NOT_SOURCE & set(path.relative_to(root).parts)]
    readable = [path for path in sorted(files) if path.is_file() and _is_utf8(path)]
    if len(readable) < 2:
        raise InputError(
            f"{root} holds no Python source", hint="prepare a corpus with `etastar data prepare` and name it"
        )
    return readable


def _is_utf8(path: Path) -> bool:
    try:
        path.read_text(encoding="utf-8")
    except (UnicodeDecodeError, PermissionError):
        return False
    return True


def default_corpus(
    *, vocab: int = 4096, cache: str | Path | None = None, progress: Progress | None = None
) -> Corpus:
    """The standard library as a corpus; made on the first call, found in the cache afterwards.

    Processes that ask for it at the same time wait for the first.
    """
    folder = Path(cache) if cache is not None else cache_folder()
    out = folder / "corpora" / f"python-{platform.python_version()}-bpe{vocab}"
    if (out / MANIFEST).exists():
        return Corpus.open(out)
    shown = progress or progress_display()
    shown.note(f"first use: making the default corpus from Python's standard library, in {out}")
    files = tuple(str(path) for path in standard_library_files())
    try:
        return prepare(PrepareConfig(inputs=files, out=out, train_bpe=vocab), progress=shown, wait=True)
    finally:
        if progress is None:
            shown.close()
