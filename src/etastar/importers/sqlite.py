"""How is a tracker's database read without touching it? SQLite, read-only, row by row, whatever is left of it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

START = b"SQLite format 3\x00"


class Database:
    """Tables of a database file; what cannot be read is collected in `problems`."""

    def __init__(self, path: Path, shown: str) -> None:
        self.shown = shown
        self.problems: list[str] = []
        self._tables: dict[str, list[str]] = {}
        self._connection = self._open(path)

    def _open(self, path: Path) -> sqlite3.Connection | None:
        # immutable: a database in WAL mode on a read-only disk cannot be opened otherwise
        for mode in ("mode=ro", "mode=ro&immutable=1"):
            connection = None
            try:
                connection = sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True)
                connection.text_factory = lambda data: data.decode("utf-8", errors="replace")
                connection.execute("PRAGMA trusted_schema = OFF")
                for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                    quoted = str(name).replace('"', '""')
                    rows = connection.execute(f'PRAGMA table_info("{quoted}")').fetchall()
                    self._tables[str(name)] = [str(row[1]) for row in rows]
                return connection
            except (sqlite3.Error, OverflowError, ValueError) as error:
                said = str(error)
                if connection is not None:
                    connection.close()
        self.problems.append(f"{self.shown}: cannot be read as a database ({said})")
        return None

    def columns(self, table: str) -> list[str]:
        """Columns of a table; none where there is no such table."""
        return self._tables.get(table, [])

    def rows(self, table: str, wanted: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
        """The wanted columns (null where the table lacks one), in the order in which rows were written."""
        have = self.columns(table)
        if self._connection is None or not have:
            return
        asked = ", ".join(f'"{name}"' if name in have else "NULL" for name in wanted)
        count = 0
        try:
            for row in self._connection.execute(f'SELECT {asked} FROM "{table}" ORDER BY rowid'):
                count += 1
                yield row
        except (sqlite3.Error, OverflowError, ValueError) as error:
            self.problems.append(f"{self.shown}: table {table} is damaged after {count} rows ({error})")

    def require(self, table: str) -> None:
        """Name it where a table is not there at all."""
        if self._connection is not None and not self.columns(table):
            self.problems.append(f"{self.shown}: holds no table {table}")

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()


def is_database(path: Path) -> bool:
    """Does the file begin as SQLite's do?"""
    try:
        with path.open("rb") as file:
            return file.read(len(START)) == START
    except OSError:
        return False
