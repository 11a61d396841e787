"""What a checkpoint is made of, and what its cache of keys and values takes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.text import clean_line, truncate

# What a model writes -> vLLM's parser for it; the first that fits (the markers of vLLM 0.33's own parsers).
_TOOL_PARSERS: Final = (
    (r"<minimax:tool_call>", "minimax_m2"),
    (r"<\|tool_calls_section_begin\|>", "kimi_k2"),
    (r"<｜tool▁calls▁begin｜>", "deepseek_v3"),
    (r"<\|tool_call>|<tool_call\|>", "gemma4"),
    (r"\[TOOL_CALLS\]", "mistral"),
    (r"<\|channel\|>", "openai"),
    (r"<arg_key>", "glm45"),
    (r"<function=", "qwen3_coder"),
    (r"<tool_call>", "hermes"),
    (r"<\|python_tag\|>", "llama3_json"),
)
_REASONING_PARSERS: Final = (
    (r"<minimax:tool_call>", "minimax_m2"),
    (r"<\|channel\|>", "openai_gptoss"),
    (r"<\|channel>", "gemma4"),
    (r"\[THINK\]", "mistral"),
    (r"◁think▷", "kimi_k2"),
)
# Families that write plain <think> tags and have a parser of their own, by model_type.
_BY_FAMILY: Final = (
    (r"qwen3", "qwen3", ""),
    (r"nemotron", "nemotron_v3", "qwen3_coder"),
    (r"glm4", "glm45", "glm45"),
    (r"kimi", "kimi_k2", "kimi_k2"),
    (r"laguna|poolside", "poolside_v1", "poolside_v1"),
    (r"deepseek_v4", "deepseek_v4", "deepseek_v4"),
    (r"deepseek_v3|deepseek_v32", "deepseek_v3", ""),
)
PLAIN_THINK_PARSER: Final = "deepseek_r1"
"""It reads the plain <think> tags of any model."""
_THINKS: Final = re.compile(r"</?think>|\[THINK\]|◁think▷|<\|channel\|?>|enable_thinking|reasoning_content|thinking")
_THINK_TAGS: Final = re.compile(r"</?think>")
_TOOLS: Final = re.compile(r"\btools\b")
_SWITCHES: Final = ("enable_thinking", "thinking", "reasoning_effort", "thinking_budget", "low_effort")
_IMAGES: Final = re.compile(r"image_url|<image>|<\|image|vision_start|image_pad|\[IMG\]")
_FRONT: Final = re.compile(r"\A\ufeff?---[ \t]*\n(.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE)
_KEY: Final = re.compile(r"^(license|license_name|license_link)[ \t]*:[ \t]*(.*?)[ \t]*(?:#.*)?$", re.MULTILINE)


class ChatAbilities(Struct, frozen=True):
    """What a chat template takes and produces. `switches` are the template's own arguments that steer thinking, as
    `chat_template_kwargs` takes them. The parsers are vLLM's names for the way in which this model writes thoughts and
    calls, empty where unknown."""

    thinking: bool = False
    tools: bool = False
    images: bool = False
    switches: tuple[str, ...] = ()
    reasoning_parser: str = ""
    tool_parser: str = ""


def abilities_of(template: str, model_type: str = "") -> ChatAbilities:
    """From the template's text and the model's type."""
    thinking = _THINKS.search(template) is not None
    tools = _TOOLS.search(template) is not None
    family = next((each for each in _BY_FAMILY if re.search(each[0], model_type.lower())), ("", "", ""))
    reasoning = _first(_REASONING_PARSERS, template) or family[1]
    if not reasoning and _THINK_TAGS.search(template):
        reasoning = PLAIN_THINK_PARSER
    return ChatAbilities(
        thinking=thinking,
        tools=tools,
        images=_IMAGES.search(template) is not None,
        switches=tuple(word for word in _SWITCHES if re.search(rf"\b{word}\b", template)) if thinking else (),
        reasoning_parser=reasoning if thinking else "",
        tool_parser=(_first(_TOOL_PARSERS, template) or family[2]) if tools else "",
    )


def _first(table: tuple[tuple[str, str], ...], text: str) -> str:
    return next((parser for pattern, parser in table if re.search(pattern, text)), "")


def template_in(tokenizer: Mapping[str, Any]) -> str | None:
    """The template in `tokenizer_config.json` or `chat_template.json`: a text, or several by name (the default one,
    and the one for tools with it)."""
    found = tokenizer.get("chat_template")
    if isinstance(found, str):
        return found
    if not isinstance(found, list):
        return None
    texts = [each.get("template") for each in found if isinstance(each, dict)]
    return "\n".join(text for text in texts if isinstance(text, str)) or None


def licence_in(readme: str) -> str:
    """The licence that a model card names in its first lines: `apache-2.0`, `nvidia-open-model-license`; empty when it
    names none."""
    front = _FRONT.match(readme.replace("\r\n", "\n"))
    if front is None:
        return ""
    found = {key: truncate(clean_line(value).strip("\"' "), 120) for key, value in _KEY.findall(front[1])}
    name = found.get("license", "")
    if name in ("", "other"):
        return found.get("license_name", "") or found.get("license_link", "") or name
    return name


class LayerKind(StrEnum):
    """What one layer keeps of the tokens it has seen."""

    FULL = "full attention"
    SLIDING = "sliding-window attention"
    MLA = "multi-head latent attention"
    COMPRESSED = "compressed attention"
    INDEXER = "sparse-attention indexer"
    MAMBA = "Mamba-2"
    GDN = "gated delta net"
    KDA = "Kimi delta attention"


class AttentionLayers(Struct, frozen=True):
    """Layers of one kind that keep keys and values.

    `key_width` and `value_width` are elements per entry and layer: KV heads times head size; MLA keeps one latent row
    per token, which counts as keys alone. `window` is in tokens, None for layers that see everything. `ratio` is how
    many tokens share one entry. An indexer, and the window of a compressed layer, are layers of their own here.
    """

    kind: LayerKind
    layers: int
    key_width: int
    value_width: int
    window: int | None = None
    ratio: int = 1

    @property
    def width(self) -> int:
        """Elements per entry and layer, keys and values together."""
        return self.key_width + self.value_width


class StateLayers(Struct, frozen=True):
    """Layers of one kind that keep a state of fixed size per sequence instead of keys and values.

    `conv_channels` columns of `conv_taps` elements (16-bit) and `state_elements` elements of `state_bytes` each, per
    layer. `state_bytes` None: the config leaves it to the engine.
    """

    kind: LayerKind
    layers: int
    conv_channels: int
    conv_taps: int
    state_elements: int
    state_bytes: int | None = None


class Experts(Struct, frozen=True):
    """A mixture of experts: `routed` per layer, of which `per_token` run for a token, and `shared` that always run."""

    routed: int
    per_token: int
    shared: int = 0


class RopeScaling(Struct, frozen=True):
    """A stretched context: `kind` as the config names it (`yarn`, `linear`, `llama3`), from `original` tokens."""

    kind: str
    factor: float | None = None
    original: int | None = None


class WeightFormat(StrEnum):
    """How weights are stored, in the field's words."""

    BF16 = "BF16"
    FP16 = "FP16"
    FP8 = "FP8"
    MXFP8 = "MXFP8"
    NVFP4 = "NVFP4"
    NVFP4_W4A16 = "NVFP4 W4A16"
    MXFP4 = "MXFP4"
    FP4 = "FP4"
    INT8 = "INT8"
    INT4 = "INT4"
    OTHER = "other"


class Quantization(Struct, frozen=True):
    """How the weights are quantized, by the checkpoint's own config.

    `method` is the config's word: `modelopt`, `compressed-tensors`, `mxfp4`, `fp8`, `awq`, `gptq`, ...; empty for a
    checkpoint that is not quantized. `formats` are what it holds, the main one first. `excluded` are the modules that
    stay as they were, as patterns. `kv_cache` is the KV dtype that it was calibrated for (`fp8`, `nvfp4`), empty for
    none. `bits` are those of one weight where the config names a number, `experts` the format of routed experts where
    it has a key of its own.
    """

    method: str
    formats: tuple[WeightFormat, ...] = ()
    excluded: tuple[str, ...] = ()
    kv_cache: str = ""
    bits: float | None = None
    experts: WeightFormat | None = None

    @property
    def words(self) -> str:
        """`NVFP4 (modelopt)`, `FP8 + NVFP4 (modelopt)`, `3-bit (exl3)`, `BF16`."""
        formats = " + ".join(self.formats) or "unquantized"
        if self.bits and self.formats == (WeightFormat.OTHER,):
            formats = f"{self.bits:g}-bit"
        return f"{formats} ({self.method})" if self.method else formats


class ModuleClass(StrEnum):
    """What a tensor is for, by its name."""

    EXPERTS = "experts"
    SHARED_EXPERT = "shared expert"
    ATTENTION = "attention"
    STATE = "state layers"
    MLP = "MLP"
    ROUTER = "router"
    EMBEDDING = "embedding"
    TABLE = "lookup tables"
    HEAD = "output head"
    NORM = "norms"
    VISION = "vision tower"
    AUDIO = "audio tower"
    DRAFT = "layers for drafting"
    OTHER = "other"


class ModuleBytes(Struct, frozen=True):
    """The tensors of one class: all their bytes, those of them that are 16 bits wide or more, and their weights."""

    module: ModuleClass
    size: int
    wide: int
    parameters: int = 0


class WeightSummary(Struct, frozen=True):
    """All tensors of a checkpoint, in bytes by dtype and by class, largest first. `parameters` counts weights, not
    their scales, by the bits of their format. `complete`: no file is missing. `counted` is false where weights are
    packed in a format whose bits nothing says: the number of weights is unknown then."""

    by_dtype: tuple[tuple[str, int], ...]
    by_module: tuple[ModuleBytes, ...]
    parameters: int
    tensors: int
    complete: bool = True
    counted: bool = True

    @property
    def size(self) -> int:
        return sum(size for _, size in self.by_dtype)


class ModelKind(StrEnum):
    """What a checkpoint gives back."""

    TEXT = "text model"
    DRAFTER = "drafter"
    EMBEDDING = "embedding model"
    RERANKER = "reranker"
    SPEECH = "speech-to-text model"


class CheckpointFacts(Struct, frozen=True):
    """One checkpoint. Sizes in bytes, lengths in tokens.

    `attention` and `states` group the layers by what they keep; None where the config is of a kind that is not
    understood, and then nothing can be said about KV. `mtp_declared` counts the layers for drafting that the config
    names, `mtp_layers` those whose weights are really there (quantized checkpoints often drop them). `dtype` is the
    dtype of what is not quantized. `weights` comes from the tensors' headers. `chat` is None without a chat template;
    `licence` is the model card's word, empty where it has none. `custom_code`: the config names Python code of the
    repository. `heads` are attention heads for queries, `kv_heads` those for keys and values, which tensor parallelism
    divides. `kind_sign` is the key, file or architecture that shows the kind. `expert_weights` are the weights of one
    matrix of one routed expert, by the config. `findings` are words about what looked wrong. `source` says where all of
    it is from.
    """

    architecture: str = ""
    kind: ModelKind = ModelKind.TEXT
    kind_sign: str = ""
    model_type: str = ""
    dtype: str = ""
    quantization: Quantization | None = None
    layers: int | None = None
    attention: tuple[AttentionLayers, ...] | None = None
    states: tuple[StateLayers, ...] | None = None
    experts: Experts | None = None
    is_moe: bool | None = None
    max_position_embeddings: int | None = None
    rope_scaling: RopeScaling | None = None
    mtp_declared: int | None = None
    mtp_layers: int | None = None
    mtp_attention: AttentionLayers | None = None
    modalities: tuple[str, ...] = ()
    weights: WeightSummary | None = None
    sampling: tuple[tuple[str, float], ...] = ()
    chat: ChatAbilities | None = None
    licence: str = ""
    custom_code: bool = False
    heads: int | None = None
    kv_heads: int | None = None
    expert_weights: int | None = None
    findings: tuple[str, ...] = ()
    source: str = ""

    @property
    def quant_method(self) -> str | None:
        """`modelopt`, `compressed-tensors`, ...; empty when it is not quantized, None when that is not known."""
        return None if self.quantization is None else self.quantization.method

    @property
    def has_ssm(self) -> bool | None:
        """Whether some layers keep a state instead of keys and values; None when the layers are not understood."""
        return None if self.states is None else bool(self.states)


class CheckpointProblem(Struct, frozen=True):
    """A file of a checkpoint that cannot be used, and why. Words for the screen; nothing of it is executed."""

    file: str
    reason: str


# --- kv --------------------------------------------------------------------------------------------------


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

    `bytes_per_token` is the naive growth per token of layers that see everything; where all have a window, the growth
    until it is full. `window_bytes` are full windows and `state_bytes` states, per sequence: all of them without the
    manager's padding, for people. `cache_dtype` is what `auto` became.
    """

    groups: tuple[KvGroup, ...]
    block_bytes: int
    bytes_per_token: int
    state_bytes: int
    batched_tokens: int
    cache_dtype: str
    window_bytes: int = 0

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
    width = [max(1, math.ceil(layers.width * bits / 8)) for layers in attention]  # attention is never free
    states = [_state_bytes(layers, facts, settings) for layers in facts.states]
    token = max(width, default=0)
    latent = any(layers.kind is LayerKind.MLA for layers in attention)
    block = _block_tokens(max(states, default=0), token, settings, latent=latent)
    page = max([block * token, *states])
    groups, group_layers = _groups(attention, width, facts.states, settings, block, page)
    per_layer = [(layers, layers.layers * size / layers.ratio) for layers, size in zip(attention, width, strict=True)]
    alone = len(groups) == 1 and not facts.states
    kept = sum(size for _, size in per_layer)
    grows = sum(size for layers, size in per_layer if layers.window is None) or kept
    return KvLayout(
        groups=groups,
        block_bytes=math.ceil(block * kept) if alone else page * group_layers,
        bytes_per_token=math.ceil(grows),
        state_bytes=sum(layers.layers * size for layers, size in zip(facts.states, states, strict=True)),
        batched_tokens=settings.batched_tokens,
        cache_dtype=dtype,
        window_bytes=math.ceil(sum(size * (layers.window or 0) for layers, size in per_layer)),
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
    attention: tuple[AttentionLayers, ...],
    width: list[int],
    states: tuple[StateLayers, ...],
    settings: KvSettings,
    block: int,
    page: int,
) -> tuple[tuple[KvGroup, ...], int]:
    """The groups, and how many layers each of them has (the last of a kind is padded)."""
    if not states and len({layers.window for layers in attention}) == 1:
        first = attention[0]
        return (KvGroup(first.kind, 1, block, first.window),), sum(layers.layers for layers in attention)
    counts = [*(layers.layers for layers in attention), *(layers.layers for layers in states)]
    size = max(counts) if max(counts) < min(counts) * _WIDER else min(counts)
    if any(layers.ratio > 1 for layers in attention):
        size = 1  # no padding is assumed for compressed layers, which engines lay out each in its own way
    groups = []
    for layers, token in zip(attention, width, strict=True):
        # A layer with a smaller page gets longer blocks where that fills the common page, else it is padded.
        own = block * (page // (block * token)) if page % (block * token) == 0 else block
        groups.append(KvGroup(layers.kind, -(-layers.layers // size), own * layers.ratio, layers.window))
    kept = {StateMode.NONE: 1, StateMode.ALIGN: 2, StateMode.ALL: -settings.draft_tokens}[settings.state_mode]
    groups += [
        KvGroup(layers.kind, -(-layers.layers // size), block, state_blocks=kept + settings.draft_tokens)
        for layers in states
    ]
    return tuple(groups), size
