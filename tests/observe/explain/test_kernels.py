"""The FP4 verdict and the facts that it rests on. What real logs say was read in them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_tui.base.checkpoint import CheckpointFacts, Quantization, WeightFormat
from spark_tui.observe.explain.model.kernels import Fp4, KernelPath, fp4_verdict, path_of
from spark_tui.observe.explain.model.timeline import Kernel, Topic
from tests.cases import all_cases
from tests.engine_logs import banner, core, facts_of, track
from tests.log_fixtures import run_log, toml_cases

WARNING = (
    "Your GPU does not have native support for FP4 computation but FP4 quantization is being used. Weight-only FP4 "
    "compression will be used leveraging the Marlin kernel. This may degrade performance for compute-heavy workloads."
)
POTENTIAL = (
    "['FLASHINFER_TRTLLM', 'FLASHINFER_CUTEDSL', 'FLASHINFER_CUTEDSL_BATCHED', 'FLASHINFER_CUTLASS', 'VLLM_CUTLASS', "
    "'MARLIN', 'EMULATION']"
)


def checkpoint(*formats: WeightFormat, method: str = "modelopt") -> CheckpointFacts:
    return CheckpointFacts(quantization=Quantization(method, formats))


def moe(name: str) -> str:
    return f"Using '{name}' NvFp4 MoE backend out of potential backends: {POTENTIAL}."


def linear(name: str) -> str:
    return f"Using {name} for NVFP4 GEMM"


# --- real logs --------------------------------------------------------------------------------------------

CPU = "vllm-0.32-cpu-"


def test_the_real_gb10_start_is_native_by_both_lines_and_says_where_they_stand() -> None:
    lines = run_log("gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp")
    facts = facts_of(lines)
    verdict = fp4_verdict(facts)
    assert (verdict.linear, verdict.moe) == ("FlashInferCutlassNvFp4LinearKernel", "FLASHINFER_CUTLASS")
    assert (verdict.cost, verdict.change, verdict.guess) == ("", (), False)
    for proof in verdict.evidence:
        assert proof.line is not None
        assert proof.text in lines[proof.line]
    # The MXFP8 layers of this mixed checkpoint, the vision encoder's attention left out.
    assert [(k.part, k.format, k.name) for k in facts.kernels] == [
        ("linear", "NVFP4", "FlashInferCutlassNvFp4LinearKernel"),
        ("linear", "MXFP8", "FlashInferCutlassMxfp8LinearKernel"),
        ("moe", "NVFP4", "FLASHINFER_CUTLASS"),
    ]
    assert facts.attentions == ("FLASHINFER",)


def test_the_real_gb10_start_tells_what_it_was_asked_for_and_how_it_schedules() -> None:
    facts = facts_of(run_log("gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp"))
    assert (facts.gpu_memory_utilization, facts.max_num_seqs, facts.max_num_batched_tokens) == (0.8, 10, 32768)
    assert (facts.prefix_caching, facts.chunked_prefill, facts.async_scheduling) == (True, True, True)
    assert (facts.cudagraph_mode, facts.padding_percent, facts.attention_block) == ("PIECEWISE", 10.0, 2144)
    assert not any("dummy-key" in kept.text for kept in facts.evidence)


@pytest.mark.parametrize(
    ("name", "asynchronous"), [(f"{CPU}spec", False), (f"{CPU}01-first-start", None), (f"{CPU}json", None)]
)
def test_cpu_starts_tell_their_scheduling(name: str, asynchronous: bool | None) -> None:
    facts = facts_of(run_log(name))
    assert (facts.prefix_caching, facts.chunked_prefill, facts.device) == (True, True, "cpu")
    assert facts.async_scheduling is asynchronous
    assert facts.cudagraph_mode == "NONE"


# --- names by version -------------------------------------------------------------------------------------

NAMES = [
    *[(KernelPath.NATIVE, name) for name in (
        "flashinfer-cutlass", "flashinfer-trtllm", "flashinfer-cudnn", "cutlass",
        "NvFp4LinearBackend.VLLM_CUTLASS", "NvFp4LinearBackend.FLASHINFER_CUTLASS",
        "NvFp4LinearBackend.FLASHINFER_TRTLLM", "NvFp4LinearBackend.FLASHINFER_CUDNN", "NvFp4LinearBackend.FBGEMM",
        "FlashInferCutlassNvFp4LinearKernel", "CutlassNvFp4LinearKernel", "FlashInferTrtllmNvFp4LinearKernel",
        "FlashInferCudnnNvFp4LinearKernel", "FbgemmNvFp4LinearKernel", "FlashInferB12xNvFp4LinearKernel",
        "FlashInferCuteDslNvFp4LinearKernel", "B12xNvFp4LinearKernel", "TorchNvFp4LinearKernel",
    )],
    *[(KernelPath.WEIGHT_ONLY, name) for name in (
        "marlin", "NvFp4LinearBackend.MARLIN", "MarlinNvFp4LinearKernel", "HummingNvFp4LinearKernel",
        "FlashInferCuteDslNvFp4W4A16LinearKernel",
    )],
    *[(KernelPath.EMULATED, name) for name in ("NvFp4LinearBackend.EMULATION", "EmulationNvFp4LinearKernel")],
]  # fmt: skip


@all_cases(("path", "name"), NAMES)
def test_every_linear_kernel_of_every_version_is_read_and_known(path: KernelPath, name: str) -> None:
    facts = facts_of(core(linear(name)))
    assert facts.fp4_linear == name
    assert [path_of(kernel) for kernel in facts.kernels] == [path]


_POTENTIAL = "out of potential backends: " + POTENTIAL
MOE = [
    *[(KernelPath.NATIVE, name, "'{}' NvFp4 MoE backend") for name in (
        "B12X", "FLASHINFER_TRTLLM", "FLASHINFER_CUTLASS", "FLASHINFER_CUTEDSL", "FLASHINFER_CUTEDSL_BATCHED",
        "FLASHINFER_B12X", "FLASHINFER_MOE_EP_CUTEDSL", "VLLM_CUTLASS",
    )],
    *[(KernelPath.WEIGHT_ONLY, name, "'{}' NvFp4 MoE backend") for name in ("MARLIN", "HUMMING")],
    (KernelPath.EMULATED, "EMULATION", "'{}' NvFp4 MoE backend"),
    # 0.14
    *[(KernelPath.NATIVE, name, "{} backend for NvFp4 MoE") for name in (
        "FlashInfer CUTLASS", "FlashInfer TRTLLM", "FlashInfer CUTEDSL", "vLLM CUTASS",  # so spelt in 0.14
    )],
    (KernelPath.WEIGHT_ONLY, "vLLM MARLIN", "{} backend for NvFp4 MoE"),
]  # fmt: skip


@all_cases(("path", "name", "words"), MOE)
def test_every_moe_backend_of_every_version_is_read_and_known(path: KernelPath, name: str, words: str) -> None:
    facts = facts_of(
        core(f"Using {words.format(name)} {_POTENTIAL}." if "'" in words else f"Using {words.format(name)}")
    )
    assert (facts.fp4_moe, path_of(facts.kernels[0])) == (name, path)


OTHERS = [
    ("Using FlashInferCutlassMxfp8LinearKernel for MXFP8 GEMM",
     ("linear", "MXFP8", "FlashInferCutlassMxfp8LinearKernel")),
    ("Using flashinfer-cutlass backend for MXFP8 GEMM", ("linear", "MXFP8", "flashinfer-cutlass")),
    ("Using MarlinLinearKernel for mixed-precision linear", ("linear", "INT4", "MarlinLinearKernel")),
    ("Selected CutlassFP8ScaledMMLinearKernel for ModelOptFp8LinearMethod",
     ("linear", "FP8", "CutlassFP8ScaledMMLinearKernel")),
    ("Using TRITON Fp8 MoE backend out of potential backends: ['AITER', 'TRITON'].", ("moe", "FP8", "TRITON")),
    ("Using FlashInfer CUTLASS backend for FP8 MoE", ("moe", "FP8", "FlashInfer CUTLASS")),
    ("Using 'FLASHINFER_CUTLASS' MxFp8 MoE backend.", ("moe", "MXFP8", "FLASHINFER_CUTLASS")),
    ("Using 'MARLIN' WNA16 MoE backend.", ("moe", "INT4", "MARLIN")),
    ("Using TRITON backend for Unquantized MoE", ("moe", "BF16", "TRITON")),
    ("Using TRITON Unquantized MoE backend out of potential backends: ['TRITON'].", ("moe", "BF16", "TRITON")),
    ("Using 'MARLIN' Mxfp4 MoE backend.", ("moe", "MXFP4", "MARLIN")),
    ("Using FlashInferMxFp4LinearKernel for MXFP4 GEMM", ("linear", "MXFP4", "FlashInferMxFp4LinearKernel")),
]  # fmt: skip


@all_cases(("line", "kernel"), OTHERS)
def test_kernels_of_other_formats_are_read(line: str, kernel: tuple[str, str, str]) -> None:
    (found,) = facts_of(core(line)).kernels
    assert (found.part, found.format, found.name) == kernel


# --- verdicts ---------------------------------------------------------------------------------------------


MARLIN = linear("MarlinNvFp4LinearKernel")
CUTLASS = linear("FlashInferCutlassNvFp4LinearKernel")
CASES = toml_cases("kernel_verdicts")


@all_cases("case", CASES, ids=[case["name"] for case in CASES])
def test_the_verdict_follows_from_format_flags_and_both_lines(case: dict[str, Any]) -> None:
    version, model, lines = case.get("version", "0.32.0"), case.get("model", "acme/model-NVFP4"), case["lines"]
    facts = facts_of([*banner(version, model, case.get("args", "")), *core(*lines)])
    weights = None
    if "checkpoint" in case:
        weights = checkpoint(*map(WeightFormat, case["checkpoint"]), method=case.get("method", "modelopt"))
    verdict = fp4_verdict(facts, weights, case.get("argv", ()), case.get("environment"))
    assert (verdict.verdict, verdict.guess) == (case["verdict"], case.get("guess", False)), verdict
    assert dict(verdict.change) == case.get("override", {})
    assert case.get("words", "") in verdict.summary
    if verdict.verdict in (Fp4.WEIGHT_ONLY_FALLBACK, Fp4.WEIGHT_ONLY_INTENDED, Fp4.EMULATION):
        assert verdict.cost
        assert verdict.evidence
    if verdict.verdict in (Fp4.WEIGHT_ONLY_FALLBACK, Fp4.EMULATION):
        assert verdict.advice
    if WARNING in lines:
        assert "GB10 has FP4 units" in verdict.advice


def test_the_warning_alone_never_means_that_the_gpu_lacks_fp4() -> None:
    facts = facts_of(core(CUTLASS, MARLIN, WARNING))
    assert facts.proof(Topic.WEIGHT_ONLY)
    assert fp4_verdict(facts).verdict is Fp4.NATIVE


def test_a_new_start_in_the_same_log_begins_with_no_kernels() -> None:
    lines = [*banner("0.31.0"), *core(MARLIN), *banner("0.32.0"), *core(CUTLASS)]
    assert [kernel.name for kernel in facts_of(lines).kernels] == ["FlashInferCutlassNvFp4LinearKernel"]
    assert facts_of(lines).kernels[0].line == 7


def test_ranks_repeat_lines_and_facts_do_not() -> None:
    lines = [
        line.replace("EngineCore", f"Worker_TP{rank}") for rank in range(4) for line in core(CUTLASS, moe("MARLIN"))
    ]
    assert len(facts_of(lines).kernels) == 2


def test_a_drafter_with_another_attention_is_kept_beside_the_models() -> None:
    facts = facts_of(
        core(
            "Using backend AttentionBackendEnum.FLASH_ATTN for vit attention",
            "Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'FLASHINFER'].",
            "Using AttentionBackendEnum.TRITON_ATTN backend.",
        )
    )
    assert (facts.attention, facts.attentions) == ("FLASH_ATTN", ("FLASH_ATTN", "TRITON_ATTN"))


@pytest.mark.parametrize("text", ["Using FLASHINFER attention backend out of potential backends: ('FLASHINFER',)"])
def test_the_attention_backend_of_0_14(text: str) -> None:
    assert facts_of(core(text)).attentions == ("FLASHINFER",)


# --- properties -------------------------------------------------------------------------------------------

words = st.lists(st.sampled_from([
    "Using", "Selected", "Your", "NVFP4", "Unknown", "Add", "CUDA graph", "In v0.19,", "for NVFP4 GEMM", "MARLIN",
    "'X' NvFp4 MoE backend", "GiB", "-0.1", "99999999999999999999", "%", "{", "}", "'", "non-default args: ",
    "vLLM environment variable detected:", "setting cudagraph_mode=", "Free memory on device (", "/", ")", "\r",
]), max_size=12)  # fmt: skip


@given(st.lists(words.map(" ".join) | st.text(max_size=80), max_size=20))
@settings(max_examples=150, deadline=None)
def test_no_log_makes_the_rules_or_the_verdict_raise(messages: list[str]) -> None:
    timeline = track([*messages, *core(*messages)])
    verdict = fp4_verdict(timeline.facts, argv=tuple(messages), environment=dict.fromkeys(messages, ""))
    assert verdict.summary
    assert len(timeline.facts.evidence) < 200


@given(st.text(max_size=60), st.sampled_from(["linear", "moe"]), st.sampled_from(["NVFP4", "MXFP4"]))
def test_any_kernel_name_has_a_path(name: str, part: str, fmt: str) -> None:
    assert path_of(Kernel(part, fmt, name)) in KernelPath


def test_marlin_is_no_fallback_where_the_models_own_recipe_asks_for_it() -> None:
    """Avarok's image has its own kernels: with another vLLM the recipe says nothing."""
    facts = facts_of([*core(linear("MarlinNvFp4LinearKernel")), *core(moe("MARLIN"))])
    own = replace(facts, model="nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4", version="0.16.0rc2")
    found = {
        own: Fp4.WEIGHT_ONLY_INTENDED,
        replace(own, version="0.22.0"): Fp4.WEIGHT_ONLY_FALLBACK,
        replace(own, model="acme/model-NVFP4"): Fp4.WEIGHT_ONLY_FALLBACK,
        # NVIDIA's asks for it for the experts alone
        replace(own, model="nvidia/Qwen3.6-35B-A3B-NVFP4", version="0.22.0"): Fp4.WEIGHT_ONLY_FALLBACK,
    }
    assert {each: fp4_verdict(each, checkpoint(WeightFormat.NVFP4)).verdict for each in found} == found


@pytest.mark.parametrize("model", ["nvidia/Gemma-4-26B-A4B-NVFP4", "nvidia/Qwen3.6-35B-A3B-NVFP4"])
def test_experts_that_a_recipe_runs_on_marlin_are_left_there(model: str) -> None:
    """Alone they are meant; beside a linear kernel that fell back only that one is to be changed."""
    experts, both = (
        facts_of(core(moe("MARLIN"))),
        facts_of([*core(linear("MarlinNvFp4LinearKernel")), *core(moe("MARLIN"))]),
    )
    for known in (None, checkpoint(WeightFormat.NVFP4)):
        verdict = fp4_verdict(replace(experts, model=model), known)
        assert (verdict.verdict, verdict.change) == (Fp4.WEIGHT_ONLY_INTENDED, ())
        verdict = fp4_verdict(replace(both, model=model), known)
        assert verdict.verdict is Fp4.WEIGHT_ONLY_FALLBACK
        assert [key for key, _ in verdict.change] == ["linear_backend"]
        fell_back, _, meant = verdict.summary.partition("; ")
        assert ("MARLIN" in fell_back, "MARLIN" in meant) == (False, True)


def test_flashinfers_experts_are_not_proposed_beside_mtp() -> None:
    """The check of a launch warns of the pair: it froze a Spark."""
    lines = [*core(linear("MarlinNvFp4LinearKernel")), *core(moe("MARLIN")), *core(WARNING)]
    facts = facts_of(lines)
    checked = checkpoint(WeightFormat.NVFP4)
    assert "moe_backend" in dict(fp4_verdict(facts, checked).change)
    drafting = replace(facts, speculation="mtp 2")
    verdict = fp4_verdict(drafting, checked)
    assert verdict.verdict is Fp4.WEIGHT_ONLY_FALLBACK
    assert [key for key, _ in verdict.change] == ["linear_backend"]
    alone = fp4_verdict(replace(drafting, kernels=tuple(k for k in facts.kernels if k.part == "moe")), checked)
    assert (alone.change, "froze" in alone.advice) == ((), True)
