"""A whole log explained: every real one, by expectations that were written by reading it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_tui.base.checkpoint import CheckpointFacts, Quantization, WeightFormat
from spark_tui.base.engine.state import EngineState, Health
from spark_tui.observe.explain.model.explain import Explanation, LogExplainer, explain, explain_view
from spark_tui.observe.explain.model.kernels import Fp4
from spark_tui.observe.explain.model.sizing import concurrency_of
from spark_tui.observe.explain.model.timeline import EMPTY_TIMELINE, StartOutcome
from spark_tui.observe.explain.model.view import LogContext
from spark_tui.observe.explain.show import verdict_rows
from tests.cases import all_cases
from tests.engine_logs import PRESSED, banner, core, stats, view_of
from tests.log_fixtures import LOGS, expected, run_log


def read(lines: list[str], around: LogContext | None = None) -> Explanation:
    reader = LogExplainer()
    reader.feed_many(("", line) for line in lines)
    return reader.explanation(around)


CPU = "vllm-0.32-cpu-"
GB10 = "gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp"
EXPLAINED = {case["log"]: case["explained"] for case in expected(LOGS) if "explained" in case}


@all_cases("name", EXPLAINED)
def test_real_logs_are_explained(name: str) -> None:
    """As `explained` in expected.jsonl says; `kv` is GiB, tokens and concurrency. The outcome: see test_boot."""
    case, told = EXPLAINED[name], read(run_log(name))
    facts, cause = told.timeline.facts, told.cause
    assert (told.engine, facts.version, told.fp4.verdict) == (
        case.get("engine", "vllm"), case["version"], case["verdict"],
    )  # fmt: skip
    assert [facts.kv_gib, facts.kv_tokens, concurrency_of(facts)] == case["kv"]
    assert facts.speculation == case.get("speculation", "")
    assert (told.drafting.rate if told.drafting else None) == case.get("acceptance")
    assert ((cause.id, dict(cause.change)) if cause else ("", {})) == (case.get("cause", ""), case.get("override", {}))
    assert cause is None or not cause.guess
    assert [finding.id for finding in told.findings] == case.get("findings", [])


ENGINES = [
    ("[05/21/2026-21:03:22] [TRT-LLM] [I] Starting trtllm-serve", "trtllm"),
    ("llama_model_loader: loaded meta data with 35 key-value pairs", "llama-cpp"),
    ('time=2026-05-21T21:02:57Z level=INFO source=server.go:12 msg="starting"', "ollama"),
    ("(EngineCore pid=94) [TensorRT-LLM][DEBUG] SM121: skipping tile", "vllm"),
    ("PostgreSQL init process complete; ready for start up.", ""),
]


@pytest.mark.parametrize(("line", "engine"), ENGINES)
def test_the_engine_is_known_by_its_lines(line: str, engine: str) -> None:
    assert read([line]).engine == engine


def test_the_runtime_that_docker_tells_comes_before_the_lines() -> None:
    assert read(["hello"], LogContext(engine="sglang")).engine == "sglang"


# --- surroundings -----------------------------------------------------------------------------------------


def test_a_container_that_was_killed_is_explained_by_its_exit_code() -> None:
    lines = [*banner("0.32.0"), *core("Starting to load model acme/m...")]
    told = read(lines, LogContext(ended=True, exit_code=137))
    assert told.outcome is StartOutcome.FAILED
    assert told.cause is not None
    assert told.cause.id == "killed"


def test_a_container_that_could_not_be_started_is_explained_without_a_line() -> None:
    told = explain(EMPTY_TIMELINE, (), LogContext(exit_code=127, error="exec: vllm: executable file not found"))
    assert told.cause is not None
    assert told.cause.evidence


def test_flags_and_checkpoint_go_into_the_verdict() -> None:
    lines = core("Using MarlinNvFp4LinearKernel for NVFP4 GEMM")
    assert read(lines).fp4.verdict is Fp4.WEIGHT_ONLY_FALLBACK
    w4a16 = CheckpointFacts(quantization=Quantization("modelopt", (WeightFormat.NVFP4_W4A16,)))
    assert read(lines, LogContext(checkpoint=w4a16)).fp4.verdict is Fp4.WEIGHT_ONLY_INTENDED
    pinned = LogContext(argv=("vllm", "serve", "m", "--linear-backend", "marlin"))
    assert read(lines, pinned).fp4.verdict is Fp4.WEIGHT_ONLY_INTENDED


def test_a_hang_is_found_with_the_time_and_the_health() -> None:
    reader = LogExplainer()
    for second, running in ((0, 1), (10, 1)):
        reader.feed_many([(f"2026-04-01T18:00:{second:02d}Z", stats(second, running=running))])
    now = 1_775_066_400.0 + 300  # 2026-04-01T18:05:00Z
    told = reader.explanation(LogContext(health=Health.OK, now=now))
    assert [finding.id for finding in told.findings] == ["hang"]


def test_docker_s_own_log_files_are_unpacked() -> None:
    lines = run_log(GB10)
    wrapped = [json.dumps({"log": line + "\n", "stream": "stdout", "time": "2026-05-21T21:02:50.1Z"}) for line in lines]
    told = read([text.replace('{"log": ', '{"log":') for text in wrapped])
    assert told.fp4.verdict is Fp4.NATIVE
    assert told.timeline.facts.kv_tokens == 5_463_232


def test_lines_that_only_look_like_docker_s_stay_as_they_are() -> None:
    for text in ('{"log":', '{"log":5}', '{"log":"x"', '{"log":"x","time":7}'):
        assert read([text]).lines == 1


# --- an engine under watch --------------------------------------------------------------------------------

PORT = f"{CPU}f_port"


def test_a_failed_start_proposes_what_its_cause_proposes_but_no_taken_port() -> None:
    view = view_of(run_log(PORT), EngineState.FAILED, 1)
    found = explain_view(view, now=0.0).proposal
    assert found is not None
    assert (found.id, found.change) == ("port_in_use", (("port", "8131"),))
    other = explain_view(view, now=0.0, taken_ports={8131}).proposal
    assert other is not None
    assert dict(other.change)["port"] not in ("8130", "8131")


@pytest.mark.parametrize("state", [EngineState.SERVING, EngineState.STOPPED])
def test_an_engine_that_serves_or_was_stopped_has_no_cause(state: EngineState) -> None:
    view = view_of(run_log(GB10), state, 137 if state is EngineState.STOPPED else None)
    assert explain_view(view, now=0.0).cause is None


def test_a_full_cache_is_found_with_a_change() -> None:
    told = explain_view(view_of([*run_log(GB10), *PRESSED]), now=0.0)
    assert {"kv_nearly_full", "waiting"} <= {finding.id for finding in told.findings}
    assert told.proposal is not None


# --- properties -------------------------------------------------------------------------------------------

pieces = st.sampled_from([line for name in (GB10, f"{CPU}r1", f"{CPU}f_missing") for line in run_log(name)[::7]])


@given(st.lists(pieces | st.text(max_size=120), max_size=40), st.none() | st.integers(-1, 256))
@settings(max_examples=100, deadline=None)
def test_any_lines_in_any_order_are_explained(lines: list[str], exit_code: int | None) -> None:
    told = read(lines, LogContext(ended=exit_code is not None, exit_code=exit_code))
    assert told.outcome is not StartOutcome.UNKNOWN or not (told.engine or told.cause)
    assert told.lines == len(lines)
    assert all(row.text for row in verdict_rows(told))


HUB = "https://huggingface.co/foo/bar/resolve/main/tokenizer.json"
SAID = [
    ("killed", "journalctl -k", "+ vllm serve", '/start.sh: line 12:    25 Killed                  vllm serve "$@"'),
    (
        "ready_timeout",
        "OLLAMA_LOAD_TIMEOUT",
        "$ ollama run x",
        "Error: timed out waiting for llama runner to start - 0.00",
    ),
    (
        "bad_argument",
        "flash_attention",
        "ggml_cuda_init: found 1 CUDA devices:",
        "error: unknown argument: --flash-attention",
    ),
    (
        "gated_repo",
        "foo/bar",
        "thread 'main' panicked at a.rs:1:2:",
        f"RequestError(Status(403, Response[url: {HUB}]))",
    ),
    (
        "repo_not_found",
        "HF_TOKEN",
        "thread 'main' panicked at a.rs:1:2:",
        f"RequestError(Status(404, Response[url: {HUB}]))",
    ),
    (
        "hub_offline",
        "DNS",
        "thread 'main' panicked at a.rs:1:2:",
        'RequestError(Transport(Transport { url: "huggingface" }))',
    ),
    (
        "unknown_architecture",
        "llama.cpp",
        "main: starting",
        "llama_model_load: error loading model: unknown vision type: x",
    ),
    (
        "kernel_failure",
        "disable_custom_all_reduce",
        "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:455 'invalid argument'",
        "(EngineCore pid=1) ERROR 09-07 03:25:57 [executor.py:284] Worker proc VllmWorker-1 died unexpectedly",
    ),
]


@pytest.mark.parametrize(("cause", "remedy", "before", "line"), SAID)
def test_a_pasted_sentence_has_its_cause_and_names_what_helps(cause: str, remedy: str, before: str, line: str) -> None:
    found = read([before, line]).cause
    assert found is not None and found.id == cause
    assert remedy in found.summary + found.remedy


@given(st.integers(1, 400))
@settings(max_examples=20, deadline=None)
def test_what_is_told_does_not_depend_on_batches(size: int) -> None:
    lines: list[tuple[str, str]] = [("", line) for line in run_log(GB10)]
    reader = LogExplainer()
    for begin in range(0, len(lines), size):
        reader.feed_many(lines[begin : begin + size])
    assert _said(reader.explanation()) == _said(read([text for _, text in lines]))


def _said(told: Explanation) -> tuple[Any, ...]:
    return told.timeline, verdict_rows(told), told.findings, told.cause


MISJUDGED = [
    *banner("0.20.1", args="'gpu_memory_utilization': 0.85"),
    *core("Estimated CUDA graph memory: -35.63 GiB total", "Available KV cache memory: 112.00 GiB"),
]


@pytest.mark.parametrize(
    ("end", "cause", "adopts"),
    [
        ("Killed", "killed", True),
        ("torch.OutOfMemoryError: CUDA out of memory.", "out_of_memory_warmup", True),
        ("OSError: [Errno 28] No space left on device", "disk_full", False),
    ],
)
def test_cause_and_grave_finding_speak_with_one_voice(end: str, cause: str, adopts: bool) -> None:
    """A share that is lowered leaves the estimate wrong; the cache's size in bytes does not depend on it."""
    told = read([*MISJUDGED, *([end] if adopts and cause == "killed" else core(end, level="ERROR"))])
    assert told.cause is not None and told.cause.id == cause
    grave = told.findings[0]
    assert "kv_cache_memory_bytes" in dict(grave.change)
    assert (told.cause.change == grave.change, told.cause.remedy == grave.remedy) == (adopts, adopts)
    assert told.proposal is told.cause or not adopts


@pytest.mark.parametrize(
    "lines",
    [
        [
            "[2026-01-20 10:00:00] server_args=ServerArgs(model_path='acme/mixture-NVFP4')",
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 106496, Hardware limit: 1",
        ],
        [
            "[TensorRT-LLM] TensorRT LLM version: 1.1.0rc3",
            "RuntimeError: [TensorRT-LLM][ERROR] Assertion failed: Chunked attention is only supported on SM90",
        ],
    ],
)
def test_what_another_engines_kernels_cannot_do_here_leads_to_vllm(lines: list[str]) -> None:
    cause = read(lines).cause
    assert cause is not None and cause.remedy.startswith("Serve the model with vLLM") and not cause.change
