"""Rules about the format of the weights and of the KV cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_tui.domain.presets.rules_case import Advice, Case, Rule, Severity
from spark_tui.domain.presets.rules_names import QWEN3_5

# What --quantization may be on top of an unquantized checkpoint; everything else names a format that must be there.
_PREQUANTIZED: Final = ("modelopt", "compressed-tensors", "awq", "gptq", "mxfp4")
# Their makers' own recipes leave --quantization out, and the images that they name find it by themselves.
_FOUND_BY_ITSELF: Final = r"nemotron|diffusiongemma|qwen3-next"


def _format(case: Case) -> tuple[str | None, bool]:
    """The checkpoint's format, and whether that is certain: by its own config, by the preset, by its name."""
    checkpoint, stated = case.situation.checkpoint, case.preset.facts.quantization.lower()
    if checkpoint is not None and checkpoint.quant_method is not None:
        return checkpoint.quant_method.lower(), True
    for word in _PREQUANTIZED:
        if word in stated:
            return word, True
    if stated.startswith(("bf16", "bfloat16", "fp16")):
        return "", True
    if case.named(r"(^| )nvidia/\S*nvfp4"):
        return "modelopt", False
    return ("compressed-tensors", False) if case.named(r"(^| )(unsloth|redhatai)/\S*nvfp4") else (None, False)


def _same_family(given: str, found: str) -> bool:
    return given.partition("_")[0] == found.partition("_")[0]


def modelopt_without_quantization(case: Case) -> Advice | None:
    """The guide's rule for NVIDIA's ModelOpt checkpoints: say so."""
    found, _ = _format(case)
    if found is None or not found.startswith("modelopt") or not case.is_vllm or case.named(_FOUND_BY_ITSELF):
        return None
    if case.option("--quantization") is not None:
        return None
    return Advice(
        Severity.WARNING,
        "A ModelOpt checkpoint is launched without --quantization modelopt.",
        f"{case.preset.model}: its weights are in ModelOpt's format",
        "Set quantization=modelopt: images that do not find it by themselves load the weights wrongly or not at all.",
        case.setting("quantization", "modelopt"),
    )


def compressed_tensors_with_quantization(case: Case) -> Advice | None:
    """compressed-tensors is found by vLLM; another name is refused (`does not match the quantization ...`)."""
    found, certain = _format(case)
    given = case.option("--quantization")
    if not case.is_vllm or given is None or found != "compressed-tensors":
        return None
    same = given == found
    severity = Severity.NOTE if same else Severity.ERROR if certain else Severity.WARNING
    return Advice(
        severity,
        "A compressed-tensors checkpoint must be launched without --quantization.",
        f"--quantization {given}",
        "Leave it out: vLLM finds compressed-tensors by itself"
        + ("." if same else ", and refuses or misreads the weights under another name."),
        case.without("quantization"),
    )


def quantization_differs(case: Case) -> Advice | None:
    """Another format than the checkpoint's own."""
    found, certain = _format(case)
    given = (case.option("--quantization") or "").lower()
    if not case.is_vllm or not given or found is None or found == "compressed-tensors" or _same_family(given, found):
        return None
    if not found and not given.startswith(_PREQUANTIZED):
        return None  # quantized while it loads
    modelopt = found.startswith("modelopt")
    return Advice(
        Severity.ERROR if certain else Severity.WARNING,
        f"--quantization {given} does not fit a checkpoint in {found or 'BF16'}.",
        f"--quantization {given}; the checkpoint is {found or 'not quantized'}",
        "Set quantization=modelopt." if modelopt else "Leave --quantization out: vLLM reads it from the checkpoint.",
        case.setting("quantization", "modelopt") if modelopt else case.without("quantization"),
    )


def _kv_dtype(case: Case) -> str:
    return (case.option("--kv-cache-dtype") or "").lower()


def fp8_kv_qwen3_5(case: Case) -> Advice | None:
    """The guide, 7.1.3: repetition loops on GB10. Not Qwen3.6, whose recipe has it; they share an architecture."""
    dtype = _kv_dtype(case)
    if not case.is_vllm or not dtype.startswith("fp8") or not case.named(QWEN3_5):
        return None
    documented = case.named(QWEN3_5 + "-35b-a3b")  # a recipe for the 397B on four Sparks has it
    return Advice(
        Severity.ERROR if documented else Severity.WARNING,
        "An fp8 KV cache makes Qwen3.5 repeat itself without end on a Spark.",
        f"--kv-cache-dtype {dtype}",
        "Leave it out: this model needs its KV cache in BF16. The flag belongs to the recipe of Qwen3.6-NVFP4.",
        case.setting("kv_cache_dtype", "auto"),
    )


def nvfp4_kv(case: Case) -> Advice | None:
    """A public registry of deployments (2026-01): no engine served an NVFP4 KV cache on sm_120 and sm_121."""
    dtype = _kv_dtype(case)
    if not case.is_vllm or not dtype.startswith("nvfp4") or not case.may_be_spark:
        return None
    return Advice(
        Severity.WARNING,
        "vLLM was not known to serve an NVFP4 KV cache on a Spark's sm_121.",
        f"--kv-cache-dtype {dtype}",
        "Leave the KV cache at auto, or take fp8 where the model's recipe does.",
        case.setting("kv_cache_dtype", "auto"),
    )


def llama_cpp_q4_kv(case: Case) -> Advice | None:
    """Measured on a Spark: prompt processing falls by 92.5 % at 64K (282.7 to 21.3 tokens/s, llama.cpp b8399)."""
    if case.preset.engine != "llama-cpp":
        return None
    options = ("--cache-type-k", "-ctk", "--cache-type-v", "-ctv")
    given = next((f"{name} {value}" for name in options if (value := case.option(name) or "").startswith("q4")), None)
    if given is None:
        return None
    return Advice(
        Severity.WARNING,
        "A q4 KV cache makes llama.cpp crawl at long contexts on a Spark.",
        given,
        "Take q8_0 for both: it stays within 5 % of f16, where q4_0 loses nine tenths of the prompt speed at 64K.",
    )


RULES: Final[Mapping[str, Rule]] = {
    "modelopt_without_quantization": modelopt_without_quantization,
    "compressed_tensors_with_quantization": compressed_tensors_with_quantization,
    "quantization_differs": quantization_differs,
    "fp8_kv_qwen3_5": fp8_kv_qwen3_5,
    "nvfp4_kv": nvfp4_kv,
    "llama_cpp_q4_kv": llama_cpp_q4_kv,
}
