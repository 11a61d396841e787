"""Rules about single models: the format of weights and KV cache, and what their makers and the guide say that they
need or cannot take."""

from __future__ import annotations

from typing import Final

from spark_tui.base.engine.image import NGC, OFFICIAL, name_of
from spark_tui.base.engine.invocation import compact_json, parse
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
# Their makers' own recipes leave --quantization out, and the images that they name find it by themselves.
_FOUND_BY_ITSELF: Final = r"nemotron|diffusiongemma|qwen3-next"
_Q4_FLAGS: Final = {"cache_type_k": "--cache-type-k", "ctk": "-ctk", "cache_type_v": "--cache-type-v", "ctv": "-ctv"}
_BACKENDS: Final = ("attention_backend", "moe_backend", "linear_backend")
_MOE_OF_GEMMA_26B: Final = ("marlin", "cutlass", "vllm_cutlass")
_SSM_MOE: Final = QWEN3_5 + r"-\d+b-a\d+b|qwen3-next|nemotron-3|nemotron3|nemotron-cascade"
_TRUST: Final = (
    GEMMA_26B + r"|phi-4-multimodal|laguna-xs|" + QWEN3_6 + r"\S*nvfp4|nemotron-3-|nemotron-cascade|diffusiongemma"
)
_EXPERT_PARALLEL: Final = r"gpt-oss|nemotron-3|mistral-small-4|" + GEMMA_26B

# The environment of published recipes by model and image: other images choose their kernels otherwise.
_ENVIRONMENT: Final = (
    (QWEN3_6 + "-35b-a3b-nvfp4", OFFICIAL, {
        "VLLM_USE_FLASHINFER_MOE_FP4": "0", "VLLM_FP8_MOE_BACKEND": "flashinfer_cutlass",
        "FLASHINFER_DISABLE_VERSION_CHECK": "1", "CUTE_DSL_ARCH": "sm_121a"}),
    (r"nemotron-3-nano-30b-a3b-nvfp4", NGC, {
        "VLLM_USE_FLASHINFER_MOE_FP4": "1", "VLLM_FLASHINFER_MOE_BACKEND": "throughput"}),
    (r"diffusiongemma", OFFICIAL, {"VLLM_USE_V2_MODEL_RUNNER": "1"}),
    (r"laguna-xs", OFFICIAL, {"VLLM_USE_DEEP_GEMM": "0"}),
)  # fmt: skip
# Engine, model, problem: failed on a DGX Spark by a public registry of deployments (2026-01).
_REPORTED: Final = (
    ("vllm", r"qwen3-30b-a3b-(nvfp4|fp4)", "it loads and then serves nothing"),
    ("vllm", r"mistral-small-3\.2-24b.*nvfp4", "its tokenizer is not taken"),
    ("trtllm", r"qwen3-next", "its gated DeltaNet attention is not supported"),
    ("trtllm", r"nemotron-(3-)?nano|nemotron3-nano|nemotron-cascade", "Mamba layers are not supported"),
    ("trtllm", r"seed-oss-36b.*nvfp4", "compressed-tensors NVFP4 is not supported"),
    ("sglang", r"qwen3-next.*nvfp4", "its kernels need more shared memory than the GPU has"),
)

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
    if modelopt and not launch.named(_FOUND_BY_ITSELF) and launch.value("quantization") is None:
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
    "Use q8_0 for both: within 5 % of f16. q4_0 loses 90 % of the prompt speed at 64K.",
    any_engine=True,
)
def llama_cpp_q4_kv(launch: LaunchContext) -> Matches:
    """Measured on a Spark: prompt processing falls by 92.5 % at 64K (282.7 to 21.3 tokens/s, llama.cpp b8399)."""
    for key, name in _Q4_FLAGS.items():
        value = launch.value(key) or ""
        if launch.preset.engine == "llama-cpp" and value.startswith("q4"):
            yield RuleMatch(f"{name} {value}")


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
    if by_config or launch.named(_SSM_MOE):
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
    if launch.named(_TRUST) and not launch.switch("trust_remote_code"):
        change = launch.setting("trust_remote_code", "true")
        yield RuleMatch(f"{launch.preset.model} without --trust-remote-code", change)


@RULES.add(INFO, "This MoE model is published with expert parallel.", "Set enable_expert_parallel=true.")
def expert_parallel_missing(launch: LaunchContext) -> Matches:
    """Section 8 of the guide. On one GPU only the recipe of gpt-oss has it; on several it spreads the experts."""
    several = (launch.integer("tensor_parallel") or 1) > 1
    published = launch.named(_EXPERT_PARALLEL if several else r"gpt-oss")
    if published and not launch.switch("enable_expert_parallel"):
        change = launch.setting("enable_expert_parallel", "true")
        yield RuleMatch(f"{launch.preset.model} without --enable-expert-parallel", change)


@RULES.add(
    WARNING,
    "Variables of this model's published recipe are missing.",
    "Set them: they choose the kernels that were tested on a Spark.",
)
def recipe_environment_missing(launch: LaunchContext) -> Matches:
    """What a published recipe sets, and this launch does not or otherwise."""
    image = name_of(launch.spec.image)
    wanted = next((env for model, name, env in _ENVIRONMENT if launch.named(model) and image == name), {})
    missing = {name: value for name, value in wanted.items() if launch.env.get(name) != value}
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
    """What others could not get to run on a Spark."""
    engine = launch.preset.engine
    for name, model, problem in _REPORTED:
        if name == engine and launch.named(model):
            yield RuleMatch(
                f"{launch.preset.model} in {engine} (reported in January 2026)",
                summary=f"This model was reported to fail in {engine} on a DGX Spark: {problem}.",
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
    if launch.switch("enforce_eager"):
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
