"""Which runs does a W&B project on a server hold? `wandb:ENTITY/PROJECT`, by W&B's public API.

The only reader of W&B that needs the package and a network; login and server are wandb's own (`wandb login`,
WANDB_API_KEY, WANDB_BASE_URL). A run folder on disk needs neither: see `wandb_files`.
"""

from __future__ import annotations

import importlib
from typing import Any

from etastar.errors import InputError
from etastar.importers.raw import Gathered, RawRun, flatten, log_row, number, whole
from etastar.records import RunStatus

KIND = "a W&B project on a server"
_STATES = {"finished": RunStatus.FINISHED}


def read_wandb_api(address: str) -> Gathered:
    """All runs of ENTITY/PROJECT, or the one of ENTITY/PROJECT/RUN."""
    parts = [part for part in address.strip("/").split("/") if part]
    if len(parts) not in (2, 3):
        raise InputError(f"wandb:{address[:80]}: is not ENTITY/PROJECT or ENTITY/PROJECT/RUN", hint="wandb:me/my-sweep")
    try:
        wandb: Any = importlib.import_module("wandb")
    except ImportError:
        raise InputError(
            f"wandb:{address}: the package wandb is not installed",
            hint="pip install wandb, or give a folder of .wandb files, which needs no package",
        ) from None
    try:
        # what goes wrong on the way: wandb's own errors, and those of the network below it
        api: Any = wandb.Api(timeout=60)
        found = [api.run("/".join(parts))] if len(parts) == 3 else api.runs("/".join(parts))
        return Gathered(KIND, tuple(_run(one, address) for one in found))
    except (wandb.Error, OSError, ValueError, RuntimeError) as error:
        said = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
        raise InputError(
            f"wandb:{address[:80]}: {said}",
            hint="is the name right, are you logged in (wandb login), and does the network reach the server?",
        ) from None


def _run(one: Any, address: str) -> RawRun:
    run = RawRun(id=str(one.id), name=str(one.name or one.id), source=f"wandb:{address}")
    run.config = {k: v for k, v in flatten(dict(one.config)).items() if not k.startswith("_wandb")}
    run.status = _STATES.get(str(one.state), RunStatus.CRASHED)
    for row in one.scan_history():
        step = whole(row.get("_step"), 0)
        time = number(row.get("_timestamp")) or 0.0
        log_row(run, {k: v for k, v in flatten(row).items() if not k.startswith("_")}, step, time)
    for name, value in flatten(dict(one.summary)).items():
        if not name.startswith("_") and name not in run.metrics and (found := number(value)) is not None:
            run.add(name, run.last_step, 0.0, found)
    return run
