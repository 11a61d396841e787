"""The FP4 verdict and the facts that it rests on. What real logs say was read in them."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_tui.domain.logs.kernels import Fp4, KernelPath, fp4_verdict, path_of
from spark_tui.domain.logs.timeline import Kernel, Topic
from spark_tui.domain.models.checkpoint import CheckpointFacts, Quantization, WeightFormat
from tests.engine_logs import banner, core, facts_of, track
from tests.log_fixtures import run_log

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


W4A4 = checkpoint(WeightFormat.NVFP4)
W4A16 = checkpoint(WeightFormat.NVFP4_W4A16)
MIXED = checkpoint(WeightFormat.FP8, WeightFormat.NVFP4, WeightFormat.NVFP4_W4A16)


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


@pytest.mark.parametrize(("path", "name"), NAMES)
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


@pytest.mark.parametrize(("path", "name", "words"), MOE)
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


@pytest.mark.parametrize(("line", "kernel"), OTHERS)
def test_kernels_of_other_formats_are_read(line: str, kernel: tuple[str, str, str]) -> None:
    (found,) = facts_of(core(line)).kernels
    assert (found.part, found.format, found.name) == kernel


# --- verdicts ---------------------------------------------------------------------------------------------


@dataclass
class Case:
    """A start that chose these kernels, with what else is known, and its verdict."""

    name: str
    lines: list[str]
    verdict: Fp4
    checkpoint: CheckpointFacts | None = None
    argv: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    version: str = "0.32.0"
    model: str = "acme/model-NVFP4"
    args: str = ""
    guess: bool = False
    override: tuple[tuple[str, str], ...] = ()
    words: str = ""

    def __str__(self) -> str:
        return self.name


MARLIN = linear("MarlinNvFp4LinearKernel")
CUTLASS = linear("FlashInferCutlassNvFp4LinearKernel")
ASK_LINEAR = (("linear_backend", "flashinfer_cutlass"),)
ASK_MOE = (("moe_backend", "flashinfer_cutlass"),)

CASES = [
    Case("the guide's line", [linear("NvFp4LinearBackend.VLLM_CUTLASS")], Fp4.NATIVE, version="0.19.0"),
    Case("experts alone", [moe("FLASHINFER_CUTLASS")], Fp4.NATIVE),
    Case("a W4A4 checkpoint", [CUTLASS, moe("VLLM_CUTLASS")], Fp4.NATIVE, W4A4),
    Case("a mixed checkpoint", [CUTLASS, MARLIN, WARNING], Fp4.NATIVE, MIXED, words="some layers weight-only"),
    # The guide's own recipe for Qwen3.6-35B: Marlin for the experts, by a flag.
    Case(
        "the guide's pinned Marlin", [CUTLASS, moe("MARLIN"), WARNING], Fp4.WEIGHT_ONLY_INTENDED, W4A4,
        argv=("vllm", "serve", "nvidia/Qwen3.6-35B-A3B-NVFP4", "--moe-backend", "marlin"),
        override=(("moe_backend", "auto"),), words="moe_backend=marlin",
    ),
    Case(
        "the same, as the log repeats it", [moe("MARLIN"), WARNING], Fp4.WEIGHT_ONLY_INTENDED,
        args="'moe_backend': 'marlin', 'speculative_config': {'method': 'mtp', 'moe_backend': 'triton'}",
        override=(("moe_backend", "auto"),), words="moe_backend=marlin",
    ),
    Case(
        "a pin in a shell", [moe("MARLIN")], Fp4.WEIGHT_ONLY_INTENDED, W4A4,
        argv=("bash", "-lc", "exec vllm serve m --moe-backend=marlin --port 8000"), override=(("moe_backend", "auto"),),
    ),
    Case(
        "a pin for both", [MARLIN, moe("MARLIN")], Fp4.WEIGHT_ONLY_INTENDED, W4A4,
        argv=("vllm", "serve", "m", "--linear-backend", "marlin", "--moe-backend", "marlin"),
        override=(("linear_backend", "auto"), ("moe_backend", "auto")),
    ),
    Case(
        "a pin by variable", [MARLIN], Fp4.WEIGHT_ONLY_INTENDED, W4A4, version="0.20.2",
        environment={"VLLM_NVFP4_GEMM_BACKEND": "marlin"}, words="VLLM_NVFP4_GEMM_BACKEND=marlin",
    ),
    Case(
        "a variable of unknown value", [MARLIN], Fp4.WEIGHT_ONLY_INTENDED, W4A4, version="0.20.2",
        environment={"VLLM_NVFP4_GEMM_BACKEND": ""}, guess=True,
    ),
    Case(
        "FlashInfer switched off", [moe("MARLIN")], Fp4.WEIGHT_ONLY_INTENDED, W4A4,
        environment={"VLLM_USE_FLASHINFER_MOE_FP4": "0"},
    ),
    Case(
        "a pin of one part does not explain the other", [MARLIN, moe("MARLIN")], Fp4.WEIGHT_ONLY_FALLBACK, W4A4,
        argv=("vllm", "serve", "m", "--moe-backend", "marlin"), override=(*ASK_LINEAR, *ASK_MOE),
    ),
    Case(
        "the drafter's pin is not the model's", [moe("MARLIN")], Fp4.WEIGHT_ONLY_FALLBACK, W4A4,
        argv=("vllm", "serve", "m", "--speculative-config", '{"method":"mtp","moe_backend":"marlin"}'),
        override=ASK_MOE,
    ),
    Case("a W4A16 checkpoint", [MARLIN, WARNING], Fp4.WEIGHT_ONLY_INTENDED, W4A16, words="W4A16 checkpoint"),
    Case(
        "a W4A16 checkpoint by the log",
        ["Detected ModelOpt NVFP4 checkpoint (quant_algo=W4A16_NVFP4). Please note that the format is experimental.",
         MARLIN],
        Fp4.WEIGHT_ONLY_INTENDED, version="0.25.1",
    ),
    Case("a W4A16 checkpoint by its name", [MARLIN], Fp4.WEIGHT_ONLY_INTENDED, model="cybermotaz/nano-nvfp4-w4a16",
         guess=True),
    Case("W4A16 before kernels were named", [WARNING], Fp4.WEIGHT_ONLY_INTENDED, version="0.19.0", guess=True),
    Case("a W4A4 checkpoint on Marlin", [MARLIN, WARNING], Fp4.WEIGHT_ONLY_FALLBACK, W4A4, override=ASK_LINEAR),
    Case("Marlin and nothing else known", [MARLIN, WARNING], Fp4.WEIGHT_ONLY_FALLBACK, guess=True, override=ASK_LINEAR),
    Case(
        "experts on Marlin", [CUTLASS, moe("MARLIN"), WARNING], Fp4.WEIGHT_ONLY_FALLBACK, W4A4, override=ASK_MOE,
        words="MoE MARLIN",
    ),
    Case(
        "fallback before --linear-backend", [MARLIN], Fp4.WEIGHT_ONLY_FALLBACK, W4A4, version="0.20.2",
        override=(("env.VLLM_NVFP4_GEMM_BACKEND", "flashinfer-cutlass"),),
    ),
    # vllm#55397: picked on sm_121 for a W4A4 checkpoint, prefill lost 31 %.
    Case(
        "CuTe-DSL's W4A16 kernel", [linear("FlashInferCuteDslNvFp4W4A16LinearKernel")], Fp4.WEIGHT_ONLY_FALLBACK, W4A4,
        override=ASK_LINEAR,
    ),
    Case("another pin than Marlin", [MARLIN], Fp4.WEIGHT_ONLY_FALLBACK, W4A4, argv=("--linear-backend", "cutlass"),
         override=ASK_LINEAR),
    Case("gpt-oss on Marlin", ["Using 'MARLIN' Mxfp4 MoE backend.", WARNING], Fp4.WEIGHT_ONLY_INTENDED,
         checkpoint(WeightFormat.MXFP4, method="mxfp4"), words="MXFP4"),
    Case("gpt-oss without its config", ["Using 'TRITON' Mxfp4 MoE backend."], Fp4.WEIGHT_ONLY_INTENDED, guess=True),
    Case("gpt-oss on FP4 units", ["Using 'FLASHINFER_CUTLASS_MXFP4_MXFP8' Mxfp4 MoE backend."], Fp4.NATIVE),
    Case("old gpt-oss", ["Using Marlin backend"], Fp4.WEIGHT_ONLY_INTENDED, args="'quantization': 'mxfp4'", guess=True,
         version="0.16.0"),
    Case("emulation by name", [linear("EmulationNvFp4LinearKernel")], Fp4.EMULATION, W4A4),
    Case("emulated experts", [CUTLASS, moe("EMULATION")], Fp4.EMULATION),
    Case(
        "emulation in words",
        ["NVFP4 linear falling back to the slow and unoptimized emulation backend as no optimized backend is available "
         "(unavailable reasons: x)."],
        Fp4.EMULATION,
    ),
    Case("batch invariance on CUTLASS is no emulation",
         ["VLLM_BATCH_INVARIANT forces NVFP4 linear to use the CUTLASS backend for deterministic execution.",
          linear("CutlassNvFp4LinearKernel")], Fp4.NATIVE),
    Case("an FP8 checkpoint", [], Fp4.NOT_FP4, checkpoint(WeightFormat.FP8, method="fp8"), words="FP8"),
    Case("a BF16 checkpoint", [], Fp4.NOT_FP4, checkpoint(method=""), words="unquantized"),
    Case("awq in the arguments", [], Fp4.NOT_FP4, args="'quantization': 'awq'"),
    Case("modelopt may be anything", [], Fp4.UNKNOWN, args="'quantization': 'modelopt'"),
    Case("an NVFP4 checkpoint, and nothing in the log", [], Fp4.UNKNOWN, W4A4, words="FP4 model"),
    Case(
        "compressed-tensors with INT4 kernels",
        ["Using MarlinLinearKernel for mixed-precision linear", "Model loading took 17.8 GiB memory and 60.2 seconds"],
        Fp4.NOT_FP4, args="'quantization': 'compressed-tensors'", guess=True, words="INT4",
    ),
    Case("a kernel of tomorrow", [linear("QuantumNvFp4LinearKernel")], Fp4.UNKNOWN, W4A4),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_verdict_follows_from_format_flags_and_both_lines(case: Case) -> None:
    facts = facts_of([*banner(case.version, case.model, case.args), *core(*case.lines)])
    verdict = fp4_verdict(facts, case.checkpoint, case.argv, case.environment)
    assert verdict.verdict is case.verdict, verdict
    assert verdict.guess is case.guess
    assert verdict.change == case.override
    assert case.words in verdict.summary
    if case.verdict in (Fp4.WEIGHT_ONLY_FALLBACK, Fp4.WEIGHT_ONLY_INTENDED, Fp4.EMULATION):
        assert verdict.cost
        assert verdict.evidence
    if case.verdict in (Fp4.WEIGHT_ONLY_FALLBACK, Fp4.EMULATION):
        assert verdict.advice
    if WARNING in case.lines:
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
