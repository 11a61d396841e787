"""Rules about the format of the weights and of the KV cache."""

from __future__ import annotations

from typing import Final

from spark_tui.domain.finding import Finding, Severity
from spark_tui.domain.presets.rules.context import QWEN3_5, LaunchContext, Rules

RULES = Rules()

# What --quantization may be on top of an unquantized checkpoint; everything else names a format that must be there.
_PREQUANTIZED: Final = ("modelopt", "compressed-tensors", "awq", "gptq", "mxfp4")
# Their makers' own recipes leave --quantization out, and the images that they name find it by themselves.
_FOUND_BY_ITSELF: Final = r"nemotron|diffusiongemma|qwen3-next"


def _format(launch: LaunchContext) -> tuple[str | None, bool]:
    """The checkpoint's format, and whether that is certain: by its own config, by the preset, by its name."""
    checkpoint, given = launch.checkpoint, launch.preset.facts.quantization.lower()
    if checkpoint is not None and checkpoint.quant_method is not None:
        return checkpoint.quant_method.lower(), True
    for word in _PREQUANTIZED:
        if word in given:
            return word, True
    if given.startswith(("bf16", "bfloat16", "fp16")):
        return "", True
    if launch.named(r"(^| )nvidia/\S*nvfp4"):
        return "modelopt", False
    return ("compressed-tensors", False) if launch.named(r"(^| )(unsloth|redhatai)/\S*nvfp4") else (None, False)


@RULES.add()
def modelopt_without_quantization(launch: LaunchContext) -> Finding | None:
    """The guide's rule for NVIDIA's ModelOpt checkpoints: name the format."""
    found, _ = _format(launch)
    if found is None or not found.startswith("modelopt") or launch.named(_FOUND_BY_ITSELF):
        return None
    if launch.value("quantization") is not None:
        return None
    return Finding(
        "modelopt_without_quantization",
        Severity.WARNING,
        "A ModelOpt checkpoint is launched without --quantization modelopt.",
        (f"{launch.preset.model}: weights in ModelOpt's format",),
        "Set quantization=modelopt: some images load the weights wrongly, or not at all, without it.",
        launch.setting("quantization", "modelopt"),
    )


@RULES.add()
def compressed_tensors_with_quantization(launch: LaunchContext) -> Finding | None:
    """compressed-tensors is found by vLLM; another name is refused (`does not match the quantization ...`)."""
    found, certain = _format(launch)
    given = launch.value("quantization")
    if given is None or found != "compressed-tensors":
        return None
    same = given == found
    return Finding(
        "compressed_tensors_with_quantization",
        Severity.INFO if same else Severity.ERROR if certain else Severity.WARNING,
        "A compressed-tensors checkpoint must be launched without --quantization.",
        (f"--quantization {given}",),
        "Remove it: vLLM detects compressed-tensors"
        + ("." if same else ", and refuses or misreads the weights under another name."),
        launch.without("quantization"),
    )


@RULES.add()
def quantization_differs(launch: LaunchContext) -> Finding | None:
    """Another format than the checkpoint's own."""
    found, certain = _format(launch)
    given = launch.lower("quantization")
    if not given or found in (None, "compressed-tensors") or given.partition("_")[0] == str(found).partition("_")[0]:
        return None
    if not found and not given.startswith(_PREQUANTIZED):
        return None  # quantized while it loads
    modelopt = str(found).startswith("modelopt")
    return Finding(
        "quantization_differs",
        Severity.ERROR if certain else Severity.WARNING,
        f"--quantization {given} does not fit a checkpoint in {found or 'BF16'}.",
        (f"--quantization {given}; the checkpoint is {found or 'not quantized'}",),
        "Set quantization=modelopt." if modelopt else "Remove --quantization: vLLM reads it from the checkpoint.",
        launch.setting("quantization", "modelopt") if modelopt else launch.without("quantization"),
    )


@RULES.add()
def fp8_kv_qwen3_5(launch: LaunchContext) -> Finding | None:
    """The guide, 7.1.3: repetition loops on GB10. Not Qwen3.6, whose recipe has it; they share an architecture."""
    dtype = launch.lower("kv_cache_dtype")
    if not dtype.startswith("fp8") or not launch.named(QWEN3_5):
        return None
    documented = launch.named(QWEN3_5 + "-35b-a3b")  # a recipe for the 397B on four Sparks has it
    return Finding(
        "fp8_kv_qwen3_5",
        Severity.ERROR if documented else Severity.WARNING,
        "With an fp8 KV cache, Qwen3.5 repeats itself endlessly on a Spark.",
        (f"--kv-cache-dtype {dtype}",),
        "Remove it: this model needs its KV cache in BF16. The flag belongs to the recipe of Qwen3.6-NVFP4.",
        launch.setting("kv_cache_dtype", "auto"),
    )


@RULES.add(spark=True)
def nvfp4_kv(launch: LaunchContext) -> Finding | None:
    """A public registry of deployments (2026-01): no engine served an NVFP4 KV cache on sm_120 and sm_121."""
    dtype = launch.lower("kv_cache_dtype")
    if not dtype.startswith("nvfp4"):
        return None
    return Finding(
        "nvfp4_kv",
        Severity.WARNING,
        "An NVFP4 KV cache was not known to work on a Spark's sm_121.",
        (f"--kv-cache-dtype {dtype}",),
        "Use auto, or fp8 where the model's recipe has it.",
        launch.setting("kv_cache_dtype", "auto"),
    )


@RULES.add(any_engine=True)
def llama_cpp_q4_kv(launch: LaunchContext) -> Finding | None:
    """Measured on a Spark: prompt processing falls by 92.5 % at 64K (282.7 to 21.3 tokens/s, llama.cpp b8399)."""
    options = {"cache_type_k": "--cache-type-k", "ctk": "-ctk", "cache_type_v": "--cache-type-v", "ctv": "-ctv"}
    given = (f"{name} {value}" for key, name in options.items() if (value := launch.value(key) or "")[:2] == "q4")
    seen = next(given, None) if launch.preset.engine == "llama-cpp" else None
    if seen is None:
        return None
    return Finding(
        "llama_cpp_q4_kv",
        Severity.WARNING,
        "A q4 KV cache makes llama.cpp very slow at long contexts on a Spark.",
        (seen,),
        "Use q8_0 for both: within 5 % of f16. q4_0 loses 90 % of the prompt speed at 64K.",
    )
