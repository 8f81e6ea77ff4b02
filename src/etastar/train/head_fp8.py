"""How are the head's training logits multiplied in fp8?

Hidden states and table are scaled, each model by its own largest value, to fill e4m3; products add up in fp32
and come back in bf16. Both gradients stay in bf16, and so does every evaluation. `execution.head: fp8` asks for it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from etastar.errors import SpecError
from etastar.train.spec import TrainSpec

_E4M3 = torch.float8_e4m3fn
_LARGEST = torch.finfo(_E4M3).max
_DIVISOR = 16  # of both sides of a product, as the library asks


def fp8_logits(hidden: Tensor, table: Tensor) -> Callable[[slice], Tensor]:
    """`head.plain_logits` with narrow products: of a range of tokens, (K, c, V) in bf16."""
    left, left_scales = _narrowed(hidden)
    right, right_scales = _narrowed(table)

    def of(part: slice) -> Tensor:
        out = torch.empty(left.shape[0], left[:, part].shape[1], right.shape[1], device=left.device, dtype=hidden.dtype)
        for k in range(left.shape[0]):  # the library has no batched one
            torch._scaled_mm(  # pyright: ignore[reportPrivateImportUsage]
                left[k, part],
                right[k].T,
                scale_a=left_scales[k],
                scale_b=right_scales[k],
                out_dtype=hidden.dtype,
                out=out[k],
            )
        return out

    return of


def check_fp8(spec: TrainSpec, device: torch.device, compute: torch.dtype) -> None:
    """SpecError where an fp8 head was asked for and cannot be had."""
    model = spec.model
    against = {
        f"the device is {device.type}, not CUDA": device.type != "cuda",
        "products are not in bf16": compute != torch.bfloat16,
        f"width {model.width} is no multiple of {_DIVISOR}": model.width % _DIVISOR != 0,
        f"vocab {model.vocab} is no multiple of {_DIVISOR}": model.vocab % _DIVISOR != 0,
    }
    reasons = [reason for reason, holds in against.items() if holds]
    if not reasons and torch.cuda.get_device_capability(device) < (8, 9):
        reasons = [f"{torch.cuda.get_device_name(device)} has no fp8 products"]
    if reasons:
        raise SpecError(f"execution.head: fp8, but {reasons[0]}", hint="write head: auto")


def _narrowed(x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """(K, n, d) in e4m3, and each model's scale, aligned as the library asks."""
    scales = (x.abs().amax(dim=(1, 2)).float() / _LARGEST).clamp_min(1e-12)
    aligned = torch.zeros(x.shape[0], 4, device=x.device, dtype=torch.float32)
    aligned[:, 0] = scales
    return (x / scales[:, None, None]).to(_E4M3), [aligned[k, 0] for k in range(x.shape[0])]
