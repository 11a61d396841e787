"""Rules about the model: its weights and formats; speculative decoding by any method, DFlash's drafters, MTP layers."""

from __future__ import annotations

import re
from typing import Final

from spark_tui.base.engine.image import NGC, OFFICIAL, OWN_DFLASH, name_of, ngc_release, shown_version
from spark_tui.base.engine.invocation import compact_json, parse
from spark_tui.base.engine.runtimes import format_readers, is_known, known_models, published_facts
from spark_tui.catalog.presets.model.overrides import Speculation
from spark_tui.catalog.presets.model.rules.context import (
    ERROR,
    GEMMA_26B,
    GEMMA_CODER,
    INFO,
    QWEN3_5,
    QWEN3_6,
    WARNING,
    LaunchContext,
    Matches,
    RuleMatch,
    RuleTable,
)

RULES: Final = RuleTable()

# What --quantization may be on top of an unquantized checkpoint; everything else names a format that must be there.
_PREQUANTIZED: Final = ("modelopt", "compressed-tensors", "awq", "gptq", "mxfp4")
_KV_TYPES: Final = ("cache_type_k", "cache_type_v")
_BACKENDS: Final = ("attention_backend", "moe_backend", "linear_backend")
_MOE_OF_GEMMA_26B: Final = ("marlin", "cutlass", "vllm_cutlass")

# --- format of weights and KV cache -----------------------------------------------------------------------


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


@RULES.add(
    WARNING,
    "A ModelOpt checkpoint is launched without --quantization modelopt.",
    "Set quantization=modelopt: some images load the weights wrongly, or not at all, without it.",
)
def modelopt_without_quantization(launch: LaunchContext) -> Matches:
    """The guide's rule for NVIDIA's ModelOpt checkpoints: name the format."""
    modelopt = (_format(launch)[0] or "").startswith("modelopt")
    if (
        modelopt
        and not launch.named(known_models().mark["quantization_found"])
        and launch.value("quantization") is None
    ):
        change = launch.setting("quantization", "modelopt")
        yield RuleMatch(f"{launch.preset.model}: weights in ModelOpt's format", change)


@RULES.add(
    WARNING,
    "A compressed-tensors checkpoint must be launched without --quantization.",
    "Remove it: vLLM detects compressed-tensors, and refuses or misreads the weights under another name.",
)
def compressed_tensors_with_quantization(launch: LaunchContext) -> Matches:
    """compressed-tensors is found by vLLM; another name is refused (`does not match the quantization ...`)."""
    (found, certain), given = _format(launch), launch.value("quantization")
    if given is None or found != "compressed-tensors":
        return
    evidence, change = f"--quantization {given}", launch.without("quantization")
    if given == found:
        yield RuleMatch(evidence, change, INFO, remedy="Remove it: vLLM detects compressed-tensors.")
    else:
        yield RuleMatch(evidence, change, ERROR if certain else None)


@RULES.add(WARNING, "--quantization does not fit the checkpoint.")
def quantization_differs(launch: LaunchContext) -> Matches:
    """Another format than the checkpoint's own. On an unquantized one, most formats are made while it loads."""
    (found, certain), given = _format(launch), launch.lower("quantization")
    if not given or found in (None, "compressed-tensors") or given.partition("_")[0] == str(found).partition("_")[0]:
        return
    if not found and not given.startswith(_PREQUANTIZED):
        return
    modelopt = str(found).startswith("modelopt")
    yield RuleMatch(
        f"--quantization {given}; the checkpoint is {found or 'not quantized'}",
        launch.setting("quantization", "modelopt") if modelopt else launch.without("quantization"),
        ERROR if certain else None,
        f"--quantization {given} does not fit a checkpoint in {found or 'BF16'}.",
        "Set quantization=modelopt." if modelopt else "Remove --quantization: vLLM reads it from the checkpoint.",
    )


@RULES.add(
    WARNING,
    "The engine does not read the checkpoint's format.",
    "Use an image built for it, or another quantization of the model: spark-tui models search NAME.",
)
def format_unread(launch: LaunchContext) -> Matches:
    """The table of formats and engines. Images of others may read more, so that it is no error."""
    method, engine = launch.checkpoint.quant_method if launch.checkpoint is not None else None, launch.preset.engine
    readers = format_readers(method) if method else None
    if not method or not is_known(engine) or (readers is not None and engine in readers.engines):
        return
    if launch.lower("quantization") == method.lower() and name_of(launch.spec.image) not in (NGC, OFFICIAL):
        return  # an image of its own, for a format that is named
    others = f"; read by {readers.others}" if readers is not None and readers.others else ""
    yield RuleMatch(f"{launch.preset.model}: {method}{others}")


@RULES.add(
    WARNING,
    "With an fp8 KV cache, Qwen3.5 repeats itself endlessly on a Spark.",
    "Remove it: this model needs its KV cache in BF16. The flag belongs to the recipe of Qwen3.6-NVFP4.",
)
def fp8_kv_qwen3_5(launch: LaunchContext) -> Matches:
    """The guide, 7.1.3: repetition loops on GB10. Not Qwen3.6, whose recipe has it; they share an architecture. A
    recipe for the 397B on four Sparks has it too."""
    dtype = launch.lower("kv_cache_dtype")
    if dtype.startswith("fp8") and launch.named(QWEN3_5):
        documented = launch.named(QWEN3_5 + "-35b-a3b")
        change = launch.setting("kv_cache_dtype", "auto")
        yield RuleMatch(f"--kv-cache-dtype {dtype}", change, ERROR if documented else None)


@RULES.add(
    WARNING,
    "An NVFP4 KV cache was not known to work on a Spark's sm_121.",
    "Use auto, or fp8 where the model's recipe has it.",
    spark=True,
)
def nvfp4_kv(launch: LaunchContext) -> Matches:
    """A public registry of deployments (2026-01): no engine served an NVFP4 KV cache on sm_120 and sm_121."""
    dtype = launch.lower("kv_cache_dtype")
    if dtype.startswith("nvfp4"):
        yield RuleMatch(f"--kv-cache-dtype {dtype}", launch.setting("kv_cache_dtype", "auto"))


@RULES.add(
    WARNING,
    "A q4 KV cache makes llama.cpp very slow at long contexts on a Spark.",
    "Use q8_0 for both: within 5 % of f16. q4_0 loses 92.5 % of the prompt speed at 64K.",
    any_engine=True,
)
def llama_cpp_q4_kv(launch: LaunchContext) -> Matches:
    """Measured on a Spark: prompt processing falls by 92.5 % at 64K (282.7 to 21.3 tokens/s, llama.cpp b8399)."""
    for key in _KV_TYPES:
        value = launch.value(key) or ""
        if launch.preset.engine == "llama-cpp" and value.startswith("q4"):
            yield RuleMatch(f"{key}={value}", (("cache_type_k", "q8_0"), ("cache_type_v", "q8_0")))


@RULES.add(
    WARNING,
    "This type of KV cache makes llama.cpp slower on a Spark.",
    "Use f16, or q8_0 for both: within 5 % of f16.",
    any_engine=True,
)
def llama_cpp_slow_kv(launch: LaunchContext) -> Matches:
    """By the table of speeds by KV cache: reading it back costs more than the memory that it saves is worth here."""
    for key in _KV_TYPES:
        value = launch.value(key) or ""
        found = [
            (less, each) for each in published_facts().kv if (less := each.slower(value)) and each.what == "output"
        ]
        if launch.preset.engine == "llama-cpp" and found:
            less, each = max(found, key=lambda pair: pair[0])
            measured = f"{each.rates[value]:g} tok/s beside {each.rates['f16']:g} with f16, {each.depth:,} tokens deep"
            change = (("cache_type_k", "q8_0"), ("cache_type_v", "q8_0"))
            yield RuleMatch(f"{key}={value}: {less:.1f} % slower, {measured}", change)


# --- single models ----------------------------------------------------------------------------------------


@RULES.add(
    WARNING,
    "Chunked prefill makes MoE models with state-space layers about 9 times slower on a Spark.",
    "Remove it: it belongs to the recipe of Qwen3.6-NVFP4.",
)
def chunked_prefill_ssm_moe(launch: LaunchContext) -> Matches:
    """The guide, 7.1.3: nine times slower on SSM+MoE. Not Qwen3.6, whose official recipe has it."""
    checkpoint = launch.checkpoint
    by_config = checkpoint is not None and bool(checkpoint.is_moe and checkpoint.has_ssm)
    if not launch.switch("enable_chunked_prefill") or launch.named(QWEN3_6):
        return
    if by_config or launch.named(known_models().mark["state_space_moe"]):
        yield RuleMatch(
            f"--enable-chunked-prefill on {launch.preset.model}",
            launch.without("enable_chunked_prefill"),
            ERROR if launch.named(QWEN3_5 + r"-\d+b-a\d+b") else None,
        )


@RULES.add(ERROR, "Gemma-4-26B-A4B runs on Marlin's or CUTLASS's MoE kernels only.", "Set moe_backend=marlin.")
def moe_backend_gemma_26b(launch: LaunchContext) -> Matches:
    """The card: VLLM_CUTLASS or Marlin; FlashInfer's TRT-LLM kernels do not take it yet."""
    backend = launch.lower("moe_backend") or "auto"
    if launch.named(GEMMA_26B) and backend not in _MOE_OF_GEMMA_26B:
        change = launch.setting("moe_backend", "marlin")
        yield RuleMatch(f"--moe-backend {backend}", change, WARNING if backend == "auto" else None)


@RULES.add(ERROR, "vLLM serves Gemma-4-26B-A4B NVFP4 on one GPU only.", "Set tensor_parallel=1.")
def tensor_parallel_gemma_26b(launch: LaunchContext) -> Matches:
    """The card: expert parallel works, tensor parallel does not yet."""
    size = launch.integer("tensor_parallel") or 1
    if launch.named(GEMMA_26B) and size > 1:
        yield RuleMatch(f"--tensor-parallel-size {size}", launch.setting("tensor_parallel", 1))


@RULES.add(
    WARNING,
    "This model's recipe has --trust-remote-code; the command does not.",
    "Set trust_remote_code=true. It runs Python from the model's repository.",
)
def trust_remote_code_missing(launch: LaunchContext) -> Matches:
    """Their recipes run code of the checkpoint: a processor, a configuration."""
    if launch.named(known_models().mark["trust_remote_code"]) and not launch.switch("trust_remote_code"):
        change = launch.setting("trust_remote_code", "true")
        yield RuleMatch(f"{launch.preset.model} without --trust-remote-code", change)


@RULES.add(INFO, "This MoE model is published with expert parallel.", "Set enable_expert_parallel=true.")
def expert_parallel_missing(launch: LaunchContext) -> Matches:
    """Section 8 of the guide. It spreads the experts over several GPUs; on one it changes nothing, and only the recipe
    of gpt-oss has it."""
    several = (launch.integer("tensor_parallel") or 1) > 1
    published = launch.named(known_models().mark["expert_parallel"] if several else r"gpt-oss")
    if published and not launch.switch("enable_expert_parallel"):
        change = launch.setting("enable_expert_parallel", "true")
        yield RuleMatch(f"{launch.preset.model} without --enable-expert-parallel", change)


@RULES.add(
    WARNING,
    "Variables of this model's published recipe are missing.",
    "Set them: they choose the kernels that were tested on a Spark.",
)
def recipe_environment_missing(launch: LaunchContext) -> Matches:
    """What a published recipe sets, and this launch does not or otherwise; or an image's makers for NVFP4."""
    image, described = name_of(launch.spec.image), launch.described
    known = [each for each in known_models().environment if launch.named(each["names"]) and image == each["image"]]
    wanted = known[0]["set"].items() if known else ()
    missing = {name: value for name, value in wanted if launch.env.get(name) != value}
    if described is not None and set(described.programs) & set(launch.invocation.words):
        return  # the program sets them itself
    if described is not None and launch.named("nvfp4"):
        missing |= {
            name: each.wanted
            for name, each in described.variables.items()
            if each.wanted is not None and each.wanted != (launch.env.get(name) or each.default)
        }
    if missing:
        change = tuple((f"env.{name}", value) for name, value in missing.items())
        yield RuleMatch(", ".join(f"{name}={value}" for name, value in missing.items()), change)


@RULES.add(
    ERROR,
    "Phi-4-multimodal needs scipy, missing from NVIDIA's vLLM images.",
    "Start from the preset phi-4-multimodal-instruct-nvfp4, which installs it first, or use an image that has it.",
)
def phi_4_without_scipy(launch: LaunchContext) -> Matches:
    """NVIDIA/dgx-spark-playbooks#69: its processor imports scipy, which NVIDIA's images do not have."""
    on_ngc = name_of(launch.spec.image) == NGC
    if launch.named(r"phi-4-multimodal") and on_ngc and "scipy" not in launch.invocation.words:
        yield RuleMatch(f"{launch.spec.image}, and the command installs no scipy")


@RULES.add(
    INFO,
    "gemma-4-12B-coder answers worse without reasoning.",
    'Send chat_template_kwargs {"enable_thinking":true} with each request, or make it the default.',
)
def gemma_coder_without_thinking(launch: LaunchContext) -> Matches:
    """The card: trained to reason first; its answers are worse otherwise."""
    enabled = launch.json("default_chat_template_kwargs").get("enable_thinking")
    if launch.named(GEMMA_CODER) and enabled not in (True, "true"):
        change = launch.setting("default_chat_template_kwargs", '{"enable_thinking":true}')
        yield RuleMatch("no enable_thinking in --default-chat-template-kwargs", change)


@RULES.add(WARNING, "DiffusionGemma is published with Triton's attention only.", "Set attention_backend=TRITON_ATTN.")
def diffusion_attention(launch: LaunchContext) -> Matches:
    """The card's only published attention kernels."""
    backend = launch.value("attention_backend") or "auto"
    if launch.named("diffusiongemma") and backend.upper() != "TRITON_ATTN":
        yield RuleMatch(f"--attention-backend {backend}", launch.setting("attention_backend", "TRITON_ATTN"))


@RULES.add(
    WARNING,
    "This model was reported to fail on a DGX Spark.",
    "Try a newer image, or choose another engine or model.",
    any_engine=True,
    spark=True,
)
def reported_failing(launch: LaunchContext) -> Matches:
    """What others could not get to run; where it is the image's or a variable's, with these."""
    engine = launch.preset.engine
    words = " ".join((launch.spec.image, *map("=".join, launch.env.items())))
    for each in known_models().failure:
        if each["engine"] == engine and launch.named(each["names"]) and re.search(each.get("has", ""), words):
            yield RuleMatch(
                f"{launch.preset.model} in {engine} (reported in {each.get('date', 'January 2026')})",
                summary=f"This model was reported to fail in {engine} on {each.get('on', 'a DGX Spark')}: "
                f"{each['problem']}.",
                severity=INFO if "on" in each else None,
                remedy=each.get("remedy", ""),
            )


@RULES.add(WARNING, "This model was marked as failed on this machine.", any_engine=True)
def marked_failed(launch: LaunchContext) -> Matches:
    """What was tried here, and did not work: `results mark`."""
    if launch.failed_here:
        yield RuleMatch(
            launch.failed_here,
            summary=f"{launch.preset.model} failed here before: {launch.failed_here}.",
            remedy="Correct what the reason names. Once it serves, record it: "
            f"`spark-tui results mark {launch.preset.model} working`.",
        )


@RULES.add(
    WARNING,
    "The kernels would be compiled for another GPU than a Spark's.",
    "Set env.CUTE_DSL_ARCH=sm_121a.",
    spark=True,
)
def cute_arch(launch: LaunchContext) -> Matches:
    """The b12x kernels read the architecture from this variable; a Spark is sm_121a, a desktop Blackwell sm_120a."""
    arch = launch.env.get("CUTE_DSL_ARCH", "")
    kernels = ("VLLM_NVFP4_GEMM_BACKEND", "VLLM_FLASHINFER_MOE_BACKEND")
    b12x = any("b12x" in launch.env.get(name, "") for name in kernels)
    if arch != "sm_121a" and (arch or b12x):
        seen = f"CUTE_DSL_ARCH {arch or 'unset'}" + (" with the b12x kernels" if b12x else "")
        yield RuleMatch(seen, (("env.CUTE_DSL_ARCH", "sm_121a"),))


@RULES.add(
    INFO,
    "Kernels are pinned that this recipe leaves to vLLM.",
    "Remove them, unless you measure: they belong to the recipe they were tested with.",
)
def backend_of_another_recipe(launch: LaunchContext) -> Matches:
    """Section 8 of the guide: leave kernels to vLLM unless the model's tested recipe pins them."""
    recipe, values = launch.preset.command.replace("_", "-"), dict(launch.overrides.values)
    extra = parse(launch.overrides.extra_args)
    added: dict[str, str] = {}
    for key in _BACKENDS:
        name, given = "--" + key.replace("_", "-"), extra.value(key) or values.get(key)
        if given is not None and name not in recipe and launch.preset.default(key) is None:
            added[key] = f"{name} {given}"
    if added:
        yield RuleMatch(", ".join(added.values()), (("without", ",".join(added)),))


@RULES.add(WARNING, "CUDA graphs are off: every step is slower.", "Remove it, unless you debug.")
def cuda_graphs_off(launch: LaunchContext) -> Matches:
    """Section 8 of the guide: keep CUDA graphs. `-O0`, `-O.mode=0`, `{"cudagraph_mode":"NONE"}` turn them off."""
    if launch.switch("enforce_eager") and not launch.pools:
        yield RuleMatch("--enforce-eager", launch.setting("enforce_eager", "false"))
    for key, name in (("compilation_config", "--compilation-config"), ("O", "-O")):
        config = launch.json(key)
        level = next((str(config[each]) for each in ("level", "mode") if each in config), "")
        graphs = str(config.get("cudagraph_mode", "")).upper()
        if graphs == "NONE" or (level in ("0", "NONE") and not graphs):
            yield RuleMatch(f"{name} {compact_json(config)}")
    for key, name in (("O", "-O"), ("optimization_level", "--optimization-level")):
        if launch.value(key) == "0":
            yield RuleMatch(f"{name} 0")
    if "-O0" in launch.invocation.words:
        yield RuleMatch("-O0")


# --- speculation -----------------------------------------------------------------------------------------


DFLASH_SINCE: Final = (0, 21, 0)
MTP_SINCE: Final = (0, 19, 0)
_MANY_SEQUENCES: Final = 8
# Who drafts for whom (the guide, 13.4): of these a mistake is certain.
_TRAINED_FOR: Final = ("gemma-4-31b-it", "laguna-xs.2", "qwen3.5-27b")
_DRAFTER_MARKS: Final = ("-speculator.dflash", "-speculator.eagle3", "-dflash", "-dflash2", "-eagle3", "-eagle")
_MTP_AT_MOST: Final = 3
_LIKE_DFLASH: Final = 7
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
    have a KV cache of its own type; DFlash2 takes one in FP8 (NVIDIA's recipe of Qwen3.8-27B)."""
    spec, dtype = _dflash(launch), launch.lower("kv_cache_dtype")
    if spec is None or not dtype.startswith("fp8") or spec.drafter.lower().endswith("-dflash2"):
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
    """MTP is proven from vLLM 0.19.0 on, and on images whose makers correct it for a model themselves."""
    newest, image, spec = launch.newest_vllm, launch.spec.image, _mtp(launch)
    corrected = launch.described is not None and spec is not None and launch.described.step(spec.method, launch.model)
    if spec is None or newest is None or corrected:
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
    spec, is_super = _mtp(launch), launch.named("nemotron-3-super")
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
    if (
        spec is None
        or spec.drafter
        or layers
        or (layers is None and not launch.named(known_models().mark["without_mtp"]))
    ):
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
    if spec is not None and launch.named(known_models().mark["mtp_unproven"]):
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
