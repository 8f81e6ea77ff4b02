"""How are documents cut out of text, JSONL, Parquet and Hugging Face data sets?

Each reader yields the documents of one source in order and can skip the first n, which is all that
resuming needs. Damaged input is refused with its name and place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice

from etastar.errors import InputError
from etastar.train.prepare_sources import Reading, Source, opened


def read_documents(source: Source, reading: Reading, *, skip: int = 0) -> Iterator[str]:
    """The source's documents in order, from the `skip`-th on."""
    if source.kind == "hub":
        yield from _hub_documents(source, reading, skip)
        return
    reader = {"text": _text_documents, "jsonl": _jsonl_documents, "parquet": _parquet_documents}[source.kind]
    yield from islice(reader(source, reading), skip, None)


def _lines(source: Source) -> Iterator[str]:
    with opened(source) as (raw, stream):
        for number, line in enumerate(stream, start=1):
            source.done = raw.tell()
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{source.name}, line {number}: not UTF-8 text ({error.reason})",
                    hint="convert the file to UTF-8 first",
                ) from error


def _text_documents(source: Source, reading: Reading) -> Iterator[str]:
    """A file is a document, or many between separators."""
    if reading.separator is None:
        yield "".join(_lines(source))
        return
    pending, searched = "", 0
    for line in _lines(source):
        pending += line
        while (at := pending.find(reading.separator, searched)) >= 0:
            yield pending[:at]
            pending, searched = pending[at + len(reading.separator) :], 0
        searched = max(0, len(pending) - len(reading.separator) + 1)
    yield pending


def _jsonl_documents(source: Source, reading: Reading) -> Iterator[str]:
    for number, line in enumerate(_lines(source), start=1):
        if not line.strip():
            continue
        where = f"{source.name}, line {number}"
        try:
            record = json.loads(line)
        except ValueError as error:
            raise InputError(f"{where}: not JSON ({error})", hint="give one JSON object a line") from error
        if not isinstance(record, dict):
            raise InputError(f"{where}: not a JSON object", hint="give one JSON object a line")
        yield _text_of(record, reading.column, where)


def _text_of(record: Mapping[str, object], column: str, where: str) -> str:
    if column not in record:
        raise InputError(
            f"{where}: no column {column!r}", hint=f"choose one with --column; there are {', '.join(record)}"
        )
    text = record[column]
    if text is not None and not isinstance(text, str):
        raise InputError(
            f"{where}: column {column!r} holds {type(text).__name__}, expected text",
            hint="choose the text column with --column",
        )
    return text or ""


def _parquet_documents(source: Source, reading: Reading) -> Iterator[str]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(source.name) as file:
            schema = file.schema_arrow
            if reading.column not in schema.names:
                _text_of(dict.fromkeys(schema.names), reading.column, source.name)
            rows = file.metadata.num_rows
            seen = 0
            for batch in file.iter_batches(batch_size=1024, columns=[reading.column]):
                for text in batch.column(0).to_pylist():
                    seen += 1
                    yield _text_of({reading.column: text}, reading.column, f"{source.name}, row {seen}")
                source.done = source.size * seen // max(rows, 1)
    except (pyarrow.ArrowException, OSError) as error:
        first_line = str(error).partition("\n")[0]
        raise InputError(f"{source.name} cannot be read: {first_line}", hint="is it a whole Parquet file?") from error


def _hub_documents(source: Source, reading: Reading, skip: int) -> Iterator[str]:
    """Stream a Hugging Face data set; nothing but what is read is downloaded."""
    try:
        import datasets  # pyright: ignore[reportMissingImports] (extra: data)
    except ImportError as error:
        raise InputError(
            f"hf:{source.name} needs the package datasets", hint="pip install datasets, or give local files"
        ) from error
    try:
        rows = datasets.load_dataset(source.name, reading.hub_config, split=reading.hub_split, streaming=True)
        for number, record in enumerate(rows.skip(skip) if skip else rows, start=skip + 1):
            yield _text_of(record, reading.column, f"hf:{source.name}, row {number}")
    except (OSError, ValueError) as error:  # hub and network errors are OSErrors; a wrong config a ValueError
        first_line = str(error).partition("\n")[0]
        raise InputError(
            f"hf:{source.name} cannot be read: {first_line}",
            hint="check the name, --hf-config, --hf-split and the network; run again to go on",
        ) from error
