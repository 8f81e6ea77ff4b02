"""Which inputs does a preparation read, and in which order?

Every input becomes a list of sources in a fixed order: one a file, one a Hugging Face data set.
A source yields documents (`prepare_documents`) or pieces of ready-made tokens (`prepare_pieces`).
"""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from etastar.errors import InputError

Kind = Literal["text", "jsonl", "parquet", "tokens", "hub"]
_KINDS: dict[str, Kind] = {
    **dict.fromkeys((".txt", ".text", ".md", ".rst", ".py"), "text"),
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    ".parquet": "parquet",
    **dict.fromkeys((".u16", ".u32"), "tokens"),
}
_PACKED = {".gz": gzip.open, ".xz": lzma.open}


@dataclass(kw_only=True)
class Source:
    """One input. `done` says how many of its `size` bytes have been read, for the progress display."""

    name: str
    kind: Kind
    role: Literal["split", "train", "validation"]
    size: int = 0
    mtime_ns: int = 0
    done: int = field(default=0, compare=False)

    @property
    def signature(self) -> list[object]:
        """What a resumed preparation compares, to refuse other inputs."""
        named = self.name if self.kind == "hub" else Path(self.name).name
        return [named, self.kind, self.role, self.size, self.mtime_ns]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How the documents are cut out of the inputs."""

    column: str = "text"
    separator: str | None = None
    hub_config: str | None = None
    hub_split: str = "train"
    document_start: int = 0
    vocab: int = 0


def find_sources(inputs: Iterable[str], *, role: Literal["split", "train", "validation"]) -> list[Source]:
    """Files as named, folders as their sorted known files, `hf:NAME` as a Hugging Face data set."""
    sources = []
    for name in inputs:
        path = Path(name)
        if name.startswith("hf:"):
            sources.append(Source(name=name[3:], kind="hub", role=role))
        elif path.is_dir():
            found = [_file_source(file, role) for file in sorted(path.rglob("*")) if _kind(file)]
            if not found:
                raise InputError(f"{name} holds no readable files", hint=f"known endings are {_endings()}")
            sources += found
        elif path.is_file():
            sources.append(_file_source(path, role))
        else:
            hint = f"for a Hugging Face data set write hf:{name}" if "/" in name else "check the path"
            raise InputError(f"{name} is neither a file nor a folder", hint=hint)
    return sources


def _kind(path: Path) -> Kind | None:
    suffixes = path.suffixes[-2:] if path.suffix in _PACKED else path.suffixes[-1:]
    return _KINDS.get(suffixes[0]) if suffixes else None


def _endings() -> str:
    return ", ".join(_KINDS) + f"; packed as {', '.join(_PACKED)}"


def _file_source(path: Path, role: Literal["split", "train", "validation"]) -> Source:
    kind = _kind(path)
    if kind is None or (kind == "parquet" and path.suffix in _PACKED):
        raise InputError(f"{path}: unknown kind of file", hint=f"known endings are {_endings()}")
    status = path.stat()
    return Source(name=str(path), kind=kind, role=role, size=status.st_size, mtime_ns=status.st_mtime_ns)


@contextmanager
def opened(source: Source) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The raw file (whose position is the progress) and the unpacked stream over it."""
    path = Path(source.name)
    try:
        with path.open("rb") as raw, _PACKED.get(path.suffix, lambda file: file)(raw) as stream:
            yield raw, stream  # type: ignore[misc]
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"{source.name} cannot be unpacked: {error}",
            hint="the file is truncated or damaged: fetch it again",
        ) from error
    except OSError as error:
        raise InputError(f"{source.name} cannot be read: {error.strerror}", hint="check the file") from error
