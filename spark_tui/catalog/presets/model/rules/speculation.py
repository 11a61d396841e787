"""Rules about speculative decoding: of any method, by DFlash's block-diffusion drafters, by MTP layers."""

from __future__ import annotations

from typing import Final

from spark_tui.base.engine.image import OWN_DFLASH, name_of, ngc_release, shown_version
from spark_tui.base.engine.invocation import compact_json
from spark_tui.catalog.presets.model.overrides import Speculation
from spark_tui.catalog.presets.model.rules.context import (
    ERROR,
    GEMMA_CODER,
    INFO,
    QWEN3_6,
    WARNING,
    LaunchContext,
    Matches,
    RuleMatch,
    RuleTable,
)

RULES: Final = RuleTable()

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
_FEWER_OR_NONE: Final = "Remove it; keep max_num_seqs low, or launch without speculation for many requests at once."


def _mtp(launch: LaunchContext) -> Speculation | None:
    spec = launch.speculation
    return spec if spec is not None and spec.is_mtp else None


def _dflash(launch: LaunchContext) -> Speculation | None:
    spec = launch.speculation
    return spec if spec is not None and spec.is_dflash else None


# --- any method -------------------------------------------------------------------------------------------


@RULES.add(
    ERROR,
    "--speculative-config is not a JSON object.",
    """For example: speculative_config={"method":"mtp","num_speculative_tokens":1}""",
)
def speculative_config_unreadable(launch: LaunchContext) -> Matches:
    """vLLM ends at once over JSON that it cannot read."""
    text = launch.value("speculative_config")
    if text is not None and launch.speculation is None and "$" not in text:
        yield RuleMatch(f"--speculative-config {text}", launch.without_drafting())


@RULES.add(
    WARNING,
    "Speculation costs throughput when many requests run at once.",
    "For a few users set max_num_seqs=4; for many, launch without speculation. vLLM 0.24 and newer "
    'can draft less in larger batches: "num_speculative_tokens_per_batch_size":[[1,4,K],[5,64,0]].',
)
def speculation_under_load(launch: LaunchContext) -> Matches:
    """Drafting costs throughput in large batches. --speculative-disable-by-batch-size, the guide's answer, is gone:
    without effect since vLLM 0.10 and refused since 0.17 (vllm#35060)."""
    spec, sequences = launch.speculation, launch.integer("max_num_seqs") or 0
    if spec is None or "num_speculative_tokens_per_batch_size" in spec.config:
        return
    if sequences > _MANY_SEQUENCES:
        change = launch.setting("max_num_seqs", "4")
        yield RuleMatch(f"--max-num-seqs {sequences} with method {spec.method}", change)


@RULES.add(ERROR, "vLLM removed --speculative-disable-by-batch-size, and exits over it.", _FEWER_OR_NONE)
def speculation_gone_flag(launch: LaunchContext) -> Matches:
    """The guide still names the flag; no vLLM that runs on a Spark knows it."""
    given = launch.invocation.value("speculative_disable_by_batch_size")
    if given is not None:
        change = (("without", "speculative_disable_by_batch_size"),)
        yield RuleMatch(f"--speculative-disable-by-batch-size {given}", change)


@RULES.add(WARNING, "disable_by_batch_size has no effect in vLLM, and newer versions refuse it.", _FEWER_OR_NONE)
def speculation_gone_key(launch: LaunchContext) -> Matches:
    """`disable_by_batch_size` in the JSON: unused since vLLM 0.10, unknown since 0.17."""
    spec = launch.speculation
    if spec is not None and "disable_by_batch_size" in spec.config:
        change = launch.with_config(disable_by_batch_size=None)
        yield RuleMatch(f"--speculative-config {compact_json(spec.config)}", change)


@RULES.add(
    WARNING,
    "EAGLE-3 was reported broken for gpt-oss-120b in vLLM.",
    "Launch without speculation, or check its answers.",
)
def gpt_oss_eagle3(launch: LaunchContext) -> Matches:
    """Reported broken for gpt-oss-120b in vLLM (deployment registry, 2026-01)."""
    spec = launch.speculation
    if spec is not None and spec.method == "eagle3" and launch.named(r"gpt-oss-120b"):
        yield RuleMatch(f"method {spec.method} with {spec.drafter or 'no drafter'}", launch.without_drafting())


@RULES.add(
    INFO,
    "N-gram speculation only helps where the answer repeats the prompt.",
    "Keep it for edits and extraction; on essays it was 25 % slower than without.",
)
def ngram_on_prose(launch: LaunchContext) -> Matches:
    """Measured on a Spark: 74.75 tokens/s without, 55.70 with, on essays."""
    spec = launch.speculation
    if spec is not None and spec.method.startswith("ngram"):
        yield RuleMatch(f"method {spec.method}", launch.without_drafting())


# --- DFlash -----------------------------------------------------------------------------------------------


def _target(spec: Speculation) -> str:
    """The model that a drafter was trained for, by its name, in lower case; empty where the name does not say."""
    name = spec.drafter.rpartition("/")[2].lower().replace("_", "-")
    mark = next((mark for mark in _DRAFTER_MARKS if name.endswith(mark)), None)
    return name.removesuffix(mark) if mark else ""


@RULES.add(WARNING, "DFlash needs the KV cache in BF16.", "Remove --kv-cache-dtype, or launch without DFlash.")
def dflash_with_fp8_kv(launch: LaunchContext) -> Matches:
    """The guide, 13.6: never together. Recipes for later drafters have both; those that it names do not. A drafter may
    have a KV cache of its own type."""
    spec, dtype = _dflash(launch), launch.lower("kv_cache_dtype")
    if spec is None or not dtype.startswith("fp8"):
        return
    certain = _target(spec) in _TRAINED_FOR
    if certain or str(spec.config.get("kv_cache_dtype", dtype)).startswith("fp8"):
        change = launch.setting("kv_cache_dtype", "auto")
        yield RuleMatch(f"--kv-cache-dtype {dtype} with method dflash", change, ERROR if certain else None)


@RULES.add(
    ERROR,
    "DFlash needs a drafter, and the command names none.",
    'Name the drafter trained for this model under "model", or launch without speculation.',
)
def dflash_without_drafter(launch: LaunchContext) -> Matches:
    """DFlash has no drafter of its own."""
    spec = _dflash(launch)
    if spec is not None and not spec.drafter:
        yield RuleMatch(f"--speculative-config {compact_json(spec.config)}", launch.without_drafting())


@RULES.add(
    ERROR,
    "This image's vLLM is too old for DFlash.",
    "Use a nightly image or the drafter's own, or launch without DFlash.",
)
def dflash_old_vllm(launch: LaunchContext) -> Matches:
    """DFlash came with vLLM 0.21.0. AEON-7's and Z Lab's images carry it themselves, whatever they are numbered."""
    newest, image = launch.newest_vllm, launch.spec.image
    if _dflash(launch) is None or newest is None or newest >= DFLASH_SINCE or name_of(image) in OWN_DFLASH:
        return
    seen = f"{image}: vLLM {shown_version(newest)} at most; DFlash needs {shown_version(DFLASH_SINCE)}"
    yield RuleMatch(seen, launch.without_drafting())


@RULES.add(
    WARNING,
    "DFlash for Gemma 4 was only in Z Lab's image.",
    "Start from the preset gemma-4-31b-it-dflash, or launch without speculation.",
)
def gemma_4_dflash_image(launch: LaunchContext) -> Matches:
    """Gemma 4 and DFlash need different attention kernels; Z Lab's build has both."""
    image = launch.spec.image
    if _dflash(launch) is not None and launch.named("gemma-4") and not name_of(image).startswith("z-lab/"):
        yield RuleMatch(image, launch.without_drafting())


@RULES.add(
    WARNING,
    "This drafter was trained for another model.",
    "Name the drafter of this model, or launch without speculation.",
)
def drafter_of_another_model(launch: LaunchContext) -> Matches:
    """A drafter is trained for one model: its name says which. A folder's name may not say what it holds."""
    spec, local = launch.speculation, launch.preset.model.startswith("/")
    target = _target(spec) if spec is not None else ""
    if spec is None or not target or target in launch.model or (local and not launch.named(r"\d+b\b")):
        return
    yield RuleMatch(
        f"{spec.drafter} drafts for {target}; the model is {launch.preset.model}",
        launch.without_drafting(),
        ERROR if target in _TRAINED_FOR and not local else None,
    )


# --- MTP --------------------------------------------------------------------------------------------------


@RULES.add(
    WARNING,
    "This image's vLLM is older than the versions that MTP was proven with.",
    "Use NVIDIA's image 26.04 or newer, or launch without speculation.",
)
def mtp_old_vllm(launch: LaunchContext) -> Matches:
    """MTP is proven from vLLM 0.19.0 on. Avarok's image brings a patch for its own model."""
    newest, image = launch.newest_vllm, launch.spec.image
    if _mtp(launch) is None or newest is None or name_of(image).startswith("avarok/"):
        return
    release = ngc_release(image)
    if newest < MTP_SINCE or (release is not None and release < (26, 4)):
        yield RuleMatch(f"{image}: older than vLLM {shown_version(MTP_SINCE)}", launch.without_drafting())


@RULES.add(
    ERROR,
    "This model's paired MTP draft needs an fp8 KV cache.",
    "Set kv_cache_dtype=fp8, or launch without speculation.",
)
def paired_draft_without_fp8_kv(launch: LaunchContext) -> Matches:
    """gemma4-coder's bundled draft is the opposite of DFlash (the guide, 7.2.3 and 13.6)."""
    spec, dtype = _mtp(launch), launch.lower("kv_cache_dtype") or "auto"
    if spec is not None and spec.drafter and not dtype.startswith("fp8") and launch.named(GEMMA_CODER):
        change = launch.setting("kv_cache_dtype", "fp8")
        yield RuleMatch(f"--kv-cache-dtype {dtype} with the draft {spec.drafter}", change)


@RULES.add(WARNING, "MTP drafts more tokens than pay off.")
def mtp_k_too_high(launch: LaunchContext) -> Matches:
    """Each further token of MTP costs a verification. Super: 21.5 tokens/s with K=3, 23 without speculation. Recipes
    for newer models draft 4 or 5."""
    spec, is_super = _mtp(launch), launch.named(_SUPER)
    most = 1 if is_super else _MTP_AT_MOST
    if spec is None or spec.tokens is None or spec.tokens <= most:
        return
    reason = "published runs with 3 are slower than without" if is_super else "more rarely pays for its verification"
    yield RuleMatch(
        f"num_speculative_tokens {spec.tokens}",
        launch.with_tokens(most),
        None if is_super or spec.tokens >= _LIKE_DFLASH else INFO,
        f"MTP drafts more tokens than pay off ({spec.tokens}).",
        f"Draft at most {most}: {reason}. Higher values are for DFlash.",
    )


@RULES.add(ERROR, "vLLM refuses this number of drafted tokens for the model's MTP layers.")
def mtp_k_no_multiple(launch: LaunchContext) -> Matches:
    """vLLM: beyond the model's own number of MTP layers, K must be a multiple of it."""
    spec, layers = _mtp(launch), launch.checkpoint.mtp_declared if launch.checkpoint is not None else None
    if spec is None or spec.drafter or not layers or (spec.tokens or 0) <= layers:
        return
    fitting = (spec.tokens or 0) // layers * layers
    if fitting != spec.tokens:
        seen = f"num_speculative_tokens {spec.tokens}; the checkpoint has {layers} MTP layers"
        remedy = f"Draft {fitting} tokens, a multiple of {layers}."
        yield RuleMatch(seen, launch.with_tokens(fitting), remedy=remedy)


@RULES.add(
    ERROR,
    "MTP needs a checkpoint with MTP layers.",
    "Launch without speculation, or with a checkpoint that kept its MTP layers.",
)
def mtp_without_layers(launch: LaunchContext) -> Matches:
    """Quantized checkpoints often drop the MTP layers; vLLM then knows no method `mtp` for them."""
    spec, checkpoint = _mtp(launch), launch.checkpoint
    layers = checkpoint.mtp_layers if checkpoint is not None else None
    if spec is None or spec.drafter or layers or (layers is None and not launch.named(_WITHOUT_MTP)):
        return
    seen = "none in its config and weights" if layers == 0 else "published without them"
    yield RuleMatch(f"method {spec.method}; {launch.preset.model}: {seen}", launch.without_drafting())


@RULES.add(
    INFO,
    "MTP is not proven for this checkpoint.",
    "Watch the acceptance rate, and compare the speed with a launch without speculation.",
)
def mtp_unproven(launch: LaunchContext) -> Matches:
    """The architecture has MTP; that it pays off on this checkpoint is for each build to show (the guide, 13.1)."""
    spec = _mtp(launch)
    if spec is not None and launch.named(_MTP_UNPROVEN):
        yield RuleMatch(f"method {spec.method}; {launch.preset.model}", launch.without_drafting())


@RULES.add(
    WARNING,
    "The b12x MoE kernels do not take an MTP draft in BF16.",
    'Give the draft its own kernels: "moe_backend":"triton" in speculative_config.',
)
def mtp_on_b12x_moe(launch: LaunchContext) -> Matches:
    """Qwen3.6's draft is BF16, and b12x takes no unquantized MoE: it ended at the start (write-up of 2026-05)."""
    spec, backend = _mtp(launch), launch.lower("moe_backend")
    if spec is not None and launch.named(QWEN3_6) and "b12x" in backend and "moe_backend" not in spec.config:
        change = launch.with_config(moe_backend="triton")
        yield RuleMatch(f"--moe-backend {backend} with method {spec.method}", change)


@RULES.add(
    WARNING,
    "MTP on FlashInfer's MoE kernels froze a Spark: vLLM misjudged its CUDA graphs.",
    "Use moe_backend=marlin as NVIDIA's recipe does, or fix the KV cache's size with kv_cache_memory_bytes.",
)
def mtp_graph_estimate(launch: LaunchContext) -> Matches:
    """A negative estimate of the graphs (-35.63 GiB) gave the KV cache more than the machine has, and froze it."""
    spec, backend = _mtp(launch), launch.lower("moe_backend")
    if spec is None or launch.value("kv_cache_memory_bytes") is not None:
        return
    if launch.named(QWEN3_6) and "flashinfer" in backend:
        change = launch.setting("moe_backend", "marlin")
        yield RuleMatch(f"--moe-backend {backend} with method {spec.method}", change)


@RULES.add(
    ERROR,
    "MTP on Qwen3-Next NVFP4 needs its makers' patch, and chunked prefill off.",
    "Start from the preset qwen3-next-80b-a3b-nvfp4-mtp, or launch without speculation.",
)
def qwen3_next_mtp_patch(launch: LaunchContext) -> Matches:
    """Avarok: without the script the BF16 layers for drafting are taken as NVFP4; chunked prefill stays off."""
    if _mtp(launch) is None or not launch.named(r"qwen3-next.*nvfp4"):
        return
    if not any("fix_mtp_nvfp4_exclusion.py" in word for word in launch.invocation.words):
        yield RuleMatch("no fix_mtp_nvfp4_exclusion.py before the server", launch.without_drafting())
    elif launch.switch("enable_chunked_prefill") is not False:
        yield RuleMatch("no --no-enable-chunked-prefill", launch.without_drafting(), WARNING)
