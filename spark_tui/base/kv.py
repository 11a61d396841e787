"""What vLLM's KV cache costs for one model: blocks as its cache manager cuts them, not the naive product.

Layers that keep the same are put into groups of equal size; every group has block tables of its own over one shared
pool, a block being one page in each layer of a group. A model that keeps states has its attention blocks enlarged
until one page holds a state. (vLLM 0.32: v1/core/kv_cache_utils.py, v1/kv_cache_interface.py, platforms/interface.py;
checked against logs of 0.18 to 0.20, see the tests.)
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.checkpoint import AttentionLayers, CheckpointFacts, LayerKind, StateLayers

DEFAULT_BLOCK: Final = 16
"""Tokens per block where nothing else is asked (CUDA)."""
_STATE_CHUNK: Final = 128
"""In mode `all`, blocks are whole chunks of the state scan (chunk_size of Nemotron-H)."""
_WIDER: Final = 1.5
"""Groups take the larger count when it is less than this much above the smaller (vLLM 0.32; 1.25 before)."""
_CONV_BYTES: Final = 2

# Bits per element by the beginning of the dtype's name. NVFP4: four bits, and an 8-bit scale per 16 elements.
_BITS: Final = (("fp8", 8.0), ("int8", 8.0), ("nvfp4", 4.5), ("int4", 4.0), ("bfloat16", 16.0), ("float16", 16.0),
                ("bf16", 16.0), ("fp16", 16.0), ("half", 16.0), ("float32", 32.0))  # fmt: skip
_STATE_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}


class StateMode(StrEnum):
    """`--mamba-cache-mode`: how states are kept for prefix caching. `align` is the default with it (vLLM 0.20), `all`
    was that of Nemotron-H before."""

    NONE = "none"
    ALIGN = "align"
    ALL = "all"


class KvSettings(Struct, frozen=True):
    """What a launch asks of the cache. `batched_tokens` is what one step processes, which windows keep on top of
    their own; `draft_tokens` is K of multi-token prediction, whose layer keeps keys and values too."""

    cache_dtype: str = "auto"
    block_tokens: int = DEFAULT_BLOCK
    batched_tokens: int = 2048
    state_mode: StateMode = StateMode.ALIGN
    state_dtype: str = "auto"
    draft_tokens: int = 0
    mtp: bool = False


class KvGroup(Struct, frozen=True):
    """Layers that share block tables. `copies` groups of this kind; `window` None sees everything.

    `state_blocks` is set for states: blocks per sequence whatever its length, 0 where there are as many as
    the attention has (mode `all`).
    """

    kind: LayerKind
    copies: int
    block_tokens: int
    window: int | None = None
    state_blocks: int | None = None

    def blocks(self, context: int, batched_tokens: int) -> int:
        """Blocks that one sequence of that many tokens holds."""
        if self.state_blocks:
            return self.copies * self.state_blocks
        if self.window is None:
            return self.copies * -(-context // self.block_tokens)
        kept = min(self.window - 1 + batched_tokens, context)
        return self.copies * (-(-kept // self.block_tokens) + 1)  # a window need not begin with a block


class BlockCapacity(Struct, frozen=True):
    """What a given memory holds: blocks, sequences of the asked length at once, and tokens as vLLM prints them
    (`concurrency` times the length; before 0.20, `tokens_by_group`)."""

    blocks: int
    concurrency: float
    tokens: int
    tokens_by_group: int


class KvLayout(Struct, frozen=True):
    """The cut of one model's cache. `block_bytes` is one block in all layers of a group.

    `bytes_per_token` is the naive growth per token of layers that see everything, `state_bytes` the naive state per
    sequence: both without the manager's padding, for people. `cache_dtype` is what `auto` became.
    """

    groups: tuple[KvGroup, ...]
    block_bytes: int
    bytes_per_token: int
    state_bytes: int
    batched_tokens: int
    cache_dtype: str

    def sequence_blocks(self, context: int) -> int:
        return sum(group.blocks(context, self.batched_tokens) for group in self.groups)

    def sequence_bytes(self, context: int) -> int:
        """Memory that one sequence holds, padding included."""
        return self.sequence_blocks(context) * self.block_bytes

    def capacity(self, memory: int, context: int) -> BlockCapacity:
        """What fits into `memory` bytes, for sequences of `context` tokens."""
        blocks, each = max(0, memory // self.block_bytes), self.sequence_blocks(context)
        concurrency = blocks / each
        smallest = min(group.block_tokens for group in self.groups)
        groups = sum(group.copies for group in self.groups)
        return BlockCapacity(blocks, concurrency, int(concurrency * context), blocks // groups * smallest)

    def longest(self, memory: int, most: int) -> int:
        """The longest context, up to `most`, of which one sequence fits into `memory` bytes; 0 when none does."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.sequence_bytes(middle) <= memory else (low, middle - 1)
        return low


def kv_layout(facts: CheckpointFacts, settings: KvSettings) -> KvLayout | None:
    """How vLLM cuts this model's cache; None when the model's layers or the dtype are not understood."""
    # `auto` is the dtype that the checkpoint was calibrated for, else that of its activations.
    dtype = "" if settings.cache_dtype == "auto" else settings.cache_dtype
    dtype = dtype or (facts.quantization.kv_cache if facts.quantization else "")
    dtype = dtype or facts.dtype.removeprefix("torch.") or "bfloat16"
    bits = next((bits for start, bits in _BITS if dtype.lower().startswith(start)), None)
    if facts.attention is None or facts.states is None or bits is None:
        return None
    if not facts.attention and not facts.states:
        return None
    attention, draft = facts.attention, facts.mtp_attention
    if settings.mtp and draft is not None:  # its own layers for drafting keep keys and values too
        shared = next((at for at, layers in enumerate(attention) if layers.kind is draft.kind), None)
        if shared is None:
            attention = (*attention, draft)
        else:
            longer = replace(attention[shared], layers=attention[shared].layers + draft.layers)
            attention = (*attention[:shared], longer, *attention[shared + 1 :])
    width = [math.ceil(layers.width * bits / 8) for layers in attention]
    states = [_state_bytes(layers, facts, settings) for layers in facts.states]
    token = max(width, default=0)
    latent = any(layers.kind is LayerKind.MLA for layers in attention)
    block = _block_tokens(max(states, default=0), token, settings, latent=latent)
    page = max([block * token, *states])
    groups, group_layers = _groups(attention, width, facts.states, settings, block, page)
    per_layer = [(layers, layers.layers * size) for layers, size in zip(attention, width, strict=True)]
    alone = len(groups) == 1 and not facts.states
    return KvLayout(
        groups=groups,
        block_bytes=block * sum(size for _, size in per_layer) if alone else page * group_layers,
        bytes_per_token=sum(size for layers, size in per_layer if layers.window is None),
        state_bytes=sum(layers.layers * size for layers, size in zip(facts.states, states, strict=True)),
        batched_tokens=settings.batched_tokens,
        cache_dtype=dtype,
    )


def _state_bytes(layers: StateLayers, facts: CheckpointFacts, settings: KvSettings) -> int:
    """One layer's state of one sequence. The convolution keeps a column more for each drafted token."""
    width = _STATE_BYTES.get(settings.state_dtype) or layers.state_bytes or (4 if "32" in facts.dtype else 2)
    columns = layers.conv_taps + settings.draft_tokens
    return columns * layers.conv_channels * _CONV_BYTES + layers.state_elements * width


def _block_tokens(state: int, token: int, settings: KvSettings, *, latent: bool) -> int:
    """Tokens per attention block: enough that its page holds a state."""
    asked = max(settings.block_tokens, 1)
    if not state or not token:
        return asked
    step = max(asked, _STATE_CHUNK) if latent else asked
    if settings.state_mode is StateMode.ALL:
        step = math.lcm(step, _STATE_CHUNK)
    return step * -(-state // (step * token))


def _groups(
    attention: tuple[AttentionLayers, ...], width: list[int], states: tuple[StateLayers, ...], settings: KvSettings,
    block: int, page: int,
) -> tuple[tuple[KvGroup, ...], int]:  # fmt: skip
    """The groups, and how many layers each of them has (the last of a kind is padded)."""
    same = len({layers.window for layers in attention}) == 1
    if attention and same and not states:
        first = attention[0]
        return (KvGroup(first.kind, 1, block, first.window),), sum(layers.layers for layers in attention)
    counts = [*(layers.layers for layers in attention), *(layers.layers for layers in states)]
    size = max(counts) if max(counts) < min(counts) * _WIDER else min(counts)
    groups = []
    for layers, token in zip(attention, width, strict=True):
        # A layer with a smaller page gets longer blocks where that fills the common page, else it is padded.
        own = block * (page // (block * token)) if page % (block * token) == 0 else block
        groups.append(KvGroup(layers.kind, -(-layers.layers // size), own, layers.window))
    kept = {StateMode.NONE: 1, StateMode.ALIGN: 2, StateMode.ALL: -settings.draft_tokens}[settings.state_mode]
    groups += [
        KvGroup(layers.kind, -(-layers.layers // size), block, state_blocks=kept + settings.draft_tokens)
        for layers in states
    ]
    return tuple(groups), size
