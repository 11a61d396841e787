"""The rules before a launch: quiet about what is right, and each caution of the guide where its flag is copied to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_tui.base.checkpoint import CheckpointFacts, LayerKind, Quantization, RopeScaling, StateLayers
from spark_tui.base.engine.container import EnvVar, ImageFacts
from spark_tui.base.finding import Finding, Severity
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.quantities import GIB
from spark_tui.base.text import cell_width
from spark_tui.catalog.presets.model.overrides import Overrides, overrides_from_pairs, settings_text, with_change
from spark_tui.catalog.presets.model.plan import plan
from spark_tui.catalog.presets.model.preset import ContainerOptions, Origin, Preset, PresetFacts, RequiredFile
from spark_tui.catalog.presets.model.rules.check import RULES, check
from spark_tui.catalog.presets.model.rules.context import LaunchContext
from tests.cases import all_cases
from tests.shipped import SHIPPED_FILES

PATHS = HostPaths("/home/ada/vllm", "/home/ada/.cache/spark-tui", "/home/ada")
PRESETS = {preset.name: preset for preset in SHIPPED_FILES.load().presets if preset.min_nodes == 1}
A_SPARK: dict[str, Any] = {
    "is_spark": True,
    "sparks": 1,
    "has_hf_token": True,
    "missing_files": (),
}
HYBRID_MOE = CheckpointFacts(is_moe=True, states=(StateLayers(LayerKind.GDN, 30, 8192, 3, 524288),))

QWEN36_35B = "qwen3.6-35b-a3b-nvfp4"
QWEN36_27B = "qwen3.6-27b-nvfp4"
QWEN35 = "qwen3.5-35b-a3b"
LAGUNA = "laguna-xs.2-dflash"
CODER_MTP = "gemma-4-12b-coder-nvfp4-mtp"
GEMMA_26B = "gemma-4-26b-a4b-nvfp4"
GEMMA_31B = "gemma-4-31b-it-nvfp4"
NANO = "nemotron-3-nano-30b-a3b-nvfp4"
SUPER = "nemotron-3-super-120b-a12b-nvfp4"
SUPER_MTP = "nemotron-3-super-120b-a12b-nvfp4-mtp"
MISTRAL = "mistral-small-4-119b-nvfp4"
LLAMA = "llama-3.3-70b-instruct-nvfp4"
PHI = "phi-4-multimodal-instruct-nvfp4"
W4A16 = "nemotron3-nano-nvfp4-w4a16"
NEXT = "qwen3-next-80b-a3b-nvfp4"
NEXT_MTP = "qwen3-next-80b-a3b-nvfp4-mtp"
NGC = "nvcr.io/nvidia/vllm:26.04-py3"

AEON = PRESETS["qwen3.5-27b-dflash"]
"""Its image carries a DFlash build of its own and takes its settings from the environment."""


def situation(
    preset: Preset, pairs: dict[str, str] | None = None, facts: dict[str, Any] | None = None
) -> LaunchContext:
    overrides = overrides_from_pairs(pairs or {})
    return LaunchContext(plan(preset, overrides, PATHS), overrides, **(A_SPARK if facts is None else facts))


def by_id(found: tuple[Finding, ...]) -> dict[str, Finding]:
    return {finding.id: finding for finding in found}


# --- shipped presets --------------------------------------------------------------------------------------

W, N = Severity.WARNING, Severity.INFO
SHOWN = {
    "voxtral-mini-4b-realtime": {"many_sequences": N},
    "glm-5.3-flash-exl3": {"unknown_publisher": W, "path_not_mounted": N},
    "laguna-xs-2.1-dflash": {"utilization_unset": W, "floating_tag": N},
    "qwen3-embedding-8b": {},
    "qwen3-reranker-8b": {"path_not_mounted": N},
    "qwen3.8-27b-fp8": {"many_sequences": N},
    "qwen3.8-27b-nvfp4-dflash2": {},
    "qwen3.8-flash-next-nvfp4": {"mtp_k_too_high": N, "floating_tag": N},
    "cpu-smollm2": {},
    "diffusiongemma-26b-a4b-nvfp4": {"utilization_unset": W, "provisional_image": N, "floating_tag": N},
    "gemma-4-12b-coder-nvfp4": {"utilization_high": W, "gemma_coder_without_thinking": N, "floating_tag": N},
    CODER_MTP: {"utilization_high": W, "gemma_coder_without_thinking": N, "floating_tag": N},
    GEMMA_26B: {"floating_tag": N},
    "gemma-4-31b-it-dflash": {"floating_tag": N},
    GEMMA_31B: {"floating_tag": N},
    "gpt-oss-120b": {},
    "gpt-oss-20b": {},
    LAGUNA: {"utilization_unset": W, "floating_tag": N},
    LLAMA: {},
    MISTRAL: {"floating_tag": N},
    NANO: {"utilization_unset": W},
    "nemotron-3-nano-30b-a3b-nvfp4-1m": {"utilization_unset": W},
    SUPER: {"floating_tag": N},
    SUPER_MTP: {},
    "nemotron-cascade-2-30b-a3b-nvfp4": {"many_sequences": N},
    W4A16: {},
    PHI: {},
    "qwen3-next-80b-a3b-nvfp4": {"many_sequences": N, "shares_host": W},
    NEXT_MTP: {"speculation_under_load": W, "shares_host": W},
    QWEN35: {"floating_tag": N},
    QWEN36_27B: {"floating_tag": N},
    "qwen3.6-27b-nvfp4-mtp": {"mtp_unproven": N, "floating_tag": N},
    "qwen3.6-27b-nvfp4-yarn-1m": {"floating_tag": N},
    "qwen3-30b-a3b-gguf-llama-cpp": {"floating_tag": N},
    "qwen3-30b-a3b-nvfp4-trtllm": {},
    "qwen3-32b-ollama": {"floating_tag": N},
    "qwen3-8b-nvfp4-sglang": {"floating_tag": N},
    "qwen3.5-27b-dflash": {"floating_tag": N},
    "nemotron-3.5-lightning-nvfp4-dspark": {},
    "qwen3.8-27b-nvfp4-mtp": {"speculation_under_load": W},
    QWEN36_35B: {"floating_tag": N},
    "qwen3.6-35b-a3b-nvfp4-tools": {"floating_tag": N},
}
"""All that the presets show on one Spark. Another line here is noise, unless it says something that matters."""


def test_every_shipped_preset_is_held_to_what_it_shows() -> None:
    assert set(SHOWN) == set(PRESETS)


@all_cases("name", SHOWN)
def test_a_shipped_preset_shows_only_what_matters(name: str) -> None:
    found = check(situation(PRESETS[name]))
    assert {finding.id: finding.severity for finding in found} == SHOWN[name]


@all_cases("name", PRESETS)
@all_cases("facts", [A_SPARK, {}, {"is_spark": False}], ids=["spark", "unknown", "other"])
def test_a_shipped_preset_passes_its_own_rules(name: str, facts: dict[str, Any]) -> None:
    assert [
        finding for finding in check(situation(PRESETS[name], {}, facts)) if finding.severity is Severity.ERROR
    ] == []


def test_the_image_that_carries_its_own_dflash_is_not_refused() -> None:
    found = check(situation(AEON, {}, {**A_SPARK, "engine_version": "0.19.0"}))
    assert {finding.id for finding in found} == {"floating_tag"}


# --- cautions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Caution:
    """What someone does to a launch, and what must be said of it. `fix` None: no override helps."""

    id: str
    severity: Severity
    preset: Preset
    pairs: dict[str, str] = field(default_factory=dict)
    fix: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)


E = Severity.ERROR


def copied(name: str, words: str, **changes: Any) -> dict[str, Any]:
    """A flag copied to the end of a preset's command."""
    return {"preset": replace(PRESETS[name], **changes), "pairs": {"extra_args": words}}


def bare(name: str, *flags: str, **changes: Any) -> Preset:
    """A preset whose command lost some of its text."""
    command = PRESETS[name].command
    for flag in flags:
        assert flag in command
        command = command.replace(flag, "")
    return replace(PRESETS[name], command=command, **changes)


def quantized(method: str) -> dict[str, Any]:
    return {"checkpoint": CheckpointFacts(quantization=Quantization(method))}


MTP = """--speculative-config '{"method":"mtp","num_speculative_tokens":1}'"""
DFLASH = """--speculative-config '{"method":"dflash","model":"%s","num_speculative_tokens":8}'"""
SCHEDULED = """{"method":"mtp","num_speculative_tokens":3,"num_speculative_tokens_per_batch_size":[[1,4,3],[5,64,0]]}"""
NO_DRAFT = "speculation=off"

CAUTIONS = [
    # --- variables of an image with a start script
    Caution("image_variable_without_effect", W, PRESETS[NEXT], {"env.MAX_NUM_SEQS": "4"},
        "env.MAX_NUM_SEQS= max_num_seqs=4"),
    Caution("image_variable_without_effect", W, PRESETS[NEXT], {"env.MAX_MODEL_LENGTH": "4096"},
        "env.MAX_MODEL_LENGTH= max_model_len=4096"),
    Caution("image_variable_without_effect", W, PRESETS[NEXT], {"env.VLLM_NVFP4_SPARSE_V7": "1"},
        "env.VLLM_NVFP4_SPARSE_V7="),
    Caution("image_variable_without_effect", W, AEON, {"env.DFLASH_DRAFTR": "z-lab/Qwen3.5-27B-DFlash"},
        "env.DFLASH_DRAFTR= env.DFLASH_DRAFTER=z-lab/Qwen3.5-27B-DFlash"),
    Caution("recipe_environment_missing", W, PRESETS[NEXT], {"env.VLLM_NVFP4_GEMM_BACKEND": ""},
        "env.VLLM_NVFP4_GEMM_BACKEND=marlin"),
    Caution("recipe_environment_missing", W, PRESETS[NEXT_MTP],
        {"env.VLLM_USE_FLASHINFER_MOE_FP4": "1", "env.VLLM_TEST_FORCE_FP8_MARLIN": "0"},
        "env.VLLM_USE_FLASHINFER_MOE_FP4=0 env.VLLM_TEST_FORCE_FP8_MARLIN=1"),
    Caution("needs_gpu", W, PRESETS[QWEN36_27B], facts={"is_spark": False, "has_gpu": False}),
    # --- quantization
    Caution("modelopt_without_quantization", W, bare(GEMMA_31B, "--quantization modelopt"),
        fix="quantization=modelopt"),
    Caution("modelopt_without_quantization", W, bare(QWEN36_35B, "--quantization modelopt"),
        fix="quantization=modelopt"),
    Caution("modelopt_without_quantization", W, bare(LLAMA, "--quantization modelopt",
        facts=replace(PRESETS[LLAMA].facts, quantization="")), fix="quantization=modelopt"),
    Caution("compressed_tensors_with_quantization", E, **copied(QWEN36_27B, "--quantization modelopt"),
        fix="without=quantization"),
    Caution("compressed_tensors_with_quantization", E, **copied(MISTRAL, "-q=modelopt"), fix="without=quantization"),
    Caution("compressed_tensors_with_quantization", E, PRESETS[GEMMA_31B], facts=quantized("compressed-tensors"),
        fix="without=quantization"),
    Caution("compressed_tensors_with_quantization", N, **copied(QWEN36_27B, "--quantization compressed-tensors"),
        fix="without=quantization"),
    Caution("format_unread", W, PRESETS[QWEN36_27B], facts=quantized("exl3")),
    Caution("format_unread", W, PRESETS[QWEN36_27B], facts=quantized("own_format")),
    Caution("quantization_differs", E, **copied(GEMMA_31B, "--quantization fp8"), fix="quantization=modelopt"),
    Caution("quantization_differs", E, **copied("gpt-oss-20b", "--quantization modelopt"),
        fix="without=quantization"),
    Caution("quantization_differs", E, **copied(QWEN35, "--quantization modelopt"), fix="without=quantization"),
    # --- what was tried here
    Caution("marked_failed", W, PRESETS["gpt-oss-20b"], facts={"failed_here": "CUDA driver error 35"}),
    # --- KV cache
    Caution("fp8_kv_qwen3_5", E, **copied(QWEN35, "--kv-cache-dtype fp8"), fix="kv_cache_dtype=auto"),
    Caution("fp8_kv_qwen3_5", E, PRESETS[QWEN35], {"kv_cache_dtype": "fp8_e4m3"}, "kv_cache_dtype=auto"),
    Caution("fp8_kv_qwen3_5", W, replace(PRESETS[QWEN35], model="Intel/Qwen3.5-397B-A17B-int4-AutoRound"),
        {"kv_cache_dtype": "fp8"}, "kv_cache_dtype=auto"),
    Caution("nvfp4_kv", W, PRESETS[QWEN36_35B], {"kv_cache_dtype": "nvfp4"}, "kv_cache_dtype=auto"),
    Caution("llama_cpp_q4_kv", W, Preset("nano-gguf", Origin.USER, "f", "org/model",
        "ghcr.io/ggml-org/llama.cpp:server-cuda13-b8399", "llama-cpp",
        command="llama-server -m /models/m.gguf --cache-type-k q4_0 --cache-type-v q4_0 --port 8080"),
        fix="cache_type_k=q8_0 cache_type_v=q8_0"),
    Caution("llama_cpp_slow_kv", W, Preset("nano-gguf", Origin.USER, "f", "org/model",
        "ghcr.io/ggml-org/llama.cpp:server-cuda13-b8399", "llama-cpp",
        command="llama-server -m /models/m.gguf --cache-type-k turbo4 --cache-type-v turbo4 --port 8080"),
        fix="cache_type_k=q8_0 cache_type_v=q8_0"),
    # --- speculation
    Caution("speculative_config_unreadable", E, **copied(QWEN36_27B, "--speculative-config mtp"), fix=NO_DRAFT),
    Caution("speculation_under_load", W, PRESETS[QWEN36_35B], {"max_num_seqs": "64"}, "max_num_seqs=4"),
    Caution("speculation_gone_flag", E, **copied(QWEN36_35B, "--speculative-disable-by-batch-size 32"),
        fix="without=speculative_disable_by_batch_size"),
    Caution("speculation_gone_key", W, PRESETS["qwen3.6-27b-nvfp4-mtp"],
        {"speculative_config": '{"method":"mtp","num_speculative_tokens":3,"disable_by_batch_size":32}'},
        'speculative_config={"method":"mtp","num_speculative_tokens":3}'),
    Caution("gpt_oss_eagle3", W, **copied("gpt-oss-120b", "--spec-method eagle3"), fix=NO_DRAFT),
    Caution("ngram_on_prose", N, **copied(W4A16,
        """--speculative-config '{"method":"ngram","num_speculative_tokens":4}'"""), fix=NO_DRAFT),
    Caution("dflash_with_fp8_kv", E, **copied(LAGUNA, "--kv-cache-dtype fp8"), fix="kv_cache_dtype=auto"),
    Caution("dflash_with_fp8_kv", E, PRESETS["gemma-4-31b-it-dflash"], {"kv_cache_dtype": "fp8"},
        "kv_cache_dtype=auto"),
    Caution("dflash_with_fp8_kv", W, **copied(MISTRAL,
        DFLASH % "org/Mistral-Small-4-DFlash" + " --kv-cache-dtype fp8"), fix="kv_cache_dtype=auto"),
    Caution("dflash_with_fp8_kv", E, AEON, {"env.KV_CACHE_DTYPE": "fp8"}, "env.KV_CACHE_DTYPE=auto"),
    Caution("dflash_without_drafter", E, **copied(QWEN36_27B,
        """--speculative-config '{"method":"dflash","num_speculative_tokens":7}'"""), fix=NO_DRAFT),
    Caution("dflash_old_vllm", E, replace(PRESETS[LAGUNA], image=NGC), fix=NO_DRAFT),
    Caution("dflash_old_vllm", E, replace(PRESETS[LAGUNA], image="vllm/vllm-openai:v0.19.1-cu130"), fix=NO_DRAFT),
    Caution("dflash_old_vllm", E, PRESETS[LAGUNA], facts={"engine_version": "0.20.2rc1"}, fix=NO_DRAFT),
    Caution("gemma_4_dflash_image", W, replace(PRESETS["gemma-4-31b-it-dflash"], image="vllm/vllm-openai:nightly"),
        fix=NO_DRAFT),
    Caution("drafter_of_another_model", E, **copied(QWEN36_27B, DFLASH % "z-lab/Qwen3.5-27B-DFlash"), fix=NO_DRAFT),
    Caution("drafter_of_another_model", W, AEON, {"env.DFLASH_DRAFTER": "RedHatAI/gemma-4-31B-it-speculator.dflash"},
        "env.DFLASH_DRAFTER="),
    Caution("drafter_of_another_model", W, **copied(QWEN36_27B, DFLASH % "z-lab/Qwen3.9-9B-DFlash"), fix=NO_DRAFT),
    Caution("mtp_old_vllm", W, replace(PRESETS[SUPER_MTP], image="nvcr.io/nvidia/vllm:26.02-py3"), fix=NO_DRAFT),
    Caution("mtp_old_vllm", W, replace(PRESETS[SUPER_MTP], image="vllm/vllm-openai:v0.18.1-cu130"), fix=NO_DRAFT),
    Caution("paired_draft_without_fp8_kv", E, PRESETS[CODER_MTP], {"kv_cache_dtype": "auto"}, "kv_cache_dtype=fp8"),
    Caution("paired_draft_without_fp8_kv", E, PRESETS[CODER_MTP], {"kv_cache_dtype": "nvfp4"}, "kv_cache_dtype=fp8"),
    Caution("paired_draft_without_fp8_kv", E, bare(CODER_MTP, "--kv-cache-dtype {kv_cache_dtype}"),
        fix="kv_cache_dtype=fp8"),
    Caution("mtp_k_too_high", W, PRESETS[SUPER_MTP],
        {"speculative_config": '{"method":"mtp","num_speculative_tokens":3}'}, "num_speculative_tokens=1"),
    Caution("mtp_k_too_high", N, PRESETS["qwen3.6-27b-nvfp4-mtp"],
        {"speculative_config": '{"method":"mtp","num_speculative_tokens":5}'}, "num_speculative_tokens=3"),
    Caution("mtp_k_too_high", W, PRESETS["qwen3.6-27b-nvfp4-mtp"],
        {"speculative_config": '{"method":"mtp","num_speculative_tokens":7}'}, "num_speculative_tokens=3"),
    Caution("mtp_k_no_multiple", E, PRESETS[QWEN36_35B], facts={"checkpoint": CheckpointFacts(mtp_declared=2,
        mtp_layers=2)}, fix="num_speculative_tokens=2"),
    Caution("mtp_without_layers", E, **copied(W4A16, MTP), fix=NO_DRAFT),
    Caution("mtp_without_layers", E, **copied(NANO, MTP), fix=NO_DRAFT),
    Caution("mtp_without_layers", E, PRESETS[QWEN36_35B], facts={"checkpoint": CheckpointFacts(mtp_layers=0)},
        fix=NO_DRAFT),
    Caution("mtp_unproven", N, **copied(MISTRAL, MTP), fix=NO_DRAFT),
    Caution("mtp_on_b12x_moe", W, PRESETS["qwen3.6-27b-nvfp4-mtp"], {"moe_backend": "flashinfer_b12x"},
        'speculative_config={"method":"mtp","num_speculative_tokens":3,"moe_backend":"triton"}'),
    Caution("mtp_graph_estimate", W, **copied(QWEN36_35B, "--moe-backend=flashinfer_cutlass"),
        fix="moe_backend=marlin"),
    Caution("qwen3_next_mtp_patch", E, **copied("qwen3-next-80b-a3b-nvfp4", MTP), fix=NO_DRAFT),
    Caution("qwen3_next_mtp_patch", E, **copied("qwen3-next-80b-a3b-nvfp4", MTP + " --no-enable-chunked-prefill"),
        fix=NO_DRAFT),
    Caution("qwen3_next_mtp_patch", W, bare(NEXT_MTP, "--no-enable-chunked-prefill")),
    # --- models
    Caution("chunked_prefill_ssm_moe", E, **copied(QWEN35, "--enable-chunked-prefill"),
        fix="without=enable_chunked_prefill"),
    Caution("chunked_prefill_ssm_moe", W, **copied("qwen3-next-80b-a3b-nvfp4", "--enable-chunked-prefill"),
        fix="without=enable_chunked_prefill"),
    Caution("chunked_prefill_ssm_moe", W, **copied("gpt-oss-20b", "--enable_chunked_prefill"),
        facts={"checkpoint": HYBRID_MOE}, fix="without=enable_chunked_prefill"),
    Caution("moe_backend_gemma_26b", E, **copied(GEMMA_26B, "--moe-backend flashinfer_trtllm"),
        fix="moe_backend=marlin"),
    Caution("moe_backend_gemma_26b", W, bare(GEMMA_26B, "--moe-backend marlin"), fix="moe_backend=marlin"),
    Caution("tensor_parallel_gemma_26b", E, PRESETS[GEMMA_26B], {"tensor_parallel": "2"}, "tensor_parallel=1",
        {"is_spark": True, "sparks": 2}),
    Caution("trust_remote_code_missing", W, bare(GEMMA_26B, "--trust-remote-code"), fix="trust_remote_code=true"),
    Caution("trust_remote_code_missing", W, bare(PHI, "--trust-remote-code")),
    Caution("expert_parallel_missing", N, bare("gpt-oss-120b", "--enable-expert-parallel"),
        fix="enable_expert_parallel=true"),
    Caution("expert_parallel_missing", N, PRESETS[SUPER], {"tensor_parallel": "2"}, "enable_expert_parallel=true",
        {"is_spark": True, "sparks": 2}),
    Caution("recipe_environment_missing", W, replace(PRESETS[QWEN36_35B], env=PRESETS[QWEN36_35B].env[1:]),
        fix="env.{}={}".format(*PRESETS[QWEN36_35B].env[0])),
    Caution("recipe_environment_missing", W, replace(PRESETS["diffusiongemma-26b-a4b-nvfp4"], env=()),
        fix="env.VLLM_USE_V2_MODEL_RUNNER=1"),
    Caution("phi_4_without_scipy", E, bare(PHI, "pip install --no-cache-dir scipy && ")),
    Caution("mistral_without_system_prompt", N, PRESETS[MISTRAL],
        facts={"missing_files": PRESETS[MISTRAL].facts.required_files}),
    Caution("gemma_coder_without_thinking", N, PRESETS[CODER_MTP],
        fix='default_chat_template_kwargs={"enable_thinking":true}'),
    Caution("diffusion_attention", W, bare("diffusiongemma-26b-a4b-nvfp4", "--attention-backend TRITON_ATTN"),
        fix="attention_backend=TRITON_ATTN"),
    Caution("reported_failing", W, replace(PRESETS[QWEN35], model="nvidia/Qwen3-30B-A3B-NVFP4",
        command="vllm serve {model}")),
    Caution("reported_failing", W, replace(PRESETS["qwen3-8b-nvfp4-sglang"], model="nvidia/Qwen3-30B-A3B-NVFP4")),
    Caution("reported_failing", W, replace(PRESETS[W4A16], image="nvcr.io/nvidia/vllm:25.09-py3")),
    Caution("reported_failing", W, replace(PRESETS[W4A16], model="nvidia/Nemotron-3-Nano-Omni-30B-A3B-NVFP4")),
    Caution("reported_failing", N, replace(PRESETS["qwen3-30b-a3b-nvfp4-trtllm"],
        model="nvidia/Llama-4-Scout-17B-16E-Instruct-NVFP4")),
    Caution("cute_arch", W, PRESETS[QWEN36_35B], {"env.CUTE_DSL_ARCH": "sm_120a"}, "env.CUTE_DSL_ARCH=sm_121a"),
    Caution("cute_arch", W, replace(PRESETS[W4A16], env=PRESETS[W4A16].env[1:]), fix="env.CUTE_DSL_ARCH=sm_121a"),
    Caution("backend_of_another_recipe", N, **copied(LLAMA, "--attention-backend flashinfer --moe-backend=marlin"),
        fix="without=attention_backend,moe_backend"),
    Caution("cuda_graphs_off", W, **copied("gpt-oss-20b", "--enforce-eager"), fix="enforce_eager=false"),
    Caution("cuda_graphs_off", W, **copied("gpt-oss-20b", "-O0")),
    # --- memory
    Caution("utilization_unset", W, bare(QWEN35, "--gpu-memory-utilization {gpu_memory_utilization}"),
        fix="gpu_memory_utilization=0.85"),
    Caution("utilization_high", W, PRESETS[GEMMA_31B], {"gpu_memory_utilization": "0.92"},
        "gpu_memory_utilization=0.85"),
    Caution("utilization_high", E, PRESETS[GEMMA_31B], {"gpu_memory_utilization": "0.98"},
        "gpu_memory_utilization=0.85"),
    Caution("kv_bytes_without_utilization", W, PRESETS[NANO], {"kv_cache_memory_bytes": "20G"},
        "gpu_memory_utilization=0.85"),
    Caution("context_beyond_model", W, PRESETS[QWEN36_27B], {"max_model_len": "1010000"}, "max_model_len=262144"),
    Caution("context_beyond_model", E, PRESETS[QWEN36_27B], {"extra_args": "--max-model-len 256K"},
        "max_model_len=131072", {"checkpoint": CheckpointFacts(max_position_embeddings=131072)}),
    Caution("context_beyond_model", W, PRESETS[NANO], {"max_model_len": "1048576"},
        "env.VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"),
    Caution("context_beyond_model", W, PRESETS[NANO], {"max_model_len": "2097152"}, "max_model_len=262144"),
    Caution("long_context_without_yarn", W, PRESETS[QWEN36_27B], {"max_model_len": "1010000",
        "env.VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}, "max_model_len=262144"),
    Caution("yarn_without_need", W, PRESETS["qwen3.6-27b-nvfp4-yarn-1m"], {"max_model_len": "65536"},
        "without=hf_overrides,rope_scaling"),
    Caution("qwen3_6_community_values", N, PRESETS[QWEN36_35B], {"gpu_memory_utilization": "0.4",
        "max_model_len": "262144"}, "gpu_memory_utilization=0.85 max_model_len=65536"),
    Caution("qwen3_6_community_values", N, PRESETS[QWEN36_35B], {"gpu_memory_utilization": "0.4"},
        "gpu_memory_utilization=0.85"),
    Caution("qwen3_6_community_values", N, PRESETS[QWEN36_35B], {"max_model_len": "262144"}, "max_model_len=65536"),
    Caution("ready_timeout_short", W, PRESETS[SUPER], {"env.VLLM_ENGINE_READY_TIMEOUT_S": "soon"},
        "env.VLLM_ENGINE_READY_TIMEOUT_S=3600"),
    Caution("many_sequences", N, PRESETS[MISTRAL], {"max_num_seqs": "128"}, "max_num_seqs=4"),
    Caution("many_sequences", N, PRESETS[NANO], {"max_num_seqs": "16"}, "max_num_seqs=4"),
    Caution("shm_large", W, replace(PRESETS[QWEN35], options=replace(PRESETS[QWEN35].options, shm_size=64 * GIB))),
    Caution("offload_to_cpu", W, **copied(LLAMA, "--cpu-offload-gb 20 --swap-space=4"),
        fix="without=cpu_offload_gb,swap_space"),
    Caution("fast_loader_too_large", W, **copied("gpt-oss-120b", "--load-format fastsafetensors",
        facts=replace(PRESETS[SUPER].facts, weights_bytes=110 * GIB)), fix="without=load_format"),
    Caution("sleep_mode", W, **copied(SUPER, "--enable-sleep-mode"), fix="without=enable_sleep_mode"),
    Caution("ready_timeout_short", W, PRESETS[SUPER], {"env.VLLM_ENGINE_READY_TIMEOUT_S": "600"},
        "env.VLLM_ENGINE_READY_TIMEOUT_S=3600"),
    # --- serving
    Caution("tool_choice_without_parser", E, bare(GEMMA_26B, "--tool-call-parser gemma4"),
        fix="tool_call_parser=gemma4"),
    Caution("tool_parser_without_choice", W, **copied(QWEN36_27B, "--tool-call-parser qwen3_coder"),
        fix="enable_auto_tool_choice=true"),
    Caution("parser_of_another_model", W, **copied(GEMMA_31B,
        "--reasoning-parser qwen3 --tool-call-parser qwen3_coder --enable-auto-tool-choice"),
        fix="reasoning_parser=gemma4 tool_call_parser=gemma4"),
    Caution("parser_of_another_model", W, **copied("qwen3-8b-nvfp4-sglang", "--tool-call-parser qwen25",
        model="Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8"), fix="tool_call_parser=qwen3_coder"),
    Caution("parser_of_another_model", W, replace(PRESETS["qwen3-30b-a3b-nvfp4-trtllm"],
        command="trtllm-serve {model} --tool_parser qwen3_coder"),
        fix="tool_call_parser=qwen3"),
    Caution("parser_of_another_model", W, PRESETS[QWEN36_27B], {"tool_call_parser": "hermes"},
        fix="tool_call_parser=qwen3_coder"),
    Caution("parser_newer_than_image", E, PRESETS[GEMMA_31B], facts={"engine_version": "0.18.2"},
        fix="tool_calls=off"),
    Caution("parser_plugin_missing", N, PRESETS[NANO], facts={"missing_files": PRESETS[NANO].facts.required_files}),
    Caution("parser_plugin_missing", E, bare(NANO, "--reasoning-parser-plugin /models/nano_v3_reasoning_parser.py"),
        fix="reasoning_parser_plugin=/models/nano_v3_reasoning_parser.py"),
    Caution("required_file_missing", N, PRESETS[NEXT_MTP],
        facts={"missing_files": (RequiredFile("fix_mtp_nvfp4_exclusion.py", url="https://example.org/fix.py"),)}),
    Caution("path_not_mounted", E, **copied(LLAMA,
        """--speculative-config '{"model":"/drafts/eagle","method":"eagle"}'""")),
    Caution("path_not_mounted", E, **copied(LLAMA, "--lora-modules sql=/adapters/sql")),
    Caution("path_not_mounted", N, **copied(LLAMA, "--chat-template calls.jinja")),
    Caution("path_not_mounted", W, **copied(LLAMA, "--ssl-keyfile /etc/ssl/own.key"),
        facts={"image": ImageFacts("sha256:1", "x")}),
    Caution("path_not_mounted", W, **copied(LLAMA, "--chat-template think.jinja", mods=("mods/tidy-think",))),
    Caution("parallel_beyond_machines", E, PRESETS[MISTRAL], {"tensor_parallel": "2"}, "tensor_parallel=1"),
    Caution("parallel_beyond_machines", E, **copied(LLAMA, "-tp 4"), fix="tensor_parallel=1"),
    Caution("parallel_beyond_machines", E, **copied(LLAMA, "--nnodes 2 --node-rank 0")),
    Caution("parallel_beyond_machines", W, PRESETS[MISTRAL], {"tensor_parallel": "2"}, "tensor_parallel=1",
        {"sparks": None}),
    Caution("nccl_interface", W, PRESETS[MISTRAL], {"tensor_parallel": "2"}, facts={"is_spark": True, "sparks": 2}),
    Caution("lan_without_key", W, PRESETS[GEMMA_31B], {"exposure": "lan", "api_key": "no"}, "api_key=yes"),
    Caution("lan_without_key", W, PRESETS["qwen3-next-80b-a3b-nvfp4"], {"exposure": "lan", "api_key": "no"},
        "api_key=yes"),
    Caution("gated_without_token", E, PRESETS[LLAMA], facts={"has_hf_token": False}),
    # --- rights
    Caution("takes_host", E, replace(PRESETS[GEMMA_31B], options=ContainerOptions(privileged=True))),
    Caution("shares_host", W, replace(PRESETS[GEMMA_31B], options=ContainerOptions(ipc="host"))),
    Caution("unknown_publisher", W, replace(PRESETS[GEMMA_31B], image="example.com/someone/vllm:1.0")),
    Caution("allowed_rights", N, replace(PRESETS[GEMMA_31B], options=ContainerOptions(privileged=True),
        allowed=("privileged",))),
    # --- images
    Caution("image_architecture", E, PRESETS[GEMMA_31B], facts={"is_spark": True, "image": ImageFacts("sha256:1", "x",
        architecture="amd64")}),
    Caution("stable_image", W, replace(PRESETS[GEMMA_31B], image="vllm/vllm-openai:latest")),
    Caution("stable_image", E, replace(PRESETS[GEMMA_31B], image="docker.io/vllm/vllm-openai:v0.19.1")),
    Caution("stable_image", W, replace(PRESETS[GEMMA_31B], image="vllm/vllm-openai:v0.20.2-ubuntu2404")),
    Caution("ngc_image_old", W, replace(PRESETS[LLAMA], image="nvcr.io/nvidia/vllm:25.11-py3")),
    Caution("nano_image", N, replace(PRESETS[NANO], image=NGC)),
    Caution("image_too_old_for_model", W, replace(PRESETS["gemma-4-12b-coder-nvfp4"], image=NGC)),
    Caution("image_too_old_for_model", W, replace(PRESETS["qwen3-8b-nvfp4-sglang"], model="Qwen/Qwen3.5-35B-A3B-FP8",
        image="lmsysorg/sglang:v0.5.8-cu130")),
    Caution("image_too_old_for_model", W, replace(PRESETS["qwen3-30b-a3b-nvfp4-trtllm"], model="Qwen/Qwen3.5-27B-FP8",
        image="nvcr.io/nvidia/tensorrt-llm/release:1.2.0rc4")),
    Caution("provisional_image", N, PRESETS["diffusiongemma-26b-a4b-nvfp4"]),
    Caution("floating_tag", N, PRESETS[QWEN36_27B]),
]  # fmt: skip


ABOUT_FACTS = {
    "image_architecture", "gated_without_token", "parser_plugin_missing",
    "required_file_missing", "mtp_k_no_multiple", "parallel_beyond_machines",
}  # fmt: skip
SPARK_ONLY = {
    "nvfp4_kv", "cute_arch", "utilization_unset", "utilization_high",
    "kv_bytes_without_utilization", "many_sequences", "shm_large", "offload_to_cpu", "sleep_mode",
    "parallel_beyond_machines", "reported_failing", "image_architecture", "stable_image", "ngc_image_old",
    "nano_image",
}  # fmt: skip
ANY_ENGINE = {
    "shm_large", "llama_cpp_q4_kv", "llama_cpp_slow_kv", "reported_failing", "mistral_without_system_prompt",
    "parser_plugin_missing", "required_file_missing", "lan_without_key", "gated_without_token", "image_architecture",
    "path_not_mounted",
    "stable_image", "ngc_image_old", "provisional_image", "floating_tag", "takes_host", "shares_host",
    "unknown_publisher", "allowed_rights", "needs_gpu", "marked_failed", "parser_of_another_model",
    "image_too_old_for_model",
}  # fmt: skip


def name_of(caution: Caution) -> str:
    return f"{caution.id}-{caution.preset.name}"


def known(caution: Caution) -> LaunchContext:
    return situation(caution.preset, caution.pairs, {**A_SPARK, **caution.facts})


@all_cases("caution", CAUTIONS, ids=name_of)
def test_a_caution_is_said_where_its_flag_is_copied_to(caution: Caution) -> None:
    before = known(caution)
    findings = check(before)
    found = by_id(findings)
    assert caution.id in found
    assert found[caution.id].severity is caution.severity
    assert settings_text(found[caution.id].change) == (caution.fix or "")
    for finding in findings:
        assert finding.summary.endswith((".", "?"))
        assert finding.evidence
        assert len(finding.remedy) > 10
        assert "None" not in "".join((finding.summary, finding.remedy, *finding.evidence))
        assert "  " not in finding.summary + finding.remedy
    if caution.fix:
        overrides = with_change(before.overrides, found[caution.id].change)
        after = replace(before, overrides=overrides, plan=plan(caution.preset, overrides, PATHS))
        assert caution.id not in by_id(check(after)), "the fix ends it"


def test_every_rule_is_held_by_a_caution() -> None:
    assert {caution.id for caution in CAUTIONS} == set(RULES)


@all_cases("caution", CAUTIONS, ids=name_of)
def test_what_is_not_known_makes_no_error_and_another_machine_or_engine_has_its_own_rules(caution: Caution) -> None:
    before = known(caution)
    certain = {finding.id for finding in check(before) if finding.severity is Severity.ERROR}
    unsure = check(situation(caution.preset, caution.pairs, {}))
    errors = {finding.id for finding in unsure if finding.severity is Severity.ERROR}
    assert errors <= certain
    if caution.id in ABOUT_FACTS and (caution.facts or caution.pairs):
        assert caution.id not in errors
    other = replace(before, plan=replace(before.plan, preset=replace(caution.preset, runtime="sglang")))
    assert set(by_id(check(other))) <= ANY_ENGINE
    if caution.id in SPARK_ONLY:
        assert caution.id not in by_id(check(replace(before, is_spark=False)))


def test_the_worst_comes_first() -> None:
    found = check(situation(PRESETS[LAGUNA], {"kv_cache_dtype": "fp8"}))
    assert [finding.severity for finding in found] == [Severity.ERROR, Severity.WARNING, Severity.INFO]


# --- what must stay quiet ---------------------------------------------------------------------------------


@all_cases(
    ("rule", "preset", "pairs", "facts"),
    [
        ("fp8_kv_qwen3_5", PRESETS[QWEN36_35B], {"kv_cache_dtype": "fp8"}, {}),
        ("chunked_prefill_ssm_moe", PRESETS[QWEN36_35B], {}, {"checkpoint": HYBRID_MOE}),
        ("chunked_prefill_ssm_moe", PRESETS[QWEN35], {"enable_chunked_prefill": "no"}, {}),
        ("context_beyond_model", replace(PRESETS["qwen3.6-27b-nvfp4-yarn-1m"], env=()), {}, {}),
        ("context_beyond_model", PRESETS[QWEN36_27B], {"max_model_len": "1010000",
            "env.VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}, {}),
        ("long_context_without_yarn", PRESETS[QWEN36_27B], {"max_model_len": "1010000"}, {}),
        ("fast_loader_too_large", PRESETS["gpt-oss-120b"], {"load_format": "fastsafetensors"}, {}),
        ("ready_timeout_short", PRESETS["gpt-oss-20b"], {"env.VLLM_ENGINE_READY_TIMEOUT_S": "600"}, {}),
        ("tensor_parallel_gemma_26b", PRESETS[MISTRAL], {"tensor_parallel": "2"}, {}),
        ("expert_parallel_missing", PRESETS[LLAMA], {"tensor_parallel": "2"}, {"sparks": 2}),
        ("reported_failing", replace(PRESETS[W4A16], image="nvcr.io/nvidia/vllm:26.04-py3"), {}, {}),
        ("reported_failing", replace(PRESETS[W4A16], image="org/newer:1", env=(),
            model="nvidia/Nemotron-3-Nano-Omni-30B-A3B-NVFP4"), {}, {}),
        ("phi_4_without_scipy", bare(PHI, "pip install --no-cache-dir scipy && ", image="vllm/vllm-openai:nightly"),
            {}, {}),
        ("mtp_graph_estimate", PRESETS[QWEN36_35B], {"moe_backend": "flashinfer_cutlass",
            "kv_cache_memory_bytes": "20G"}, {}),
        ("qwen3_next_mtp_patch", PRESETS["qwen3-next-80b-a3b-nvfp4"],
            {"speculative_config": '{"method":"ngram","num_speculative_tokens":3}'}, {}),
        ("backend_of_another_recipe", PRESETS[QWEN36_35B], {"extra_args": "--moe-backend flashinfer_cutlass"}, {}),
        ("backend_of_another_recipe", replace(PRESETS[LLAMA], defaults=(*PRESETS[LLAMA].defaults,
            ("attention_backend", "flashinfer"))), {"attention_backend": "triton_attn"}, {}),
        ("mtp_old_vllm", replace(PRESETS[LAGUNA], image="nvcr.io/nvidia/vllm:26.02-py3"), {}, {}),
        ("paired_draft_without_fp8_kv", PRESETS[CODER_MTP], {"kv_cache_dtype": "auto",
            "speculative_config": '{"method":"dflash","model":"org/x-dflash"}'}, {}),
        ("paired_draft_without_fp8_kv", PRESETS[CODER_MTP], {"kv_cache_dtype": "auto",
            "speculative_config": '{"method":"mtp"}'}, {}),
        ("paired_draft_without_fp8_kv", PRESETS[SUPER_MTP],
            {"speculative_config": '{"method":"mtp","model":"org/draft"}'}, {}),
        ("dflash_with_fp8_kv", PRESETS[MISTRAL], {"kv_cache_dtype": "fp8",
            "speculative_config": '{"method":"dflash","model":"org/x-DFlash2","kv_cache_dtype":"auto"}'}, {}),
        ("stable_image", replace(PRESETS[GEMMA_31B], image="vllm/vllm-openai:deepseekv4"), {}, {}),
        ("stable_image", replace(PRESETS[GEMMA_31B], image="vllm/vllm-openai:v0.27.1"), {}, {}),
        ("dflash_old_vllm", PRESETS[LAGUNA], {}, {"engine_version": "0.33.0"}),
        ("dflash_old_vllm", replace(PRESETS[LAGUNA], image="nvcr.io/nvidia/vllm:26.08-py3"), {}, {}),
        ("quantization_differs", PRESETS[QWEN35], {"quantization": "fp8"}, {}),
        ("format_unread", PRESETS[QWEN36_27B], {}, quantized("compressed-tensors")),
        ("format_unread", PRESETS[QWEN36_27B], {}, quantized("")),
        ("quantization_differs", PRESETS[GEMMA_31B], {"quantization": "modelopt_fp4"}, {}),
        ("modelopt_without_quantization", bare(GEMMA_31B, "--quantization modelopt"), {},
            {"checkpoint": CheckpointFacts(quantization=Quantization("compressed-tensors"))}),
        ("mtp_without_layers", PRESETS[NANO], {"speculative_config": '{"method":"mtp"}'},
            {"checkpoint": CheckpointFacts(mtp_layers=1)}),
        ("mtp_without_layers", PRESETS[CODER_MTP], {}, {"checkpoint": CheckpointFacts(mtp_layers=0)}),
        ("mtp_k_too_high", PRESETS[LAGUNA], {}, {}),
        ("drafter_of_another_model", replace(PRESETS["gemma-4-31b-it-dflash"], model="nvidia/Gemma-4-31B-IT-NVFP4"),
            {}, {}),
        ("context_beyond_model", PRESETS[QWEN36_27B], {"max_model_len": "1010000"},
            {"checkpoint": CheckpointFacts(max_position_embeddings=262144, rope_scaling=RopeScaling("yarn", 4.0,
            262144))}),
        ("context_beyond_model", PRESETS["qwen3.6-27b-nvfp4-yarn-1m"], {},
            {"checkpoint": CheckpointFacts(max_position_embeddings=262144)}),
        ("long_context_without_yarn", PRESETS["nemotron-3-nano-30b-a3b-nvfp4-1m"], {},
            {"checkpoint": CheckpointFacts(max_position_embeddings=262144)}),
        ("speculation_under_load", PRESETS["qwen3.6-27b-nvfp4-mtp"], {"max_num_seqs": "64",
            "speculative_config": SCHEDULED}, {}),
        ("gated_without_token", PRESETS[LLAMA], {}, {"has_hf_token": False, "checkpoint": CheckpointFacts()}),
        ("mistral_without_system_prompt", PRESETS[MISTRAL], {}, {"has_system_prompt": True}),
        ("mistral_without_system_prompt", PRESETS[MISTRAL], {}, {}),
        ("required_file_missing", PRESETS[MISTRAL], {}, {"missing_files": PRESETS[MISTRAL].facts.required_files}),
        ("drafter_of_another_model", PRESETS[LLAMA],
            {"speculative_config": '{"model":"meta-llama/Llama-3.2-1B-Instruct","num_speculative_tokens":4}'}, {}),
        ("drafter_of_another_model", replace(PRESETS[QWEN36_27B], model="/models/target", name="mine",
            facts=PresetFacts()),
            {"speculative_config": '{"model":"z-lab/Qwen3.5-27B-DFlash","num_speculative_tokens":4}'}, {}),
        ("image_architecture", PRESETS[GEMMA_31B], {}, {"image": ImageFacts("sha256:1", "x")}),
        ("lan_without_key", PRESETS[GEMMA_31B], {"exposure": "lan"}, {}),
        ("image_architecture", PRESETS[GEMMA_31B], {}, {"image": ImageFacts("sha256:1", "x",
            architecture="arm64/v8")}),
        ("image_architecture", PRESETS[GEMMA_31B], {}, {"is_spark": False, "image": ImageFacts("sha256:1", "x",
            architecture="amd64")}),
        ("utilization_unset", PRESETS[NANO], {}, {"is_spark": False}),
        ("utilization_unset", PRESETS[NANO], {"kv_cache_memory_bytes": "20G"}, {}),
        ("utilization_unset", replace(AEON, env=AEON.env[:3]), {}, {}),
        ("stable_image", replace(PRESETS[GEMMA_31B], image="vllm/vllm-openai:gemma"), {}, {}),
        ("recipe_environment_missing", replace(PRESETS[NANO], image="vllm-node", env=()), {}, {}),
        ("recipe_environment_missing", replace(PRESETS[NEXT], model="org/Next-FP8", env=()), {}, {}),
        ("recipe_environment_missing", replace(PRESETS[NEXT], env=(), command="python vllm_serve_v7.py serve {model}"),
            {}, {}),
        ("image_variable_without_effect", PRESETS[NEXT], {"env.NCCL_DEBUG": "INFO", "env.MAX_NUM_SEQ": ""}, {}),
        ("image_variable_without_effect", AEON, {"env.MAX_NUM_SEQS": "8", "env.EXTRA_ARGS": "--seed 1"}, {}),
        ("image_variable_without_effect", replace(PRESETS[NEXT], command="python vllm_serve_v7.py serve {model}"),
            {"env.VLLM_NVFP4_SPARSE_V7": "1"}, {}),
        ("moe_backend_gemma_26b", replace(PRESETS[GEMMA_26B], model="google/gemma-4-26B-A4B-it"),
            {"moe_backend": "auto"}, {}),
        ("tensor_parallel_gemma_26b", replace(PRESETS[GEMMA_26B], model="google/gemma-4-26B-A4B-it"),
            {"tensor_parallel": "2"}, {}),
        ("mtp_on_b12x_moe", replace(PRESETS["qwen3.6-27b-nvfp4-mtp"], model="org/Qwen3.8-Flash-Next-NVFP4"),
            {"moe_backend": "b12x"}, {}),
        ("image_too_old_for_model", replace(PRESETS["gemma-4-12b-coder-nvfp4"], image="vllm/vllm-openai:v0.25.1"), {},
            {}),
        ("kv_bytes_without_utilization", PRESETS["cpu-smollm2"], {}, {}),
        ("needs_gpu", PRESETS["cpu-smollm2"], {}, {"has_gpu": False}),
        ("needs_gpu", PRESETS[QWEN36_27B], {}, {"has_gpu": None}),
        ("needs_gpu", PRESETS[QWEN36_27B], {}, {"has_gpu": True}),
        ("stable_image", replace(PRESETS[GEMMA_31B], image="vllm/vllm-openai:v0.20.2-cu130"), {}, {}),
        ("floating_tag", replace(PRESETS[QWEN36_27B], image="vllm/vllm-openai@sha256:" + "a" * 64), {}, {}),
        ("parallel_beyond_machines", PRESETS[MISTRAL], {"tensor_parallel": "2"}, {"sparks": 2}),
        ("cuda_graphs_off", PRESETS["gpt-oss-20b"], {"extra_args": "-O3"}, {}),
        ("cuda_graphs_off", PRESETS["gpt-oss-20b"],
            {"compilation_config": '{"mode":0,"cudagraph_mode":"FULL_DECODE_ONLY"}'}, {}),
        ("trust_remote_code_missing", bare(QWEN36_27B, "--trust-remote-code", model="Qwen/Qwen3.6-35B-A3B-FP8"), {},
            {}),
    ],
)  # fmt: skip
def test_what_is_right_is_not_reproached(
    rule: str, preset: Preset, pairs: dict[str, str], facts: dict[str, Any]
) -> None:
    assert rule not in by_id(check(situation(preset, pairs, {**A_SPARK, **facts})))


# --- fixes ------------------------------------------------------------------------------------------------


def test_a_fix_wins_over_what_the_overrides_say_of_the_same_option() -> None:
    before = overrides_from_pairs({"extra_args": "--kv-cache-dtype fp8 --seed 1", "kv_cache_dtype": "fp8"})
    assert with_change(before, (("kv_cache_dtype", "auto"),)) == Overrides(
        kv_cache_dtype="auto", extra_args=("--seed", "1")
    )


def test_a_removal_forgets_the_value_and_a_value_ends_a_removal() -> None:
    before = overrides_from_pairs({"quantization": "awq", "port": "8001"})
    removed = with_change(before, (("without", "quantization"),))
    assert removed == Overrides(port=8001, without=("quantization",))
    assert with_change(removed, (("quantization", "modelopt"),)) == Overrides(
        port=8001, values=(("quantization", "modelopt"),)
    )


def test_a_fix_that_a_script_has_no_place_for_is_not_offered() -> None:
    found = by_id(check(situation(bare(PHI, "--trust-remote-code"))))
    assert found["trust_remote_code_missing"].change == ()


# --- hostile input ----------------------------------------------------------------------------------------

FLAGS = (
    "--speculative-config", "-sc", "--max-num-seqs", "--kv-cache-dtype=fp8", "-O", "--hf-overrides", "-tp",
    "--gpu-memory-utilization", "--speculative-config.method", "dflash", "mtp", "--max-model-len", "999k",
    '{"method":"mtp","model":[],"num_speculative_tokens":{}}', "[" * 5000, '{"a":' * 2000, "--moe-backend",
)  # fmt: skip
WORDS = st.lists(st.sampled_from(FLAGS) | st.text(max_size=30), max_size=12)


@settings(max_examples=150)
@given(words=WORDS, value=st.text(max_size=300), name=st.sampled_from(sorted(PRESETS)))
def test_no_command_breaks_a_rule_or_the_screen(words: list[str], value: str, name: str) -> None:
    launch = plan(PRESETS[name], Overrides(), PATHS)
    spec = replace(
        launch.spec,
        image=PRESETS[name].image,
        command=("vllm", "serve", value, *words),
        env=(EnvVar("CUTE_DSL_ARCH", value), EnvVar("DFLASH_DRAFTER", value)),
    )
    for finding in check(LaunchContext(replace(launch, spec=spec, model=value), **A_SPARK)):
        text = finding.summary + "".join(finding.evidence) + finding.remedy
        assert all(cell_width(seen) <= 200 for seen in finding.evidence)
        assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in text)
