"""What fields does a protobuf message hold? A reader of the wire format that trusts nothing.

Messages come from files that anybody may have written: a length is believed only if that many bytes are there,
so nothing is ever allocated beyond the file's own size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_MOST_VARINT = 10  # bytes


class WireError(ValueError):
    """Bytes that are no protobuf message."""


class Field(NamedTuple):
    """A field's number and its value: an int (varint, fixed) or the bytes of a length-delimited field."""

    number: int
    kind: int  # 0 varint, 1 eight bytes, 2 bytes, 5 four bytes
    value: int | bytes

    @property
    def data(self) -> bytes:
        """The bytes of a length-delimited field."""
        if not isinstance(self.value, bytes):
            raise WireError(f"field {self.number} is a number, expected bytes")
        return self.value

    @property
    def text(self) -> str:
        """The same as UTF-8, with a mark where it is not."""
        return self.data.decode("utf-8", errors="replace")

    @property
    def signed(self) -> int:
        """A varint as int64."""
        if self.kind != 0 or not isinstance(self.value, int):
            raise WireError(f"field {self.number} is not a whole number")
        return self.value - 2**64 if self.value >= 2**63 else self.value

    @property
    def zigzag(self) -> int:
        """A varint as sint64."""
        unsigned = self.signed % 2**64
        return (unsigned >> 1) ^ -(unsigned & 1)

    @property
    def real(self) -> float:
        """A float or a double."""
        if self.kind not in (1, 5) or not isinstance(self.value, int):
            raise WireError(f"field {self.number} is not a float")
        return (
            struct.unpack("<d", self.value.to_bytes(8, "little"))[0]
            if self.kind == 1
            else struct.unpack("<f", self.value.to_bytes(4, "little"))[0]
        )


def fields(message: bytes) -> Iterator[Field]:
    """The fields of a message, in order; `WireError` where the bytes stop making sense."""
    place, end = 0, len(message)
    while place < end:
        key = message[place]  # nearly all keys and lengths are one byte long
        place += 1
        if key >= 0x80:
            key, place = _varint(message, place - 1)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise WireError("field number 0")
        if kind == 2:
            length = message[place] if place < end else 0x80
            place += 1
            if length >= 0x80:
                length, place = _varint(message, place - 1)
            if length > end - place:
                raise WireError(f"a field of {length} bytes where {end - place} are left")
            yield Field(number, 2, message[place : place + length])
            place += length
        elif kind == 0:
            value, place = _varint(message, place)
            yield Field(number, 0, value)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
            if length > end - place:
                raise WireError(f"a number of {length} bytes where {end - place} are left")
            yield Field(number, kind, int.from_bytes(message[place : place + length], "little"))
            place += length
        else:
            raise WireError(f"wire type {kind}")


def packed(field: Field, kind: int) -> list[float]:
    """Floats (`kind` 5) or doubles (`kind` 1) of a repeated field, packed or one by one."""
    if field.kind == kind:
        return [field.real]
    size, letter = (8, "d") if kind == 1 else (4, "f")
    count = len(field.data) // size
    return list(struct.unpack(f"<{count}{letter}", field.data[: count * size]))


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * _MOST_VARINT, 7):
        if place >= len(message):
            raise WireError("the message ends within a number")
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value % 2**64, place
    raise WireError("a number of more than ten bytes")
