"""What the simulated store's checkpoints say of themselves: shapes of public models, weights rounded to what tells."""

from __future__ import annotations

from typing import Final, TypeAlias

from spark_tui.domain.models.chat_template import ChatAbilities
from spark_tui.domain.models.checkpoint import (
    AttentionLayers,
    CheckpointFacts,
    Experts,
    LayerKind,
    ModuleBytes,
    ModuleClass,
    Quantization,
    StateLayers,
    WeightFormat,
    WeightSummary,
)
from spark_tui.domain.reading import Missing, Ok, Reading
from spark_tui.services.demo.container import RECORDED_MODEL

SOURCE: Final = "simulated"
_NVFP4, _MXFP4, _WIDE = 4.5, 4.25, 16.0
"""Bits of a weight with its share of the scales."""
_DTYPES: Final = {_NVFP4: (("U8", 4.0), ("F8_E4M3", 0.5)), _MXFP4: (("U8", 4.25),), _WIDE: (("BF16", 16.0),)}

Parts: TypeAlias = tuple[tuple[ModuleClass, float, float], ...]
"""Class, billions of weights, bits of each."""


class DemoCheckpoints:
    """The CheckpointSource port of the simulated store."""

    def read(self, model: str, revision: str = "") -> Reading[CheckpointFacts]:
        """The same whatever the revision."""
        found = KNOWN.get(model)
        return Missing("its config.json is not here") if found is None else Ok(found)


def _weights(parts: Parts, *, complete: bool = True) -> WeightSummary:
    dtypes: dict[str, int] = {}
    modules = []
    for module, billions, bits in parts:
        size = round(billions * 1e9 * bits / 8)
        modules.append(ModuleBytes(module, size, size if bits == _WIDE else 0, round(billions * 1e9)))
        for dtype, share in _DTYPES[bits]:
            dtypes[dtype] = dtypes.get(dtype, 0) + round(billions * 1e9 * share / 8)
    ordered = tuple(sorted(dtypes.items(), key=lambda pair: -pair[1]))
    return WeightSummary(ordered, tuple(modules), sum(each.parameters for each in modules), 2_000, complete)


def _quantized(method: str, form: WeightFormat, group: int, *excluded: str) -> Quantization:
    return Quantization(method, (form,), excluded, "fp8" if method == "modelopt" else "", group)


_QWEN_MOE: Final[Parts] = (
    (ModuleClass.EXPERTS, 32.2, _NVFP4), (ModuleClass.STATE, 0.76, _WIDE), (ModuleClass.ATTENTION, 0.19, _WIDE),
    (ModuleClass.SHARED_EXPERT, 0.13, _NVFP4), (ModuleClass.ROUTER, 0.02, _WIDE), (ModuleClass.EMBEDDING, 0.51, _WIDE),
    (ModuleClass.HEAD, 0.51, _WIDE), (ModuleClass.VISION, 0.45, _WIDE),
)  # fmt: skip
_QWEN_CHAT: Final = ChatAbilities(True, True, True, ("enable_thinking",), "qwen3", "qwen3_coder")


def _qwen_moe(mtp: int) -> CheckpointFacts:
    return CheckpointFacts(
        architecture="Qwen3_5MoeForConditionalGeneration", model_type="qwen3_5_moe", dtype="bfloat16",
        quantization=_quantized("modelopt", WeightFormat.NVFP4, 16, "lm_head", "*.self_attn.*", "*.linear_attn.*"),
        layers=40, hidden_size=2048, vocab_size=248_320,
        attention=(AttentionLayers(LayerKind.FULL, 10, 512, 512),),
        states=(StateLayers(LayerKind.GDN, 30, 8192, 3, 524_288),),
        experts=Experts(256, 8, 1), is_moe=True, max_position_embeddings=262_144, mtp_declared=1, mtp_layers=mtp,
        modalities=("text", "image", "video"), tied_embeddings=False, weights=_weights(_QWEN_MOE),
        sampling=(("temperature", 1.0), ("top_p", 0.95), ("top_k", 20.0)), chat=_QWEN_CHAT, licence="apache-2.0",
        source=SOURCE,
    )  # fmt: skip


def _gpt_oss() -> CheckpointFacts:
    parts: Parts = (
        (ModuleClass.EXPERTS, 114.7, _MXFP4), (ModuleClass.ATTENTION, 0.96, _WIDE), (ModuleClass.ROUTER, 0.02, _WIDE),
        (ModuleClass.EMBEDDING, 0.58, _WIDE), (ModuleClass.HEAD, 0.58, _WIDE),
    )  # fmt: skip
    return CheckpointFacts(
        architecture="GptOssForCausalLM", model_type="gpt_oss", dtype="bfloat16",
        quantization=_quantized("mxfp4", WeightFormat.MXFP4, 32, "self_attn", "lm_head", "embed_tokens"),
        layers=36, hidden_size=2880, vocab_size=201_088,
        attention=(
            AttentionLayers(LayerKind.FULL, 18, 512, 512), AttentionLayers(LayerKind.SLIDING, 18, 512, 512, 128),
        ),
        states=(), experts=Experts(128, 4), is_moe=True, max_position_embeddings=131_072, modalities=("text",),
        tied_embeddings=False, weights=_weights(parts), licence="apache-2.0", source=SOURCE,
        chat=ChatAbilities(True, True, False, ("reasoning_effort",), "openai_gptoss", "openai"),
    )  # fmt: skip


def _nemotron() -> CheckpointFacts:
    parts: Parts = (
        (ModuleClass.EXPERTS, 29.4, _NVFP4), (ModuleClass.STATE, 0.9, _WIDE), (ModuleClass.ATTENTION, 0.14, _WIDE),
        (ModuleClass.EMBEDDING, 0.35, _WIDE), (ModuleClass.HEAD, 0.35, _WIDE),
    )  # fmt: skip
    return CheckpointFacts(
        architecture="NemotronHForCausalLM", model_type="nemotron_h", dtype="bfloat16",
        quantization=_quantized("modelopt", WeightFormat.NVFP4, 16, "*.mixer.in_proj", "lm_head"),
        layers=52, hidden_size=2688, vocab_size=131_072, attention=(AttentionLayers(LayerKind.FULL, 6, 256, 256),),
        states=(StateLayers(LayerKind.MAMBA, 23, 6144, 3, 524_288),), experts=Experts(128, 6, 1), is_moe=True,
        max_position_embeddings=262_144, modalities=("text",), tied_embeddings=False,
        weights=_weights(parts, complete=False), licence="nvidia-open-model-license", source=SOURCE,
        chat=ChatAbilities(True, True, False, ("enable_thinking",), "nemotron_v3", "qwen3_coder"),
        findings=("model-00004-of-00004.safetensors is named in the index and is not here",),
    )  # fmt: skip


def _dense() -> CheckpointFacts:
    parts: Parts = (
        (ModuleClass.MLP, 19.4, _NVFP4), (ModuleClass.STATE, 1.6, _WIDE), (ModuleClass.ATTENTION, 1.7, _NVFP4),
        (ModuleClass.EMBEDDING, 1.2, _WIDE), (ModuleClass.HEAD, 1.2, _WIDE), (ModuleClass.VISION, 0.25, _WIDE),
    )  # fmt: skip
    return CheckpointFacts(
        architecture="Qwen3_5ForConditionalGeneration", model_type="qwen3_5", dtype="bfloat16",
        quantization=_quantized("compressed-tensors", WeightFormat.NVFP4, 16, "lm_head", "re:.*linear_attn.*"),
        layers=64, hidden_size=5120, vocab_size=248_320, attention=(AttentionLayers(LayerKind.FULL, 16, 1024, 1024),),
        states=(StateLayers(LayerKind.GDN, 48, 10_240, 3, 786_432),), is_moe=False, max_position_embeddings=262_144,
        mtp_declared=1, mtp_layers=0, modalities=("text", "image", "video"), tied_embeddings=False,
        weights=_weights(parts), chat=_QWEN_CHAT, licence="apache-2.0", source=SOURCE,
    )  # fmt: skip


def _drafter() -> CheckpointFacts:
    return CheckpointFacts(
        architecture="DFlashDraftModel", model_type="qwen3", dtype="bfloat16", quantization=Quantization(""),
        layers=5, hidden_size=5120, attention=(AttentionLayers(LayerKind.FULL, 5, 1024, 1024),), states=(),
        is_moe=False, max_position_embeddings=262_144, modalities=("text",),
        weights=_weights(((ModuleClass.MLP, 1.33, _WIDE), (ModuleClass.ATTENTION, 0.44, _WIDE))), source=SOURCE,
    )  # fmt: skip


KNOWN: Final = {
    RECORDED_MODEL: _qwen_moe(1),
    "nvidia/Qwen3.6-35B-A3B-NVFP4": _qwen_moe(1),
    "openai/gpt-oss-120b": _gpt_oss(),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4": _nemotron(),
    "unsloth/Qwen3.6-27B-NVFP4": _dense(),
    "/models/qwen3.5-27b-dflash": _drafter(),
}
