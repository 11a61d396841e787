"""Rules about single models: what their makers and the guide say that they need, or cannot take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark_tui.domain.presets import options as vllm
from spark_tui.domain.presets.image import NGC, OFFICIAL, name_of
from spark_tui.domain.presets.options import compact
from spark_tui.domain.presets.rules.context import (
    GEMMA_26B,
    GEMMA_CODER,
    QWEN3_5,
    QWEN3_6,
    Advice,
    Case,
    Rule,
    Severity,
)

_QWEN3_6_35B: Final = QWEN3_6 + "-35b-a3b-nvfp4"
_NANO: Final = r"nemotron-3-nano-30b-a3b-nvfp4"
_BACKENDS: Final = ("attention_backend", "moe_backend", "linear_backend")
_MOE_OF_GEMMA_26B: Final = ("marlin", "cutlass", "vllm_cutlass")
_SSM_MOE: Final = QWEN3_5 + r"-\d+b-a\d+b|qwen3-next|nemotron-3|nemotron3|nemotron-cascade"
_TRUST: Final = (
    GEMMA_26B + r"|phi-4-multimodal|laguna-xs|" + QWEN3_6 + r"\S*nvfp4|nemotron-3-|nemotron-cascade|diffusiongemma"
)
_EXPERT_PARALLEL: Final = r"gpt-oss|nemotron-3|mistral-small-4|" + GEMMA_26B


@dataclass(frozen=True, slots=True)
class Published:
    """The environment of a published recipe, and the image that it is for: others choose their kernels otherwise."""

    model: str
    image: str
    env: tuple[tuple[str, str], ...]


_ENVIRONMENT: Final = (
    Published(
        _QWEN3_6_35B,
        OFFICIAL,
        (
            ("VLLM_USE_FLASHINFER_MOE_FP4", "0"),
            ("VLLM_FP8_MOE_BACKEND", "flashinfer_cutlass"),
            ("FLASHINFER_DISABLE_VERSION_CHECK", "1"),
            ("CUTE_DSL_ARCH", "sm_121a"),
        ),
    ),
    Published(_NANO, NGC, (("VLLM_USE_FLASHINFER_MOE_FP4", "1"), ("VLLM_FLASHINFER_MOE_BACKEND", "throughput"))),
    Published(r"diffusiongemma", OFFICIAL, (("VLLM_USE_V2_MODEL_RUNNER", "1"),)),
    Published(r"laguna-xs", OFFICIAL, (("VLLM_USE_DEEP_GEMM", "0"),)),
)


@dataclass(frozen=True, slots=True)
class Reported:
    """A pair of engine and model that was reported to fail on a Spark."""

    engine: str
    model: str
    what: str


# A public registry of deployments (2026-01): failed on a DGX Spark.
_REPORTED: Final = (
    Reported("vllm", r"qwen3-30b-a3b-(nvfp4|fp4)", "it loads and then serves nothing"),
    Reported("vllm", r"mistral-small-3\.2-24b.*nvfp4", "its tokenizer is not taken"),
    Reported("trtllm", r"qwen3-next", "its gated DeltaNet attention is not supported"),
    Reported("trtllm", r"nemotron-(3-)?nano|nemotron3-nano|nemotron-cascade", "Mamba layers are not supported"),
    Reported("trtllm", r"seed-oss-36b.*nvfp4", "compressed-tensors NVFP4 is not supported"),
    Reported("sglang", r"qwen3-next.*nvfp4", "its kernels need more shared memory than the GPU has"),
)


def chunked_prefill_ssm_moe(case: Case) -> Advice | None:
    """The guide, 7.1.3: nine times slower on SSM+MoE. Not Qwen3.6, whose official recipe has it."""
    if not case.is_vllm or not case.switch("--enable-chunked-prefill") or case.named(QWEN3_6):
        return None
    checkpoint = case.situation.checkpoint
    told = checkpoint is not None and bool(checkpoint.is_moe and checkpoint.has_ssm)
    documented = case.named(QWEN3_5 + r"-\d+b-a\d+b")
    if not told and not case.named(_SSM_MOE):
        return None
    return Advice(
        Severity.ERROR if documented else Severity.WARNING,
        "Chunked prefill makes mixtures of experts with state-space layers about nine times slower on a Spark.",
        f"--enable-chunked-prefill on {case.preset.model}",
        "Leave it out: it belongs to the recipe of Qwen3.6-NVFP4.",
        case.without("enable_chunked_prefill"),
    )


def moe_backend_gemma_26b(case: Case) -> Advice | None:
    """The card: VLLM_CUTLASS or Marlin; FlashInfer's TRT-LLM kernels do not take it yet."""
    if not case.is_vllm or not case.named(GEMMA_26B):
        return None
    backend = (case.option("--moe-backend") or "auto").lower()
    if backend in _MOE_OF_GEMMA_26B:
        return None
    return Advice(
        Severity.WARNING if backend == "auto" else Severity.ERROR,
        "Gemma-4-26B-A4B runs on Marlin's or CUTLASS's MoE kernels only.",
        f"--moe-backend {backend}",
        "Set moe_backend=marlin.",
        case.setting("moe_backend", "marlin"),
    )


def tensor_parallel_gemma_26b(case: Case) -> Advice | None:
    """The card: expert parallel works, tensor parallel does not yet."""
    size = case.integer("--tensor-parallel-size")
    if not case.is_vllm or not case.named(GEMMA_26B) or size is None or size <= 1:
        return None
    return Advice(
        Severity.ERROR,
        "vLLM serves Gemma-4-26B-A4B NVFP4 on one GPU only.",
        f"--tensor-parallel-size {size}",
        "Set tensor_parallel=1.",
        case.setting("tensor_parallel", "1"),
    )


def trust_remote_code_missing(case: Case) -> Advice | None:
    """Their recipes run code of the checkpoint: a processor, a configuration."""
    if not case.is_vllm or not case.named(_TRUST) or case.switch("--trust-remote-code"):
        return None
    return Advice(
        Severity.WARNING,
        "This model's recipe has --trust-remote-code, and the command lacks it.",
        f"{case.preset.model} without --trust-remote-code",
        "Set trust_remote_code=true. It runs Python from the model's repository.",
        case.setting("trust_remote_code", "true"),
    )


def expert_parallel_missing(case: Case) -> Advice | None:
    """Section 8 of the guide. On one GPU only the recipe of gpt-oss has it; on several it spreads the experts."""
    size = case.integer("--tensor-parallel-size") or 1
    if not case.is_vllm or case.switch("--enable-expert-parallel") or not case.named(_EXPERT_PARALLEL):
        return None
    if size <= 1 and not case.named(r"gpt-oss"):
        return None
    return Advice(
        Severity.NOTE,
        "This mixture of experts is published with expert parallel.",
        f"{case.preset.model} without --enable-expert-parallel",
        "Set enable_expert_parallel=true.",
        case.setting("enable_expert_parallel", "true"),
    )


def recipe_environment_missing(case: Case) -> Advice | None:
    """What a published recipe sets, and this launch does not or otherwise."""
    image = name_of(case.situation.plan.spec.image)
    recipe = next((each for each in _ENVIRONMENT if case.named(each.model) and image == each.image), None)
    wanted = recipe.env if recipe is not None else ()
    missing = [(name, value) for name, value in wanted if case.env.get(name) != value]
    if not case.is_vllm or not missing:
        return None
    return Advice(
        Severity.WARNING,
        "Variables of this model's published recipe are missing.",
        ", ".join(f"{name}={value}" for name, value in missing),
        "Set them: they choose the kernels that were tested on a Spark.",
        tuple((f"env.{name}", value) for name, value in missing),
    )


def phi_4_without_scipy(case: Case) -> Advice | None:
    """NVIDIA/dgx-spark-playbooks#69: its processor imports scipy, which NVIDIA's images lack."""
    if not case.is_vllm or not case.named(r"phi-4-multimodal"):
        return None
    if name_of(case.situation.plan.spec.image) != NGC or "scipy" in case.words:
        return None
    return Advice(
        Severity.ERROR,
        "Phi-4-multimodal needs scipy, and NVIDIA's vLLM images lack it.",
        f"{case.situation.plan.spec.image}, and the command installs no scipy",
        "Start from the preset phi-4-multimodal-instruct-nvfp4, which installs it before the server, or use an image "
        "that has it.",
    )


def gemma_coder_without_thinking(case: Case) -> Advice | None:
    """The card: trained to think first; its answers are worse otherwise."""
    kwargs = case.parts("--default-chat-template-kwargs")
    if not case.is_vllm or not case.named(GEMMA_CODER) or kwargs.get("enable_thinking") in (True, "true"):
        return None
    return Advice(
        Severity.NOTE,
        "gemma-4-12B-coder answers worse unless it thinks first.",
        "no enable_thinking in --default-chat-template-kwargs",
        'Send chat_template_kwargs {"enable_thinking":true} with each request, or make it the default.',
        case.setting("default_chat_template_kwargs", '{"enable_thinking":true}'),
    )


def diffusion_attention(case: Case) -> Advice | None:
    """The card's only published attention kernels."""
    backend = case.option("--attention-backend")
    if not case.is_vllm or not case.named("diffusiongemma") or (backend or "").upper() == "TRITON_ATTN":
        return None
    return Advice(
        Severity.WARNING,
        "DiffusionGemma is published with Triton's attention only.",
        f"--attention-backend {backend or 'auto'}",
        "Set attention_backend=TRITON_ATTN.",
        case.setting("attention_backend", "TRITON_ATTN"),
    )


def reported_failing(case: Case) -> Advice | None:
    """What others could not get to run on a Spark."""
    known = next((each for each in _REPORTED if each.engine == case.preset.engine and case.named(each.model)), None)
    if known is None or not case.may_be_spark:
        return None
    return Advice(
        Severity.WARNING,
        f"This model was reported to fail in {known.engine} on a DGX Spark: {known.what}.",
        f"{case.preset.model} in {known.engine} (reported in January 2026)",
        "Look for a newer image, or choose another engine or model.",
    )


def cute_arch(case: Case) -> Advice | None:
    """The b12x kernels read the architecture from this variable; a Spark is sm_121a, a desktop Blackwell sm_120a."""
    arch = case.env.get("CUTE_DSL_ARCH", "")
    b12x = any("b12x" in case.env.get(name, "") for name in ("VLLM_NVFP4_GEMM_BACKEND", "VLLM_FLASHINFER_MOE_BACKEND"))
    if not case.is_vllm or not case.may_be_spark or arch == "sm_121a" or (not arch and not b12x):
        return None
    return Advice(
        Severity.WARNING,
        "The kernels would be compiled for another GPU than a Spark's.",
        f"CUTE_DSL_ARCH {arch or 'unset'}" + (" with the b12x kernels" if b12x else ""),
        "Set env.CUTE_DSL_ARCH=sm_121a.",
        (("env.CUTE_DSL_ARCH", "sm_121a"),),
    )


def backend_of_another_recipe(case: Case) -> Advice | None:
    """Section 8 of the guide: leave kernels to vLLM unless the model's tested recipe pins them."""
    overrides, recipe = case.situation.overrides, case.preset.command.replace("_", "-")
    added: dict[str, str] = {}
    for key in _BACKENDS:
        name = "--" + key.replace("_", "-")
        given = vllm.option_value(overrides.extra_args, name) or dict(overrides.values).get(key)
        if given is not None and name not in recipe and case.preset.default(key) is None:
            added[key] = f"{name} {given}"
    if not case.is_vllm or not added:
        return None
    return Advice(
        Severity.NOTE,
        "Kernels are pinned that this recipe leaves to vLLM.",
        ", ".join(added.values()),
        "Leave them out, unless you measure: they belong to the recipe that they were tested with.",
        (("without", ",".join(added)),),
    )


def cuda_graphs_off(case: Case) -> Advice | None:
    """Section 8 of the guide: keep CUDA graphs."""
    if not case.is_vllm:
        return None
    eager = case.switch("--enforce-eager")
    how = "--enforce-eager" if eager else _low_level(case)
    if not how:
        return None
    return Advice(
        Severity.WARNING,
        "CUDA graphs are off: each step pays its launches again.",
        how,
        "Leave it out, unless you look for an error.",
        case.setting("enforce_eager", "false") if eager else (),
    )


def _low_level(case: Case) -> str:
    """The words that turn compilation or graphs off: `-O0`, `-O.mode=0`, `{"cudagraph_mode":"NONE"}`."""
    for name in ("--compilation-config", "-O"):
        config = case.parts(name)
        level = next((str(config[key]) for key in ("level", "mode") if key in config), "")
        graphs = str(config.get("cudagraph_mode", "")).upper()
        if graphs == "NONE" or (level in ("0", "NONE") and not graphs):
            return f"{name} {compact(config)}"
    for name in ("-O", "--optimization-level"):
        if vllm.option_value(case.words, name) == "0":
            return f"{name} 0"
    return "-O0" if "-O0" in case.words else ""


RULES: Final[Mapping[str, Rule]] = {
    "chunked_prefill_ssm_moe": chunked_prefill_ssm_moe,
    "moe_backend_gemma_26b": moe_backend_gemma_26b,
    "tensor_parallel_gemma_26b": tensor_parallel_gemma_26b,
    "trust_remote_code_missing": trust_remote_code_missing,
    "expert_parallel_missing": expert_parallel_missing,
    "recipe_environment_missing": recipe_environment_missing,
    "phi_4_without_scipy": phi_4_without_scipy,
    "gemma_coder_without_thinking": gemma_coder_without_thinking,
    "diffusion_attention": diffusion_attention,
    "reported_failing": reported_failing,
    "cute_arch": cute_arch,
    "backend_of_another_recipe": backend_of_another_recipe,
    "cuda_graphs_off": cuda_graphs_off,
}


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


RULES_QUANTIZATION_RULES: Final[Mapping[str, Rule]] = {
    "modelopt_without_quantization": modelopt_without_quantization,
    "compressed_tensors_with_quantization": compressed_tensors_with_quantization,
    "quantization_differs": quantization_differs,
    "fp8_kv_qwen3_5": fp8_kv_qwen3_5,
    "nvfp4_kv": nvfp4_kv,
    "llama_cpp_q4_kv": llama_cpp_q4_kv,
}
