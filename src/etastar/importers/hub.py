"""How is a data set on the Hugging Face hub, or a folder of its files, read? `hf:OWNER/NAME`.

The paper's own data, `hf:neurips2026lrtransfer/LR-Transfer-Trajectory`, is such a set. Its tables are brought by
huggingface_hub (installed with `pip install etastar[data]`); a folder with the files needs no network. Names that
are not recognised are given with `--map`, or with a mapping file: `--map @mapping.yaml`.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from etastar.errors import InputError

_ENDINGS = (".parquet", ".pq", ".csv", ".tsv", ".jsonl", ".ndjson")


def read_hub(name: str) -> list[Path]:
    """Bring a data set's tables (or find those of a local folder) and list them."""
    if Path(name).is_dir():
        return table_files(Path(name))
    if name.count("/") != 1 or not all(name.split("/")):
        raise InputError(f"hf:{name[:80]}: is not OWNER/DATASET, and no folder", hint="hf:OWNER/LR-Transfer-Trajectory")
    try:
        hub: Any = importlib.import_module("huggingface_hub")
    except ImportError:
        raise InputError(
            f"hf:{name}: the package huggingface_hub is not installed",
            hint="pip install huggingface_hub, or download the files and give their folder",
        ) from None
    try:
        patterns = [f"*{ending}" for ending in _ENDINGS]
        folder = hub.snapshot_download(name, repo_type="dataset", allow_patterns=patterns)
    except (hub.errors.HfHubHTTPError, hub.errors.LocalEntryNotFoundError, OSError, ValueError, RuntimeError) as error:
        said = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
        raise InputError(
            f"hf:{name}: cannot be brought here: {said}",
            hint="check the name and the network; or download its files elsewhere and give their folder",
        ) from None
    return table_files(Path(folder))


def table_files(folder: Path) -> list[Path]:
    """The tables of a folder: of one format, the first that is there."""
    found = sorted(p for p in folder.rglob("*") if p.suffix.lower() in _ENDINGS and p.is_file() and p.name[0] != ".")
    for ending in _ENDINGS:
        if some := [p for p in found if p.suffix.lower() == ending]:
            return some
    return []
