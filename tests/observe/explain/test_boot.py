"""What the boot tracker makes of logs: real ones, and composed ones of starts without a recording.

Expectations were written by reading the logs; they lie beside them, in `expected.jsonl`: `seconds` per phase that has
run and is over, `running` or `broken` the one that is not, `total` the seconds to ready.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_tui.observe.explain.model.line import LogClock, parse_line
from spark_tui.observe.explain.model.timeline import EMPTY_TIMELINE, BootTimeline, PhaseId, PhaseState, StartOutcome
from spark_tui.observe.explain.model.tracker import LogTracker
from tests.cases import all_cases
from tests.engine_logs import track
from tests.log_fixtures import COMPOSED, LOGS, expected, log_names, read_composed, read_log, run_log

CPU = "vllm-0.32-cpu-"
REAL, MADE = ({case["log"]: case for case in expected(folder)} for folder in (LOGS, COMPOSED))


def lines_of(name: str) -> list[str]:
    return run_log(name) if name in REAL else read_composed(name)


@all_cases("case", [*REAL.values(), *MADE.values()], ids=[*REAL, *MADE])
def test_a_log_is_read_right(case: dict[str, Any]) -> None:
    timeline, seconds = track(lines_of(case["log"])), case.get("seconds", {})
    over = {phase.id.value: phase.seconds for phase in timeline.phases if phase.state is PhaseState.DONE}
    over.pop("ready", None)
    assert over == pytest.approx(seconds, abs=0.002)
    for state, key in ((PhaseState.RUNNING, "running"), (PhaseState.FAILED, "broken")):
        assert [phase.id for phase in timeline.phases if phase.state is state] == ([case[key]] if key in case else [])
    if "skipped" in case:
        skipped = {phase.id for phase in timeline.phases if phase.state is PhaseState.SKIPPED}
        assert skipped == set(case["skipped"])
    assert (timeline.outcome, timeline.ready) == (case["outcome"], case["ready"])
    details, facts, total = case.get("details", {}), case.get("facts", {}), case.get("total")
    assert {name: timeline.phase(name).detail for name in details} == details
    assert {name: getattr(timeline.facts, name) for name in facts} == facts
    assert timeline.seconds == (None if total is None else pytest.approx(total, abs=0.002))
    assert (timeline.failure is not None) == (case["outcome"] == "failed")
    if "failure" in case and timeline.failure is not None:
        assert case["failure"] in timeline.failure.line
        assert (timeline.failure.process, timeline.failure.guess) == (case.get("process", ""), False)


def test_every_log_has_an_expectation() -> None:
    assert {name.removesuffix(".stdout").removesuffix(".stderr") for name in log_names()} == set(REAL)
    assert {path.stem for path in COMPOSED.glob("*.log")} == set(MADE) | {"trtllm-1.2"}


GB10 = "gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp"


def stamped(lines: list[str], start: datetime) -> list[tuple[str, str]]:
    """The lines as Docker would have stamped them: a bare line gets the time of the one before it."""
    at, stamps = start, []
    first = datetime(2026, 5, 21, 21, 2, 50, tzinfo=UTC)
    for line in lines:
        _, _, rest = line.partition("05-21 21:")
        if rest[:5].replace(":", "").isdigit():
            said = first.replace(minute=int(rest[:2]), second=int(rest[3:5]))
            at = start + (said - first)
        stamps.append((at.isoformat().replace("+00:00", "123456Z" if at.microsecond else ".000000000Z"), line))
    return stamps


def test_dockers_stamps_give_times_and_durations() -> None:
    start = datetime(2026, 5, 21, 23, 2, 50, tzinfo=UTC)  # the container's own clock is two hours behind
    tracker = LogTracker(started_at=start.timestamp() - 6.5)
    tracker.feed_many(stamped(read_log(GB10), start))
    timeline = tracker.timeline()
    assert timeline.phase("container").seconds == pytest.approx(6.5)
    assert timeline.phase("config").started_at == start.timestamp()
    assert timeline.phase("compile").seconds == pytest.approx(117)
    server = timeline.phase("server")
    assert server.state is PhaseState.RUNNING
    assert server.started_at == (start + timedelta(minutes=7, seconds=39)).timestamp()


def test_without_stamps_there_are_durations_but_no_times() -> None:
    timeline = track(read_log(GB10))
    assert all(phase.started_at is None for phase in timeline.phases)
    assert timeline.phase("compile").seconds == 117


@all_cases("name", [name for name, case in REAL.items() if case.get("total") is not None])
def test_no_second_is_counted_twice(name: str) -> None:
    timeline = track(run_log(name))
    spent = sum(phase.seconds or 0 for phase in timeline.phases if phase.state is PhaseState.DONE)
    assert timeline.seconds is not None
    assert spent == pytest.approx(timeline.seconds, abs=0.01)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([GB10, CPU + "r1", CPU + "fatal-kv-space-zero"]), st.lists(st.integers(0, 400), max_size=8))
def test_the_story_does_not_depend_on_how_lines_arrive(name: str, cuts: list[int]) -> None:
    lines = [("", line) for line in run_log(name)]
    tracker = LogTracker()
    at = 0
    for cut in sorted(min(cut, len(lines)) for cut in cuts):
        tracker.feed_many(lines[at:cut])
        tracker.timeline()
        at = cut
    tracker.feed_many(lines[at:])
    whole, parts = track(run_log(name)), tracker.timeline()
    assert replace(parts, news=whole.news) == whole


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(max_size=120) | st.sampled_from(read_log(GB10)), max_size=30))
@example(["vLLM is using nccl=="])
def test_no_text_makes_it_raise(lines: list[str]) -> None:
    tracker = LogTracker()
    for line in lines:
        tracker.feed(None, line)
        tracker.feed_many([("2026-13-45T99:99Z", line)])
    tracker.container_ended(1)
    assert len(tracker.timeline().phases) == len(PhaseId)


def feed(tracker: LogTracker, *texts: str) -> BootTimeline:
    for text in texts:
        tracker.feed(None, text)
    return tracker.timeline()


def line(time: str, text: str, process: str = "EngineCore", level: str = "INFO") -> str:
    return f"({process} pid=199) {level} 05-21 {time} [x.py:1] {text}"


def test_an_unchanged_start_is_the_same_timeline() -> None:
    tracker = LogTracker()
    before = feed(tracker, *run_log(CPU + "10-smollm2-start")[:150])
    after = feed(
        tracker,
        'INFO:     127.0.0.1:36830 - "GET /health HTTP/1.1" 200 OK',
        line("02:26:26", "Engine 000: Avg prompt throughput: 19.2 tokens/s, Running: 1 reqs", "APIServer"),
    )
    assert before.outcome is StartOutcome.READY
    assert after == before


def test_shards_show_progress_and_the_drafter_its_own() -> None:
    tracker = LogTracker()
    feed(tracker, line("21:03:31", "Starting to load model x..."))
    bar = "Loading safetensors checkpoint shards:  50% Completed | 3/6 [01:42<01:42, 34.81s/it]"
    weights = feed(tracker, "(EngineCore pid=199) \r" + bar).phase("weights")
    assert (weights.state, weights.progress, weights.detail) == (PhaseState.RUNNING, 0.5, "3/6 shards")
    feed(tracker, line("21:07:45", "Loading weights took 170.92 seconds"), line("21:07:45", "Loading drafter model..."))
    weights = feed(tracker, bar.replace("3/6", "1/2")).phase("weights")
    assert (weights.progress, weights.detail) == (0.5, "drafter 1/2 shards")
    weights = feed(tracker, line("21:08:08", "Model loading took 21.42 GiB memory and 276.698589 seconds")).phase(
        "weights"
    )
    assert (weights.state, weights.progress, weights.detail, weights.seconds) == (
        PhaseState.DONE,
        None,
        "21.42 GiB",
        277,
    )


@pytest.mark.parametrize(
    "bar",
    [
        "Loading safetensors checkpoint shards:  17% Completed | 1/6 [00:34<02:54, 34.81s/it]",
        "Multi-thread loading shards:  17% Completed | 1/6 [00:34<02:54, 34.81s/it]",
        "Loading safetensors using Fastsafetensor loader:  17% Completed | 1/6 [00:34<02:54, 34.81s/it]",
        "Loading safetensors using Runai Model Streamer:  17% Completed | 1/6 [00:34<02:54, 34.81s/it]",
        "Loading pt checkpoint shards:  17% Completed | 1/6 [00:34<02:54, 34.81s/it]",
    ],
)
def test_every_loader_shows_its_shards(bar: str) -> None:
    assert feed(LogTracker(), bar).phase("weights").detail == "1/6 shards"


def test_a_capture_before_the_kv_cache_is_measuring_and_not_the_capture() -> None:
    """Model Runner V2 captures once to measure memory, and again afterwards."""
    tracker = LogTracker()
    bar = "Capturing CUDA graphs (PIECEWISE):  50%|#####     | 5/10 [00:00<00:00, 12.69it/s]"
    timeline = feed(
        tracker,
        line("21:00:00", "Model loading took 10.00 GiB memory and 20.0 seconds"),
        line("21:00:30", "[backbone] torch.compile took 20.00 s in total"),
        bar,
        line("21:00:35", "Graph capturing finished in 2 secs, took 0.30 GiB"),
    )
    assert timeline.phase("kv_cache").state is PhaseState.RUNNING
    assert timeline.phase("capture").state is PhaseState.PENDING
    assert timeline.facts.graph_actual_gib is None
    timeline = feed(
        tracker,
        line("21:00:36", "Available KV cache memory: 48.6 GiB"),
        line("21:00:37", "GPU KV cache size: 1,000 tokens, Maximum concurrency for 500 tokens per request: 2.00x"),
        bar,
    )
    assert timeline.phase("kv_cache").seconds == 7
    capture = timeline.phase("capture")
    assert (capture.state, capture.progress, capture.detail) == (PhaseState.RUNNING, 0.5, "5/10 graphs")
    timeline = feed(tracker, line("21:00:40", "Graph capturing finished in 3 secs, took -0.81 GiB"))
    assert timeline.phase("capture").detail == "-0.81 GiB"
    assert timeline.facts.graph_actual_gib == -0.81


def test_the_time_between_two_markers_goes_to_the_phase_that_the_second_one_names() -> None:
    timeline = feed(
        LogTracker(),
        line("21:00:00", "GPU KV cache size: 1,000 tokens"),
        line("21:00:09", "init engine (profile, create kv cache, warmup model) took 2.60 seconds"),
        line("21:00:12", "Starting vLLM API server 0 on http://0.0.0.0:8000", "APIServer"),
    )
    assert timeline.phase("engine_ready").seconds == 9
    assert timeline.phase("capture").state is PhaseState.SKIPPED
    assert timeline.phase("server").state is PhaseState.RUNNING


def test_a_slower_rank_does_not_turn_the_clock_back() -> None:
    timeline = feed(
        LogTracker(),
        line("21:00:00", "Starting to load model x...", "Worker_TP0"),
        line("21:00:20", "Model loading took 10.00 GiB memory and 20.0 seconds", "Worker_TP0"),
        line("21:00:21", "Available KV cache memory: 48.6 GiB", "Worker_TP0"),
        line("21:00:25", "Model loading took 10.00 GiB memory and 25.0 seconds", "Worker_TP1"),
    )
    assert timeline.phase("weights").seconds == 20
    assert timeline.phase("kv_cache").state is PhaseState.RUNNING


@all_cases(
    ("text", "fact", "value"),
    [
        ("Using flashinfer-cutlass for NVFP4 GEMM", "fp4_linear", "flashinfer-cutlass"),
        ("Using NvFp4LinearBackend.VLLM_CUTLASS for NVFP4 GEMM", "fp4_linear", "NvFp4LinearBackend.VLLM_CUTLASS"),
        ("Using MarlinNvFp4LinearKernel for NVFP4 GEMM", "fp4_linear", "MarlinNvFp4LinearKernel"),
        ("Using FlashInfer CUTLASS backend for NvFp4 MoE", "fp4_moe", "FlashInfer CUTLASS"),
        ("Using 'MARLIN' NvFp4 MoE backend out of potential backends: ['MARLIN'].", "fp4_moe", "MARLIN"),
        ("Using 'FLASHINFER_TRTLLM' Mxfp4 MoE backend.", "fp4_moe", "FLASHINFER_TRTLLM"),
        ("Using TRITON_ATTN attention backend out of potential backends: ('TRITON_ATTN',)", "attention", "TRITON_ATTN"),
        ("Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN'].", "attention", "FLASH_ATTN"),
        ("Using AttentionBackendEnum.FLASHINFER backend.", "attention", "FLASHINFER"),
        ("Estimated CUDA graph memory: -35.63 GiB total", "graph_estimated_gib", -35.63),
        ("Auto-fit max_model_len: reduced from 262144 to 90112 to fit in available KV cache", "max_model_len", 90112),
        ("Initial free memory 31.16 GiB, reserved 4.25 GiB memory for KV Cache as specified by", "kv_gib", 4.25),
        ("GPU KV cache size: 5,463,232 tokens", "kv_tokens", 5_463_232),
        ("init engine (profile, create kv cache, warmup model) took 54.93 seconds", "init_seconds", 54.93),
        ("vLLM API server version 0.14.1", "version", "0.14.1"),
        ("vLLM server version 0.33.0, serving model a/b", "model", "a/b"),
        ("Enforce eager set, disabling torch.compile and CUDAGraphs.", "eager", True),
        (
            "Initializing a V1 LLM engine (v0.17.1) with config: model='a/b', speculative_config=SpeculativeConfig("
            "method='eagle3', model='c', num_spec_tokens=5), max_seq_len=4096, quantization=modelopt",
            "speculation",
            "eagle3 5",
        ),
        ("Using FlashAttention version 2", "attention", ""),
        ("Using backend AttentionBackendEnum.FLASH_ATTN for vit attention", "attention", ""),
    ],
)
def test_facts_of_every_version(text: str, fact: str, value: object) -> None:
    assert getattr(feed(LogTracker(), line("21:00:00", text)).facts, fact) == value


@pytest.mark.parametrize(
    "last_line",
    [
        "INFO:     Application startup complete.",
        "(APIServer pid=1) INFO:     Application startup complete.",
        "\x1b[32mINFO\x1b[0m:     Application startup complete.\r",
        '{"levelname": "INFO", "name": "uvicorn.error", "message": "Application startup complete."}',
        "(APIServer pid=1) INFO 05-21 21:10:46 [a.rs:1] OpenAI server is ready to accept requests bind_address=0.0.0.0",
        "vllm-1  | INFO:     Application startup complete.",
        "[2026-03-11 13:53:33] The server is fired up and ready to roll!",
    ],
)
def test_every_way_to_say_ready(last_line: str) -> None:
    assert feed(LogTracker(), line("21:00:00", "Starting to load model x..."), last_line).ready


def test_sglang_is_not_ready_when_uvicorn_is() -> None:
    timeline = feed(
        LogTracker(),
        "[2026-03-11 13:53:00 TP0] Load weight begin. avail mem=60.00 GB",
        "[2026-03-11 13:53:30] INFO:     Application startup complete.",
    )
    assert not timeline.ready


def test_a_second_banner_in_the_same_log_is_a_new_start() -> None:
    first = run_log(CPU + "fatal-port-in-use")
    timeline = track([*first, *run_log(CPU + "dbg")])
    assert timeline.outcome is StartOutcome.READY
    assert timeline.failure is None
    assert timeline.seconds == 14
    again = track([*first, *first])
    assert again.failure is not None
    assert again.failure.line == "OSError: [Errno 98] Address already in use"


FAILED = (
    "(EngineCore pid=90) Loading safetensors checkpoint shards:  33% Completed | 3/9 [01:03<02:06, 21.00s/it]",
    "(APIServer pid=51) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
)
AGAIN = "(EngineCore pid=64) INFO 10-11 09:28:51 [kv_cache_utils.py:1337] GPU KV cache size: 196,608 tokens"
UP = "(APIServer pid=51) INFO 10-11 09:29:13 [api_server.py:602] Starting vLLM server on http://0.0.0.0:8000"
SERVED = '(APIServer pid=51) INFO:     127.0.0.1:33020 - "GET /v1/models HTTP/1.1" 200 OK'


def test_another_engine_core_after_a_failure_is_another_start() -> None:
    told = feed(LogTracker(), *FAILED, AGAIN, UP, SERVED)
    assert (told.outcome, told.failure, len(told.earlier)) == (StartOutcome.READY, None, 1)
    tracker = LogTracker()
    feed(tracker, *FAILED, FAILED[0])
    assert (tracker.text_ended(), tracker.timeline().earlier) == (True, ()), "the same engine core, printed once more"


def test_a_served_request_after_a_failed_start_is_of_another_start() -> None:
    told = feed(LogTracker(), *FAILED, SERVED)
    assert (told.outcome, len(told.earlier)) == (StartOutcome.READY, 1)


def test_earlier_starts_keep_the_line_that_decided() -> None:
    failed = [
        "(EngineCore pid=90) ERROR 10-11 09:20:00 [core.py:1330] EngineCore failed to start.",
        "(EngineCore pid=90) ERROR 10-11 09:20:00 [core.py:1330] torch.OutOfMemoryError: CUDA out of memory.",
    ]
    told = feed(LogTracker(), *failed, *failed, AGAIN, UP, SERVED)
    assert [(each.outcome, each.line) for each in told.earlier] == [
        (StartOutcome.FAILED, "torch.OutOfMemoryError: CUDA out of memory.")
    ]


def test_a_served_request_proves_ready_at_the_last_time_before_it() -> None:
    banner = "(APIServer pid=51) INFO 10-11 09:25:13 [utils.py:299]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.26.0"
    late = "(APIServer pid=51) INFO 10-11 09:59:13 [loggers.py:271] Engine 000: Avg prompt throughput: 5.5 tokens/s"
    told = feed(LogTracker(), banner, AGAIN, UP, SERVED, late)
    assert (told.outcome, told.seconds) == (StartOutcome.READY, 240.0)
    refused = SERVED.replace("200 OK", "503 Service Unavailable")
    assert feed(LogTracker(), banner, AGAIN, UP, refused).outcome is StartOutcome.STARTING


def test_several_api_servers_print_one_banner_each_of_one_start() -> None:
    tracker = LogTracker()
    feed(tracker, line("21:00:00", "vLLM API server version 0.16.0", "ApiServer_0"))
    feed(tracker, line("21:00:05", "Initializing a V1 LLM engine (v0.16.0) with config: model='x'"))
    timeline = feed(tracker, line("21:00:06", "vLLM API server version 0.16.0", "ApiServer_1"))
    assert timeline.phase("engine_init").state is PhaseState.RUNNING


def test_a_usage_error_after_a_served_start_belongs_to_the_next_one() -> None:
    timeline = track([*run_log(CPU + "01-first-start")[:101], "vllm serve: error: unrecognized arguments: --x"])
    assert timeline.outcome is StartOutcome.FAILED
    assert not timeline.ready


def test_an_exception_while_serving_is_not_a_failure() -> None:
    serving = run_log(CPU + "r1")
    killed = next(i for i, text in enumerate(serving) if "exited unexpectedly" in text)
    assert any("JSONDecodeError" in text for text in serving[:killed])
    assert track(serving[:killed]).failure is None


def test_a_stray_traceback_during_the_start_is_a_guess() -> None:
    timeline = feed(
        LogTracker(),
        line("21:00:00", "vLLM API server version 0.16.0", "APIServer"),
        "Traceback (most recent call last):",
        '  File "/usr/lib/python3/threading.py", line 1, in run',
        "KeyError: 'x'",
    )
    assert timeline.failure is not None
    assert timeline.failure.guess
    assert timeline.outcome is StartOutcome.STARTING


def test_the_old_eras_prefix_on_every_line_changes_nothing() -> None:
    old = [text if text.startswith("(") else f"(APIServer pid=1) {text}" for text in run_log(CPU + "f_missing")]
    timeline = track(old)
    assert timeline.failure is not None
    assert timeline.failure.line.startswith("FileNotFoundError: Weight files referenced")


@pytest.mark.parametrize(
    ("code", "outcome", "words"),
    [
        (0, StartOutcome.STOPPED, ""),
        (143, StartOutcome.STOPPED, ""),
        (137, StartOutcome.FAILED, "killed (exit code 137)"),
        (127, StartOutcome.FAILED, "bash: vllm: command not found"),
    ],
)
def test_a_container_that_ended_without_a_reason_is_a_guess(code: int, outcome: StartOutcome, words: str) -> None:
    tracker = LogTracker()
    feed(tracker, "bash: vllm: command not found")
    tracker.container_ended(code)
    timeline = tracker.timeline()
    assert timeline.outcome is outcome
    if not words:
        assert timeline.failure is None
    else:
        assert timeline.failure is not None
        assert words in timeline.failure.line
        assert timeline.failure.guess


def test_the_end_of_the_container_does_not_replace_a_proven_reason() -> None:
    tracker = LogTracker()
    tracker.feed_many(("", text) for text in run_log(CPU + "fatal-port-in-use"))
    before = tracker.timeline()
    tracker.container_ended(1)
    assert tracker.timeline() == before


def test_the_telling_line_is_news_and_not_noise() -> None:
    tracker = LogTracker()
    telling = feed(tracker, *read_log(GB10)[:22]).news
    assert telling == "Final IR op priority after setting platform defaults: IrOpPriorityConfig(rms_norm=['native'])"
    telling = feed(tracker, *read_log(GB10)[22:26]).news
    assert telling == "Initializing a V1 LLM engine (v0.20.2)"
    telling = feed(tracker, *read_log(CPU + "01-first-start")[:98]).news
    assert telling == "Waiting for application startup."


def test_the_telling_line_and_the_failure_hold_no_secret() -> None:
    tracker = LogTracker()
    timeline = feed(tracker, line("21:00:00", "Downloading with token hf_abcdefghijklmnopqrstuvwxyz0123456789"))
    assert timeline.news == "Downloading with token hf_***"
    timeline = feed(tracker, "vllm: error: unrecognized arguments: --api-key sesame")
    assert timeline.failure is not None
    assert timeline.failure.line == "vllm: error: unrecognized arguments: --api-key ***"


def test_warm_is_told_from_outside() -> None:
    tracker = LogTracker()
    tracker.feed_many(("", text) for text in run_log(CPU + "dbg"))
    assert tracker.timeline().phase("warm").state is PhaseState.PENDING
    tracker.mark_warm(31.0)
    warm = tracker.timeline().phase("warm")
    assert (warm.state, warm.seconds) == (PhaseState.DONE, 31.0)


def test_new_year_is_not_a_journey_in_time() -> None:
    timeline = feed(
        LogTracker(),
        "(EngineCore pid=1) INFO 12-31 23:59:50 [x.py:1] Starting to load model x...",
        "(EngineCore pid=1) INFO 01-01 00:00:20 [x.py:1] Model loading took 1.00 GiB memory and 30.0 seconds",
    )
    assert timeline.phase("weights").seconds == 30


def test_nothing_read_is_the_empty_timeline() -> None:
    assert LogTracker().timeline() == EMPTY_TIMELINE
    assert EMPTY_TIMELINE.current is None


def test_tensorrt_llm_with_dockers_stamps() -> None:
    """Most of its lines have no time of their own."""
    clock, tracker, lines = LogClock(), LogTracker(), read_composed("trtllm-1.2")
    times = [clock.read(None, parse_line(line).time) for line in lines]
    at = next(time for time in times if time is not None)
    for time, line in zip(times, lines, strict=True):
        at = max(at, time or 0.0)
        tracker.feed(at, line)
    timeline = tracker.timeline()
    assert (timeline.outcome, timeline.facts.version) == ("ready", "1.2.0")
    over = {phase.id.value: phase.seconds for phase in timeline.phases if phase.state is PhaseState.DONE}
    over.pop("ready")
    assert over == pytest.approx(
        {"container": 0, "config": 15.254, "weights": 24, "kv_cache": 0, "autotune": 8, "capture": 7, "server": 0},
        abs=0.002,
    )
    assert timeline.phase("kv_cache").detail == "656,192 tokens"
    assert timeline.phase("weights").detail == "1190/1190 weights"
    assert (timeline.facts.kv_gib, timeline.facts.kv_tokens) == (80.1, 656_192)


CARRIERS = {
    "journald": "Nov 21 02:16:18 spark docker[812]: ",
    "compose": "vllm-1  | ",
    "docker logs -t": "2026-11-21T00:00:00.000000000Z ",
    "colours": "\x1b[0m",
    "old era": "",
}


@all_cases("name", MADE)
@all_cases("carried", CARRIERS)
def test_the_carrier_of_a_log_changes_nothing_but_the_clock(name: str, carried: str) -> None:
    lines = read_composed(name)
    if carried == "old era":  # then every line had its process
        dressed = track([line if line[:1] in "({[" else f"(APIServer pid=1) {line}" for line in lines])
    else:
        dressed = track([CARRIERS[carried] + line for line in lines])
    plain = track(lines)
    assert [(phase.state, phase.detail) for phase in dressed.phases] == [
        (phase.state, phase.detail) for phase in plain.phases
    ]
    assert (dressed.outcome, dressed.ready) == (plain.outcome, plain.ready)
