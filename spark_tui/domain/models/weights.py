"""Where a checkpoint's bytes are, what one decoded token reads of them, and how fast that can be at most."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from spark_tui.domain.models.checkpoint import (
    CheckpointFacts,
    ModuleBytes,
    ModuleClass,
    WeightFormat,
    WeightSummary,
)
from spark_tui.domain.models.config import is_draft_tensor
from spark_tui.domain.models.safetensors_header import Tensor

PAPER_BANDWIDTH: Final = 273e9
"""Bytes per second of a DGX Spark's memory by its data sheet."""
MEASURED_BANDWIDTH: Final = 228e9
"""What was measured of it; engines reach about 0.8 of that when they decode."""

_WIDE: Final = ("BF16", "F16", "F32", "F64")
_CLASSES: Final = tuple(
    (re.compile(pattern), module)
    for pattern, module in (
        (
            r"(?:^|\.)(?:visual|vision\w*|vit|image_\w+|multi_modal_projector|embed_vision|img_\w+)\.",
            ModuleClass.VISION,
        ),
        (r"(?:^|\.)(?:audio\w*|speech\w*|embed_audio|sound\w*)\.", ModuleClass.AUDIO),
        (r"norm(?:\.|$)|layernorm|norm_f(?:\.|$)", ModuleClass.NORM),
        (r"(?:^|\.)lm_head\.|(?:^|\.)output\.weight", ModuleClass.HEAD),
        (r"(?:^|\.)(?:embed_tokens|wte|embeddings|tok_embeddings|word_embeddings)\b", ModuleClass.EMBEDDING),
        (r"\.shared_experts?[._]|\.shared_mlp\.", ModuleClass.SHARED_EXPERT),
        (r"\.experts\.|\.experts_", ModuleClass.EXPERTS),
        (r"\.(?:router|gate)\.(?!proj)|\.e_score_correction_bias|\.shared_expert_gate", ModuleClass.ROUTER),
        (r"\.(?:linear_attn|mamba|ssm|conv1d|A_log|dt_bias|in_proj|out_proj)\b|\.mixer\.D$", ModuleClass.STATE),
        (r"\.(?:self_attn|attn|attention|[qkvo]_proj|qkv_proj|wq|wk|wv|wo)\b", ModuleClass.ATTENTION),
        (r"\.(?:mlp|feed_forward|up_proj|down_proj|gate_proj|gate_up_proj|ffn|fc[12]_latent_proj)\b", ModuleClass.MLP),
    )
)
_NO_WEIGHT: Final = re.compile(r"scale|zero_point|zeros|g_idx|input_min|input_max|weight_shape")
_NOT_READ: Final = (ModuleClass.VISION, ModuleClass.AUDIO, ModuleClass.DRAFT)
_FORMAT_BITS: Final = {  # with their scales: one of 8 bits per 16 weights (NVFP4), per 32 (MX formats)
    WeightFormat.BF16: 16.0, WeightFormat.FP16: 16.0, WeightFormat.FP8: 8.0, WeightFormat.MXFP8: 8.25,
    WeightFormat.NVFP4: 4.5, WeightFormat.NVFP4_W4A16: 4.5, WeightFormat.MXFP4: 4.25, WeightFormat.INT8: 8.0,
    WeightFormat.INT4: 4.15,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DecodeRead:
    """Bytes of weights that one decoded token reads, alone in its batch. `wide` of them are 16 bits or more, which
    quantization left as they were; `experts` of them are the routed experts that run."""

    size: int
    wide: int
    experts: int


@dataclass(frozen=True, slots=True)
class DecodeCeiling:
    """Tokens per second that the memory allows one stream without speculation: by the data sheet, and as measured.
    `reads` is what a token reads, in bytes; `bound` says that it reads at least that, so that it is slower rather."""

    reads: int
    paper: float
    measured: float
    bound: bool = False


def class_of(name: str, layers: int | None) -> ModuleClass:
    """What a tensor is for, by its name. `layers` is the model's count: what comes after them drafts."""
    if is_draft_tensor(name, layers):
        return ModuleClass.DRAFT
    return next((module for pattern, module in _CLASSES if pattern.search(name)), ModuleClass.OTHER)


def summarise(tensors: Iterable[Tensor], *, layers: int | None = None, complete: bool = True) -> WeightSummary:
    """Adds up tensors, of all files of a checkpoint."""
    dtypes: Counter[str] = Counter()
    sizes: Counter[ModuleClass] = Counter()
    wide: Counter[ModuleClass] = Counter()
    weights: Counter[ModuleClass] = Counter()
    count = 0
    for tensor in tensors:
        module = class_of(tensor.name, layers)
        dtypes[tensor.dtype] += tensor.size
        sizes[module] += tensor.size
        wide[module] += tensor.size if _is_wide(tensor) else 0
        weights[module] += _weights_in(tensor)
        count += 1
    modules = tuple(ModuleBytes(module, size, wide[module], weights[module]) for module, size in sizes.most_common())
    return WeightSummary(tuple(dtypes.most_common()), modules, weights.total(), count, complete)


def _is_wide(tensor: Tensor) -> bool:
    """Weights of 16 bits or more. The scales of narrower ones are no weights, whatever their dtype."""
    return tensor.dtype in _WIDE and not _NO_WEIGHT.search(tensor.name)


def _weights_in(tensor: Tensor) -> int:
    """Weights that a tensor holds: none in a scale, two in a packed byte, eight in a packed word."""
    if _NO_WEIGHT.search(tensor.name):
        return 0
    if tensor.dtype in ("U8", "I8") and (tensor.dtype == "U8" or tensor.name.endswith(("_packed", "_blocks"))):
        return 2 * tensor.elements
    return 8 * tensor.elements if tensor.dtype in ("I32", "U32") else tensor.elements


def decode_read(facts: CheckpointFacts) -> DecodeRead | None:
    """What one token reads of the weights; None without the headers, or where it is not told how many experts run.

    Of the embedding one row is read, all of it where it is the output head too; of routed experts those that run;
    of towers and layers for drafting nothing.
    """
    summary = facts.weights
    if summary is None or not summary.complete:
        return None
    size = wide = expert_bytes = 0.0
    for part in summary.by_module:
        share = read_share(part.module, facts)
        if share is None:
            return None
        if part.module is ModuleClass.EXPERTS:
            expert_bytes = part.size * share
        size += part.size * share
        wide += part.wide * share
    return DecodeRead(round(size), round(wide), round(expert_bytes))


def read_share(module: ModuleClass, facts: CheckpointFacts) -> float | None:
    """The share of a class of weights that one token reads; None for experts of which it is not told how many run."""
    parts = facts.weights.by_module if facts.weights is not None else ()
    heads = any(part.module is ModuleClass.HEAD for part in parts)
    if module in _NOT_READ or (module is ModuleClass.EMBEDDING and heads):
        return 0.0
    if module is not ModuleClass.EXPERTS:
        return 1.0
    return None if facts.experts is None else facts.experts.per_token / facts.experts.routed


def ceiling_of(reads: int, *, bound: bool = False) -> DecodeCeiling | None:
    """The decode ceiling for so many bytes per token; None for none."""
    if reads <= 0:
        return None
    return DecodeCeiling(reads, PAPER_BANDWIDTH / reads, MEASURED_BANDWIDTH / reads, bound)


def bytes_of(parameters: float, form: WeightFormat) -> int | None:
    """Bytes of so many weights in a format, scales included; None for a format without a known width."""
    bits = _FORMAT_BITS.get(form)
    return None if bits is None else round(parameters * bits / 8)


_WORDS: Final = (
    (r"mxfp4", WeightFormat.MXFP4), (r"w4a16", WeightFormat.NVFP4_W4A16), (r"nvfp4|\bfp4", WeightFormat.NVFP4),
    (r"mxfp8", WeightFormat.MXFP8), (r"fp8", WeightFormat.FP8), (r"bf16|bfloat16", WeightFormat.BF16),
    (r"fp16|float16", WeightFormat.FP16), (r"int8|w8a8", WeightFormat.INT8), (r"int4|awq|gptq", WeightFormat.INT4),
)  # fmt: skip


def format_in(words: str) -> WeightFormat | None:
    """The format that a recipe's words name: `NVFP4 (ModelOpt)` -> NVFP4."""
    return next((form for pattern, form in _WORDS if re.search(pattern, words.lower())), None)
