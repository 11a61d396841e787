"""The configuration of a model, and the families that are known."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from typing import Annotated, Any, Final, TypeVar

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import replace

from spark_tui.base.checkpoint import (
    AttentionLayers,
    CheckpointFacts,
    Experts,
    LayerKind,
    ModelKind,
    Quantization,
    RopeScaling,
    StateLayers,
    WeightFormat,
)
from spark_tui.base.engine.runtimes import Architecture, KnownBytes, known_models
from spark_tui.base.text import clean_line, truncate
from spark_tui.base.untrusted import load_json

MOST_BYTES: Final = 64 * 1024 * 1024
"""The index of a model of a trillion parameters has some 20 MB."""
_LARGEST: Final = 10**15
_MOST_FINDINGS: Final = 20
_Whole = Annotated[int, Meta(ge=0, le=_LARGEST)]
_Number = Annotated[float, Meta(ge=-_LARGEST, le=_LARGEST)]
T = TypeVar("T")


class BadJson(ValueError):
    """Bytes that are no JSON object; the message says why, in words for the screen."""


def read_object(data: bytes) -> dict[str, Any]:
    """Bytes -> a JSON object. Raises BadJson and nothing else."""
    if len(data) > MOST_BYTES:
        raise BadJson(f"larger than {MOST_BYTES >> 20} MiB")
    try:
        found = load_json(data.decode("utf-8"), parse_constant=_no_limit)
    except UnicodeDecodeError:
        raise BadJson("not UTF-8 text") from None
    except BadJson:
        raise
    except ValueError as error:
        raise BadJson(f"not JSON: {truncate(clean_line(str(error)), 80)}") from None
    if not isinstance(found, dict):
        raise BadJson("not a JSON object")
    return found


def _no_limit(_: str) -> None:
    """`Infinity`, which Python writes for a limit that is none: Nemotron-H's `time_step_limit`."""


class Keys:
    """A JSON object asked by key and type. A value of another type counts as absent, and becomes a finding.
    `understood` are the keys that were asked for and held what was asked for."""

    def __init__(self, found: Mapping[str, Any], findings: list[str], path: str = "") -> None:
        self._found = found
        self.findings = findings
        self.understood: set[str] = set()
        self._path = path

    def __contains__(self, name: str) -> bool:
        return self._found.get(name) is not None

    def unread(self, pattern: re.Pattern[str]) -> tuple[str, ...]:
        """The keys that the pattern fits, that say something, and that no reader has understood."""
        names = (
            name
            for name, value in self._found.items()
            if value not in (None, False, "", [], {}) and not (value == 1 and value is not True and _EACH.search(name))
        )
        return tuple(name for name in names if name not in self.understood and pattern.search(name))

    def __len__(self) -> int:
        return len(self._found)

    def _get(self, name: str, kind: type[T], expected: str) -> T | None:
        value = self._found.get(name)
        try:
            found = None if value is None else convert(value, kind)
        except ValidationError:
            words = f"{truncate(clean_line(self._path + name), 80)} is not {expected}"
            if words not in self.findings and len(self.findings) < _MOST_FINDINGS:
                self.findings.append(words)
            return None
        self.understood.add(name)
        return found

    def integer(self, *names: str) -> int | None:
        """The first of these keys that holds a whole number from 0 on; `4096.0` is one."""
        found = [self._get(name, _Whole, "a whole number") for name in names]
        return next((number for number in found if number is not None), None)

    def positive(self, *names: str) -> int | None:
        """Like `integer`; zero counts as absent."""
        return self.integer(*names) or None

    def number(self, name: str) -> float | None:
        """A finite number."""
        return self._get(name, _Number, "a number")

    def text(self, name: str) -> str:
        """A text, cleaned and cut; empty when there is none."""
        return _cut(self._get(name, str, "a text") or "")

    def value(self, name: str) -> Any:
        """A value of any type; it does not count as understood."""
        return self._found.get(name)

    def flag(self, name: str) -> bool | None:
        """True, false, or None."""
        return self._get(name, bool, "true or false")

    def texts(self, name: str) -> tuple[str, ...] | None:
        """A list of texts; None when there is none."""
        found = self._get(name, list[str], "a list of texts")
        return None if found is None else tuple(map(_cut, found))

    def numbers(self, name: str) -> tuple[int, ...] | None:
        """A list of whole numbers from 0 on; None when there is none."""
        found = self._get(name, list[_Whole], "a list of whole numbers")
        return None if found is None else tuple(found)

    def inner(self, name: str) -> Keys | None:
        """An object within; None when there is none."""
        found = self._get(name, dict[str, Any], "an object")
        return None if found is None else Keys(found, self.findings, f"{self._path}{name}.")

    def inners(self, name: str) -> tuple[Keys, ...]:
        """The objects within an object: `{"group_0": {...}, ...}`."""
        whole = self.inner(name)
        items = whole._found.items() if whole is not None else ()
        path = f"{self._path}{name}."
        return tuple(Keys(item, self.findings, f"{path}{key}.") for key, item in items if isinstance(item, dict))


def _cut(text: str) -> str:
    return truncate(clean_line(text), 200)


MOST_LAYERS: Final = 10_000
_PATTERN: Final = {"M": LayerKind.MAMBA, "*": LayerKind.FULL, "-": None, "E": None}
_LETTERS: Final = {"L": LayerKind.SLIDING, "G": LayerKind.FULL}
_WORDS: Final = {
    "full_attention": LayerKind.FULL,
    "attention": LayerKind.FULL,
    "sliding_attention": LayerKind.SLIDING,
    "linear_attention": LayerKind.GDN,
    "mamba": LayerKind.MAMBA,
    "mamba2": LayerKind.MAMBA,
    "mlp": None,
    "moe": None,
}
# Where a config has a window and no pattern, its class has one: each Nth layer sees everything, 0 for none. (Classes of
# transformers 5)
_CLASS_PATTERNS: Final = {
    "gpt_oss": 2,
    "gemma2": 2,
    "gemma3_text": 6,
    "cohere2": 4,
    "olmo3": 4,
    "mistral": 0,
    "mixtral": 0,
    "phi3": 0,
    "starcoder2": 0,
}
# Keys with a word of attention in them that do not say what layers keep: by how they begin, and by a word anywhere in
# them. To each pattern what it is about, or a key of a public config.json that it is here for, and whose.
_OTHER_PARTS: Final = {
    r"(?:moe|mlp|ffn)_": "mlp_layer_types (GLM-5)",
    r"mtp_": "mtp_hybrid_override_pattern (Nemotron-H)",
    r"(?:vision|audio|image|video)_": "what other towers keep",
    r"activation_": "activation_sparsity_pattern (Gemma 3n)",
    r"num_beam": "num_beam_groups (transformers' PretrainedConfig)",
    r"chunk_size_feed": "chunk_size_feed_forward (transformers' PretrainedConfig)",
    r"(?:q_lora|o_lora|o_groups)": "o_groups (DeepSeek-V4): how queries and outputs are compressed",
    r"gating": "gating (Laguna): of what attention returns",
    r"(?:quantization_|compression_config)": "compression_config (compressed-tensors)",
    r"num_attention_heads": "num_attention_heads_per_layer: of queries",
    r"index_(?:topk|n_heads)$": "index_topk (DeepSeek-V3.2): how many are read",
    r"decoder_sparse": "decoder_sparse_step (Qwen2-MoE)",
    r"multi_query_attention": "multi_query_attention (ChatGLM2), which multi_query_group_num explains",
}
_OTHER_WORDS: Final = {
    r"rope|rotary|nope|theta": "compress_rope_theta (DeepSeek-V4): positions",
    r"drop|initial|loss": "attention_dropout: training",
    r"bias|norm|_eps|scal(?:e|ing|ar)|multiplier": "query_pre_attn_scalar (Gemma 3), attention_multiplier (Granite)",
    r"soft|capping|temperature|logn|att\w+_factor": "attn_logit_softcapping (Gemma 2), use_logn_attn (Qwen)",
    r"implementation|flash|fused|efficient|parallel|layout": "_attn_implementation (transformers): how it is computed",
    r"sink|_gate": "add_swa_attention_sink_bias (MiMo-V2-Flash), attn_output_gate (Qwen3-Next)",
    r"_dtype": "mamba_ssm_dtype (Qwen3.5), which its own reader asks for",
    r"bidirectional": "use_bidirectional_attention (EmbeddingGemma)",
    r"expert": "num_local_experts (gpt-oss)",
    r"token_i(?:d|ndex)": "ids of tokens",
    r"heads_per_layer|swa_num_attention_heads": "swa_num_attention_heads (MiMo-V2-Flash): of queries",
}
# A key with such a word says what layers keep. One that no reader here has understood leaves it unknown.
_SPEAKS: Final = re.compile(
    rf"""(?x)
    ^(?! {"|".join(_OTHER_PARTS)} | .*(?:{"|".join(_OTHER_WORDS)}) )
    .*(?: pattern|compress|(?:^|_)ratio|^index|indexer|sparse|swa_|_swa|sliding|window|layer_group|linear_|lightning
       | delta|kda|gdn|hybrid|mixer|chunk|layer_type|block_type|block_config|attn|attention|groups|(?<!q)kv|key_value
       | multi_query$|mamba|ssm|lstm|conv|lru|recurrent|latent|local|global|state_size|time_step|period|_every_ )"""
)
# One that only says which layer is of which kind is explained by a list that says it for each.
_WHICH_LAYER: Final = re.compile(
    r"^(?!index|sparse|linear|compress).*"
    r"(?:pattern|interval|period|_every_|window_layers|sliding_window|layer_(?:offset|period|indices|ids)|block_type"
    r"|layers?_type)"
)
_EACH: Final = re.compile("_mod$|pattern|ratio|period|freq|interval|every")
_OF_STATES: Final = re.compile(r"mamba|ssm|conv|chunk|time_step|state|linear_|^n_groups$")
_STATE_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}
_NEMOTRON: Final = "nemotron_h"


class Layers(Struct, frozen=True):
    """What a config says about its layers; None where it is not understood, and then `unread` names keys. `drafting`
    counts layers for drafting that the config names, `drafting_attention` is what those keep."""

    count: int | None
    attention: tuple[AttentionLayers, ...] | None
    states: tuple[StateLayers, ...] | None
    drafting: int | None
    drafting_attention: AttentionLayers | None
    unread: tuple[str, ...] = ()


def layers_of(text: Keys, model_type: str) -> Layers:
    """Reads each kind of layer by the keys that describe it. A key about attention that is not
    understood leaves all of it unknown."""
    count = text.positive("num_hidden_layers", "n_layer", "num_layers")
    drafting, with_attention = _drafting(text)
    full = _full(text)
    found: list[AttentionLayers | StateLayers | None] = []
    ratios = text.numbers("compress_ratios")
    if ratios:
        found += _compressed_layers(text, ratios, count)
    elif (kinds := _kinds(text, model_type, count)) is None:
        found.append(None)
    else:
        count = count or len(kinds)
        shared = text.integer("num_kv_shared_layers") or 0
        used = Counter(kinds[: len(kinds) - shared] if 0 < shared < len(kinds) else kinds)
        for kind in filter(used.get, (LayerKind.FULL, LayerKind.SLIDING, LayerKind.MAMBA, LayerKind.GDN)):
            shape = full if kind is LayerKind.FULL else _shape(text, kind, model_type)
            found.append(shape and replace(shape, layers=used[kind]))
        found += _indexers(text, used[LayerKind.FULL])
    states = tuple(each for each in found if isinstance(each, StateLayers))
    unread = tuple(name for name in text.unread(_SPEAKS) if not (states and _OF_STATES.search(name)))
    if unread or None in found:
        return Layers(count, None, None, drafting, None, unread)
    attention = tuple(each for each in found if isinstance(each, AttentionLayers))
    draft = replace(full, layers=with_attention) if full and with_attention and not ratios else None
    return Layers(count, attention, states, drafting, draft)


def _shape(text: Keys, kind: LayerKind, model_type: str) -> AttentionLayers | StateLayers | None:
    """One layer of a kind other than full attention; its keys are read only where there is one."""
    if kind is LayerKind.SLIDING:
        return _sliding(text)
    return _mamba(text, model_type) if kind is LayerKind.MAMBA else _kda(text) or _gdn(text)


def _compressed_layers(
    text: Keys, ratios: Sequence[int], count: int | None
) -> list[AttentionLayers | StateLayers | None]:
    """Layers that keep one entry for each N tokens (0: none) beside a window: DeepSeek-V4. Unknown without the keys
    for what an entry holds: a latent with its rotary part."""
    latent, rope = text.positive("kv_lora_rank"), text.positive("qk_rope_head_dim")
    entry = latent + (rope or 0) if latent else text.positive("head_dim") if rope else None
    if entry is None or count is None or len(ratios) < count:
        text.understood.discard("compress_ratios")
        return [None]
    used = Counter(ratios[:count])
    window, index = text.positive("sliding_window"), text.positive("index_head_dim")
    if used[1] or (window is None and used[0]):  # 1: no compression to some engines, a window alone to others
        text.understood.discard("compress_ratios")
        return [None]
    least = min((ratio for ratio in used if ratio), default=0)
    found = [
        AttentionLayers(LayerKind.COMPRESSED, used[ratio], entry, 0, None, ratio) for ratio in sorted(used) if ratio
    ]
    if window is not None:
        found.insert(0, AttentionLayers(LayerKind.SLIDING, count, entry, 0, window))
    if index and least:  # it chooses among the entries of the layers that compress least; of the others all are read
        found.append(AttentionLayers(LayerKind.INDEXER, used[least], index, 0, None, least))
    return list(found)


_SHARED_INDEX: Final = re.compile(r"^index_(?:topk|skip|share)")


def _indexers(text: Keys, layers: int) -> list[AttentionLayers | StateLayers | None]:
    """The keys that sparse attention keeps to choose what it reads, in all layers that see everything or in those that
    a list names: DeepSeek-V3.2 and GLM-5, MiniMax-M3."""
    size, sparse = text.positive("index_head_dim"), text.inner("sparse_attention_config")
    types = text.texts("indexer_types")
    if types is not None:
        layers = types[:layers].count("full") if set(types) <= {"full", "shared"} else 0
        text.understood.update(text.unread(_SHARED_INDEX))  # which the list spells out
    if sparse is not None and sparse.flag("use_sparse_attention") is not False:
        size, each = sparse.positive("sparse_index_dim"), sparse.numbers("sparse_attention_freq")
        layers = layers if each is None else sum(bool(one) for one in each[:layers])
        if size is None:
            text.understood.discard("sparse_attention_config")
    if types is not None and not (size and layers):
        text.understood.discard("indexer_types")
    return [AttentionLayers(LayerKind.INDEXER, layers, size, 0)] if size and layers else []


def _kinds(text: Keys, model_type: str, count: int | None) -> Sequence[LayerKind | None] | None:
    """One kind per layer, None for a layer that keeps nothing; None when the config is not understood. Layers for
    drafting, which some configs list after the last, are left out."""
    named = _named_kinds(text, count)
    if named is not None and len(named) >= (count or 1):
        text.understood.update(text.unread(_WHICH_LAYER))
        return named[:count]
    if named is not None:
        text.understood.difference_update(_LISTS)
        return None
    if count is None or count > MOST_LAYERS:
        return None
    window = text.positive("sliding_window", "sliding_window_size")
    context = text.positive("max_position_embeddings")
    every = text.positive("sliding_window_pattern")
    if window is None or text.flag("use_sliding_window") is False or (context is not None and window >= context):
        # Qwen states a window that is not used, Phi one that is longer than its context.
        text.understood |= {"sliding_window_pattern", "max_window_layers"}
        return [LayerKind.FULL] * count
    first = text.integer("max_window_layers")
    if first is not None:  # Qwen's class uses a window only where the config says so
        used = text.flag("use_sliding_window") is True
        return [LayerKind.SLIDING if used and at >= first else LayerKind.FULL for at in range(count)]
    if every is None:
        every = _CLASS_PATTERNS.get(model_type)
    if every is None:
        text.understood -= {"sliding_window", "sliding_window_size"}
        return None
    return [LayerKind.FULL if every and (at + 1) % every == 0 else LayerKind.SLIDING for at in range(count)]


_LISTS: Final = (
    "hybrid_override_pattern",
    "layers_block_type",
    "layer_types",
    "hybrid_layer_pattern",
    "attn_type_list",
    "linear_attn_config",
)


def _named_kinds(text: Keys, count: int | None) -> list[LayerKind | None] | None:
    """The kinds where a key names them layer by layer, or those of some layers by their numbers."""
    if marks := text.text("hybrid_override_pattern"):
        return [_PATTERN[mark] for mark in marks] if set(marks) <= set(_PATTERN) else []
    words = text.texts("layers_block_type") or text.texts("layer_types")
    if words:
        return [_WORDS[word] for word in words] if set(words) <= set(_WORDS) else []
    letters = text.value("sliding_window_pattern")
    if isinstance(letters, str):  # EXAONE: LLLG, repeated
        kinds = [_LETTERS.get(letter) for letter in letters]
        if None in kinds or not kinds:
            return []
        return [kinds[at % len(kinds)] for at in range(min(count or 0, MOST_LAYERS))]
    if numbers := text.numbers("hybrid_layer_pattern"):  # MiMo: 1 has a window
        return [LayerKind.SLIDING if each else LayerKind.FULL for each in numbers] if set(numbers) <= {0, 1} else []
    if numbers := text.numbers("attn_type_list"):  # MiniMax: 1 sees everything, 0 is lightning attention
        return [LayerKind.FULL] * len(numbers) if set(numbers) == {1} else []
    linear = text.inner("linear_attn_config")
    if linear is not None:  # Kimi: layers by their numbers, from 1 on
        full, others = linear.numbers("full_attn_layers") or (), linear.numbers("kda_layers") or ()
        both = {**dict.fromkeys(full, LayerKind.FULL), **dict.fromkeys(others, LayerKind.GDN)}
        return [both[at] for at in sorted(both)] if count and sorted([*full, *others]) == [*range(1, count + 1)] else []
    every = text.positive("full_attention_interval")
    if every and count and count <= MOST_LAYERS and "linear_num_value_heads" in text:
        return [LayerKind.FULL if (at + 1) % every == 0 else LayerKind.GDN for at in range(count)]
    return None


def _full(text: Keys) -> AttentionLayers | None:
    """A layer that sees everything."""
    latent, rope = text.positive("kv_lora_rank"), text.integer("qk_rope_head_dim")
    if latent is not None:
        text.positive(*_KV_HEADS)  # those of the heads that the latent row is expanded to
        return AttentionLayers(LayerKind.MLA, 1, latent + (rope or 0), 0)
    heads, same = text.positive("num_global_key_value_heads"), text.flag("attention_k_eq_v")
    return _heads(text, heads if same else None, text.positive("global_head_dim"))


_QUERY_HEADS: Final = ("num_attention_heads", "n_head")
_KV_HEADS: Final = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "num_attention_groups")


def _heads(text: Keys, heads: int | None, size: int | None, values: int | None = None) -> AttentionLayers | None:
    queries = text.positive(*_QUERY_HEADS)
    heads = heads or text.positive(*_KV_HEADS) or queries
    size = size or text.positive("head_dim", "attention_head_dim", "kv_channels")
    hidden = text.positive("hidden_size", "n_embd")
    if size is None and hidden and queries:
        size = hidden // queries
    if heads is None or not size:
        return None
    values = values or text.positive("v_head_dim") or size
    return AttentionLayers(LayerKind.FULL, 1, heads * size, heads * values)


def _sliding(text: Keys) -> AttentionLayers | None:
    """A layer with a window, which may have heads of its own (MiMo's keys, or Step's object)."""
    window = text.positive("sliding_window", "sliding_window_size")
    heads, size = text.positive("swa_num_key_value_heads"), text.positive("swa_head_dim")
    values = text.positive("swa_v_head_dim")
    other = text.inner("attention_other_setting")
    if other is not None and other.text("attention_type") in ("", "sliding_attention"):
        heads, size = other.positive(*_KV_HEADS), other.positive("head_dim")
    elif other is not None:
        text.understood.discard("attention_other_setting")
    if window is not None and text.value("attention_chunk_size") == window:  # MiMo names its window twice
        text.understood.add("attention_chunk_size")
    shape = _heads(text, heads, size, values)
    return None if shape is None or window is None else replace(shape, kind=LayerKind.SLIDING, window=window)


def _mamba(text: Keys, model_type: str) -> StateLayers | None:
    heads, size = text.positive("mamba_num_heads", "mamba_n_heads"), text.positive("mamba_head_dim", "mamba_d_head")
    state = text.positive("ssm_state_size", "mamba_d_state")
    kernel, groups = text.positive("conv_kernel", "mamba_d_conv"), text.positive("n_groups", "mamba_n_groups")
    if not (heads and size and state and kernel and groups):
        return None
    inner = heads * size
    width = _STATE_BYTES.get(text.text("mamba_ssm_cache_dtype"))
    if width is None and model_type.startswith(_NEMOTRON):
        width = 4  # vLLM 0.32: float32 unless the config says otherwise
    return StateLayers(LayerKind.MAMBA, 1, inner + 2 * groups * state, kernel - 1, inner * state, width)


def _gdn(text: Keys) -> StateLayers | None:
    keys, key_size = text.positive("linear_num_key_heads"), text.positive("linear_key_head_dim")
    values, value_size = text.positive("linear_num_value_heads"), text.positive("linear_value_head_dim")
    kernel = text.positive("linear_conv_kernel_dim")
    if not (keys and key_size and values and value_size and kernel):
        return None
    channels = 2 * keys * key_size + values * value_size
    width = _STATE_BYTES.get(text.text("mamba_ssm_dtype"))
    return StateLayers(LayerKind.GDN, 1, channels, kernel - 1, values * value_size * key_size, width)


def _kda(text: Keys) -> StateLayers | None:
    """Kimi's: a convolution each for queries, keys and values, and a square state per head in 32 bits."""
    found = text.inner("linear_attn_config")
    if found is None:
        return None
    heads, size = found.positive("num_heads"), found.positive("head_dim")
    kernel = found.positive("short_conv_kernel_size")
    if not (heads and size and kernel):
        return None
    return StateLayers(LayerKind.KDA, 1, 3 * heads * size, kernel - 1, heads * size * size, 4)


def _drafting(text: Keys) -> tuple[int | None, int]:
    """Layers for drafting that the config names, and how many of them keep keys and values."""
    nested = text.inner("mtp")
    count = text.integer("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "num_mtp_modules")
    if count is None and nested is not None:
        count = nested.integer("num_hidden_layers")
    pattern = text.text("mtp_hybrid_override_pattern")
    words = text.texts("mtp_layers_block_type")
    if pattern or words:
        attention = pattern.count("*") if pattern else (words or ()).count("attention")
        return (count or 1), (count or 1) * attention
    return count, count or 0


_MODELOPT: Final = (  # quant_algo holds -> format; the first that fits
    ("W4A16_NVFP4", WeightFormat.NVFP4_W4A16),
    ("NVFP4", WeightFormat.NVFP4),
    ("MXFP8", WeightFormat.MXFP8),
    ("MXFP4", WeightFormat.MXFP4),
    ("FP8", WeightFormat.FP8),
    ("INT8", WeightFormat.INT8),
    ("INT4", WeightFormat.INT4),
    ("W4A16", WeightFormat.INT4),
)
_PLAIN_INTEGERS: Final = ("awq", "gptq", "auto", "intel", "inc", "w8a8", "quanto", "hqq")
_COMPRESSED: Final = {
    "mxfp4-pack-quantized": WeightFormat.MXFP4,
    "mxfp8-quantized": WeightFormat.MXFP8,
    "float-quantized": WeightFormat.FP8,
    "pack-quantized": WeightFormat.INT4,
    "int-quantized": WeightFormat.INT8,
}


def quantization_of(config: Keys, hf_quant: Keys | None) -> Quantization | None:
    """From `config.json` (its nested text_config too) and `hf_quant_config.json`, ModelOpt's older place.

    A config that names no format is not quantized. Order and keys: vLLM 0.14 to 0.33.
    """
    text = config.inner("text_config")
    places = [config.inner("quantization_config"), config.inner("compression_config")]
    places += [text.inner("quantization_config"), text.inner("compression_config")] if text else []
    places.append(config.inner("quantization"))  # MLX
    for found in filter(None, places):
        form = _stated(found)
        experts = _experts_format([keys for keys in (found, text, config) if keys is not None])
        if experts is None or experts in form.formats:
            return form
        return replace(form, formats=(*form.formats, experts), experts=experts)
    if hf_quant is None:
        return Quantization("")
    producer, inner = hf_quant.inner("producer"), hf_quant.inner("quantization")
    modelopt = producer is not None and producer.text("name") == "modelopt"
    return _modelopt(inner, "modelopt") if modelopt and inner is not None else None


_OF_EXPERTS: Final = re.compile(r"^store_dtype$|expert\w*_(?:dtype|format|quant\w*)$|^moe_(?:dtype|format|quant\w*)$")


def _experts_format(places: Sequence[Keys]) -> WeightFormat | None:
    """The format of routed experts where a key of its own names one of four bits: `expert_dtype`."""
    words = (keys.text(key) for keys in places for key in keys.unread(_OF_EXPERTS))
    word = next(filter(None, words), "").upper()
    kinds = (WeightFormat.MXFP4, WeightFormat.NVFP4, WeightFormat.FP4, WeightFormat.INT4)
    return next((kind for kind in kinds if kind.value in word), None)


def _stated(found: Keys) -> Quantization:
    method = found.text("quant_method").lower()
    if not method and "group_size" in found:
        method = "mlx"
    if method.startswith("modelopt"):
        return _modelopt(found, method)
    if method == "compressed-tensors":
        return _compressed(found)
    bits = found.number("bits") or found.number("w_bit")
    if bits is None:
        bits = 4.0 if found.flag("load_in_4bit") else 8.0 if found.flag("load_in_8bit") else None
    formats: tuple[WeightFormat, ...]
    if method == "mxfp4":
        formats = (WeightFormat.MXFP4,)
    elif method in ("fp8", "fbgemm_fp8"):
        formats = (WeightFormat.FP8,)
    elif method.startswith(_PLAIN_INTEGERS) and bits in (4, 8):
        formats = (WeightFormat.INT4 if bits == 4 else WeightFormat.INT8,)
    else:
        formats = (WeightFormat.OTHER,)
    excluded = found.texts("modules_to_not_convert") or found.texts("ignored_layers") or ()
    return Quantization(method or "unknown", formats, excluded, bits=bits)


def _modelopt(found: Keys, method: str) -> Quantization:
    layers = found.inners("quantized_layers")
    words = [layer.text("quant_algo") for layer in layers] if layers else [found.text("quant_algo")]
    formats = tuple(
        dict.fromkeys(
            next((kind for part, kind in _MODELOPT if part in word.upper()), WeightFormat.OTHER)
            for word in words
            if word
        )
    )
    groups = found.inners("config_groups")
    if formats == (WeightFormat.NVFP4,) and groups and all("input_activations" not in group for group in groups):
        formats = (WeightFormat.NVFP4_W4A16,)  # vLLM 0.29: no quantized activations
    excluded = found.texts("exclude_modules") or found.texts("ignore") or ()
    kv_cache = found.text("kv_cache_quant_algo").lower() or _kv_scheme(found)
    return Quantization(method, formats, excluded, kv_cache)


def _compressed(found: Keys) -> Quantization:
    groups = found.inners("config_groups")
    formats = [_group_format(group, found.text("format")) for group in groups]
    if not formats:
        formats = [_COMPRESSED.get(found.text("format"), WeightFormat.OTHER)]
    excluded = found.texts("ignore") or ()
    return Quantization("compressed-tensors", tuple(dict.fromkeys(formats)), excluded, _kv_scheme(found))


def _group_format(group: Keys, whole: str) -> WeightFormat:
    """One group of modules: its own format, else the checkpoint's, else its bits."""
    weights = group.inner("weights")
    form = group.text("format") or whole
    bits = weights.integer("num_bits") if weights else None
    if "nvfp4" in form or (weights and weights.text("strategy") == "tensor_group" and bits == 4):
        return WeightFormat.NVFP4 if "input_activations" in group else WeightFormat.NVFP4_W4A16
    if weights and bits == 8 and form != "mxfp8-quantized":
        return WeightFormat.FP8 if weights.text("type") == "float" else WeightFormat.INT8
    return _COMPRESSED.get(form, WeightFormat.OTHER)


def _kv_scheme(found: Keys) -> str:
    scheme = found.inner("kv_cache_scheme")
    if scheme is None or scheme.integer("num_bits") != 8:
        return ""
    return "fp8" if scheme.text("type") == "float" else "int8"


_TEXT_MODELS: Final = ("text_config", "llm_config", "language_config")
_TOWERS: Final = (
    ("vision_config", "image"), ("img_processor", "image"), ("image_embd_layer", "image"),
    ("audio_config", "audio"), ("sound_config", "audio"), ("audio_embd_layer", "audio"), ("video_config", "video"),
)  # fmt: skip
_CONTEXT: Final = ("max_position_embeddings", "n_positions", "max_seq_len", "model_max_length", "max_sequence_length")
_SAMPLING: Final = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_DRAFT_NAME: Final = re.compile(r"(?:^|\.)(?:mtp|nextn|mtp_layers)\.|\.(?:nextn|eh_proj|shared_head)\.|\.eh_proj\.")
_LAYER: Final = re.compile(r"(?:^|\.)layers\.(\d{1,5})\.")


def facts_from(
    config: Mapping[str, Any],
    *,
    hf_quant: Mapping[str, Any] | None = None,
    generation: Mapping[str, Any] | None = None,
    tensor_names: Sequence[str] | None = None,
    files: Collection[str] = (),
    source: str = "",
) -> CheckpointFacts:
    """What the files say. `config` is `config.json`; `tensor_names` come from the index or the headers, and show
    whether layers for drafting are really there; `files` are those beside it. Never raises: what has the wrong shape
    becomes a finding."""
    findings: list[str] = []
    whole = Keys(config, findings)
    text = next((found for name in _TEXT_MODELS if (found := whole.inner(name)) is not None), whole)
    model_type = text.text("model_type") or whole.text("model_type")
    layers = layers_of(text, model_type)
    experts = _experts(text)
    quant = quantization_of(whole, None if hf_quant is None else Keys(hf_quant, findings, "hf_quant_config."))
    if layers.attention is None:
        keys = truncate(clean_line(", ".join(layers.unread[:4])), 120)
        findings.append(f"{f'not understood: {keys}' if keys else 'unknown layer types'}: KV cache size unknown")
    embedded = whole.inner("embd_layer")  # where Phi keeps its towers
    towers = (word for key, word in _TOWERS if key in whole or (embedded is not None and key in embedded))
    # Quantized checkpoints often keep the key for drafting and drop the layers.
    mtp_layers = None if tensor_names is None else layers.drafting or 0
    if mtp_layers and tensor_names is not None:
        mtp_layers *= any(is_draft_tensor(name, layers.count) for name in tensor_names)
    limits = Keys(generation or {}, findings, "generation_config.")
    sampling = ((name, limits.number(name)) for name in _SAMPLING)
    architecture = next(iter(whole.texts("architectures") or ()), "")
    kind, sign = _kind(Keys(config, []), architecture, tensor_names or (), files)
    return CheckpointFacts(
        architecture=architecture,
        kind=kind,
        kind_sign=sign,
        model_type=whole.text("model_type"),
        dtype=next(filter(None, (keys.text(key) for keys in (text, whole) for key in ("torch_dtype", "dtype"))), ""),
        quantization=quant,
        layers=layers.count,
        attention=layers.attention,
        states=layers.states,
        experts=experts,
        is_moe=experts is not None,
        max_position_embeddings=text.positive(*_CONTEXT),
        rope_scaling=_rope(text),
        mtp_declared=layers.drafting,
        mtp_layers=mtp_layers,
        mtp_attention=layers.drafting_attention,
        modalities=tuple(dict.fromkeys(("text", *towers))),
        sampling=tuple((name, value) for name, value in sampling if value is not None),
        heads=text.positive(*_QUERY_HEADS),
        kv_heads=text.positive(*_KV_HEADS),
        expert_weights=_expert_weights(text) if experts is not None else None,
        custom_code=whole.inner("auto_map") is not None or text.inner("auto_map") is not None,
        findings=tuple(findings),
        source=source,
    )


# What a drafter reads of its target: hidden states of some layers, its vocabulary.
_DRAFTER_KEYS: Final = re.compile(
    r"^(?:(?:num_)?target_(?:layer|hidden|model|vocab)|eagle_(?:aux|config)|dflash_config|draft_vocab_size|medusa_|speculators?_)"
)
_DRAFTERS: Final = re.compile(r"Eagle(?!.*VL)|DFlash|Medusa|MLPSpeculator|DraftModel|Assistant(?:Model|ForCausalLM)$")
_EMBEDDERS: Final = re.compile(
    r"^(?:Bert|Roberta|XLMRoberta|ModernBert|NomicBert|MPNet)\w*Model$|(?:Embedding|Bidirectional)Model$|ForTextEncoding$"
)
# vLLM's models that transcribe, without those that chat about sound too (vllm/model_executor/models/registry.py).
_SPEECH: Final = re.compile(r"^Whisper(?=ForConditional)|A(?:SR|sr)\d?(?=For|Realtime)|Realtime(?:For\w+)?Generation$")
_POOLING_FILES: Final = ("modules.json", "1_Pooling", "1_Pooling/config.json", "config_sentence_transformers.json")


def _kind(whole: Keys, architecture: str, tensor_names: Sequence[str], files: Collection[str]) -> tuple[ModelKind, str]:
    """What the checkpoint gives back, and the sign of it."""
    if keys := whole.unread(_DRAFTER_KEYS):
        return ModelKind.DRAFTER, f"key {truncate(clean_line(keys[0]), 80)}"
    for pattern, named in ((_DRAFTERS, ModelKind.DRAFTER), (_SPEECH, ModelKind.SPEECH)):
        if pattern.search(architecture):
            return named, f"architecture {architecture}"
    ends = any(re.search(r"lm_head|embed|wte|output\.|^head\.", name) for name in tensor_names)
    joint = "mask_token_id" in whole or any(name.startswith("fc.") for name in tensor_names)
    if tensor_names and joint and not ends:
        return ModelKind.DRAFTER, "its tensors: neither embedding nor output head"
    if "d2t" in tensor_names:
        return ModelKind.DRAFTER, "tensor d2t"
    if architecture.endswith("ForSequenceClassification"):
        labels = whole.inner("id2label")
        if (whole.integer("num_labels") or (len(labels) if labels is not None else 2)) == 1:
            return ModelKind.RERANKER, f"architecture {architecture} with one label"
    elif file := next((name for name in _POOLING_FILES if name in files), ""):
        return ModelKind.EMBEDDING, f"file {file}"
    elif _EMBEDDERS.search(architecture):
        return ModelKind.EMBEDDING, f"architecture {architecture}"
    return ModelKind.TEXT, ""


def _expert_weights(text: Keys) -> int | None:
    """Weights of one matrix of one routed expert."""
    hidden = text.positive("moe_latent_size", "hidden_size")
    inner = text.positive("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size")
    return hidden * inner if hidden and inner else None


def _experts(text: Keys) -> Experts | None:
    routed = text.positive(
        "num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "num_routed_experts"
    )
    each = text.positive(
        "num_experts_per_tok",
        "num_experts_per_token",
        "experts_per_token",
        "top_k_experts",
        "moe_top_k",
        "moe_topk",
        "moe_k",
    )
    if routed is None or routed < 2 or each is None:
        return None
    shared = text.integer("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
    if shared is None:
        shared = int(any(key in text for key in ("shared_expert_intermediate_size", "share_expert_dim")))
    return Experts(routed, min(each, routed), shared)


def _rope(text: Keys) -> RopeScaling | None:
    found = text.inner("rope_scaling") or text.inner("rope_parameters")
    if found is None:
        return None
    kind = found.text("rope_type") or found.text("type")
    if kind in ("", "default", "mrope"):
        return None
    return RopeScaling(kind, found.number("factor"), found.positive("original_max_position_embeddings"))


def is_draft_tensor(name: str, layers: int | None) -> bool:
    """Whether a tensor belongs to a layer for drafting: by its name, or as a layer after the last."""
    if _DRAFT_NAME.search(name):
        return True
    found = _LAYER.search(name)
    return found is not None and layers is not None and "visual" not in name and int(found[1]) >= layers


# --- known -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def known_model(names: str) -> Architecture | None:
    """The entry for a model by its names (Hub name, title), in any case; None when it is not here."""
    words = names.lower().replace("_", "-")
    return next((known for known in known_models().architecture if re.search(known.names, words)), None)


def bytes_for(known: Sequence[KnownBytes], names: str) -> KnownBytes | None:
    """What is known of the weights in the format that the names say; None where nothing is."""
    words = names.lower()
    return next((found for found in known if re.search(found.names, words)), None)


@cache
def facts_of(known: Architecture) -> CheckpointFacts:
    """Its facts: layers and lengths. Nothing about quantization and weights, which differ by checkpoint."""
    return replace(facts_from(known.config, source="the model's published config"), quantization=None)
