"""The header of a safetensors file: names, dtypes, shapes and places of its tensors. No tensor is read.

The file begins with eight bytes (the header's length, little-endian), the header as JSON, then the tensors' bytes
without gaps. Whoever made the file may be hostile: every number is checked before it is believed.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from spark_tui.domain.models.checkpoint import CheckpointProblem
from spark_tui.domain.models.json_keys import MOST_BYTES, BadJson, read_object
from spark_tui.domain.text import clean_line, truncate

LENGTH_BYTES: Final = 8
MOST_HEADER_BYTES: Final = MOST_BYTES
"""The library allows 100 MB; the headers of real files have 0.1 to 10 MB."""
_MOST_DIMENSIONS: Final = 16
_LARGEST: Final = 2**62
_METADATA: Final = "__metadata__"

BITS: Final = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64,
    "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor as its header has it. `size` in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int

    @property
    def elements(self) -> int:
        """How many elements are stored; of packed 4-bit weights, two in each."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class SafetensorsHeader:
    """The tensors in file order, and the free metadata."""

    tensors: tuple[Tensor, ...]
    metadata: tuple[tuple[str, str], ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.size for tensor in self.tensors)


def header_length(first: bytes, file: str = "") -> int | CheckpointProblem:
    """The length of the JSON that follows, from the first eight bytes of a file."""
    if len(first) < LENGTH_BYTES:
        return CheckpointProblem(file, "shorter than the eight bytes that every safetensors file begins with")
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    if length > MOST_HEADER_BYTES:
        return CheckpointProblem(file, f"its header claims {length:,} bytes: not a safetensors file, or damaged")
    if length < 2:
        return CheckpointProblem(file, "its header is empty")
    return length


def parse_header(data: bytes, *, file: str = "", file_size: int | None = None) -> SafetensorsHeader | CheckpointProblem:
    """The beginning of a file (at least its whole header) -> its tensors, or what is wrong with it.

    `file_size` is the size of the whole file in bytes; when given, the tensors must fill it exactly.
    """
    length = header_length(data, file)
    if isinstance(length, CheckpointProblem):
        return length
    body = data[LENGTH_BYTES : LENGTH_BYTES + length]
    if len(body) < length:
        return CheckpointProblem(file, f"truncated: {len(body):,} of {length:,} bytes of its header are there")
    try:
        found = read_object(body, unique=True)
        metadata = _metadata(found.pop(_METADATA, None))
        placed = sorted((_tensor(name, entry) for name, entry in found.items()), key=lambda item: item[0])
        end = _without_gaps(placed)
    except BadJson as error:
        return CheckpointProblem(file, f"its header is wrong: {error}")
    if file_size is not None and LENGTH_BYTES + length + end != file_size:
        have = max(0, file_size - LENGTH_BYTES - length)
        words = "truncated" if have < end else "longer than its header says"
        return CheckpointProblem(file, f"{words}: {have:,} of {end:,} bytes of tensors are there")
    return SafetensorsHeader(tuple(tensor for _, tensor in placed), metadata)


def _metadata(found: Any) -> tuple[tuple[str, str], ...]:
    if found is None:
        return ()
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise BadJson("its metadata is not an object of texts")
    return tuple((truncate(clean_line(key), 60), truncate(clean_line(value), 200)) for key, value in found.items())


def _tensor(name: str, entry: Any) -> tuple[tuple[int, int], Tensor]:
    """((begin, end), tensor). The name is kept as it is, so that it can be looked up: clean it where it is shown."""
    shown = truncate(clean_line(name), 80)
    if not isinstance(entry, dict):
        raise BadJson(f"{shown} is not an object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or re.fullmatch(r"[A-Z0-9_]{1,16}", dtype) is None:
        raise BadJson(f"{shown} has no dtype")
    if not _is_counts(shape) or len(shape) > _MOST_DIMENSIONS:
        raise BadJson(f"{shown} has no shape")
    if not _is_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise BadJson(f"{shown} has no place in the file")
    size = offsets[1] - offsets[0]
    bits = BITS.get(dtype)
    if bits is not None and math.prod(shape) * bits != size * 8:
        raise BadJson(f"{shown} is {size:,} bytes long, which its shape and dtype do not give")
    return (offsets[0], offsets[1]), Tensor(name, dtype, tuple(shape), size)


def _is_counts(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(
        isinstance(item, int) and not isinstance(item, bool) and 0 <= item <= _LARGEST for item in value
    )


def _without_gaps(placed: list[tuple[tuple[int, int], Tensor]]) -> int:
    at = 0
    for (begin, end), tensor in placed:
        if begin != at:
            words = "overlaps the tensor before it" if begin < at else "leaves a gap before it"
            raise BadJson(f"{truncate(clean_line(tensor.name), 80)} {words}")
        at = end
    return at
