"""Small GGUF files: real headers, tensors that take no disk."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

F16, Q4_K = 1, 12
_BLOCK = {F16: (1, 2), Q4_K: (256, 144)}
_KINDS = {bool: (7, "?"), int: (4, "I"), float: (6, "f")}

QWEN: dict[str, Any] = {
    "general.architecture": "qwen3moe", "general.file_type": 15, "general.license": "apache-2.0",
    "qwen3moe.block_count": 4, "qwen3moe.context_length": 40960, "qwen3moe.embedding_length": 2048,
    "qwen3moe.attention.head_count": 32, "qwen3moe.attention.head_count_kv": 4,
    "qwen3moe.attention.key_length": 128, "qwen3moe.attention.value_length": 128,
    "qwen3moe.expert_count": 128, "qwen3moe.expert_used_count": 8,
    "tokenizer.ggml.tokens": ["<a>", "<b>"] * 500, "tokenizer.ggml.scores": [0.5] * 5000,
    "tokenizer.chat_template": "{{ tools }}<tool_call>",
}  # fmt: skip
TENSORS = (
    ("token_embd.weight", (256, 8), F16), ("blk.0.attn_q.weight", (256, 4), Q4_K),
    ("blk.0.ffn_down_exps.weight", (256, 4, 128), Q4_K), ("blk.0.ffn_gate_inp.weight", (256, 2), F16),
    ("output.weight", (256, 8), Q4_K),
)  # fmt: skip


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value(found: Any) -> bytes:
    if isinstance(found, str):
        return struct.pack("<I", 8) + text(found)
    if not isinstance(found, list):
        kind, form = _KINDS[type(found)]
        return struct.pack(f"<I{form}", kind, found)
    if isinstance(found[0], str):
        return struct.pack("<IIQ", 9, 8, len(found)) + b"".join(map(text, found))
    kind, form = _KINDS[type(found[0])]
    return struct.pack(f"<IIQ{len(found)}{form}", 9, kind, len(found), *found)


def header(keys: Mapping[str, Any], tensors: Sequence[tuple[str, tuple[int, ...], int]] = TENSORS) -> bytes:
    data = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    data += b"".join(text(name) + value(found) for name, found in keys.items())
    for name, shape, kind in tensors:
        data += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, 0)
    return data


def tensor_bytes(tensors: Sequence[tuple[str, tuple[int, ...], int]] = TENSORS) -> int:
    return sum(math.prod(shape) // _BLOCK[kind][0] * _BLOCK[kind][1] for _, shape, kind in tensors)


def write_gguf(
    path: Path, keys: Mapping[str, Any], tensors: Sequence[tuple[str, tuple[int, ...], int]] = TENSORS, *, cut: int = 0
) -> Path:
    """The file, `cut` bytes shorter than its header says."""
    data = header(keys, tensors)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(data)
        file.truncate(len(data) + tensor_bytes(tensors) - cut)
    return path
