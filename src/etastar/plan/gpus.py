"""How fast is a named GPU, and how much does it hold? Vendors' figures: dense bf16, no sparsity."""

from __future__ import annotations

from dataclasses import dataclass

from etastar.errors import SpecError


@dataclass(frozen=True)
class Gpu:
    """One accelerator."""

    peak_flops: float  # dense bf16 with fp32 accumulation, a second
    memory: float  # bytes


GPUS: dict[str, Gpu] = {
    "A100": Gpu(312e12, 80e9),
    "A100-40GB": Gpu(312e12, 40e9),
    "H100": Gpu(989e12, 80e9),
    "H100-PCIe": Gpu(756e12, 80e9),
    "H200": Gpu(989e12, 141e9),
    "B200": Gpu(2250e12, 180e9),
    "L40S": Gpu(362e12, 48e9),
    "RTX3090": Gpu(71e12, 24e9),
    "RTX4090": Gpu(165e12, 24e9),
    "RTX5090": Gpu(209e12, 32e9),
    "MI300X": Gpu(1307e12, 192e9),
}


def gpu_named(name: str) -> Gpu:
    """The GPU that a typed name means: case, blanks and dashes do not matter, "4090" is the RTX 4090."""
    wanted = _plain(name)
    for known, gpu in GPUS.items():
        if wanted and wanted in (_plain(known), _plain(known).removeprefix("rtx")):
            return gpu
    raise SpecError(f"gpu: {name[:40]!r} is not known", hint=f"one of {', '.join(GPUS)}; or give peak_flops")


def _plain(name: str) -> str:
    return "".join(c for c in name.lower().removeprefix("nvidia") if c.isalnum())
