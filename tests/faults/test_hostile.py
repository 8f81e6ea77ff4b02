"""Does any file, however spoilt, crash a reader, hang it, or make it take memory that the file does not have?"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from counts import SEED, Table, counted
from readers import KINDS

from etastar.errors import EtastarError
from etastar.store.tensor_digest import DamagedTensorsError
from etastar.store.verify import verify_files
from etastar.train.tensor_file import read_tensors

SLOW = 5.0  # seconds for one small file: a hang
MEMORY = 256  # MB that a process may grow by while it reads thousands of files of a few kB

LENGTHS = [0, 1, 7, 8, 255, 2**16, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
WORDS = [
    b'"F64"',
    b'"data_offsets"',
    b'"shape"',
    b"[",
    b"{",
    b"]",
    b"}",
    b'""',
    b"-1",
    b"1e999",
    b"null",
    b"\xff\xfe",
    b"9" * 40,
]


def mutate(content: bytes, rng: random.Random) -> bytes:
    """A few changes of the kinds that break readers: bits, lengths, words, cuts, repeats; most of them near the ends."""
    damaged = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        if not damaged:
            return b""
        edge = min(len(damaged), rng.choice((16, 300, len(damaged))))
        place = rng.randrange(edge) if rng.random() < 0.6 else len(damaged) - 1 - rng.randrange(edge)
        how = rng.randrange(7)
        if how <= 1:
            damaged[place] ^= 1 << rng.randrange(8)
        elif how == 2:
            damaged[place : place + 8] = struct.pack("<Q", rng.choice(LENGTHS))
        elif how == 3:
            damaged[place : place + rng.randint(0, 8)] = rng.choice(WORDS)
        elif how == 4:
            del damaged[place:]
        elif how == 5:
            del damaged[place : place + rng.randint(1, 32)]
        else:
            damaged[place:place] = damaged[place : place + rng.randint(1, 200)] * rng.randint(1, 3)
    return bytes(damaged)


BATCH = 10_000  # mutations a process


# a fresh interpreter, no fork: polars' threads do not outlive one
SCRIPT = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[5:]
import test_hostile
sys.exit(test_hostile._read_all(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])))
"""


def _batch(kind: str, first: int, last: int, folder: Path, *, apart: bool) -> dict[str, Any]:
    """Read the mutations first … last; `apart` in a process of their own, so that a library's crash is counted."""
    folder.mkdir()
    at = folder / "at"  # the mutation that is being read
    at.write_bytes(first.to_bytes(8, "little"))
    code = _watched(kind, first, last, folder) if apart else _read_all(kind, first, last, folder)
    reached = int.from_bytes(at.read_bytes(), "little")
    result = folder / "result"
    if code == 0 and result.exists():
        return {"files": last - first, "wrong": [], **json.loads(result.read_text())}
    how = {-signal.SIGKILL: "hangs"}.get(code, f"ends the process with {code}")
    (folder / "study").rename(folder.parent / f"kept-{kind.replace(' ', '-')}-{reached}")
    return {
        "files": reached - first,
        "wrong": [f"{kind}: mutation {reached} of seed {SEED} {how}"],
        "seconds": 0,
        "MB": 0,
    }


def _watched(kind: str, first: int, last: int, folder: Path) -> int:
    """The exit code of the process; it is killed where one file takes too long."""
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "src")]
    command = [sys.executable, "-c", SCRIPT, kind, str(first), str(last), str(folder), *paths]
    process, moved, seen = subprocess.Popen(command), time.monotonic() + 60, b""  # it starts first
    while process.poll() is None:
        now = (folder / "at").read_bytes()
        if now != seen:
            seen, moved = now, max(time.monotonic(), moved)
        elif time.monotonic() - moved > 4 * SLOW:
            process.kill()
        time.sleep(0.05)
    return process.returncode


def _read_all(kind: str, first: int, last: int, folder: Path) -> int:
    (folder / "study").mkdir()
    path, read = KINDS[kind][1](folder / "study")
    content, slowest, wrong = path.read_bytes(), 0.0, []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    at = os.open(folder / "at", os.O_WRONLY)
    for number in range(first, last):
        os.pwrite(at, number.to_bytes(8, "little"), 0)
        path.write_bytes(mutate(content, random.Random(f"{SEED} {kind} {number}")))
        start = time.monotonic()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read(path)
        except EtastarError:
            pass
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a panic of polars is one
            wrong.append(f"{kind}: mutation {number} of seed {SEED}: {type(error).__name__}: {error}"[:500])
        slowest = max(slowest, time.monotonic() - start)
    os.close(at)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    result = {"seconds": slowest, "MB": memory / 1024, "wrong": wrong}
    (folder / "result").write_text(json.dumps(result))
    return 0


@pytest.mark.parametrize("kind", list(KINDS))
def test_any_file_is_read_or_refused(kind: str, tmp_path: Path, full: bool) -> None:
    count = int(counted("hostile", full=1_000_000, quick=2_000, is_full=full) * KINDS[kind][0])
    firsts = range(0, count, BATCH)
    with Table(8, f"Hostile files, {kind}", goal="a million mutations in all", is_full=full) as table:
        with ThreadPoolExecutor(os.cpu_count() or 1 if full else 1) as pool:
            found = list(
                pool.map(
                    lambda first: _batch(kind, first, min(first + BATCH, count), tmp_path / str(first), apart=full),
                    firsts,
                )
            )
        wrong = [said for one in found for said in one["wrong"]]
        slowest, most = max(one["seconds"] for one in found), max(one["MB"] for one in found)
        table.add(files=sum(one["files"] for one in found), crashes=len(wrong), slowest_seconds=round(slowest, 3),
                  most_memory_MB=round(most))  # fmt: skip
        assert not wrong, "\n".join(wrong[:8])
        assert slowest < SLOW
        assert most < MEMORY


def test_deep_and_wide_json_in_a_header(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / "s" / "x.safetensors"
    path.parent.mkdir(parents=True)
    for text in ("[" * 200_000, '{"a":' * 100_000, json.dumps({"__metadata__": {"digest": "é" * 64}}), "{}", "[]", "7"):
        data = text.encode()
        path.write_bytes(len(data).to_bytes(8, "little") + data)
        with pytest.raises(DamagedTensorsError):
            read_tensors(path)
        verify_files(tmp_path)
