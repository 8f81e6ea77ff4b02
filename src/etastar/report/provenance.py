"""Where do the numbers come from? Versions, fit options, seeds, data identity, and the specifications trained."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from etastar import __version__
from etastar.report.view import StudyView
from etastar.report.words import short_name

_HOW = ("device", "precision", "stack", "micro_batch", "ranks", "threads")  # columns of our own trainer
MOST_SPECS = 60
LONGEST_SPEC = 20_000


@dataclass(frozen=True)
class Spec:
    """One stack's specification, as the study's folder keeps it."""

    name: str
    id: str
    corpus: str
    text: str


@dataclass(frozen=True)
class Provenance:
    """Named values, notes of the import, specifications."""

    values: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()
    specs: tuple[Spec, ...] = ()
    specs_left_out: int = 0


def provenance(view: StudyView, folder: Path | None) -> Provenance:
    """All that is known of how a study came to be and how it was read."""
    specs, left_out = _specs(folder)
    corpora = sorted({spec.corpus for spec in specs if spec.corpus})
    options = view.options
    choice = options.choice
    values = [
        ("study", short_name(view.name)),
        ("rows", f"{view.table.num_rows:,}"),
        ("seeds", _listed(view, "seed")),
        *[(name.replace("_", " "), found) for name in _HOW if (found := _listed(view, name)) != "not recorded"],
        ("corpus", "; ".join(short_name(c) for c in corpora) or "not recorded"),
        ("η_eff", view.eff_column.value),
        ("fit", f"degree {choice.degree or 'chosen by the data'}, window {choice.window}"),
        ("intervals", f"{options.level:.0%}, {options.replicates} redraws, seed {options.seed}"),
        ("versions", f"etastar {__version__}, Python {platform.python_version()}, numpy {np.__version__}"),
    ]
    return Provenance(tuple(values), tuple(short_name(n) for n in view.notes), specs, left_out)


def _listed(view: StudyView, name: str) -> str:
    if name not in view.table.column_names:
        return "not recorded"
    known = sorted({v for v in view.table[name].to_pylist() if v is not None})
    if not known:
        return "not recorded"
    words = ", ".join(short_name(str(v), 60) for v in known[:12])
    return words if len(known) <= 12 else f"{words}, … ({len(known)} values)"


def _specs(folder: Path | None) -> tuple[tuple[Spec, ...], int]:
    """The readable specifications of a study's folder; `etastar verify` names the others."""
    paths = sorted((folder / "specs").glob("*.yaml")) if folder is not None else []
    found = [spec for path in paths[:MOST_SPECS] if (spec := _spec(path)) is not None]
    return tuple(found), len(paths) - len(found)


def _spec(path: Path) -> Spec | None:
    try:
        text = path.read_text(encoding="utf-8")
        content: Any = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None
    if not isinstance(content, Mapping):
        return None
    shown = text if len(text) <= LONGEST_SPEC else text[:LONGEST_SPEC] + "\n… (cut)"
    return Spec(short_name(str(content.get("name", ""))), path.stem, short_name(str(content.get("corpus", ""))), shown)
