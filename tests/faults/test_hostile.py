"""Does any file, however spoilt, crash a reader, hang it, or make it take memory that the file does not have?"""

from __future__ import annotations

import ast
import json
import os
import random
import struct
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from counts import SEED, Table, counted

sys.path.insert(0, str(Path(__file__).parents[1] / "importers"))

from test_damage import FILES
from test_golden import unpack

from etastar.errors import EtastarError
from etastar.importers.framing import tf_records, wandb_records
from etastar.store import write_runs
from etastar.store.parts import read_part
from etastar.store.tensor_digest import DamagedTensorsError
from etastar.store.verify import verify_files
from etastar.train.tensor_file import read_tensors, write_tensors

SLOW = 5.0  # seconds for one small file: a hang
MEMORY = 64 << 20  # bytes that Python may hold for a file of a few kB
SOURCE = Path(__file__).parents[2] / "src"

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


Reader = Callable[[Path], Any]


def _tensors(folder: Path) -> tuple[Path, Reader]:
    path = folder / "checkpoints" / "s" / "trunk-000000001.safetensors"
    path.parent.mkdir(parents=True)
    write_tensors(path, {"a": torch.arange(40.0), "b": torch.ones(3, 5, dtype=torch.int64)}, {"stack": "s", "step": 1})

    def read(path: Path) -> None:
        _refused(lambda: read_tensors(path), DamagedTensorsError)
        verify_files(folder)

    return path, read


def _header_alone(folder: Path) -> tuple[Path, Reader]:
    """Past the digest: the library's own reading of a header that nobody vouches for."""
    from safetensors import SafetensorError, safe_open

    path, _ = _tensors(folder)

    def read(path: Path) -> None:
        def opened() -> None:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118
                    file.get_tensor(name)

        _refused(opened, (SafetensorError, OSError, ValueError, OverflowError, KeyError, AttributeError, TypeError))

    return path, read


def _part(folder: Path) -> tuple[Path, Reader]:
    rows = [{"params": 1e6, "tokens": 1e7, "lr": 0.1 + k, "loss": k / 7, "run": f"r{k}"} for k in range(30)]
    return write_runs(folder, pa.Table.from_pylist(rows), "part"), read_part


def _foreign(kind: str) -> Callable[[Path], tuple[Path, Reader]]:
    def make(folder: Path) -> tuple[Path, Reader]:
        pattern, read = FILES[kind]
        path = min(unpack(kind, folder).rglob(pattern), key=lambda p: p.stat().st_size)
        return path, lambda path: read([path], folder)

    return make


def _framed(records: Callable[[Path], Any], kind: str) -> Callable[[Path], tuple[Path, Reader]]:
    def make(folder: Path) -> tuple[Path, Reader]:
        path = min(unpack(kind, folder).rglob(FILES[kind][0]), key=lambda p: p.stat().st_size)
        return path, lambda path: list(records(path))

    return make


def _refused(work: Callable[[], Any], errors: Any) -> None:
    try:
        work()
    except errors:
        return


KINDS: dict[str, tuple[float, Callable[[Path], tuple[Path, Reader]]]] = {  # share of all mutations, maker
    "checkpoint": (0.15, _tensors),
    "safetensors header": (0.2, _header_alone),
    "Parquet part": (0.2, _part),
    "tensorboard frames": (0.15, _framed(tf_records, "tensorboard")),
    "wandb frames": (0.1, _framed(wandb_records, "wandb")),
    "wandb": (0.04, _foreign("wandb")),
    "tensorboard": (0.04, _foreign("tensorboard")),
    "trainer": (0.06, _foreign("trainer")),
    "lightning-csv": (0.03, _foreign("lightning-csv")),
    "trackio": (0.02, _foreign("trackio")),
    "mlflow-sqlite": (0.01, _foreign("mlflow-sqlite")),
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_any_file_is_read_or_refused(kind: str, tmp_path: Path, full: bool) -> None:
    part, make = KINDS[kind]
    count = max(int(counted("hostile", full=200_000, quick=600, is_full=full) * part), 20)
    budget = float(os.environ.get("ETASTAR_FAULTS_HOSTILE_SECONDS", "60")) if full else 3.0
    path, read = make(tmp_path)
    content, rng = path.read_bytes(), random.Random(f"{SEED} {kind}")
    done, slowest, highest, began = 0, 0.0, 0, time.monotonic()
    with Table(8, f"Hostile files, {kind}", goal="a million mutations in all", is_full=full) as table:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            while done < count and time.monotonic() - began < budget:
                path.write_bytes(mutate(content, rng))
                measured = done % 50 == 0
                if measured:
                    tracemalloc.start()
                start = time.monotonic()
                try:
                    read(path)
                except EtastarError:
                    pass
                except BaseException:
                    print(f"{kind}: mutation {done} of seed {SEED}; the file is {path}")
                    raise
                slowest = max(slowest, time.monotonic() - start)
                if measured:
                    highest = max(highest, tracemalloc.get_traced_memory()[1])
                    tracemalloc.stop()
                done += 1
                assert slowest < SLOW, f"mutation {done} of seed {SEED} took {slowest:.1f} s"
        table.add(
            files=done,
            wanted=count,
            crashes=0,
            slowest_seconds=round(slowest, 3),
            most_memory_MB=round(highest / 2**20, 1),
        )
        assert highest < MEMORY
        assert done > 0


FORBIDDEN = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
# submitit hands a job's result back as a pickle that the job itself wrote into the launcher's own folder
# with a loader derived from SafeLoader, which obeys no tag (test_damage says so)
KNOWN = {("launch/on_slurm.py", "pickle_load"), ("importers/hparams.py", "yaml.load")}


def unpickles(text: str) -> list[str]:
    """Whatever in a source text could load a pickle, or YAML with its tags obeyed."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.partition(".")[0] in FORBIDDEN]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in FORBIDDEN:
            found.append(node.module or "")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner, name = ast.unparse(node.func.value), node.func.attr
            if (owner, name) in {("torch", "load"), ("yaml", "load"), ("yaml", "unsafe_load"), ("yaml", "full_load")}:
                found.append(f"{owner}.{name}")
            elif "pickle" in name:
                found.append(name)
            elif any(k.arg == "allow_pickle" and getattr(k.value, "value", True) for k in node.keywords):
                found.append("allow_pickle")
    return found


def test_pickles_are_never_loaded() -> None:
    found = {
        (str(path.relative_to(SOURCE / "etastar")), what)
        for path in SOURCE.rglob("*.py")
        for what in unpickles(path.read_text(encoding="utf-8"))
    }
    assert found <= KNOWN


@pytest.mark.parametrize(
    "text",
    ["import pickle", "from dill import loads", "torch.load(p)", "yaml.load(f, Loader=x)", "np.load(p, allow_pickle=True)",
     "x.read_pickle(p)"],
)  # fmt: skip
def test_the_watch_over_pickles_sees_them(text: str) -> None:
    assert unpickles(text)
    assert not unpickles("yaml.safe_load(f); np.load(p, allow_pickle=False); json.load(f)")


def test_deep_and_wide_json_in_a_header(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / "s" / "x.safetensors"
    path.parent.mkdir(parents=True)
    for text in ("[" * 200_000, '{"a":' * 100_000, json.dumps({"__metadata__": {"digest": "é" * 64}}), "{}", "[]", "7"):
        data = text.encode()
        path.write_bytes(len(data).to_bytes(8, "little") + data)
        with pytest.raises(DamagedTensorsError):
            read_tensors(path)
        verify_files(tmp_path)
