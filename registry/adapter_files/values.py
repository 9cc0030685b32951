"""The scan for weights that are not numbers or not plausible, in bounded memory.

A NaN in one tenant's adapter reaches other tenants through recycled KV blocks; a finite 1e30 overflows into the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from registry.adapter_files.folder import open_regular
from registry.adapter_files.header import TensorInfo
from registry.adapter_files.reasons import Findings, quoted

MAX_ABS: Final = 1e4
_CHUNK_BYTES: Final = 1024 * 1024


def check_values(path: Path, tensors: Mapping[str, TensorInfo], findings: Findings) -> None:
    """Report tensors with NaN, infinite or absurd (beyond `MAX_ABS`) values. Raises AdapterRejected if cut short."""
    with open_regular(path) as file:
        for name, info in tensors.items():
            largest = _largest(file, info)
            if np.isnan(largest):
                findings.add("values_nan", f"Tensor {quoted(name)} contains NaN.")
            elif np.isinf(largest):
                findings.add("values_infinite", f"Tensor {quoted(name)} contains infinity.")
            elif largest > MAX_ABS:
                findings.add("values_absurd", f"Tensor {quoted(name)} has a weight of {largest:.3g}.")


def _largest(file: BinaryIO, info: TensorInfo) -> float:
    """The largest absolute value; NaN if there is one anywhere in the tensor."""
    file.seek(info.start)
    left, largest = info.end - info.start, 0.0
    while left and (chunk := file.read(min(left, _CHUNK_BYTES))):
        left -= len(chunk)
        # np.maximum keeps a NaN; max() would drop it.
        largest = float(np.maximum(largest, np.abs(_floats(chunk, info.dtype)).max()))
    return largest


def _floats(chunk: bytes, dtype: str) -> npt.NDArray[np.floating]:
    if dtype == "BF16":
        # numpy has no bfloat16: its 16 bits are the upper half of a float32.
        return (np.frombuffer(chunk, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(chunk, "<f4" if dtype == "F32" else "<f2")
