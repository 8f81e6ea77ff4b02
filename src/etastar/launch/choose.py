"""Which executor was asked for, and can it do what the specifications want?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from etastar.errors import InputError
from etastar.launch.executor import Executor
from etastar.launch.study import StackRecord

EXECUTORS = ("inline", "local", "ray", "slurm")


def parse_options(given: Iterable[str]) -> dict[str, Any]:
    """NAME=VALUE pairs → settings."""
    options: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--option {text[:60]!r} is not NAME=VALUE", hint="e.g. --option workers=2")
        options[name.strip()] = value.strip()
    return options


def make_executor(
    name: str, study: Path, stacks: Iterable[StackRecord], options: Mapping[str, Any] | None = None
) -> Executor:
    """An executor by its name, with its options checked; what it lacks is said before anything starts."""
    given = dict(options or {})
    devices = {record.spec.execution.device for record in stacks}
    cpu_only = devices <= {"cpu"}
    if name == "inline":
        from etastar.launch.on_inline import InlineExecutor, InlineOptions

        _refuse_absent_gpus(devices)
        return InlineExecutor(study, InlineOptions.read(name, given))
    if name == "local":
        from etastar.launch.on_local import LocalExecutor, LocalOptions

        read = LocalOptions.read(name, given)
        _refuse_absent_gpus(devices)
        return LocalExecutor(study, read, cpu_only=cpu_only)
    if name == "ray":
        from etastar.launch.on_ray import RayExecutor, RayOptions

        return RayExecutor(study, RayOptions.read(name, given), cpu_only=cpu_only)
    if name == "slurm":
        from etastar.launch.on_slurm import SlurmExecutor, SlurmOptions

        return SlurmExecutor(study, SlurmOptions.read(name, given))
    raise InputError(f"--on {name[:40]!r} is not known", hint=f"{', '.join(EXECUTORS)}")


def _refuse_absent_gpus(devices: Iterable[str]) -> None:
    """A specification that says cuda needs one here; `auto` takes what there is."""
    import torch

    asked = sorted(device for device in devices if device.startswith("cuda"))
    if asked and not torch.cuda.is_available():
        raise InputError(
            f"execution.device: {asked[0]} is asked for, and this machine has no GPU that torch sees",
            hint="write device: auto in the plan's spec, or launch where GPUs are (--on ray, --on slurm)",
        )
