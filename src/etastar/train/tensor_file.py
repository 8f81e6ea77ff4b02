"""How do tensors get into one file, and how is it known that they are still what was written?

The format is safetensors: eight bytes of header length, JSON, raw bytes. It is written here, tensor by tensor, and
not by the library: that one makes a temporary file of a random name, which after a kill nobody could tell from a
file in use, and it has no checksum. A digest of everything else in the file stands in the header; reading is
the library's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from etastar.store.tensor_digest import MARK, DamagedTensorsError, check_tensors

_DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


def write_tensors(path: Path, tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> None:
    """Write tensors with JSON `content` and a digest in the header."""
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # wide ones first: all aligned
    header: dict[str, Any] = {"__metadata__": {"digest": MARK, "etastar": json.dumps(content, sort_keys=True)}}
    end = 0
    for name in order:
        start, end = end, end + tensors[name].nbytes
        shape = list(tensors[name].shape)
        header[name] = {"dtype": _DTYPES[tensors[name].dtype], "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    start = len(text).to_bytes(8, "little") + text
    digest = hashlib.sha256(start)
    with path.open("xb") as file:
        file.write(start)
        for name in order:
            data = tensors[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
            digest.update(data)
            file.write(data)
        file.seek(start.index(MARK.encode()))
        file.write(digest.hexdigest().encode())


def read_tensors(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """(content, tensors) of a file that holds what was written, else `DamagedTensorsError`."""
    try:
        check_tensors(path)
        with safe_open(path, framework="pt") as file:
            content = json.loads((file.metadata() or {}).get("etastar", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise DamagedTensorsError(str(error)[:100]) from None
    if not isinstance(content, dict):
        raise DamagedTensorsError("its header says nothing of where it belongs")
    return content, tensors
