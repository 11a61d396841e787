"""From a checkpoint's JSON files to facts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from spark_tui.domain.models.checkpoint import CheckpointFacts, Experts, RopeScaling
from spark_tui.domain.models.json_keys import Keys
from spark_tui.domain.models.layers import Layers, layers_of
from spark_tui.domain.models.quantization import quantization_of

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
    """What the files say. `config` is `config.json`; `tensor_names` come from the index or the headers, and tell
    whether layers for drafting are really there. Never raises: what has the wrong shape becomes a finding."""
    findings: list[str] = []
    whole = Keys(config, findings)
    text = next((found for name in _TEXT_MODELS if (found := whole.inner(name)) is not None), whole)
    model_type = text.text("model_type") or whole.text("model_type")
    layers = layers_of(text, model_type)
    experts = _experts(text)
    quant = quantization_of(whole, None if hf_quant is None else Keys(hf_quant, findings, "hf_quant_config."))
    if layers.attention is None:
        findings.append("its layers are of a kind that is not known here: the KV cache cannot be told")
    return CheckpointFacts(
        architecture=next(iter(whole.texts("architectures") or ()), ""),
        model_type=whole.text("model_type"),
        dtype=_dtype(text) or _dtype(whole),
        quantization=quant,
        layers=layers.count,
        hidden_size=text.positive("hidden_size", "n_embd"),
        vocab_size=text.positive("vocab_size") or whole.positive("vocab_size"),
        attention=layers.attention,
        states=layers.states,
        experts=experts,
        is_moe=experts is not None,
        max_position_embeddings=text.positive("max_position_embeddings", "n_positions", "max_seq_len"),
        rope_scaling=_rope(text),
        mtp_declared=layers.drafting,
        mtp_layers=_drafting_there(layers, tensor_names),
        mtp_attention=layers.drafting_attention,
        modalities=_modalities(whole),
        tied_embeddings=_either(whole.flag("tie_word_embeddings"), text.flag("tie_word_embeddings")),
        sampling=_sampling(generation, findings),
        findings=tuple(findings),
        source=source,
    )


def _modalities(whole: Keys) -> tuple[str, ...]:
    """What it takes, text first, by its towers. Phi keeps them under `embd_layer`."""
    nested = whole.inner("embd_layer")
    held = [word for key, word in _TOWERS if key in whole or (nested is not None and key in nested)]
    return tuple(dict.fromkeys(("text", *held)))


def _either(first: bool | None, second: bool | None) -> bool | None:
    return first if first is not None else second


def _dtype(keys: Keys) -> str:
    return keys.text("torch_dtype") or keys.text("dtype")


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


def _drafting_there(layers: Layers, names: Iterable[str] | None) -> int | None:
    """Layers for drafting whose weights are there: quantized checkpoints often keep the key and drop the layers."""
    if names is None:
        return None
    if layers.drafting is None:
        return 0
    return layers.drafting if any(is_draft_tensor(name, layers.count) for name in names) else 0


def is_draft_tensor(name: str, layers: int | None) -> bool:
    """Whether a tensor belongs to a layer for drafting: by its name, or as a layer after the last."""
    if _DRAFT_NAME.search(name):
        return True
    found = _LAYER.search(name)
    return found is not None and layers is not None and "visual" not in name and int(found[1]) >= layers


def _sampling(found: Mapping[str, Any] | None, findings: list[str]) -> tuple[tuple[str, float], ...]:
    if found is None:
        return ()
    keys = Keys(found, findings, "generation_config.")
    values = ((name, keys.number(name)) for name in _SAMPLING)
    return tuple((name, value) for name, value in values if value is not None)
