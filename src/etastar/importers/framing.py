"""Where does one record of a log file end and the next begin, and is each whole?

Two framings: blocks of 32 KiB with a CRC for each fragment (`.wandb`, after LevelDB's log), and length, CRC,
data, CRC (TensorBoard's event files). Damage is yielded as a sentence that names the byte, never raised; what
comes after it is read on where the format allows it. At most one record is in memory, and never more than
the file holds.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

BLOCK = 32 * 1024
_FRAGMENT = struct.Struct("<IHB")  # CRC-32 of kind and data, length, kind
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_WANDB_START = b":W&B"
_WANDB_HEADER = 7  # the mark, a magic number, a version
_TOO_MANY = 20  # damages of one file that are named one by one

Record = bytes | str  # data, or what is the matter


def wandb_records(path: Path) -> Iterator[Record]:
    """Records of a `.wandb` file; a damaged fragment costs the rest of its block."""
    with path.open("rb") as file:
        start = file.read(_WANDB_HEADER)
        if not start.startswith(_WANDB_START):
            yield "is no W&B run file (it does not begin with :W&B)"
            return
        if len(start) < _WANDB_HEADER:
            yield "ends within its header"
            return
        yield from _few(_blocks(file))


def _blocks(file: BinaryIO) -> Iterator[Record]:
    pieces: list[bytes] | None = None  # of a record under way
    offset, begin = _WANDB_HEADER, _WANDB_HEADER
    while block := file.read(BLOCK - begin):
        place = 0
        while len(block) - place >= _FRAGMENT.size:
            crc, length, kind = _FRAGMENT.unpack_from(block, place)
            data = block[place + _FRAGMENT.size : place + _FRAGMENT.size + length]
            if kind == 0 and length == 0 and not any(block[place:]):
                break  # a file that was reserved and not filled, or the end of a block
            if len(data) < length and len(block) + begin < BLOCK:
                yield f"ends within a record, at byte {offset + place}"
                return
            if kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST) or zlib.crc32(data, zlib.crc32(bytes([kind]))) != crc:
                yield f"is damaged at byte {offset + place}: what follows in that block is left out"
                pieces = None
                break
            place += _FRAGMENT.size + length
            if kind in (_WHOLE, _FIRST):
                if pieces is not None:
                    yield f"lacks the end of a record before byte {offset + place}"
                pieces = [data]
            elif pieces is not None:
                pieces.append(data)
            if kind in (_WHOLE, _LAST) and pieces is not None:
                yield b"".join(pieces)
                pieces = None
        else:
            if len(block) + begin < BLOCK and any(block[place:]):
                yield f"ends within a record, at byte {offset + place}"
        offset += len(block)
        begin = 0
    if pieces is not None:
        yield "ends within a record that spans blocks"


def tf_records(path: Path) -> Iterator[Record]:
    """Records of a TensorBoard event file; past a damaged length there is no way to find the next record."""
    with path.open("rb") as file:
        yield from _few(_framed(file, path.stat().st_size))


def _framed(file: BinaryIO, size: int) -> Iterator[Record]:
    while header := file.read(12):
        place = file.tell() - len(header)
        if len(header) < 12:
            yield f"ends within a record, at byte {place}"
            return
        length, crc = struct.unpack("<QI", header)
        if masked_crc32c(header[:8]) != crc:
            yield f"is damaged at byte {place}: what follows is left out"
            return
        if length > size - place - 16:
            yield f"ends within a record, at byte {place}"
            return
        data = file.read(length)
        (crc,) = struct.unpack("<I", file.read(4))
        if masked_crc32c(data) != crc:
            yield f"is damaged at byte {place}: one record is left out"
            continue
        yield data


def _few(records: Iterator[Record]) -> Iterator[Record]:
    """The first damages by name, the others by number."""
    damages = 0
    for record in records:
        damages += isinstance(record, str)
        if not isinstance(record, str) or damages <= _TOO_MANY:
            yield record
    if damages > _TOO_MANY:
        yield f"is damaged at {damages - _TOO_MANY} more places"


def _table(steps: int) -> np.ndarray:
    """CRC-32C of each byte followed by so many zero bytes."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1).astype(np.uint32)
    bytewise = table
    for _ in range(steps):
        table = (table >> 8) ^ bytewise[table & 0xFF]
    return table


_BYTE = _table(0)
_BYTE_LIST = _BYTE.tolist()
_LANE = 512  # bytes that one lane of a long record covers


def _lane_shift() -> list[list[int]]:
    """For each byte of a CRC, what it becomes after a lane of zeros."""
    return [_table(_LANE - 1 - k).tolist() for k in range(4)]


_SHIFT = _lane_shift()


def masked_crc32c(data: bytes) -> int:
    """TensorFlow's checksum: CRC-32C, rotated by 15 bits and shifted by a constant.

    Long records (images, histograms) are cut into lanes that numpy works on side by side.
    """
    crc = 0xFFFFFFFF
    lanes = len(data) // _LANE
    if lanes >= 8:
        columns = np.frombuffer(data, np.uint8, count=lanes * _LANE).reshape(lanes, _LANE)
        state = np.zeros(lanes, np.uint32)
        for k in range(_LANE):
            state = (state >> 8) ^ _BYTE[(state ^ columns[:, k]) & 0xFF]
        a, b, c, d = _SHIFT
        for lane in state.tolist():
            crc = a[crc & 0xFF] ^ b[crc >> 8 & 0xFF] ^ c[crc >> 16 & 0xFF] ^ d[crc >> 24] ^ lane
        data = data[lanes * _LANE :]
    for byte in data:
        crc = (crc >> 8) ^ _BYTE_LIST[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
