"""Rules about MTP: drafting by the model's own prediction layers, or by a small model paired with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_tui.domain.presets import options as vllm
from spark_tui.domain.presets.image import OWN_DFLASH, name_of, ngc_release, shown_version
from spark_tui.domain.presets.options import OFF, Speculation, compact
from spark_tui.domain.presets.rules.context import GEMMA_CODER, QWEN3_6, Advice, Case, Fix, Rule, Severity

_MANY_SEQUENCES: Final = 8


def with_config(case: Case, spec: Speculation, **changes: object) -> Fix:
    """The fix that rewrites --speculative-config (None takes a key out); none where the image takes it elsewhere."""
    if case.option("--speculative-config") is None:
        return ()
    config = {key: value for key, value in {**spec.config, **changes}.items() if value is not None}
    return (("speculative_config", compact(config)),)


def with_tokens(case: Case, tokens: int) -> Fix:
    """The fix that drafts so many tokens; none where the image takes the number elsewhere."""
    return () if case.env.get("DFLASH_DRAFTER") else (("num_speculative_tokens", str(tokens)),)


def without_drafting(case: Case) -> Fix:
    """The fix that ends speculation, in every spelling."""
    if case.env.get("DFLASH_DRAFTER"):
        return (("env.DFLASH_DRAFTER", ""),)
    return (("speculation", OFF),)


def speculative_config_unreadable(case: Case) -> Advice | None:
    """vLLM ends at once over JSON that it cannot read."""
    text = case.option("--speculative-config")
    if not case.is_vllm or text is None or case.speculation is not None or "$" in text:
        return None
    return Advice(
        Severity.ERROR,
        "--speculative-config is no JSON object.",
        f"--speculative-config {text}",
        """Write for example: speculative_config={"method":"mtp","num_speculative_tokens":1}""",
        without_drafting(case),
    )


def speculation_under_load(case: Case) -> Advice | None:
    """Drafting costs throughput in large batches. --speculative-disable-by-batch-size, the guide's answer, is gone:
    without effect since vLLM 0.10 and refused since 0.17 (vllm#35060)."""
    spec = case.speculation
    sequences = case.integer("--max-num-seqs")
    if spec is None or sequences is None or sequences <= _MANY_SEQUENCES:
        return None
    if "num_speculative_tokens_per_batch_size" in spec.config:
        return None
    return Advice(
        Severity.WARNING,
        "Drafting costs throughput when many requests run at once.",
        f"--max-num-seqs {sequences} with method {spec.method}",
        "For one person or a few set max_num_seqs=4; to serve many, launch without speculation. vLLM 0.24 and newer "
        'can draft less in larger batches: "num_speculative_tokens_per_batch_size":[[1,4,K],[5,64,0]].',
        case.setting("max_num_seqs", "4"),
    )


def speculation_gone_flag(case: Case) -> Advice | None:
    """The guide still names the flag; no vLLM that runs on a Spark knows it."""
    if not case.is_vllm or vllm.option_value(case.words, "--speculative-disable-by-batch-size") is None:
        return None
    return Advice(
        Severity.ERROR,
        "vLLM knows no --speculative-disable-by-batch-size any more, and ends over it.",
        f"--speculative-disable-by-batch-size {vllm.option_value(case.words, '--speculative-disable-by-batch-size')}",
        "Leave it out; keep max_num_seqs low, or launch without speculation where many requests run at once.",
        (("without", "speculative_disable_by_batch_size"),),
    )


def speculation_gone_key(case: Case) -> Advice | None:
    """`disable_by_batch_size` in the JSON: unused since vLLM 0.10, unknown since 0.17."""
    spec = case.speculation
    if spec is None or "disable_by_batch_size" not in spec.config:
        return None
    return Advice(
        Severity.WARNING,
        "disable_by_batch_size does nothing in vLLM, and newer ones refuse it.",
        f"--speculative-config {compact(spec.config)}",
        "Leave it out; keep max_num_seqs low, or launch without speculation where many requests run at once.",
        with_config(case, spec, disable_by_batch_size=None),
    )


def gpt_oss_eagle3(case: Case) -> Advice | None:
    """Reported broken for gpt-oss-120b in vLLM (deployment registry, 2026-01)."""
    spec = case.speculation
    if spec is None or spec.method != "eagle3" or not case.named(r"gpt-oss-120b"):
        return None
    return Advice(
        Severity.WARNING,
        "EAGLE-3 was reported broken for gpt-oss-120b in vLLM.",
        f"method {spec.method} with {spec.drafter or 'no drafter'}",
        "Launch without speculation, or check its answers.",
        without_drafting(case),
    )


def ngram_on_prose(case: Case) -> Advice | None:
    """Measured on a Spark: 74.75 tokens/s without, 55.70 with, on essays."""
    spec = case.speculation
    if spec is None or not spec.method.startswith("ngram"):
        return None
    return Advice(
        Severity.NOTE,
        "Drafting by n-grams pays off only where the answer repeats the prompt.",
        f"method {spec.method}",
        "Keep it for edits and extraction; on essays it was a quarter slower than without.",
        without_drafting(case),
    )


RULES_SPECULATION_RULES: Final[Mapping[str, Rule]] = {
    "speculative_config_unreadable": speculative_config_unreadable,
    "speculation_under_load": speculation_under_load,
    "speculation_gone_flag": speculation_gone_flag,
    "speculation_gone_key": speculation_gone_key,
    "gpt_oss_eagle3": gpt_oss_eagle3,
    "ngram_on_prose": ngram_on_prose,
}


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


DFLASH_SINCE: Final = (0, 21, 0)
# Who drafts for whom (the guide, 13.4): of these a mistake is certain.
_TRAINED_FOR: Final = ("gemma-4-31b-it", "laguna-xs.2", "qwen3.5-27b")
_DRAFTER_MARKS: Final = ("-speculator.dflash", "-speculator.eagle3", "-dflash", "-eagle3", "-eagle")


def _target(spec: Speculation) -> str:
    """The model that a drafter was trained for, by its name, in lower case; empty where the name does not say."""
    name = spec.drafter.rpartition("/")[2].lower().replace("_", "-")
    mark = next((mark for mark in _DRAFTER_MARKS if name.endswith(mark)), None)
    return name.removesuffix(mark) if mark else ""


def dflash_with_fp8_kv(case: Case) -> Advice | None:
    """The guide, 13.6: never together. Recipes for later drafters have both; those that it names do not."""
    spec, dtype = case.speculation, (case.option("--kv-cache-dtype") or "").lower()
    if spec is None or not spec.is_dflash or not dtype.startswith("fp8"):
        return None
    certain = _target(spec) in _TRAINED_FOR
    if not certain and not str(spec.config.get("kv_cache_dtype", dtype)).startswith("fp8"):
        return None  # the drafter has a KV cache of its own type
    return Advice(
        Severity.ERROR if certain else Severity.WARNING,
        "DFlash needs the KV cache in BF16.",
        f"--kv-cache-dtype {dtype} with method dflash",
        "Leave --kv-cache-dtype out, or launch without DFlash.",
        case.setting("kv_cache_dtype", "auto"),
    )


def dflash_without_drafter(case: Case) -> Advice | None:
    """DFlash has no drafter of its own."""
    spec = case.speculation
    if spec is None or not spec.is_dflash or spec.drafter:
        return None
    return Advice(
        Severity.ERROR,
        "DFlash needs a drafter, and the command names none.",
        f"--speculative-config {compact(spec.config)}",
        'Name the drafter that was trained for this model under "model", or launch without speculation.',
        without_drafting(case),
    )


def dflash_old_vllm(case: Case) -> Advice | None:
    """DFlash came with vLLM 0.21.0. AEON-7's and Z Lab's images carry it themselves, whatever they are numbered."""
    spec, newest = case.speculation, case.version_at_most
    image = case.situation.plan.spec.image
    if spec is None or not spec.is_dflash or newest is None or newest >= DFLASH_SINCE or name_of(image) in OWN_DFLASH:
        return None
    return Advice(
        Severity.ERROR,
        "This image's vLLM is too old for DFlash.",
        f"{image}: vLLM {shown_version(newest)} at most; DFlash needs {shown_version(DFLASH_SINCE)}",
        "Use a nightly image or the drafter's own, or launch without DFlash.",
        without_drafting(case),
    )


def gemma_4_dflash_image(case: Case) -> Advice | None:
    """Gemma 4 and DFlash need different attention kernels; Z Lab's build has both."""
    spec, image = case.speculation, case.situation.plan.spec.image
    if spec is None or not spec.is_dflash or not case.named("gemma-4") or name_of(image).startswith("z-lab/"):
        return None
    return Advice(
        Severity.WARNING,
        "DFlash for Gemma 4 was only in Z Lab's image.",
        image,
        "Start from the preset gemma-4-31b-it-dflash, or launch without speculation.",
        without_drafting(case),
    )


def drafter_of_another_model(case: Case) -> Advice | None:
    """A drafter is trained for one model: its name says which. A folder's name may not say what lies in it."""
    spec, local = case.speculation, case.preset.model.startswith("/")
    target = _target(spec) if spec is not None else ""
    if spec is None or not target or target in case.model or (local and not case.named(r"\d+b\b")):
        return None
    return Advice(
        Severity.ERROR if target in _TRAINED_FOR and not local else Severity.WARNING,
        "This drafter was trained for another model.",
        f"{spec.drafter} drafts for {target}; the model is {case.preset.model}",
        "Name the drafter of this very model, or launch without speculation.",
        without_drafting(case),
    )


RULES_DFLASH_RULES: Final[Mapping[str, Rule]] = {
    "dflash_with_fp8_kv": dflash_with_fp8_kv,
    "dflash_without_drafter": dflash_without_drafter,
    "dflash_old_vllm": dflash_old_vllm,
    "gemma_4_dflash_image": gemma_4_dflash_image,
    "drafter_of_another_model": drafter_of_another_model,
}
