"""Every reader, with a small file that it reads: what hostile files go through."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml
from tiny import plan, spec

sys.path.insert(0, str(Path(__file__).parents[1] / "importers"))

from test_damage import FILES
from test_golden import unpack

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
