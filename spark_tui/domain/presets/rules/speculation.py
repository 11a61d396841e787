"""Rules about speculative decoding: of any method, by DFlash's block-diffusion drafters, by MTP layers."""

from __future__ import annotations

from typing import Final

from spark_tui.domain.finding import Finding, Severity
from spark_tui.domain.presets.image import OWN_DFLASH, name_of, ngc_release, shown_version
from spark_tui.domain.presets.options import compact_json
from spark_tui.domain.presets.rules.context import GEMMA_CODER, QWEN3_6, LaunchContext, Rules
from spark_tui.domain.presets.speculation import Speculation

RULES = Rules()

DFLASH_SINCE: Final = (0, 21, 0)
MTP_SINCE: Final = (0, 19, 0)
_MANY_SEQUENCES: Final = 8
# Who drafts for whom (the guide, 13.4): of these a mistake is certain.
_TRAINED_FOR: Final = ("gemma-4-31b-it", "laguna-xs.2", "qwen3.5-27b")
_DRAFTER_MARKS: Final = ("-speculator.dflash", "-speculator.eagle3", "-dflash", "-eagle3", "-eagle")
_SUPER: Final = r"nemotron-3-super"
_MTP_AT_MOST: Final = 3
_LIKE_DFLASH: Final = 7
# No MTP layers in these checkpoints (the guide, 13.1; the write-up on the W4A16 community quantization).
_WITHOUT_MTP: Final = r"nemotron-?3-nano|nemotron-cascade-2|gpt-oss|llama-3\.3|phi-4|laguna"
_MTP_UNPROVEN: Final = r"qwen-?3\.6-27b|mistral-small-4"


def _mtp(launch: LaunchContext) -> Speculation | None:
    spec = launch.speculation
    return spec if spec is not None and spec.is_mtp else None


def _dflash(launch: LaunchContext) -> Speculation | None:
    spec = launch.speculation
    return spec if spec is not None and spec.is_dflash else None


# --- any method -------------------------------------------------------------------------------------------


@RULES.add()
def speculative_config_unreadable(launch: LaunchContext) -> Finding | None:
    """vLLM ends at once over JSON that it cannot read."""
    text = launch.value("speculative_config")
    if text is None or launch.speculation is not None or "$" in text:
        return None
    return Finding(
        "speculative_config_unreadable",
        Severity.ERROR,
        "--speculative-config is not a JSON object.",
        (f"--speculative-config {text}",),
        """For example: speculative_config={"method":"mtp","num_speculative_tokens":1}""",
        launch.without_drafting(),
    )


@RULES.add()
def speculation_under_load(launch: LaunchContext) -> Finding | None:
    """Drafting costs throughput in large batches. --speculative-disable-by-batch-size, the guide's answer, is gone:
    without effect since vLLM 0.10 and refused since 0.17 (vllm#35060)."""
    spec, sequences = launch.speculation, launch.integer("max_num_seqs")
    if spec is None or sequences is None or sequences <= _MANY_SEQUENCES:
        return None
    if "num_speculative_tokens_per_batch_size" in spec.config:
        return None
    return Finding(
        "speculation_under_load",
        Severity.WARNING,
        "Speculation costs throughput when many requests run at once.",
        (f"--max-num-seqs {sequences} with method {spec.method}",),
        "For a few users set max_num_seqs=4; for many, launch without speculation. vLLM 0.24 and newer "
        'can draft less in larger batches: "num_speculative_tokens_per_batch_size":[[1,4,K],[5,64,0]].',
        launch.setting("max_num_seqs", "4"),
    )


@RULES.add()
def speculation_gone_flag(launch: LaunchContext) -> Finding | None:
    """The guide still names the flag; no vLLM that runs on a Spark knows it."""
    given = launch.invocation.value("speculative_disable_by_batch_size")
    if given is None:
        return None
    return Finding(
        "speculation_gone_flag",
        Severity.ERROR,
        "vLLM removed --speculative-disable-by-batch-size, and exits over it.",
        (f"--speculative-disable-by-batch-size {given}",),
        "Remove it; keep max_num_seqs low, or launch without speculation for many requests at once.",
        (("without", "speculative_disable_by_batch_size"),),
    )


@RULES.add()
def speculation_gone_key(launch: LaunchContext) -> Finding | None:
    """`disable_by_batch_size` in the JSON: unused since vLLM 0.10, unknown since 0.17."""
    spec = launch.speculation
    if spec is None or "disable_by_batch_size" not in spec.config:
        return None
    return Finding(
        "speculation_gone_key",
        Severity.WARNING,
        "disable_by_batch_size has no effect in vLLM, and newer versions refuse it.",
        (f"--speculative-config {compact_json(spec.config)}",),
        "Remove it; keep max_num_seqs low, or launch without speculation for many requests at once.",
        launch.with_config(disable_by_batch_size=None),
    )


@RULES.add()
def gpt_oss_eagle3(launch: LaunchContext) -> Finding | None:
    """Reported broken for gpt-oss-120b in vLLM (deployment registry, 2026-01)."""
    spec = launch.speculation
    if spec is None or spec.method != "eagle3" or not launch.named(r"gpt-oss-120b"):
        return None
    return Finding(
        "gpt_oss_eagle3",
        Severity.WARNING,
        "EAGLE-3 was reported broken for gpt-oss-120b in vLLM.",
        (f"method {spec.method} with {spec.drafter or 'no drafter'}",),
        "Launch without speculation, or check its answers.",
        launch.without_drafting(),
    )


@RULES.add()
def ngram_on_prose(launch: LaunchContext) -> Finding | None:
    """Measured on a Spark: 74.75 tokens/s without, 55.70 with, on essays."""
    spec = launch.speculation
    if spec is None or not spec.method.startswith("ngram"):
        return None
    return Finding(
        "ngram_on_prose",
        Severity.INFO,
        "N-gram speculation only helps where the answer repeats the prompt.",
        (f"method {spec.method}",),
        "Keep it for edits and extraction; on essays it was 25 % slower than without.",
        launch.without_drafting(),
    )


# --- DFlash -----------------------------------------------------------------------------------------------


def _target(spec: Speculation) -> str:
    """The model that a drafter was trained for, by its name, in lower case; empty where the name does not say."""
    name = spec.drafter.rpartition("/")[2].lower().replace("_", "-")
    mark = next((mark for mark in _DRAFTER_MARKS if name.endswith(mark)), None)
    return name.removesuffix(mark) if mark else ""


@RULES.add()
def dflash_with_fp8_kv(launch: LaunchContext) -> Finding | None:
    """The guide, 13.6: never together. Recipes for later drafters have both; those that it names do not."""
    spec, dtype = _dflash(launch), launch.lower("kv_cache_dtype")
    if spec is None or not dtype.startswith("fp8"):
        return None
    certain = _target(spec) in _TRAINED_FOR
    if not certain and not str(spec.config.get("kv_cache_dtype", dtype)).startswith("fp8"):
        return None  # the drafter has a KV cache of its own type
    return Finding(
        "dflash_with_fp8_kv",
        Severity.ERROR if certain else Severity.WARNING,
        "DFlash needs the KV cache in BF16.",
        (f"--kv-cache-dtype {dtype} with method dflash",),
        "Remove --kv-cache-dtype, or launch without DFlash.",
        launch.setting("kv_cache_dtype", "auto"),
    )


@RULES.add()
def dflash_without_drafter(launch: LaunchContext) -> Finding | None:
    """DFlash has no drafter of its own."""
    spec = _dflash(launch)
    if spec is None or spec.drafter:
        return None
    return Finding(
        "dflash_without_drafter",
        Severity.ERROR,
        "DFlash needs a drafter, and the command names none.",
        (f"--speculative-config {compact_json(spec.config)}",),
        'Name the drafter trained for this model under "model", or launch without speculation.',
        launch.without_drafting(),
    )


@RULES.add()
def dflash_old_vllm(launch: LaunchContext) -> Finding | None:
    """DFlash came with vLLM 0.21.0. AEON-7's and Z Lab's images carry it themselves, whatever they are numbered."""
    newest, image = launch.newest_vllm, launch.spec.image
    if _dflash(launch) is None or newest is None or newest >= DFLASH_SINCE or name_of(image) in OWN_DFLASH:
        return None
    return Finding(
        "dflash_old_vllm",
        Severity.ERROR,
        "This image's vLLM is too old for DFlash.",
        (f"{image}: vLLM {shown_version(newest)} at most; DFlash needs {shown_version(DFLASH_SINCE)}",),
        "Use a nightly image or the drafter's own, or launch without DFlash.",
        launch.without_drafting(),
    )


@RULES.add()
def gemma_4_dflash_image(launch: LaunchContext) -> Finding | None:
    """Gemma 4 and DFlash need different attention kernels; Z Lab's build has both."""
    image = launch.spec.image
    if _dflash(launch) is None or not launch.named("gemma-4") or name_of(image).startswith("z-lab/"):
        return None
    return Finding(
        "gemma_4_dflash_image",
        Severity.WARNING,
        "DFlash for Gemma 4 was only in Z Lab's image.",
        (image,),
        "Start from the preset gemma-4-31b-it-dflash, or launch without speculation.",
        launch.without_drafting(),
    )


@RULES.add()
def drafter_of_another_model(launch: LaunchContext) -> Finding | None:
    """A drafter is trained for one model: its name says which. A folder's name may not say what lies in it."""
    spec, local = launch.speculation, launch.preset.model.startswith("/")
    target = _target(spec) if spec is not None else ""
    if spec is None or not target or target in launch.model or (local and not launch.named(r"\d+b\b")):
        return None
    return Finding(
        "drafter_of_another_model",
        Severity.ERROR if target in _TRAINED_FOR and not local else Severity.WARNING,
        "This drafter was trained for another model.",
        (f"{spec.drafter} drafts for {target}; the model is {launch.preset.model}",),
        "Name the drafter of this model, or launch without speculation.",
        launch.without_drafting(),
    )


# --- MTP --------------------------------------------------------------------------------------------------


@RULES.add()
def mtp_old_vllm(launch: LaunchContext) -> Finding | None:
    """MTP is proven from vLLM 0.19.0 on. Avarok's image brings a patch for its own model."""
    newest, image = launch.newest_vllm, launch.spec.image
    if _mtp(launch) is None or newest is None or name_of(image).startswith("avarok/"):
        return None
    release = ngc_release(image)
    if newest >= MTP_SINCE and (release is None or release >= (26, 4)):
        return None
    return Finding(
        "mtp_old_vllm",
        Severity.WARNING,
        "This image's vLLM is older than the versions that MTP was proven with.",
        (f"{image}: older than vLLM {shown_version(MTP_SINCE)}",),
        "Use NVIDIA's image 26.04 or newer, or launch without speculation.",
        launch.without_drafting(),
    )


@RULES.add()
def paired_draft_without_fp8_kv(launch: LaunchContext) -> Finding | None:
    """gemma4-coder's bundled draft is the opposite of DFlash (the guide, 7.2.3 and 13.6)."""
    spec, dtype = _mtp(launch), launch.lower("kv_cache_dtype") or "auto"
    if spec is None or not spec.drafter or dtype.startswith("fp8") or not launch.named(GEMMA_CODER):
        return None
    return Finding(
        "paired_draft_without_fp8_kv",
        Severity.ERROR,
        "This model's paired MTP draft needs an fp8 KV cache.",
        (f"--kv-cache-dtype {dtype} with the draft {spec.drafter}",),
        "Set kv_cache_dtype=fp8, or launch without speculation.",
        launch.setting("kv_cache_dtype", "fp8"),
    )


@RULES.add()
def mtp_k_too_high(launch: LaunchContext) -> Finding | None:
    """Each further token of MTP costs a verification. Super: 21.5 tokens/s with K=3, 23 without speculation."""
    spec, is_super = _mtp(launch), launch.named(_SUPER)
    most = 1 if is_super else _MTP_AT_MOST
    if spec is None or spec.tokens is None or spec.tokens <= most:
        return None
    certain = is_super or spec.tokens >= _LIKE_DFLASH  # recipes for newer models draft 4 or 5
    reason = "published runs with 3 are slower than without" if is_super else "more rarely pays for its verification"
    return Finding(
        "mtp_k_too_high",
        Severity.WARNING if certain else Severity.INFO,
        f"MTP drafts more tokens than pay off ({spec.tokens}).",
        (f"num_speculative_tokens {spec.tokens}",),
        f"Draft at most {most}: {reason}. Higher values are for DFlash.",
        launch.with_tokens(most),
    )


@RULES.add()
def mtp_k_no_multiple(launch: LaunchContext) -> Finding | None:
    """vLLM: beyond the model's own number of MTP layers, K must be a multiple of it."""
    spec, layers = _mtp(launch), launch.checkpoint.mtp_declared if launch.checkpoint is not None else None
    if spec is None or spec.drafter or spec.tokens is None or not layers:
        return None
    if spec.tokens <= layers or spec.tokens % layers == 0:
        return None
    fitting = spec.tokens - spec.tokens % layers
    return Finding(
        "mtp_k_no_multiple",
        Severity.ERROR,
        "vLLM refuses this number of drafted tokens for the model's MTP layers.",
        (f"num_speculative_tokens {spec.tokens}; the checkpoint has {layers} MTP layers",),
        f"Draft {fitting} tokens, a multiple of {layers}.",
        launch.with_tokens(fitting),
    )


@RULES.add()
def mtp_without_layers(launch: LaunchContext) -> Finding | None:
    """Quantized checkpoints often drop the MTP layers; vLLM then knows no method `mtp` for them."""
    spec, checkpoint = _mtp(launch), launch.checkpoint
    if spec is None or spec.drafter:
        return None
    layers = checkpoint.mtp_layers if checkpoint is not None else None
    if layers or (layers is None and not launch.named(_WITHOUT_MTP)):
        return None
    seen = "none in its config and weights" if layers == 0 else "published without them"
    return Finding(
        "mtp_without_layers",
        Severity.ERROR,
        "MTP needs a checkpoint with MTP layers.",
        (f"method {spec.method}; {launch.preset.model}: {seen}",),
        "Launch without speculation, or with a checkpoint that kept its MTP layers.",
        launch.without_drafting(),
    )


@RULES.add()
def mtp_unproven(launch: LaunchContext) -> Finding | None:
    """The architecture has MTP; that it pays off on this checkpoint is for each build to show (the guide, 13.1)."""
    spec = _mtp(launch)
    if spec is None or not launch.named(_MTP_UNPROVEN):
        return None
    return Finding(
        "mtp_unproven",
        Severity.INFO,
        "MTP is not proven for this checkpoint.",
        (f"method {spec.method}; {launch.preset.model}",),
        "Watch the acceptance rate, and compare the speed with a launch without speculation.",
        launch.without_drafting(),
    )


@RULES.add()
def mtp_on_b12x_moe(launch: LaunchContext) -> Finding | None:
    """Qwen3.6's draft is BF16, and b12x takes no unquantized MoE: it ended at the start (write-up of 2026-05)."""
    spec, backend = _mtp(launch), launch.lower("moe_backend")
    if spec is None or not launch.named(QWEN3_6) or "b12x" not in backend or "moe_backend" in spec.config:
        return None
    return Finding(
        "mtp_on_b12x_moe",
        Severity.WARNING,
        "The b12x MoE kernels do not take an MTP draft in BF16.",
        (f"--moe-backend {backend} with method {spec.method}",),
        'Give the draft its own kernels: "moe_backend":"triton" in speculative_config.',
        launch.with_config(moe_backend="triton"),
    )


@RULES.add()
def mtp_graph_estimate(launch: LaunchContext) -> Finding | None:
    """A negative estimate of the graphs (-35.63 GiB) gave the KV cache more than the machine has, and froze it."""
    spec, backend = _mtp(launch), launch.lower("moe_backend")
    if spec is None or not launch.named(QWEN3_6) or "flashinfer" not in backend:
        return None
    if launch.value("kv_cache_memory_bytes") is not None:
        return None
    return Finding(
        "mtp_graph_estimate",
        Severity.WARNING,
        "MTP on FlashInfer's MoE kernels froze a Spark: vLLM misjudged its CUDA graphs.",
        (f"--moe-backend {backend} with method {spec.method}",),
        "Use moe_backend=marlin as NVIDIA's recipe does, or fix the KV cache's size with kv_cache_memory_bytes.",
        launch.setting("moe_backend", "marlin"),
    )


@RULES.add()
def qwen3_next_mtp_patch(launch: LaunchContext) -> Finding | None:
    """Avarok: without the script the BF16 layers for drafting are taken as NVFP4; chunked prefill stays off."""
    if _mtp(launch) is None or not launch.named(r"qwen3-next.*nvfp4"):
        return None
    unpatched = not any("fix_mtp_nvfp4_exclusion.py" in word for word in launch.invocation.words)
    if not unpatched and launch.switch("enable_chunked_prefill") is False:
        return None
    return Finding(
        "qwen3_next_mtp_patch",
        Severity.ERROR if unpatched else Severity.WARNING,
        "MTP on Qwen3-Next NVFP4 needs its makers' patch, and chunked prefill off.",
        ("no fix_mtp_nvfp4_exclusion.py before the server" if unpatched else "no --no-enable-chunked-prefill",),
        "Start from the preset qwen3-next-80b-a3b-nvfp4-mtp, or launch without speculation.",
        launch.without_drafting(),
    )
