"""Rules about single models: what their makers and the guide say that they need, or cannot take."""

from __future__ import annotations

from typing import Final

from spark_tui.domain.finding import Finding, Severity
from spark_tui.domain.presets.image import NGC, OFFICIAL, name_of
from spark_tui.domain.presets.invocation import parse
from spark_tui.domain.presets.options import compact_json
from spark_tui.domain.presets.rules.context import GEMMA_26B, GEMMA_CODER, QWEN3_5, QWEN3_6, LaunchContext, Rules

RULES = Rules()

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


@RULES.add()
def chunked_prefill_ssm_moe(launch: LaunchContext) -> Finding | None:
    """The guide, 7.1.3: nine times slower on SSM+MoE. Not Qwen3.6, whose official recipe has it."""
    if not launch.switch("enable_chunked_prefill") or launch.named(QWEN3_6):
        return None
    checkpoint = launch.checkpoint
    by_config = checkpoint is not None and bool(checkpoint.is_moe and checkpoint.has_ssm)
    if not by_config and not launch.named(_SSM_MOE):
        return None
    return Finding(
        "chunked_prefill_ssm_moe",
        Severity.ERROR if launch.named(QWEN3_5 + r"-\d+b-a\d+b") else Severity.WARNING,
        "Chunked prefill makes MoE models with state-space layers about 9 times slower on a Spark.",
        (f"--enable-chunked-prefill on {launch.preset.model}",),
        "Remove it: it belongs to the recipe of Qwen3.6-NVFP4.",
        launch.without("enable_chunked_prefill"),
    )


@RULES.add()
def moe_backend_gemma_26b(launch: LaunchContext) -> Finding | None:
    """The card: VLLM_CUTLASS or Marlin; FlashInfer's TRT-LLM kernels do not take it yet."""
    backend = launch.lower("moe_backend") or "auto"
    if not launch.named(GEMMA_26B) or backend in _MOE_OF_GEMMA_26B:
        return None
    return Finding(
        "moe_backend_gemma_26b",
        Severity.WARNING if backend == "auto" else Severity.ERROR,
        "Gemma-4-26B-A4B runs on Marlin's or CUTLASS's MoE kernels only.",
        (f"--moe-backend {backend}",),
        "Set moe_backend=marlin.",
        launch.setting("moe_backend", "marlin"),
    )


@RULES.add()
def tensor_parallel_gemma_26b(launch: LaunchContext) -> Finding | None:
    """The card: expert parallel works, tensor parallel does not yet."""
    size = launch.integer("tensor_parallel")
    if not launch.named(GEMMA_26B) or size is None or size <= 1:
        return None
    return Finding(
        "tensor_parallel_gemma_26b",
        Severity.ERROR,
        "vLLM serves Gemma-4-26B-A4B NVFP4 on one GPU only.",
        (f"--tensor-parallel-size {size}",),
        "Set tensor_parallel=1.",
        launch.setting("tensor_parallel", 1),
    )


@RULES.add()
def trust_remote_code_missing(launch: LaunchContext) -> Finding | None:
    """Their recipes run code of the checkpoint: a processor, a configuration."""
    if not launch.named(_TRUST) or launch.switch("trust_remote_code"):
        return None
    return Finding(
        "trust_remote_code_missing",
        Severity.WARNING,
        "This model's recipe has --trust-remote-code; the command does not.",
        (f"{launch.preset.model} without --trust-remote-code",),
        "Set trust_remote_code=true. It runs Python from the model's repository.",
        launch.setting("trust_remote_code", "true"),
    )


@RULES.add()
def expert_parallel_missing(launch: LaunchContext) -> Finding | None:
    """Section 8 of the guide. On one GPU only the recipe of gpt-oss has it; on several it spreads the experts."""
    several = (launch.integer("tensor_parallel") or 1) > 1
    if launch.switch("enable_expert_parallel") or not launch.named(_EXPERT_PARALLEL if several else r"gpt-oss"):
        return None
    return Finding(
        "expert_parallel_missing",
        Severity.INFO,
        "This MoE model is published with expert parallel.",
        (f"{launch.preset.model} without --enable-expert-parallel",),
        "Set enable_expert_parallel=true.",
        launch.setting("enable_expert_parallel", "true"),
    )


@RULES.add()
def recipe_environment_missing(launch: LaunchContext) -> Finding | None:
    """What a published recipe sets, and this launch does not or otherwise."""
    image = name_of(launch.spec.image)
    wanted = next((env for model, name, env in _ENVIRONMENT if launch.named(model) and image == name), {})
    missing = {name: value for name, value in wanted.items() if launch.env.get(name) != value}
    if not missing:
        return None
    return Finding(
        "recipe_environment_missing",
        Severity.WARNING,
        "Variables of this model's published recipe are missing.",
        (", ".join(f"{name}={value}" for name, value in missing.items()),),
        "Set them: they choose the kernels that were tested on a Spark.",
        tuple((f"env.{name}", value) for name, value in missing.items()),
    )


@RULES.add()
def phi_4_without_scipy(launch: LaunchContext) -> Finding | None:
    """NVIDIA/dgx-spark-playbooks#69: its processor imports scipy, which NVIDIA's images do not have."""
    image = launch.spec.image
    if not launch.named(r"phi-4-multimodal") or name_of(image) != NGC or "scipy" in launch.invocation.words:
        return None
    return Finding(
        "phi_4_without_scipy",
        Severity.ERROR,
        "Phi-4-multimodal needs scipy, missing from NVIDIA's vLLM images.",
        (f"{image}, and the command installs no scipy",),
        "Start from the preset phi-4-multimodal-instruct-nvfp4, which installs it first, or use an image that has it.",
    )


@RULES.add()
def gemma_coder_without_thinking(launch: LaunchContext) -> Finding | None:
    """The card: trained to reason first; its answers are worse otherwise."""
    enabled = launch.json("default_chat_template_kwargs").get("enable_thinking")
    if not launch.named(GEMMA_CODER) or enabled in (True, "true"):
        return None
    return Finding(
        "gemma_coder_without_thinking",
        Severity.INFO,
        "gemma-4-12B-coder answers worse without reasoning.",
        ("no enable_thinking in --default-chat-template-kwargs",),
        'Send chat_template_kwargs {"enable_thinking":true} with each request, or make it the default.',
        launch.setting("default_chat_template_kwargs", '{"enable_thinking":true}'),
    )


@RULES.add()
def diffusion_attention(launch: LaunchContext) -> Finding | None:
    """The card's only published attention kernels."""
    backend = launch.value("attention_backend")
    if not launch.named("diffusiongemma") or (backend or "").upper() == "TRITON_ATTN":
        return None
    return Finding(
        "diffusion_attention",
        Severity.WARNING,
        "DiffusionGemma is published with Triton's attention only.",
        (f"--attention-backend {backend or 'auto'}",),
        "Set attention_backend=TRITON_ATTN.",
        launch.setting("attention_backend", "TRITON_ATTN"),
    )


@RULES.add(any_engine=True, spark=True)
def reported_failing(launch: LaunchContext) -> Finding | None:
    """What others could not get to run on a Spark."""
    engine = launch.preset.engine
    problem = next((what for name, model, what in _REPORTED if name == engine and launch.named(model)), None)
    if problem is None:
        return None
    return Finding(
        "reported_failing",
        Severity.WARNING,
        f"This model was reported to fail in {engine} on a DGX Spark: {problem}.",
        (f"{launch.preset.model} in {engine} (reported in January 2026)",),
        "Try a newer image, or choose another engine or model.",
    )


@RULES.add(spark=True)
def cute_arch(launch: LaunchContext) -> Finding | None:
    """The b12x kernels read the architecture from this variable; a Spark is sm_121a, a desktop Blackwell sm_120a."""
    arch = launch.env.get("CUTE_DSL_ARCH", "")
    kernels = ("VLLM_NVFP4_GEMM_BACKEND", "VLLM_FLASHINFER_MOE_BACKEND")
    b12x = any("b12x" in launch.env.get(name, "") for name in kernels)
    if arch == "sm_121a" or (not arch and not b12x):
        return None
    return Finding(
        "cute_arch",
        Severity.WARNING,
        "The kernels would be compiled for another GPU than a Spark's.",
        (f"CUTE_DSL_ARCH {arch or 'unset'}" + (" with the b12x kernels" if b12x else ""),),
        "Set env.CUTE_DSL_ARCH=sm_121a.",
        (("env.CUTE_DSL_ARCH", "sm_121a"),),
    )


@RULES.add()
def backend_of_another_recipe(launch: LaunchContext) -> Finding | None:
    """Section 8 of the guide: leave kernels to vLLM unless the model's tested recipe pins them."""
    overrides, recipe = launch.overrides, launch.preset.command.replace("_", "-")
    extra, values = parse(overrides.extra_args), dict(overrides.values)
    added: dict[str, str] = {}
    for key in _BACKENDS:
        name, given = "--" + key.replace("_", "-"), extra.value(key) or values.get(key)
        if given is not None and name not in recipe and launch.preset.default(key) is None:
            added[key] = f"{name} {given}"
    if not added:
        return None
    return Finding(
        "backend_of_another_recipe",
        Severity.INFO,
        "Kernels are pinned that this recipe leaves to vLLM.",
        (", ".join(added.values()),),
        "Remove them, unless you measure: they belong to the recipe they were tested with.",
        (("without", ",".join(added)),),
    )


@RULES.add()
def cuda_graphs_off(launch: LaunchContext) -> Finding | None:
    """Section 8 of the guide: keep CUDA graphs."""
    eager = launch.switch("enforce_eager")
    seen = "--enforce-eager" if eager else _low_level(launch)
    if not seen:
        return None
    return Finding(
        "cuda_graphs_off",
        Severity.WARNING,
        "CUDA graphs are off: every step is slower.",
        (seen,),
        "Remove it, unless you debug.",
        launch.setting("enforce_eager", "false") if eager else (),
    )


def _low_level(launch: LaunchContext) -> str:
    """The words that turn compilation or graphs off: `-O0`, `-O.mode=0`, `{"cudagraph_mode":"NONE"}`."""
    for key, name in (("compilation_config", "--compilation-config"), ("O", "-O")):
        config = launch.json(key)
        level = next((str(config[each]) for each in ("level", "mode") if each in config), "")
        graphs = str(config.get("cudagraph_mode", "")).upper()
        if graphs == "NONE" or (level in ("0", "NONE") and not graphs):
            return f"{name} {compact_json(config)}"
    for key, name in (("O", "-O"), ("optimization_level", "--optimization-level")):
        if launch.value(key) == "0":
            return f"{name} 0"
    return "-O0" if "-O0" in launch.invocation.words else ""
