"""A whole log explained: every real one, by expectations that were written by reading it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_tui.domain.engine.state import EngineState, Health
from spark_tui.domain.logs.explain import Explanation, LogContext, LogExplainer, explain, explain_view
from spark_tui.domain.logs.kernels import Fp4
from spark_tui.domain.logs.timeline import EMPTY_TIMELINE, Outcome
from spark_tui.domain.models.checkpoint import CheckpointFacts, Quantization, WeightFormat
from spark_tui.present.logs import verdict_rows
from tests.engine_logs import PRESSED, banner, core, stats, view_of
from tests.log_fixtures import log_names, run_log


def read(lines: list[str], around: LogContext | None = None) -> Explanation:
    reader = LogExplainer()
    reader.feed_many(("", line) for line in lines)
    return reader.explanation(around)


@dataclass
class Case:
    """What a log says. `kv` is GiB, tokens and concurrency."""

    outcome: str
    version: str = "0.32.0"
    engine: str = "vllm"
    verdict: str = "not_fp4"
    kv: tuple[float | None, int | None, float | None] = (None, None, None)
    speculation: str = ""
    acceptance: float | None = None
    cause: str = ""
    override: dict[str, str] = field(default_factory=dict)
    findings: tuple[str, ...] = ()


CPU = "vllm-0.32-cpu-"
GB10 = "gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp"
LOGS = {
    GB10: Case("starting", "0.20.2", verdict="native", kv=(64.69, 5_463_232, 20.84), speculation="mtp 3",
               findings=("padding_waste",)),
    "gb10-vllm-0.18-mtp-forum": Case("starting", "", verdict="unknown", kv=(18.04, 694_656, 2.63),
                                     findings=("padding_waste",)),
    f"{CPU}01-first-start": Case("stopped", kv=(1.0, 2_097_152, 4096.0), cause="stopped"),
    f"{CPU}10-smollm2-start": Case("stopped", kv=(1.0, 46_592, 22.75), cause="stopped"),
    f"{CPU}20-apikey-logreq": Case("stopped", kv=(1.0, 2_097_152, 4096.0), cause="stopped"),
    f"{CPU}50-dp2": Case("stopped", kv=(1.0, 2_097_152, 4096.0), cause="stopped"),
    f"{CPU}60-think-start": Case("stopped", kv=(1.0, 46_592, 22.75), cause="stopped"),
    f"{CPU}61-drain": Case("stopped", kv=(1.0, 46_592, 22.75), cause="stopped"),
    f"{CPU}asc2": Case("stopped", kv=(1.0, 524_288, 1024.0), cause="stopped"),
    f"{CPU}dbg": Case("ready", kv=(1.0, 524_288, 1024.0)),
    f"{CPU}json": Case("stopped", kv=(1.0, 524_288, 1024.0), cause="stopped"),
    f"{CPU}tty-colour": Case("ready", kv=(1.0, 524_288, 1024.0)),
    f"{CPU}spec": Case("stopped", kv=(1.0, 524_288, 256.0), speculation="ngram 3", acceptance=0.59375, cause="stopped"),
    # A worker was killed while it served; the log begins after the start.
    f"{CPU}crash-worker-sigkill": Case("failed", "", verdict="unknown", cause="killed"),
    # The engine core was killed while it served.
    f"{CPU}r1": Case("failed", kv=(1.0, 524_288, 256.0), cause="engine_died"),
    f"{CPU}fatal-kv-space-zero": Case("failed", kv=(0.0, None, None), cause="no_kv_room"),
    f"{CPU}fatal-max-model-len-absurd": Case("failed", verdict="unknown", cause="max_model_len_too_long",
                                             override={"max_model_len": "512"}),
    f"{CPU}fatal-model-hub-offline": Case("failed", verdict="unknown", cause="hub_offline",
                                          override={"env.HF_HUB_OFFLINE": "0"}),
    f"{CPU}fatal-model-path-missing": Case("failed", verdict="unknown", cause="weights_missing"),
    f"{CPU}fatal-port-in-use": Case("failed", verdict="unknown", cause="port_in_use", override={"port": "18812"}),
    f"{CPU}f_badarch": Case("failed", verdict="unknown", cause="unknown_architecture"),
    f"{CPU}f_badarg": Case("failed", "", verdict="unknown", cause="bad_argument"),
    f"{CPU}f_badquant": Case("failed", verdict="unknown", cause="unknown_quantization"),
    f"{CPU}f_maxlen": Case("failed", verdict="unknown", cause="max_model_len_too_long",
                           override={"max_model_len": "4096"}),
    f"{CPU}f_missing": Case("failed", cause="weights_missing"),
    f"{CPU}f_nomodel_off": Case("failed", verdict="unknown", cause="hub_offline",
                                override={"env.HF_HUB_OFFLINE": "0"}),
    f"{CPU}f_nomodel_on": Case("failed", verdict="unknown", cause="hub_offline"),
    # An NVFP4 checkpoint, and no kernel for it on a CPU.
    f"{CPU}f_nvfp4": Case("failed", verdict="unknown", cause="kernel_failure"),
    f"{CPU}f_port": Case("failed", verdict="unknown", cause="port_in_use", override={"port": "8131"}),
    f"{CPU}sigint-idle": Case("stopped", "", verdict="unknown", cause="stopped"),
    f"{CPU}sigterm-inflight": Case("stopped", "", verdict="unknown", cause="stopped"),
}  # fmt: skip


def test_every_real_log_is_in_the_table() -> None:
    runs = {name.removesuffix(".stdout").removesuffix(".stderr") for name in log_names()}
    assert runs - set(LOGS) == {"sglang-lines"}


@pytest.mark.parametrize("name", LOGS)
def test_real_logs_are_explained(name: str) -> None:
    case, told = LOGS[name], read(run_log(name))
    facts = told.timeline.facts
    assert (told.outcome.value, told.engine, facts.version) == (case.outcome, case.engine, case.version)
    assert told.fp4.verdict.value == case.verdict
    assert (told.kv.gib, told.kv.tokens, told.kv.concurrency) == case.kv
    assert facts.speculation == case.speculation
    assert (told.drafting.rate if told.drafting else None) == case.acceptance
    assert (told.cause.id if told.cause else "") == case.cause
    assert dict(told.cause.change if told.cause else ()) == case.override
    assert tuple(finding.id for finding in told.findings) == case.findings


def test_sglang_is_recognised_and_has_no_fp4_verdict() -> None:
    told = read(run_log("sglang-lines"))
    assert (told.engine, told.fp4.verdict) == ("sglang", Fp4.UNKNOWN)


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
    assert told.outcome is Outcome.FAILED
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
    assert told.kv.tokens == 5_463_232


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
    assert told.outcome is not Outcome.UNKNOWN
    assert told.lines == len(lines)
    assert all(row.text for row in verdict_rows(told))


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
