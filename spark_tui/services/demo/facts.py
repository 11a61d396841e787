"""What the simulation knows of models: a shelf of the Hub, and the checkpoints that it can look into."""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec.structs import replace

from spark_tui.domain.models.checkpoint import (
    AttentionLayers,
    ChatAbilities,
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

RECORDED_MODEL: Final = "rdtand/Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm"

_BF16, _FP8, _NVFP4, _MXFP4 = WeightFormat.BF16, WeightFormat.FP8, WeightFormat.NVFP4, WeightFormat.MXFP4
_NEMOTRON: Final = "nvidia-open-model-license"

Card: TypeAlias = tuple[str, float, int, WeightFormat, str, int, int]
"""Repository, GiB of weights, shards, format, licence, thousands of downloads, days since it changed."""

SHELF: Final[tuple[Card, ...]] = (
    ("nvidia/Qwen3.6-35B-A3B-NVFP4", 21.4, 5, _NVFP4, "apache-2.0", 412, 34),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", 17.9, 4, _NVFP4, _NEMOTRON, 268, 58),
    ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", 70.2, 17, _NVFP4, _NEMOTRON, 143, 44),
    ("chankhavu/Nemotron-Cascade-2-30B-A3B-NVFP4", 17.9, 4, _NVFP4, _NEMOTRON, 6, 52),
    ("cybermotaz/nemotron3-nano-nvfp4-w4a16", 17.6, 4, WeightFormat.NVFP4_W4A16, "other", 9, 63),
    ("unsloth/Qwen3.6-27B-NVFP4", 18.6, 4, _NVFP4, "apache-2.0", 77, 40),
    ("openai/gpt-oss-120b", 60.8, 15, _MXFP4, "apache-2.0", 2_910, 410),
    ("openai/gpt-oss-20b", 12.8, 3, _MXFP4, "apache-2.0", 5_630, 410),
    ("nvidia/Llama-3.3-70B-Instruct-NVFP4", 39.8, 9, _NVFP4, "llama3.3", 96, 301),
    ("Qwen/Qwen3.5-35B-A3B", 67.0, 14, _BF16, "apache-2.0", 1_204, 180),
    ("Qwen/Qwen3.6-27B", 51.8, 12, _BF16, "apache-2.0", 890, 71),
    ("Qwen/Qwen3.6-35B-A3B-FP8", 34.9, 8, _FP8, "apache-2.0", 655, 70),
    ("nvidia/Qwen3-8B-NVFP4", 6.5, 2, _NVFP4, "other", 58, 240),
    ("nvidia/Qwen3-30B-A3B-NVFP4", 15.7, 4, _NVFP4, "other", 84, 240),
    ("nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4", 43.9, 10, _NVFP4, "other", 71, 190),
    ("AEON-7/DFlash-Qwen3.5-27B-Uncensored-NVFP4", 18.6, 4, _NVFP4, "other", 4, 120),
    ("z-lab/Qwen3.5-27B-DFlash", 3.3, 1, _BF16, "mit", 12, 125),
    ("sakamakismile/gemma-4-12B-coder-fable5-composer2.5-MTP-NVFP4", 7.7, 2, _NVFP4, "other", 3, 48),
    ("nvidia/diffusiongemma-26B-A4B-it-NVFP4", 13.0, 3, _NVFP4, "other", 21, 30),
    ("nvidia/Gemma-4-26B-A4B-NVFP4", 13.0, 3, _NVFP4, "other", 132, 82),
    ("nvidia/Gemma-4-31B-IT-NVFP4", 19.6, 5, _NVFP4, "other", 118, 82),
    ("google/gemma-4-31B-it", 58.3, 13, _BF16, "apache-2.0", 740, 96),
    ("google/gemma-3-27b-it", 51.1, 12, _BF16, "gemma", 1_310, 560),
    ("RedHatAI/gemma-4-31B-it-speculator.dflash", 2.9, 1, _BF16, "apache-2.0", 15, 60),
    ("poolside/Laguna-XS.2", 61.5, 14, _BF16, "apache-2.0", 39, 65),
    ("poolside/Laguna-XS.2-speculator.dflash", 1.1, 1, _BF16, "apache-2.0", 7, 64),
    ("mistralai/Mistral-Small-4-119B-2603-NVFP4", 55.9, 13, _NVFP4, "apache-2.0", 88, 105),
    ("nvidia/Phi-4-multimodal-instruct-NVFP4", 4.6, 1, _NVFP4, "other", 18, 250),
    ("deepseek-ai/DeepSeek-V3.2", 641.0, 163, _FP8, "mit", 1_480, 330),
)  # fmt: skip


SOURCE: Final = "simulated"
_FOUR_NV, _FOUR_MX, _EIGHT, _WIDE = 4.5, 4.25, 8.0, 16.0
"""Bits of a weight with its share of the scales."""
_DTYPES: Final = {
    _FOUR_NV: (("U8", 4.0), ("F8_E4M3", 0.5)),
    _FOUR_MX: (("U8", 4.25),),
    _EIGHT: (("F8_E4M3", 8.0),),
    _WIDE: (("BF16", 16.0),),
}

Parts: TypeAlias = tuple[tuple[ModuleClass, float, float], ...]
"""Class, billions of weights, bits of each."""


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


def _quantized(method: str, form: WeightFormat, *excluded: str) -> Quantization:
    return Quantization(method, (form,), excluded, "fp8" if method == "modelopt" else "")


_QWEN_MOE: Final[Parts] = (
    (ModuleClass.EXPERTS, 32.2, _FOUR_NV), (ModuleClass.STATE, 0.76, _WIDE), (ModuleClass.ATTENTION, 0.19, _WIDE),
    (ModuleClass.SHARED_EXPERT, 0.13, _FOUR_NV), (ModuleClass.ROUTER, 0.02, _WIDE),
    (ModuleClass.EMBEDDING, 0.51, _WIDE), (ModuleClass.HEAD, 0.51, _WIDE), (ModuleClass.VISION, 0.45, _WIDE),
)  # fmt: skip
_QWEN_CHAT: Final = ChatAbilities(True, True, True, ("enable_thinking",), "qwen3", "qwen3_coder")


def _qwen_moe() -> CheckpointFacts:
    return CheckpointFacts(
        architecture="Qwen3_5MoeForConditionalGeneration", model_type="qwen3_5_moe", dtype="bfloat16",
        quantization=_quantized("modelopt", WeightFormat.NVFP4, "lm_head", "*.self_attn.*", "*.linear_attn.*"),
        layers=40,
        attention=(AttentionLayers(LayerKind.FULL, 10, 512, 512),),
        states=(StateLayers(LayerKind.GDN, 30, 8192, 3, 524_288),),
        experts=Experts(256, 8, 1), is_moe=True, max_position_embeddings=262_144, mtp_declared=1, mtp_layers=1,
        modalities=("text", "image", "video"), weights=_weights(_QWEN_MOE),
        sampling=(("temperature", 1.0), ("top_p", 0.95), ("top_k", 20.0)), chat=_QWEN_CHAT, licence="apache-2.0",
        source=SOURCE,
    )  # fmt: skip


def _gpt_oss(billions: float, layers: int, experts: int) -> CheckpointFacts:
    parts: Parts = (
        (ModuleClass.EXPERTS, billions, _FOUR_MX), (ModuleClass.ATTENTION, 0.027 * layers, _WIDE),
        (ModuleClass.ROUTER, 0.02, _WIDE), (ModuleClass.EMBEDDING, 0.58, _WIDE), (ModuleClass.HEAD, 0.58, _WIDE),
    )  # fmt: skip
    return CheckpointFacts(
        architecture="GptOssForCausalLM", model_type="gpt_oss", dtype="bfloat16",
        quantization=_quantized("mxfp4", WeightFormat.MXFP4, "self_attn", "lm_head", "embed_tokens"),
        layers=layers,
        attention=(
            AttentionLayers(LayerKind.FULL, layers // 2, 512, 512),
            AttentionLayers(LayerKind.SLIDING, layers // 2, 512, 512, 128),
        ),
        states=(), experts=Experts(experts, 4), is_moe=True, max_position_embeddings=131_072, modalities=("text",),
        weights=_weights(parts), licence="apache-2.0", source=SOURCE,
        chat=ChatAbilities(True, True, False, ("reasoning_effort",), "openai_gptoss", "openai"),
    )  # fmt: skip


def _nemotron() -> CheckpointFacts:
    parts: Parts = (
        (ModuleClass.EXPERTS, 29.4, _FOUR_NV), (ModuleClass.STATE, 0.9, _WIDE), (ModuleClass.ATTENTION, 0.14, _WIDE),
        (ModuleClass.EMBEDDING, 0.35, _WIDE), (ModuleClass.HEAD, 0.35, _WIDE),
    )  # fmt: skip
    return CheckpointFacts(
        architecture="NemotronHForCausalLM", model_type="nemotron_h", dtype="bfloat16",
        quantization=_quantized("modelopt", WeightFormat.NVFP4, "*.mixer.in_proj", "lm_head"),
        layers=52, attention=(AttentionLayers(LayerKind.FULL, 6, 256, 256),),
        states=(StateLayers(LayerKind.MAMBA, 23, 6144, 3, 524_288),), experts=Experts(128, 6, 1), is_moe=True,
        max_position_embeddings=262_144, modalities=("text",),
        weights=_weights(parts, complete=False), licence="nvidia-open-model-license", source=SOURCE,
        chat=ChatAbilities(True, True, False, ("enable_thinking",), "nemotron_v3", "qwen3_coder"),
        findings=("model-00004-of-00004.safetensors is named in the index and is not here",),
    )  # fmt: skip


def _dense() -> CheckpointFacts:
    parts: Parts = (
        (ModuleClass.MLP, 19.4, _FOUR_NV), (ModuleClass.STATE, 1.6, _WIDE), (ModuleClass.ATTENTION, 1.7, _FOUR_NV),
        (ModuleClass.EMBEDDING, 1.2, _WIDE), (ModuleClass.HEAD, 1.2, _WIDE), (ModuleClass.VISION, 0.25, _WIDE),
    )  # fmt: skip
    return CheckpointFacts(
        architecture="Qwen3_5ForConditionalGeneration", model_type="qwen3_5", dtype="bfloat16",
        quantization=_quantized("compressed-tensors", WeightFormat.NVFP4, "lm_head", "re:.*linear_attn.*"),
        layers=64, attention=(AttentionLayers(LayerKind.FULL, 16, 1024, 1024),),
        states=(StateLayers(LayerKind.GDN, 48, 10_240, 3, 786_432),), is_moe=False, max_position_embeddings=262_144,
        mtp_declared=1, mtp_layers=0, modalities=("text", "image", "video"),
        weights=_weights(parts), chat=_QWEN_CHAT, licence="apache-2.0", source=SOURCE,
    )  # fmt: skip


def _drafter() -> CheckpointFacts:
    return CheckpointFacts(
        architecture="DFlashDraftModel", model_type="qwen3", dtype="bfloat16", quantization=Quantization(""),
        layers=5, attention=(AttentionLayers(LayerKind.FULL, 5, 1024, 1024),), states=(),
        is_moe=False, max_position_embeddings=262_144, modalities=("text",),
        weights=_weights(((ModuleClass.MLP, 1.33, _WIDE), (ModuleClass.ATTENTION, 0.44, _WIDE))), source=SOURCE,
    )  # fmt: skip


_BITS: Final = {
    WeightFormat.NVFP4: (_FOUR_NV, "modelopt"), WeightFormat.NVFP4_W4A16: (_FOUR_NV, "modelopt"),
    WeightFormat.FP8: (_EIGHT, "fp8"), WeightFormat.BF16: (_WIDE, ""),
}  # fmt: skip


def _plain(
    architecture: str, layers: int, width: int, billions: float, context: int, form: WeightFormat, *,
    experts: tuple[int, int] | None = None, sliding: tuple[int, int, int] | None = None, vision: bool = False,
    chat: ChatAbilities | None = None, hidden: float = 0.4,
) -> CheckpointFacts:  # fmt: skip
    """A model of `layers` that see everything, each with keys and values of `width`. `sliding` are further layers:
    their number, width and window. `hidden` are the billions of weights of embedding and of head."""
    bits, method = _BITS[form]
    parts: Parts = (
        (ModuleClass.EXPERTS if experts else ModuleClass.MLP, billions * 0.92 - 2 * hidden, bits),
        (ModuleClass.ATTENTION, billions * 0.08, bits), (ModuleClass.EMBEDDING, hidden, _WIDE),
        (ModuleClass.HEAD, hidden, _WIDE),
    )  # fmt: skip
    windows = (AttentionLayers(LayerKind.SLIDING, *sliding[:2], *sliding[1:]),) if sliding else ()
    return CheckpointFacts(
        architecture=architecture, model_type=architecture.partition("For")[0].lower(), dtype="bfloat16",
        quantization=_quantized(method, form, "lm_head") if method else Quantization(""),
        layers=layers + (sliding[0] if sliding else 0),
        attention=(AttentionLayers(LayerKind.FULL, layers, width, width), *windows), states=(),
        experts=Experts(*experts) if experts else None, is_moe=experts is not None, max_position_embeddings=context,
        modalities=("text", "image") if vision else ("text",), weights=_weights(parts), chat=chat, source=SOURCE,
    )  # fmt: skip


_GEMMA_CHAT: Final = ChatAbilities(True, True, True, ("enable_thinking",), "gemma4", "gemma4")
_LLAMA_CHAT: Final = ChatAbilities(False, True, False, (), "", "llama3_json")
_QWEN3_CHAT: Final = ChatAbilities(True, True, False, ("enable_thinking",), "qwen3", "hermes")
_GEMMA: Final = "Gemma4ForConditionalGeneration"

FACTS: Final = {
    RECORDED_MODEL: _qwen_moe(),
    "nvidia/Qwen3.6-35B-A3B-NVFP4": _qwen_moe(),
    "openai/gpt-oss-120b": _gpt_oss(114.7, 36, 128),
    "openai/gpt-oss-20b": _gpt_oss(19.1, 24, 32),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4": _nemotron(),
    "unsloth/Qwen3.6-27B-NVFP4": _dense(),
    "/models/qwen3.5-27b-dflash": _drafter(),
    "nvidia/Gemma-4-26B-A4B-NVFP4": _plain(
        _GEMMA, 5, 1024, 25.2, 262_144, _NVFP4, experts=(128, 8), sliding=(25, 2048, 1024), vision=True,
        chat=_GEMMA_CHAT, hidden=0.37,
    ),
    "nvidia/Gemma-4-31B-IT-NVFP4": _plain(
        _GEMMA, 10, 2048, 31.0, 262_144, _NVFP4, sliding=(50, 4096, 1024), vision=True, chat=_GEMMA_CHAT, hidden=0.7
    ),
    "nvidia/Llama-3.3-70B-Instruct-NVFP4": _plain(
        "LlamaForCausalLM", 80, 1024, 70.6, 131_072, _NVFP4, chat=_LLAMA_CHAT, hidden=1.05
    ),
    "mistralai/Mistral-Small-4-119B-2603-NVFP4": _plain(
        "Mistral4ForCausalLM", 36, 1024, 119.0, 262_144, _NVFP4, experts=(128, 4), vision=True, hidden=0.54
    ),
    "nvidia/Qwen3-8B-NVFP4": _plain("Qwen3ForCausalLM", 36, 1024, 8.2, 40_960, _NVFP4, chat=_QWEN3_CHAT, hidden=0.62),
    "nvidia/Qwen3-30B-A3B-NVFP4": _plain(
        "Qwen3MoeForCausalLM", 48, 512, 30.5, 40_960, _NVFP4, experts=(128, 8), chat=_QWEN3_CHAT, hidden=0.31
    ),
    "nvidia/Phi-4-multimodal-instruct-NVFP4": _plain(
        "Phi4MMForCausalLM", 32, 1024, 5.6, 131_072, _NVFP4, vision=True, hidden=0.6
    ),
    "Qwen/Qwen3.6-27B": _plain("Qwen3_5ForConditionalGeneration", 64, 1024, 27.0, 262_144, _BF16, vision=True),
    "Qwen/Qwen3.6-35B-A3B-FP8": replace(
        _qwen_moe(), quantization=_quantized("fp8", WeightFormat.FP8, "lm_head"), weights=None
    ),
}  # fmt: skip
"""By repository, or by path within the store."""
SIZES: Final = {card[0]: card[1] for card in SHELF} | {
    RECORDED_MODEL: 21.3, "/models/Qwen3-30B-A3B-Q4_K_M.gguf": 17.3, "qwen3:32b": 18.6, "/models/smollm2": 0.3,
    "/models/gemma4-coder": 7.7, "/models/DFlash-Qwen3.5-27B-Uncensored-NVFP4": 18.6, "google/gemma-4-31B-it": 58.3,
}  # fmt: skip
"""GiB of the files."""
