"""Rules about MTP: drafting by the model's own prediction layers, or by a small model paired with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_tui.domain.presets.rules_case import Advice, Case, Rule, Severity
from spark_tui.domain.presets.rules_image_version import name_of, ngc_release, shown_version
from spark_tui.domain.presets.rules_names import GEMMA_CODER, QWEN3_6
from spark_tui.domain.presets.rules_speculation import with_config, with_tokens, without_drafting

MTP_SINCE: Final = (0, 19, 0)
_SUPER: Final = r"nemotron-3-super"
_MTP_AT_MOST: Final = 3
_LIKE_DFLASH: Final = 7
# No MTP layers in these checkpoints (the guide, 13.1; the write-up on the W4A16 community quantization).
_WITHOUT_MTP: Final = r"nemotron-?3-nano|nemotron-cascade-2|gpt-oss|llama-3\.3|phi-4|laguna"
_MTP_UNPROVEN: Final = r"qwen-?3\.6-27b|mistral-small-4"


def mtp_old_vllm(case: Case) -> Advice | None:
    """MTP is proven from vLLM 0.19.0 on. Avarok's image brings a patch for its own model."""
    spec, newest = case.speculation, case.version_at_most
    image = case.situation.plan.spec.image
    if spec is None or not spec.is_mtp or newest is None or name_of(image).startswith("avarok/"):
        return None
    release = ngc_release(image)
    if newest >= MTP_SINCE and (release is None or release >= (26, 4)):
        return None
    return Advice(
        Severity.WARNING,
        "This image's vLLM is older than those that MTP is proven with.",
        f"{image}: older than vLLM {shown_version(MTP_SINCE)}",
        "Use NVIDIA's image 26.04 or newer, or launch without speculation.",
        without_drafting(case),
    )


def paired_draft_without_fp8_kv(case: Case) -> Advice | None:
    """gemma4-coder's bundled draft is the opposite of DFlash (the guide, 7.2.3 and 13.6)."""
    spec, dtype = case.speculation, (case.option("--kv-cache-dtype") or "auto").lower()
    if spec is None or not spec.is_mtp or not spec.drafter or dtype.startswith("fp8"):
        return None
    if not case.named(GEMMA_CODER):
        return None
    return Advice(
        Severity.ERROR,
        "This model's paired MTP draft needs an fp8 KV cache.",
        f"--kv-cache-dtype {dtype} with the draft {spec.drafter}",
        "Set kv_cache_dtype=fp8, or launch without speculation.",
        case.setting("kv_cache_dtype", "fp8"),
    )


def mtp_k_too_high(case: Case) -> Advice | None:
    """Each further token of MTP costs a verification. Super: 21.5 tokens/s with K=3, 23 without speculation."""
    spec = case.speculation
    most = 1 if case.named(_SUPER) else _MTP_AT_MOST
    if spec is None or not spec.is_mtp or spec.tokens is None or spec.tokens <= most:
        return None
    reason = (
        "published runs with three are slower than without speculation"
        if case.named(_SUPER)
        else "each one beyond costs a verification that is rarely won back"
    )
    certain = case.named(_SUPER) or spec.tokens >= _LIKE_DFLASH  # recipes for newer models draft 4 or 5
    return Advice(
        Severity.WARNING if certain else Severity.NOTE,
        f"MTP drafts more tokens than pay off ({spec.tokens}).",
        f"num_speculative_tokens {spec.tokens}",
        f"Draft at most {most}: {reason}. Many at once are for DFlash.",
        with_tokens(case, most),
    )


def mtp_k_no_multiple(case: Case) -> Advice | None:
    """vLLM: beyond the model's own number of MTP layers, K must be a multiple of it."""
    spec, checkpoint = case.speculation, case.situation.checkpoint
    layers = checkpoint.mtp_declared if checkpoint is not None else None
    if spec is None or not spec.is_mtp or spec.drafter or spec.tokens is None or not layers:
        return None
    if spec.tokens <= layers or spec.tokens % layers == 0:
        return None
    return Advice(
        Severity.ERROR,
        "vLLM refuses this number of drafted tokens for the model's MTP layers.",
        f"num_speculative_tokens {spec.tokens}; the checkpoint has {layers} MTP layers",
        f"Draft {spec.tokens - spec.tokens % layers} tokens, a multiple of {layers}.",
        with_tokens(case, spec.tokens - spec.tokens % layers),
    )


def mtp_without_layers(case: Case) -> Advice | None:
    """Quantized checkpoints often drop the MTP layers; vLLM then knows no method `mtp` for them."""
    spec, checkpoint = case.speculation, case.situation.checkpoint
    if spec is None or not spec.is_mtp or spec.drafter:
        return None
    layers = checkpoint.mtp_layers if checkpoint is not None else None
    if layers or (layers is None and not case.named(_WITHOUT_MTP)):
        return None
    seen = "its config and weights hold none" if layers == 0 else "it is published without them"
    return Advice(
        Severity.ERROR,
        "MTP is asked of a checkpoint without MTP layers.",
        f"method {spec.method}; {case.preset.model}: {seen}",
        "Launch without speculation, or with a checkpoint that kept its MTP layers.",
        without_drafting(case),
    )


def mtp_unproven(case: Case) -> Advice | None:
    """The architecture has MTP; that it pays off on this checkpoint is for each build to show (the guide, 13.1)."""
    spec = case.speculation
    if spec is None or not spec.is_mtp or not case.named(_MTP_UNPROVEN):
        return None
    return Advice(
        Severity.NOTE,
        "MTP is not proven for this checkpoint.",
        f"method {spec.method}; {case.preset.model}",
        "Watch the acceptance rate, and compare the speed with a launch without speculation.",
        without_drafting(case),
    )


def mtp_on_b12x_moe(case: Case) -> Advice | None:
    """Qwen3.6's draft is BF16, and b12x takes no unquantized MoE: it ended at the start (write-up of 2026-05)."""
    spec, backend = case.speculation, (case.option("--moe-backend") or "").lower()
    if spec is None or not spec.is_mtp or not case.named(QWEN3_6) or "b12x" not in backend:
        return None
    if "moe_backend" in spec.config:
        return None
    return Advice(
        Severity.WARNING,
        "The b12x MoE kernels do not take an MTP draft in BF16.",
        f"--moe-backend {backend} with method {spec.method}",
        'Give the draft kernels of its own: "moe_backend":"triton" in speculative_config.',
        with_config(case, spec, moe_backend="triton"),
    )


def mtp_graph_estimate(case: Case) -> Advice | None:
    """A negative estimate of the graphs (-35.63 GiB) gave the KV cache more than the machine has, and froze it."""
    spec, backend = case.speculation, (case.option("--moe-backend") or "").lower()
    if spec is None or not spec.is_mtp or not case.named(QWEN3_6) or "flashinfer" not in backend:
        return None
    if case.option("--kv-cache-memory-bytes") is not None:
        return None
    return Advice(
        Severity.WARNING,
        "MTP on FlashInfer's MoE kernels froze a Spark: vLLM misjudged its CUDA graphs.",
        f"--moe-backend {backend} with method {spec.method}",
        "Use moe_backend=marlin as NVIDIA's recipe does, or fix the KV cache's size with kv_cache_memory_bytes.",
        case.setting("moe_backend", "marlin"),
    )


def qwen3_next_mtp_patch(case: Case) -> Advice | None:
    """Avarok: without the script the BF16 layers for drafting are taken as NVFP4; chunked prefill stays off."""
    spec = case.speculation
    if spec is None or not spec.is_mtp or not case.named(r"qwen3-next.*nvfp4"):
        return None
    unpatched = not any("fix_mtp_nvfp4_exclusion.py" in word for word in case.words)
    if not unpatched and case.switch("--enable-chunked-prefill") is False:
        return None
    return Advice(
        Severity.ERROR if unpatched else Severity.WARNING,
        "MTP on Qwen3-Next NVFP4 needs its makers' patch, and chunked prefill off.",
        "no fix_mtp_nvfp4_exclusion.py before the server" if unpatched else "no --no-enable-chunked-prefill",
        "Start from the preset qwen3-next-80b-a3b-nvfp4-mtp, or launch without speculation.",
        without_drafting(case),
    )


RULES: Final[Mapping[str, Rule]] = {
    "mtp_old_vllm": mtp_old_vllm,
    "paired_draft_without_fp8_kv": paired_draft_without_fp8_kv,
    "mtp_k_too_high": mtp_k_too_high,
    "mtp_k_no_multiple": mtp_k_no_multiple,
    "mtp_without_layers": mtp_without_layers,
    "mtp_unproven": mtp_unproven,
    "mtp_on_b12x_moe": mtp_on_b12x_moe,
    "mtp_graph_estimate": mtp_graph_estimate,
    "qwen3_next_mtp_patch": qwen3_next_mtp_patch,
}
