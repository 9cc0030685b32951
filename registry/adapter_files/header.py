"""The bounded safetensors header reader: the first thing that touches a tenant's weights file.

A safetensors file is 8 bytes of header length, a JSON header, then the tensors' bytes. The usual library accepts
headers of 100 MB, duplicate keys and any number of tensors; this reader bounds memory and time before it parses.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

from registry.adapter_files.folder import open_regular
from registry.adapter_files.reasons import quoted, reject
from registry.adapter_files.strict_json import BadJsonError, DuplicateKeyError, parse_object

MAX_HEADER_BYTES: Final = 1024 * 1024
MAX_METADATA_BYTES: Final = 4 * 1024
MAX_TENSORS: Final = 4096
MAX_DIM: Final = 2**24
ITEM_BYTES: Final = {"F32": 4, "F16": 2, "BF16": 2}
_PICKLE_MAGICS: Final = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_LENGTH_BYTES: Final = 8


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of the file: `shape` is (rows, columns), `start` and `end` are byte positions in the file."""

    dtype: str
    shape: tuple[int, int]
    start: int
    end: int


def read(path: Path) -> dict[str, TensorInfo]:
    """The file's tensors by name, in file order. Raises AdapterRejected for anything but a sound, plain file."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        raw = _header_bytes(file, size)
    entries = _entries(raw)
    data_start = _LENGTH_BYTES + len(raw)
    tensors = [(name, _tensor(name, entry, data_start)) for name, entry in entries.items()]
    tensors.sort(key=lambda named: (named[1].start, named[1].end))
    _check_layout([info for _, info in tensors], data_start, size)
    return dict(tensors)


def _header_bytes(file: BinaryIO, size: int) -> bytes:
    prefix = file.read(_LENGTH_BYTES + 1)
    _refuse_pickle(prefix)
    if len(prefix) <= _LENGTH_BYTES:
        raise reject("truncated", "The weights file is empty or ends before its header.")
    length = int.from_bytes(prefix[:_LENGTH_BYTES], "little")
    if length > MAX_HEADER_BYTES:
        raise reject("header_too_large", f"The header claims {length} bytes; at most {MAX_HEADER_BYTES} are read.")
    if length > size - _LENGTH_BYTES:
        raise reject("truncated", f"The header claims {length} bytes, more than the file has.")
    file.seek(_LENGTH_BYTES)
    raw = file.read(length)
    if len(raw) != length:
        raise reject("truncated", "The weights file changed while it was read.")
    return raw


def _refuse_pickle(prefix: bytes) -> None:
    # A sound file whose header is 640 bytes long also begins with 80 02; its ninth byte is the header's brace.
    if prefix.startswith(_PICKLE_MAGICS) and prefix[_LENGTH_BYTES:] != b"{":
        raise reject("pickle_file", "The weights file is a pickle or zip archive under another name.")


def _entries(raw: bytes) -> dict[str, object]:
    # Counting first keeps a header of a million tiny objects from being parsed into memory.
    if raw.count(b"{") > MAX_TENSORS + 2 or raw.count(b"[") > 2 * MAX_TENSORS or raw.count(b",") > 8 * MAX_TENSORS:
        raise reject("too_many_tensors", f"The header describes more than {MAX_TENSORS} tensors.")
    try:
        entries = parse_object(raw)
    except DuplicateKeyError:
        raise reject("duplicate_tensor", "The header names the same tensor or field twice.") from None
    except BadJsonError as error:
        raise reject("header_invalid", f"The header cannot be read: {error}.") from None
    if not raw.startswith(b"{"):
        raise reject("header_invalid", "The header does not begin with a brace.")
    _check_metadata(entries.pop("__metadata__", {}))
    if len(entries) > MAX_TENSORS:
        raise reject("too_many_tensors", f"The header describes {len(entries)} tensors; at most {MAX_TENSORS}.")
    return entries


def _check_metadata(metadata: object) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise reject("header_invalid", "__metadata__ must map names to texts.")
    if sum(len(key) + len(value) for key, value in metadata.items()) > MAX_METADATA_BYTES:
        raise reject("metadata_too_large", f"__metadata__ is larger than {MAX_METADATA_BYTES} bytes.")


def _tensor(name: str, entry: object, data_start: int) -> TensorInfo:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise reject("header_invalid", f"Tensor {quoted(name)} must have dtype, shape and data_offsets.")
    dtype = entry["dtype"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise reject("dtype_unsupported", f"Tensor {quoted(name)} has dtype {quoted(dtype)}.")
    rows, columns = _shape(name, entry["shape"])
    start, end = _offsets(name, entry["data_offsets"])
    if end - start != rows * columns * ITEM_BYTES[dtype]:
        raise reject("tensor_size", f"Tensor {quoted(name)} has {end - start} bytes, not those of its shape.")
    return TensorInfo(dtype, (rows, columns), data_start + start, data_start + end)


def _shape(name: str, shape: object) -> tuple[int, int]:
    if not isinstance(shape, list) or len(shape) != 2:
        raise reject("tensor_dims", f"Tensor {quoted(name)} does not have exactly two dimensions.")
    # bool is an int to isinstance, so the type itself is asked.
    if not all(type(dim) is int and 1 <= dim <= MAX_DIM for dim in shape):
        raise reject("tensor_dims", f"Tensor {quoted(name)} has a dimension that is not in 1..{MAX_DIM}.")
    return cast("tuple[int, int]", tuple(shape))


def _offsets(name: str, offsets: object) -> tuple[int, int]:
    if not isinstance(offsets, list) or len(offsets) != 2:
        raise reject("header_invalid", f"Tensor {quoted(name)} has data_offsets that are not two numbers.")
    start, end = offsets
    if type(start) is not int or type(end) is not int or not 0 <= start <= end < 2**63:
        raise reject("tensor_layout", f"Tensor {quoted(name)} has data_offsets that are not a byte range.")
    return start, end


def _check_layout(tensors: list[TensorInfo], data_start: int, size: int) -> None:
    position = data_start
    for info in tensors:
        if info.start != position:
            what = "overlap" if info.start < position else "leave a hole"
            raise reject("tensor_layout", f"Tensors {what} at byte {info.start}.")
        position = info.end
    if position > size:
        raise reject("truncated", f"The tensors need {position} bytes; the file has {size}.")
    if position < size:
        raise reject("tensor_layout", f"{size - position} bytes follow the last tensor.")
