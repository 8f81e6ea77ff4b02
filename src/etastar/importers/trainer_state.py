"""What does Hugging Face's Trainer leave in its output folder? `trainer_state.json`, and what lies beside it.

The state holds the whole log; the settings are in a pickle (`training_args.bin`), which is never opened. So they
come from the model's `config.json`, from the shapes in `model.safetensors`, and from the arguments that the
Trainer wrote into TensorBoard's events, where there are any. The newest checkpoint's state speaks for a run.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from etastar.importers.raw import LONGEST_TEXT, Gathered, RawRun, flatten, number, relative
from etastar.importers.tensorboard import PATTERN, read_tensorboard

KIND = "trainer_state.json of Hugging Face's Trainer"
NAME = "trainer_state.json"
_CHECKPOINT = re.compile(r"checkpoint-\d+$")
_LONGEST_STATE = 2**30  # bytes: a log of every step of a long run is some hundred MB
_LONGEST_HEADER = 100 * 2**20
_KEPT = ("max_steps", "num_train_epochs", "train_batch_size", "total_flos", "num_input_tokens_seen", "global_step")
_POSITIONS = re.compile(r"(^|\.)(wpe|position_embeddings?|embed_positions)\.weight$")
_EMBEDDING = re.compile(r"(^|\.)(wte|wpe|embed_tokens|embed_in|word_embeddings|tok_embeddings|embeddings?)\.weight$")


def read_trainer_states(paths: list[Path], root: Path) -> Gathered:
    """Runs of some trainer_state.json files: one for each output folder."""
    homes: dict[Path, list[Path]] = {}
    for path in paths:
        folder = path.parent
        homes.setdefault(folder.parent if _CHECKPOINT.match(folder.name) else folder, []).append(path)
    runs, problems = [], []
    for home, files in sorted(homes.items()):
        read = [(_state(path, relative(path, root)), path) for path in files]
        problems += [said for said, _ in read if isinstance(said, str)]
        whole = [(state, path) for state, path in read if isinstance(state, dict)]
        if whole:
            newest = max(whole, key=lambda pair: (number(pair[0].get("global_step")) or 0, -len(str(pair[1]))))
            runs.append(_run(home, newest[0], newest[1], root))
    return Gathered(KIND, tuple(runs), tuple(problems))


def _state(path: Path, shown: str) -> dict[str, Any] | str:
    try:
        if path.stat().st_size > _LONGEST_STATE:
            return f"{shown}: is larger than {_LONGEST_STATE} bytes"
        content = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        return f"{shown}: cannot be read ({error.strerror})"
    except (ValueError, RecursionError) as error:
        return f"{shown}: is not whole JSON ({str(error)[:80]})"
    if not isinstance(content, dict) or not isinstance(content.get("log_history"), list):
        return f"{shown}: holds no log_history"
    return content


def _run(home: Path, state: dict[str, Any], path: Path, root: Path) -> RawRun:
    name = relative(home, root)
    run = RawRun(id=name, name=name, source=relative(path, root))
    run.config.update(_beside(home, path, run))
    run.config.update({key: state[key] for key in _KEPT if number(state.get(key))})
    bad = 0
    for row in state["log_history"]:
        step = number(row.get("step")) if isinstance(row, dict) else None
        if step is None or not math.isfinite(step):
            bad += 1
            continue
        for key, value in row.items():
            if key not in ("step", "epoch") and (found := number(value)) is not None:
                run.add(key, int(step), 0.0, found)
    if bad:
        run.problems.append(f"{run.source}: {bad} entries of log_history have no step and are left out")
    return run


def _beside(home: Path, path: Path, run: RawRun) -> dict[str, Any]:
    """Settings from files beside the state; those of the Trainer's own arguments win."""
    settings: dict[str, Any] = {}
    for folder in dict.fromkeys((path.parent, home, *sorted(home.glob("checkpoint-*"))[-1:])):
        settings = flatten(_json(folder / "config.json")) | settings
        if "params_total" not in settings:
            settings.update(_shapes(folder))
    events = sorted(p for p in home.rglob(PATTERN) if p.is_file() and not p.name.endswith(".profile-empty"))
    if events:
        for logged in read_tensorboard(events, home).runs:
            settings.update(logged.config)
            run.problems += logged.problems
    return settings


def _json(path: Path) -> Any:
    try:
        if not path.is_file() or path.stat().st_size > LONGEST_TEXT:
            return {}
        return json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, RecursionError):
        return {}


def _shapes(folder: Path) -> dict[str, Any]:
    """Parameters by the header of the saved weights: all, position tables aside, and without embeddings."""
    total = bare = 0
    for path in sorted(folder.glob("model*.safetensors")):
        for name, shape in _header(path):
            count = math.prod(shape)
            total += 0 if _POSITIONS.search(name) else count
            bare += 0 if _EMBEDDING.search(name) else count
    return {"params_total": total, "params_nonembedding": bare} if total else {}


def _header(path: Path) -> list[tuple[str, list[int]]]:
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > min(_LONGEST_HEADER, path.stat().st_size):
                return []
            header = json.loads(file.read(length))
    except (OSError, ValueError, RecursionError):
        return []
    if not isinstance(header, dict):
        return []
    return [
        (name, entry["shape"])
        for name, entry in header.items()
        if name != "__metadata__" and isinstance(entry, dict) and _is_shape(entry.get("shape"))
    ]


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, list) and all(isinstance(n, int) and 0 <= n < 2**48 for n in shape) and len(shape) <= 8
