"""Does any file, however spoilt, crash a reader, hang it, or make it take memory that the file does not have?"""

from __future__ import annotations

import ast
import json
import os
import random
import resource
import signal
import struct
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from counts import SEED, Table, counted
from tiny import plan, spec

sys.path.insert(0, str(Path(__file__).parents[1] / "importers"))

from test_damage import FILES
from test_golden import unpack

from etastar.errors import EtastarError
from etastar.importers.framing import tf_records, wandb_records
from etastar.importers.tables import read_runs
from etastar.plan.study_plan import load_plan
from etastar.predict.logged import read_trajectories
from etastar.store import Journal, read_events, write_runs
from etastar.store.parts import read_part
from etastar.store.tensor_digest import DamagedTensorsError
from etastar.store.verify import verify_files
from etastar.train.corpus_shards import MANIFEST, Manifest, read_manifest
from etastar.train.spec_file import load_spec
from etastar.train.tensor_file import read_tensors, write_tensors

SLOW = 5.0  # seconds for one small file: a hang
MEMORY = 256  # MB that a process may grow by while it reads thousands of files of a few kB
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


def _table(name: str) -> Callable[[Path], tuple[Path, Reader]]:
    """A user's own table, as `fit` and `predict` read it."""

    def make(folder: Path) -> tuple[Path, Reader]:
        path = folder / name
        rows = [{"params": 1e6, "tokens": 1e7, "lr": 0.1 + k, "loss": k / 7, "run": f"r{k}"} for k in range(30)]
        frame = pl.DataFrame(rows)
        {".csv": frame.write_csv, ".jsonl": frame.write_ndjson, ".parquet": frame.write_parquet}[path.suffix](path)
        return path, read_runs

    return make


def _logged(folder: Path) -> tuple[Path, Reader]:
    """Trajectories that were named on the command line."""
    path = folder / "mine.parquet"
    rows = [{"run": f"r{k % 3}", "step": k, "weight": "q", "weight_norm": 1.0, "update_norm": k / 7} for k in range(60)]
    pq.write_table(pa.Table.from_pylist(rows), path)

    def read(path: Path) -> None:
        if (found := read_trajectories(path, path)) is not None:
            found.of({"r0", "r1"})

    return path, read


def _plan(folder: Path) -> tuple[Path, Reader]:
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump(plan().model_dump(mode="json")), encoding="utf-8")
    return path, load_plan


def _specification(folder: Path) -> tuple[Path, Reader]:
    path = folder / "spec.yaml"
    path.write_text(spec().to_yaml(), encoding="utf-8")
    return path, load_spec


def _journal(folder: Path) -> tuple[Path, Reader]:
    journal = Journal(folder, writer="w")
    for index in range(20):
        journal.write("tick", index=index, text='ä quoted " text')
    journal.close()
    return journal.path, lambda path: read_events(folder)


def _corpus(folder: Path) -> tuple[Path, Reader]:
    shard = {"file": "train-0.u16", "tokens": 100, "sha256": "0" * 64}
    content = {"dtype": "uint16", "vocab": 64, "document_start": 0, "train": [shard], "validation": [shard]}
    path = folder / MANIFEST
    path.write_text(Manifest.model_validate(content).model_dump_json(indent=1), encoding="utf-8")
    return path, lambda path: read_manifest(folder)


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
    "checkpoint": (0.12, _tensors),
    "safetensors header": (0.2, _header_alone),
    "Parquet part": (0.15, _part),
    "runs in Parquet": (0.06, _table("runs.parquet")),
    "runs in CSV": (0.03, _table("runs.csv")),
    "runs in JSON lines": (0.03, _table("runs.jsonl")),
    "trajectories": (0.05, _logged),
    "plan": (0.005, _plan),
    "specification": (0.005, _specification),
    "journal": (0.03, _journal),
    "corpus manifest": (0.03, _corpus),
    "tensorboard frames": (0.06, _framed(tf_records, "tensorboard")),
    "wandb frames": (0.03, _framed(wandb_records, "wandb")),
    "wandb": (0.04, _foreign("wandb")),
    "tensorboard": (0.04, _foreign("tensorboard")),
    "trainer": (0.06, _foreign("trainer")),
    "lightning-csv": (0.03, _foreign("lightning-csv")),
    "trackio": (0.02, _foreign("trackio")),
    "mlflow-sqlite": (0.01, _foreign("mlflow-sqlite")),
}


BATCH = 5_000  # mutations a process


def _batch(kind: str, first: int, last: int, folder: Path) -> dict[str, Any]:
    """Read the mutations first … last in a process of their own, so that a crash of a library is seen and counted."""
    folder.mkdir()
    at = folder / "at"  # the mutation that is being read
    at.write_bytes(first.to_bytes(8, "little"))
    pid = os.fork()
    if pid == 0:
        os._exit(_read_all(kind, first, last, folder))
    status, moved, seen = None, time.monotonic(), b""
    while status is None:
        found, code = os.waitpid(pid, os.WNOHANG)
        status = code if found else None
        if (now := at.read_bytes()) != seen:
            seen, moved = now, time.monotonic()
        elif time.monotonic() - moved > 4 * SLOW:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    reached = int.from_bytes(at.read_bytes(), "little")
    code, result = os.waitstatus_to_exitcode(status), folder / "result"
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


def _read_all(kind: str, first: int, last: int, folder: Path) -> int:
    (folder / "study").mkdir()
    path, read = KINDS[kind][1](folder / "study")
    content, slowest, wrong = path.read_bytes(), 0.0, []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    at = os.open(folder / "at", os.O_WRONLY)
    warnings.simplefilter("ignore")
    for number in range(first, last):
        os.pwrite(at, number.to_bytes(8, "little"), 0)
        path.write_bytes(mutate(content, random.Random(f"{SEED} {kind} {number}")))
        start = time.monotonic()
        try:
            read(path)
        except EtastarError:
            pass
        except BaseException as error:
            wrong.append(f"{kind}: mutation {number} of seed {SEED}: {type(error).__name__}: {error}"[:500])
        slowest = max(slowest, time.monotonic() - start)
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
                pool.map(lambda first: _batch(kind, first, min(first + BATCH, count), tmp_path / str(first)), firsts)
            )
        wrong = [said for one in found for said in one["wrong"]]
        slowest, most = max(one["seconds"] for one in found), max(one["MB"] for one in found)
        table.add(files=sum(one["files"] for one in found), crashes=len(wrong), slowest_seconds=round(slowest, 3),
                  most_memory_MB=round(most))  # fmt: skip
        assert not wrong, "\n".join(wrong[:8])
        assert slowest < SLOW
        assert most < MEMORY


FORBIDDEN = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
# with a loader derived from SafeLoader, which obeys no tag (test_damage says so)
KNOWN = {("importers/hparams.py", "yaml.load")}


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
