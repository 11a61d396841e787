"""What each layer of a model keeps, from its config: keys and values, a window of them, or a state.

The keys are those that vLLM reads (0.33: kv_cache_interface, mamba_utils, model_arch_config_convertor).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from spark_tui.domain.models.checkpoint import AttentionLayers, LayerKind, StateLayers
from spark_tui.domain.models.json_keys import Keys

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


@dataclass(frozen=True, slots=True)
class Layers:
    """What a config says about its layers; None where it is not understood. `drafting` counts layers for drafting
    that the config names, `drafting_attention` is what those keep."""

    count: int | None
    attention: tuple[AttentionLayers, ...] | None
    states: tuple[StateLayers, ...] | None
    drafting: int | None
    drafting_attention: AttentionLayers | None


def layers_of(text: Keys, model_type: str) -> Layers:
    """The layers of a text model's config."""
    count = text.positive("num_hidden_layers", "n_layer", "num_layers")
    kinds = _kinds(text, model_type, count)
    drafting, with_attention = _drafting(text)
    if kinds is None:
        return Layers(count, None, None, drafting, None)
    shared = text.integer("num_kv_shared_layers") or 0
    own = kinds[: len(kinds) - shared] if 0 < shared < len(kinds) else kinds
    attention = _attention(text, own)
    states = _states(text, own, model_type)
    full = _full(text)
    draft = replace(full, layers=with_attention) if full and with_attention else None
    return Layers(count or len(kinds), attention, states, drafting, draft)


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
    slides = _shorter_than_context(text, window) and text.flag("use_sliding_window") is not False
    slides = slides and "max_window_layers" not in text
    return [LayerKind.SLIDING if slides else LayerKind.FULL] * count


def _shorter_than_context(text: Keys, window: int | None) -> bool:
    context = text.positive("max_position_embeddings")
    return window is not None and (context is None or window < context)


# --- keys and values ----------------------------------------------------------------------------------


def _attention(text: Keys, kinds: Sequence[LayerKind | None]) -> tuple[AttentionLayers, ...] | None:
    found: list[AttentionLayers] = []
    for kind, shape in ((LayerKind.FULL, _full(text)), (LayerKind.SLIDING, _sliding(text))):
        layers = kinds.count(kind)
        if layers and shape is None:
            return None
        if layers and shape is not None:
            found.append(replace(shape, layers=layers))
    return tuple(found)


def _full(text: Keys) -> AttentionLayers | None:
    """A layer that sees everything."""
    latent = text.positive("kv_lora_rank")
    if latent is not None:
        return AttentionLayers(LayerKind.MLA, 1, latent + (text.integer("qk_rope_head_dim") or 0), 0)
    heads = text.positive("num_global_key_value_heads") if text.flag("attention_k_eq_v") else None
    return _heads(text, heads, text.positive("global_head_dim"))


def _sliding(text: Keys) -> AttentionLayers | None:
    shape, window = _heads(text, None, None), text.positive("sliding_window")
    return None if shape is None or window is None else replace(shape, kind=LayerKind.SLIDING, window=window)


def _heads(text: Keys, heads: int | None, size: int | None) -> AttentionLayers | None:
    queries = text.positive("num_attention_heads", "n_head")
    heads = (
        heads or text.positive("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num") or queries
    )
    size = size or text.positive("head_dim", "attention_head_dim")
    hidden = text.positive("hidden_size", "n_embd")
    if size is None and hidden and queries:
        size = hidden // queries
    if heads is None or not size:
        return None
    values = text.positive("v_head_dim") or size
    return AttentionLayers(LayerKind.FULL, 1, heads * size, heads * values)


# --- states -------------------------------------------------------------------------------------------


def _states(text: Keys, kinds: Sequence[LayerKind | None], model_type: str) -> tuple[StateLayers, ...] | None:
    found: list[StateLayers] = []
    for kind, shape in ((LayerKind.MAMBA, _mamba(text, model_type)), (LayerKind.GDN, _gdn(text))):
        layers = kinds.count(kind)
        if layers and shape is None:
            return None
        if layers and shape is not None:
            found.append(replace(shape, layers=layers))
    return tuple(found)


def _mamba(text: Keys, model_type: str) -> StateLayers | None:
    heads, size, state = (
        text.positive("mamba_num_heads"),
        text.positive("mamba_head_dim"),
        text.positive("ssm_state_size"),
    )
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


# --- drafting -----------------------------------------------------------------------------------------


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
