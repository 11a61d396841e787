"""What the header of a GGUF file says: keys and values, then the tensors. (ggml: docs/gguf.md; llama.cpp 2026-03)"""

from __future__ import annotations

import math
import re
import struct
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from spark_tui.base.checkpoint import (
    AttentionLayers,
    CheckpointFacts,
    CheckpointProblem,
    Experts,
    LayerKind,
    ModelKind,
    Quantization,
    StateLayers,
    WeightFormat,
    abilities_of,
)
from spark_tui.base.finding import Missing, Ok, Reading
from spark_tui.base.text import clean_line
from spark_tui.catalog.models.model.config import Keys
from spark_tui.catalog.models.model.weights import CheckpointFiles, Tensor, summarise

MOST_GGUF_BYTES: Final = 32 * 1024 * 1024
"""Of one file's beginning: a vocabulary of 262,144 tokens with its merges takes 11 MB."""
PART: Final = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
_MOST_KEYS, _MOST_TENSORS, _MOST_LAYERS, _MOST_DIMENSIONS = 4096, 65_536, 4096, 8
_MOST_TEMPLATE: Final = 1024 * 1024
_STRING, _ARRAY = 8, 9
_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_LENGTH: Final = struct.Struct("<Q").unpack_from

# ggml's tensor types: name, elements and bytes of one block.
_TYPES: Final = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}  # fmt: skip
_FILE_TYPES: Final = {  # llama.cpp: enum llama_ftype
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4",
}  # fmt: skip
_FORMATS: Final = {
    "F16": WeightFormat.FP16,
    "BF16": WeightFormat.BF16,
    "MXFP4": WeightFormat.MXFP4,
    "Q8_0": WeightFormat.INT8,
}
# llama.cpp's tensor names as the summary of weights knows them; the first that fits.
_NAMES: Final = (
    (r"\.ffn_(\w+)_(?:ch)?exps\b", r".mlp.experts.\1_proj"), (r"\.ffn_(\w+)_shexp\b", r".mlp.shared_expert.\1_proj"),
    (r"\.ffn_gate_inp\b", ".mlp.router"), (r"\.ffn_", ".mlp."), (r"\.attn_", ".attn."), (r"\.ssm_", ".ssm."),
    (r"^token_embd\b", "embed_tokens"), (r"\.nextn\.", ".mtp."),
)  # fmt: skip


_UNREAD: Final = re.compile(r"compress|indexer|kda|lightning")
"""Keys of attention that is not read here."""
_POOLED: Final = {1: ModelKind.EMBEDDING, 2: ModelKind.EMBEDDING, 3: ModelKind.EMBEDDING, 4: ModelKind.RERANKER}
"""llama.cpp: enum llama_pooling_type."""


class _Cursor(Struct):
    """A place in the beginning of a file. Raises struct.error at its end, ValueError for what no GGUF file holds."""

    data: bytes
    at: int = 0

    def take(self, form: str) -> Any:
        value = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.at += struct.calcsize("<" + form)
        return value

    def skip(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise struct.error("end of data")
        self.at += size
        return self.data[self.at - size : self.at]

    def text(self) -> str:
        return self.skip(self.take("Q")).decode("utf-8", "replace")

    def counts(self) -> tuple[int, int]:
        """How many keys and tensors follow, at the beginning of a file."""
        if self.skip(4) != b"GGUF":
            raise ValueError("no GGUF file")
        version, tensors, keys = self.take("I"), self.take("Q"), self.take("Q")
        if version not in (2, 3) or keys > _MOST_KEYS or tensors > _MOST_TENSORS:
            raise ValueError(f"version {version} with {keys:,} keys and {tensors:,} tensors is not supported")
        return keys, tensors

    def value(self) -> Any:
        """A text, a number, or a list of numbers; None for what is longer than a model has layers."""
        kind = self.take("I")
        if kind == _STRING:
            return self.text()
        if kind in _SCALARS:
            return self.take(_SCALARS[kind])
        if kind != _ARRAY:
            raise ValueError(f"unknown value type {kind}")
        kind, count = self.take("I"), self.take("Q")
        if kind == _STRING:  # tokens and merges
            data, at, end = self.data, self.at, len(self.data)
            for _ in range(count):
                at += 8 + _LENGTH(data, at)[0]
            if at > end:
                raise struct.error("end of data")
            self.at = at
            return None
        if kind not in _SCALARS:
            raise ValueError(f"unknown value type {kind}")
        packed = self.skip(count * struct.calcsize(_SCALARS[kind]))
        return list(struct.unpack(f"<{count}{_SCALARS[kind]}", packed)) if count <= _MOST_LAYERS else None

    def tensor(self) -> Tensor:
        name, count = self.text(), self.take("I")
        if count > _MOST_DIMENSIONS:
            raise ValueError(f"a tensor of {count} dimensions")
        shape = tuple(self.take("Q") for _ in range(count))
        kind, _ = self.take("I"), self.take("Q")
        if kind not in _TYPES:
            raise ValueError(f"unknown tensor type {kind}")
        dtype, elements, size = _TYPES[kind]
        for pattern, known in _NAMES:
            name, found = re.subn(pattern, known, name)
            if found:
                break
        return Tensor(name, dtype, shape, math.prod(shape) // elements * size)


class _Header(Struct):
    """The header of one file, as far as it was read. `problem` says why no further."""

    keys: dict[str, Any]
    tensors: list[Tensor]
    problem: str = ""


def _header(data: bytes, size: int | None) -> _Header:
    """From a file's beginning. `size` is that of the whole file, in bytes."""
    found, cursor = _Header({}, []), _Cursor(data)
    try:
        keys, tensors = cursor.counts()
        for _ in range(keys):
            name = cursor.text()
            found.keys[name] = cursor.value()
        found.tensors += [cursor.tensor() for _ in range(tensors)]
    except (struct.error, OverflowError):
        found.problem = "its header is cut off or larger than 32 MiB"
    except ValueError as error:
        found.problem = str(error)
    have, need = (size or 0) - cursor.at, sum(tensor.size for tensor in found.tensors)
    if not found.problem and size is not None and have < need:
        found.problem = f"truncated: {max(0, have):,} of {need:,} bytes of tensors are there"
    return found


def read_gguf(
    files: CheckpointFiles, sizes: Mapping[str, int | None], file: str, source: str
) -> Reading[CheckpointFacts]:
    """What the header of a GGUF file says, with those of its other parts where it is split. `sizes` are those of the
    files beside it, in bytes. Missing where the first part's keys cannot be read; any other fault is a finding, and
    `weights.complete` is false."""
    split = PART.search(file)
    names = [file]
    if split is not None:
        names = [f"{file[: split.start()]}-{n:05}-of-{split[2]}.gguf" for n in range(1, min(int(split[2]), 1000) + 1)]
    headers, findings = list[_Header](), list[str]()
    for name in names:
        data = files.head(name, MOST_GGUF_BYTES)
        missing = data.reason if isinstance(data, CheckpointProblem) else "is not downloaded"
        header = _header(data, sizes.get(name)) if isinstance(data, bytes) else _Header({}, [], missing)
        headers.append(header)
        findings += [f"{name}: {header.problem}"] * bool(header.problem)
    keys = headers[0].keys
    family = keys.get("general.architecture")
    if not isinstance(family, str) or not family:
        return Missing(findings[0] if findings else f"{file}: names no architecture")
    own = {name.removeprefix(f"{family}."): value for name, value in keys.items() if name.startswith(f"{family}.")}
    text, general = Keys(own, findings), Keys(keys, findings)
    count = text.positive("block_count")
    kind = _POOLED.get(text.integer("pooling_type") or 0, ModelKind.TEXT)
    attention, states = _layers(own, text, count if count is not None and count <= _MOST_LAYERS else None)
    routed, each = text.positive("expert_count"), text.positive("expert_used_count")
    named = _FILE_TYPES.get(general.integer("general.file_type") or 0, "")
    main = _FORMATS.get(named, WeightFormat.INT4 if "Q4" in named else WeightFormat.OTHER)
    template, tensors = keys.get("tokenizer.chat_template"), [each for part in headers for each in part.tensors]
    complete = not any(header.problem for header in headers)
    return Ok(
        CheckpointFacts(
            architecture=general.text("general.architecture"),
            kind=kind,
            kind_sign="key pooling_type" if kind is not ModelKind.TEXT else "",
            model_type=general.text("general.architecture"),
            dtype="float16",  # of llama.cpp's cache where nothing else is asked
            quantization=Quantization(f"GGUF {named}", (main,)) if "general.file_type" in general and named else None,
            layers=count,
            attention=attention,
            states=states,
            experts=Experts(routed, min(each, routed), text.integer("expert_shared_count") or 0)
            if routed and each
            else None,
            is_moe=bool(routed),
            max_position_embeddings=text.positive("context_length"),
            modalities=("text",),
            weights=summarise(tensors, layers=count, complete=complete) if tensors else None,
            chat=abilities_of(template[:_MOST_TEMPLATE], family) if isinstance(template, str) else None,
            licence=general.text("general.license"),
            heads=max(_each(own.get("attention.head_count"), 1), default=None),
            kv_heads=max(_each(own.get("attention.head_count_kv"), 1), default=None),
            findings=tuple(findings),
            source=source,
        )
    )


def _each(value: Any, layers: int) -> list[int]:
    """One count for each layer, from a number for all of them or a list; empty for anything else."""
    counts = value if isinstance(value, list) else [value] * layers
    return counts if all(isinstance(each, int) and 0 <= each < 1 << 20 for each in counts) else []


def _layers(
    own: Mapping[str, Any], text: Keys, count: int | None
) -> tuple[tuple[AttentionLayers, ...] | None, tuple[StateLayers, ...] | None]:
    """What the layers keep; None where the keys do not say. A window without the layers that have one is left out:
    rather too much memory than too little."""
    heads = _each(own.get("attention.head_count"), count or 0)
    kv_heads = _each(own.get("attention.head_count_kv"), count or 0) if "attention.head_count_kv" in own else heads
    width = text.positive("embedding_length")
    unread = [key for key in own if _UNREAD.search(key)]
    if unread:
        text.findings.append(f"not understood: {clean_line(', '.join(unread[:4]))}: KV cache size unknown")
        return None, None
    if count is None or len(heads) != count or len(kv_heads) != count:
        return None, None
    share = width // max(heads) if width and max(heads) else None
    key, value = text.positive("attention.key_length") or share, text.positive("attention.value_length") or share
    interval, inner = text.positive("full_attention_interval"), text.positive("ssm.inner_size")
    if interval:  # the others keep a state
        kv_heads = [each if (at + 1) % interval == 0 else 0 for at, each in enumerate(kv_heads)]
    if any(kv_heads) and (key is None or value is None):
        return None, None
    window = text.positive("attention.sliding_window")
    slides = _each(own.get("attention.sliding_window_pattern"), 0)
    groups: Counter[AttentionLayers] = Counter()
    for at, each in enumerate(kv_heads):
        slid = window if window and len(slides) == count and slides[at] else None
        kind = LayerKind.SLIDING if slid else LayerKind.FULL
        layer = AttentionLayers(kind, 1, each * (key or 0), each * (value or 0), slid)
        if latent := text.positive("attention.kv_lora_rank") if "attention.key_length_mla" in text else None:
            layer = AttentionLayers(LayerKind.MLA, 1, latent + (text.integer("rope.dimension_count") or 0), 0)
        if each:
            groups[layer] += 1
    attention = tuple(
        AttentionLayers(one.kind, layers, one.key_width, one.value_width, one.window) for one, layers in groups.items()
    )
    if not inner:
        return attention, ()
    taps, size = text.positive("ssm.conv_kernel"), text.positive("ssm.state_size")
    if taps is None or size is None:
        return attention, None
    keeps = kv_heads.count(0) or count  # without a layer for states alone, each has both
    channels = inner + 2 * size * (text.integer("ssm.group_count") or 0)
    return attention, (
        StateLayers(LayerKind.GDN if interval else LayerKind.MAMBA, keeps, channels, taps - 1, size * inner, 4),
    )
