"""The configuration of a model, and the families that are known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Annotated, Any, Final, NoReturn, TypeVar

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import replace

from spark_tui.base.checkpoint import (
    AttentionLayers,
    CheckpointFacts,
    Experts,
    LayerKind,
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
        found = load_json(data.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise BadJson("not UTF-8 text") from None
    except BadJson:
        raise
    except ValueError as error:
        raise BadJson(f"not JSON: {truncate(clean_line(str(error)), 80)}") from None
    if not isinstance(found, dict):
        raise BadJson("not a JSON object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise BadJson(f"{name} is no JSON number")


class Keys:
    """A JSON object asked by key and type. A value of another type counts as absent, and becomes a finding."""

    def __init__(self, found: Mapping[str, Any], findings: list[str], path: str = "") -> None:
        self._found = found
        self.findings = findings
        self._path = path

    def __contains__(self, name: str) -> bool:
        return self._found.get(name) is not None

    def _get(self, name: str, kind: type[T], expected: str) -> T | None:
        value = self._found.get(name)
        try:
            return None if value is None else convert(value, kind)
        except ValidationError:
            words = f"{truncate(clean_line(self._path + name), 80)} is not {expected}"
            if words not in self.findings and len(self.findings) < _MOST_FINDINGS:
                self.findings.append(words)
        return None

    def integer(self, *names: str) -> int | None:
        """The first of these keys that holds a whole number from 0 on; `4096.0` is one."""
        found = (self._get(name, _Whole, "a whole number") for name in names)
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

    def flag(self, name: str) -> bool | None:
        """True, false, or None."""
        return self._get(name, bool, "true or false")

    def texts(self, name: str) -> tuple[str, ...] | None:
        """A list of texts; None when there is none."""
        found = self._get(name, list[str], "a list of texts")
        return None if found is None else tuple(map(_cut, found))

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
# A config that has one of these has layers of a kind that is not known here, unless a list says which layer is what.
_OTHER_STATES: Final = (
    "attn_layer_period", "conv_L_cache", "linear_attn_config", "mamba_d_state", "ssm_cfg", "ssm_state_size",
    "state_size", "time_step_rank", "wkv_head_dim", "attention_chunk_size",
)  # fmt: skip
_STATE_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}
_NEMOTRON: Final = "nemotron_h"
Shape = TypeVar("Shape", AttentionLayers, StateLayers)


class Layers(Struct, frozen=True):
    """What a config says about its layers; None where it is not understood. `drafting` counts layers for drafting
    that the config names, `drafting_attention` is what those keep."""

    count: int | None
    attention: tuple[AttentionLayers, ...] | None
    states: tuple[StateLayers, ...] | None
    drafting: int | None
    drafting_attention: AttentionLayers | None


def layers_of(text: Keys, model_type: str) -> Layers:
    count = text.positive("num_hidden_layers", "n_layer", "num_layers")
    kinds = _kinds(text, model_type, count)
    drafting, with_attention = _drafting(text)
    if kinds is None:
        return Layers(count, None, None, drafting, None)
    shared = text.integer("num_kv_shared_layers") or 0
    own = kinds[: len(kinds) - shared] if 0 < shared < len(kinds) else kinds
    full = _full(text)
    window, sliding = text.positive("sliding_window"), _heads(text, None, None)
    if sliding is not None:
        sliding = None if window is None else replace(sliding, kind=LayerKind.SLIDING, window=window)
    attention = _counted(own, full, sliding, LayerKind.FULL, LayerKind.SLIDING)
    states = _counted(own, _mamba(text, model_type), _gdn(text), LayerKind.MAMBA, LayerKind.GDN)
    draft = replace(full, layers=with_attention) if full and with_attention else None
    return Layers(count or len(kinds), attention, states, drafting, draft)


def _counted(
    kinds: Sequence[LayerKind | None], first: Shape | None, second: Shape | None, *names: LayerKind
) -> tuple[Shape, ...] | None:
    """The shapes of two kinds with their number of layers; None where the shape of a used kind is unknown."""
    found: list[Shape] = []
    for kind, shape in zip(names, (first, second), strict=True):
        layers = kinds.count(kind)
        if layers and shape is None:
            return None
        if layers and shape is not None:
            found.append(replace(shape, layers=layers))
    return tuple(found)


def _kinds(text: Keys, model_type: str, count: int | None) -> Sequence[LayerKind | None] | None:
    """One kind per layer, None for a layer that keeps nothing; None when the config is not understood."""
    pattern = text.text("hybrid_override_pattern")
    if pattern:
        return [_PATTERN[mark] for mark in pattern] if set(pattern) <= set(_PATTERN) else None
    words = text.texts("layers_block_type") or text.texts("layer_types")
    if words:
        return [_WORDS[word] for word in words] if set(words) <= set(_WORDS) and len(words) <= MOST_LAYERS else None
    if count is None or count > MOST_LAYERS:
        return None
    every = text.positive("full_attention_interval")
    if every and "linear_num_value_heads" in text:
        return [LayerKind.FULL if (at + 1) % every == 0 else LayerKind.GDN for at in range(count)]
    if any(key in text for key in _OTHER_STATES):
        return None
    window = text.positive("sliding_window")
    every = text.positive("sliding_window_pattern")
    if window and every:
        return [LayerKind.FULL if (at + 1) % every == 0 else LayerKind.SLIDING for at in range(count)]
    if window and model_type == "gpt_oss":
        return [LayerKind.FULL if at % 2 else LayerKind.SLIDING for at in range(count)]
    # Qwen states a window that is not used, Phi one that is longer than its context; Mistral states one that is used.
    context = text.positive("max_position_embeddings")
    shorter = window is not None and (context is None or window < context)
    slides = shorter and text.flag("use_sliding_window") is not False and "max_window_layers" not in text
    return [LayerKind.SLIDING if slides else LayerKind.FULL] * count


def _full(text: Keys) -> AttentionLayers | None:
    """A layer that sees everything."""
    latent = text.positive("kv_lora_rank")
    if latent is not None:
        return AttentionLayers(LayerKind.MLA, 1, latent + (text.integer("qk_rope_head_dim") or 0), 0)
    heads = text.positive("num_global_key_value_heads") if text.flag("attention_k_eq_v") else None
    return _heads(text, heads, text.positive("global_head_dim"))


_QUERY_HEADS: Final = ("num_attention_heads", "n_head")
_KV_HEADS: Final = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")


def _heads(text: Keys, heads: int | None, size: int | None) -> AttentionLayers | None:
    queries = text.positive(*_QUERY_HEADS)
    heads = heads or text.positive(*_KV_HEADS) or queries
    size = size or text.positive("head_dim", "attention_head_dim")
    hidden = text.positive("hidden_size", "n_embd")
    if size is None and hidden and queries:
        size = hidden // queries
    if heads is None or not size:
        return None
    values = text.positive("v_head_dim") or size
    return AttentionLayers(LayerKind.FULL, 1, heads * size, heads * values)


def _mamba(text: Keys, model_type: str) -> StateLayers | None:
    heads, size = text.positive("mamba_num_heads"), text.positive("mamba_head_dim")
    state = text.positive("ssm_state_size")
    kernel, groups = text.positive("conv_kernel"), text.positive("n_groups")
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
    for found in places:
        if found is not None:
            return _stated(found)
    if hf_quant is None:
        return Quantization("")
    producer, inner = hf_quant.inner("producer"), hf_quant.inner("quantization")
    modelopt = producer is not None and producer.text("name") == "modelopt"
    return _modelopt(inner, "modelopt") if modelopt and inner is not None else None


def _stated(found: Keys) -> Quantization:
    method = found.text("quant_method").lower()
    if method.startswith("modelopt"):
        return _modelopt(found, method)
    if method == "compressed-tensors":
        return _compressed(found)
    bits = found.integer("bits", "w_bit")
    formats: tuple[WeightFormat, ...]
    if method == "mxfp4":
        formats = (WeightFormat.MXFP4,)
    elif method in ("fp8", "fbgemm_fp8"):
        formats = (WeightFormat.FP8,)
    elif bits in (4, 8):
        formats = (WeightFormat.INT4 if bits == 4 else WeightFormat.INT8,)
    else:
        formats = (WeightFormat.OTHER,)
    excluded = found.texts("modules_to_not_convert") or found.texts("ignored_layers") or ()
    return Quantization(method or "unknown", formats, excluded)


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
_SAMPLING: Final = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_DRAFT_NAME: Final = re.compile(r"(?:^|\.)(?:mtp|nextn|mtp_layers)\.|\.(?:nextn|eh_proj|shared_head)\.|\.eh_proj\.")
_LAYER: Final = re.compile(r"(?:^|\.)layers\.(\d{1,5})\.")


def facts_from(
    config: Mapping[str, Any],
    *,
    hf_quant: Mapping[str, Any] | None = None,
    generation: Mapping[str, Any] | None = None,
    tensor_names: Iterable[str] | None = None,
    source: str = "",
) -> CheckpointFacts:
    """What the files say. `config` is `config.json`; `tensor_names` come from the index or the headers, and show
    whether layers for drafting are really there. Never raises: what has the wrong shape becomes a finding."""
    findings: list[str] = []
    whole = Keys(config, findings)
    text = next((found for name in _TEXT_MODELS if (found := whole.inner(name)) is not None), whole)
    model_type = text.text("model_type") or whole.text("model_type")
    layers = layers_of(text, model_type)
    experts = _experts(text)
    quant = quantization_of(whole, None if hf_quant is None else Keys(hf_quant, findings, "hf_quant_config."))
    if layers.attention is None:
        findings.append("unknown layer types: KV cache size unknown")
    embedded = whole.inner("embd_layer")  # where Phi keeps its towers
    towers = (word for key, word in _TOWERS if key in whole or (embedded is not None and key in embedded))
    # Quantized checkpoints often keep the key for drafting and drop the layers.
    mtp_layers = None if tensor_names is None else layers.drafting or 0
    if mtp_layers and tensor_names is not None:
        mtp_layers *= any(is_draft_tensor(name, layers.count) for name in tensor_names)
    limits = Keys(generation or {}, findings, "generation_config.")
    sampling = ((name, limits.number(name)) for name in _SAMPLING)
    return CheckpointFacts(
        architecture=next(iter(whole.texts("architectures") or ()), ""),
        model_type=whole.text("model_type"),
        dtype=next(filter(None, (keys.text(key) for keys in (text, whole) for key in ("torch_dtype", "dtype"))), ""),
        quantization=quant,
        layers=layers.count,
        attention=layers.attention,
        states=layers.states,
        experts=experts,
        is_moe=experts is not None,
        max_position_embeddings=text.positive("max_position_embeddings", "n_positions", "max_seq_len"),
        rope_scaling=_rope(text),
        mtp_declared=layers.drafting,
        mtp_layers=mtp_layers,
        mtp_attention=layers.drafting_attention,
        modalities=tuple(dict.fromkeys(("text", *towers))),
        sampling=tuple((name, value) for name, value in sampling if value is not None),
        heads=text.positive(*_QUERY_HEADS),
        kv_heads=text.positive(*_KV_HEADS),
        custom_code=whole.inner("auto_map") is not None or text.inner("auto_map") is not None,
        findings=tuple(findings),
        source=source,
    )


def _experts(text: Keys) -> Experts | None:
    routed = text.positive("num_experts", "n_routed_experts", "num_local_experts")
    each = text.positive("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts")
    if routed is None or routed < 2 or each is None:
        return None
    shared = text.integer("n_shared_experts", "num_shared_experts")
    if shared is None:
        shared = 1 if "shared_expert_intermediate_size" in text else 0
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
