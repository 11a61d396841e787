"""What the boot tracker says about real logs. Expectations were written by reading the logs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_tui.domain.logs.timeline import EMPTY_TIMELINE, BootTimeline, Outcome, PhaseId, PhaseState
from spark_tui.domain.logs.tracker import LogTracker
from tests.log_fixtures import log_names, read_log, run_log

CPU = "vllm-0.32-cpu-"
EAGER = ("compile", "capture")
NEVER_ON_CPU_EAGER = ("download", "compile", "autotune", "capture")


def track(lines: list[str]) -> BootTimeline:
    tracker = LogTracker()
    tracker.feed_many(("", line) for line in lines)
    return tracker.timeline()


@dataclass
class Case:
    """`seconds` per phase that has run and is over; `running` or `broken` is the one that is not."""

    log: str
    outcome: str
    ready: bool
    seconds: dict[str, float | None]
    skipped: tuple[str, ...] = ()
    running: str = ""
    broken: str = ""
    details: dict[str, str] = field(default_factory=dict)
    facts: dict[str, object] = field(default_factory=dict)
    failure: str = ""
    process: str = ""
    total: float | None = None


STARTS = [
    Case(
        "gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp",
        outcome="starting",  # the text ends before uvicorn's lines
        ready=False,
        seconds={
            "container": 0,
            "config": 30,
            "engine_init": 11,
            "download": 78.968,
            "weights": 277 - 78.968,
            "compile": 117,
            "kv_cache": 7,
            "autotune": 14.853,
            "capture": 2.147,
            "engine_ready": 0,
        },
        running="server",
        details={
            "weights": "21.42 GiB",
            "compile": "torch.compile 64s",
            "kv_cache": "5,463,232 tokens",
            "capture": "0.37 GiB",
            "server": "http://0.0.0.0:8000",
        },
        facts={
            "version": "0.20.2",
            "model": "rdtand/Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm",
            "architecture": "Qwen3_5MoeForConditionalGeneration",
            "max_model_len": 262144,
            "quantization": "compressed-tensors",
            "kv_cache_dtype": "fp8",
            "speculation": "mtp 3",
            "attention": "FLASHINFER",
            "fp4_linear": "FlashInferCutlassNvFp4LinearKernel",
            "fp4_moe": "FLASHINFER_CUTLASS",
            "eager": False,
            "checkpoint_gib": 21.31,
            "load_gib": 21.42,
            "kv_gib": 64.69,
            "kv_tokens": 5_463_232,
            "max_concurrency": 20.84,
            "graph_estimated_gib": -0.17,
            "graph_actual_gib": 0.37,
            "compile_seconds": 64.01,
            "init_seconds": 140.49,
        },
    ),
    Case("gb10-vllm-0.18-mtp-forum", outcome="starting", ready=False, seconds={"container": 0, "compile": 8,
        "kv_cache": 8, "autotune": 14.174, "capture": 3.826, "engine_ready": 0},
        skipped=("config", "engine_init", "download", "weights"), running="server",
        details={"kv_cache": "694,656 tokens", "capture": "-0.10 GiB"},
        facts={"graph_estimated_gib": 0.33, "graph_actual_gib": -0.1, "kv_gib": 18.04, "max_concurrency": 2.63}),
    # its last lines: a child of the serving engine failed
    Case("sglang-lines", outcome="failed", ready=True, seconds={"container": 0, "weights": 0, "kv_cache": 2,
        "capture": 9, "engine_ready": 1},
        skipped=("config", "engine_init", "download", "compile", "autotune", "server"),
        details={"weights": "28.79 GB", "kv_cache": "383,872 tokens"},
        failure="RuntimeError: NCCL error: remote process exited or there was a network error", total=12),
    Case(CPU + "01-first-start", outcome="stopped", ready=True, seconds={"container": 0.36, "config": 6,
        "engine_init": 8, "weights": 1, "kv_cache": 0, "engine_ready": 3, "server": 1}, skipped=NEVER_ON_CPU_EAGER,
        details={"weights": "1/1 shards", "kv_cache": "2,097,152 tokens"}, facts={"version": "0.32.0",
        "model": "/srv/vllm/tiny", "architecture": "Qwen3ForCausalLM", "eager": True, "kv_gib": 1.0,
        "max_concurrency": 4096.0, "init_seconds": 2.63, "quantization": "", "kv_cache_dtype": "", "speculation": "",
        "url": "http://127.0.0.1:8000"}, total=19.36),
    Case(CPU + "10-smollm2-start", outcome="stopped", ready=True, seconds={"container": 0, "config": 13.924,
        "engine_init": 7, "weights": 3, "kv_cache": 0, "engine_ready": 3, "server": 2}, skipped=NEVER_ON_CPU_EAGER,
        facts={"max_model_len": 2048, "kv_tokens": 46_592}, total=28.924),
    Case(CPU + "20-apikey-logreq", outcome="stopped", ready=True, seconds={"container": 0, "config": 5.61,
        "engine_init": 6, "weights": 1, "kv_cache": 0, "engine_ready": 0, "server": 1}, skipped=NEVER_ON_CPU_EAGER,
        total=13.61),
    # the KV cache is sized when the slower of two engines has done it
    Case(CPU + "50-dp2", outcome="stopped", ready=True, seconds={"container": 0, "config": 19.704, "engine_init": 9,
        "weights": 1, "kv_cache": 2, "engine_ready": 0, "server": 3}, skipped=NEVER_ON_CPU_EAGER, total=34.704),
    Case(CPU + "60-think-start", outcome="stopped", ready=True, seconds={"container": 0, "config": 5.668,
        "engine_init": 7, "weights": 1, "kv_cache": 0, "engine_ready": 1, "server": 1}, skipped=NEVER_ON_CPU_EAGER,
        total=15.668),
    # tracebacks while it drains are not why it ended
    Case(CPU + "61-drain", outcome="stopped", ready=True, seconds={"container": 0, "config": 5.663, "engine_init": 6,
        "weights": 2, "kv_cache": 0, "engine_ready": 0, "server": 1}, skipped=NEVER_ON_CPU_EAGER, total=14.663),
    # two API servers
    Case(CPU + "asc2", outcome="stopped", ready=True, seconds={"container": None, "config": 10, "engine_init": 7,
        "weights": 1, "kv_cache": 0, "engine_ready": 0, "server": 1}, skipped=NEVER_ON_CPU_EAGER, total=19),
    # source paths instead of names; killed with SIGKILL, of which the log knows nothing
    Case(CPU + "dbg", outcome="ready", ready=True, seconds={"container": None, "config": 6, "engine_init": 6,
        "weights": 1, "kv_cache": 0, "engine_ready": 1, "server": 0}, skipped=NEVER_ON_CPU_EAGER, total=14),
    Case(CPU + "json", outcome="stopped", ready=True, seconds={"container": None, "config": 6.36,
        "engine_init": 7.341, "weights": 1.163, "kv_cache": 0.001, "engine_ready": 0.777, "server": 1.052},
        skipped=NEVER_ON_CPU_EAGER, facts={"version": "0.32.0", "model": "tiny/tiny-qwen3", "kv_tokens": 524_288},
        total=16.694),
    Case(CPU + "spec", outcome="stopped", ready=True, seconds={"container": None, "config": 6, "engine_init": 11,
        "weights": 1, "kv_cache": 0, "engine_ready": 3, "server": 1}, skipped=NEVER_ON_CPU_EAGER,
        facts={"speculation": "ngram 3", "max_concurrency": 256.0}, total=22),
    Case(CPU + "tty-colour", outcome="ready", ready=True, seconds={"container": None, "config": 6, "engine_init": 7,
        "weights": 1, "kv_cache": 0, "engine_ready": 2, "server": 0}, skipped=NEVER_ON_CPU_EAGER,
        facts={"version": "0.32.0", "model": "tiny/tiny-qwen3"}, total=16),
]  # fmt: skip

FAILURES = [
    # compiled, served, then its engine core was killed
    Case(CPU + "r1", outcome="failed", ready=True, seconds={"container": None, "config": 14, "engine_init": 7,
        "weights": 1, "compile": 36, "kv_cache": 0, "engine_ready": 1, "server": 1},
        skipped=("download", "autotune", "capture"), failure="engine core exited unexpectedly", process="APIServer",
        total=60),
    # the tail of a log: it served, then a worker was killed
    Case(CPU + "crash-worker-sigkill", outcome="failed", ready=True, seconds={},
        skipped=tuple(phase for phase in PhaseId if phase not in (PhaseId.READY, PhaseId.WARM)),
        failure="Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor.",
        process="EngineCore"),
    Case(CPU + "fatal-kv-space-zero", outcome="failed", ready=False, seconds={"container": 0, "config": 5.701,
        "engine_init": 7, "weights": 1}, skipped=("download", "compile", "capture"), broken="kv_cache",
        failure="ValueError: No available memory for the cache blocks. Try increasing", process="EngineCore",
        facts={"kv_gib": 0.0}),
    Case(CPU + "fatal-max-model-len-absurd", outcome="failed", ready=False, seconds={"container": 0}, skipped=EAGER,
        broken="config",
        failure="Value error, User-specified max_model_len (1000000) is greater than the derived max_model_len"),
    Case(CPU + "fatal-model-hub-offline", outcome="failed", ready=False, seconds={"container": 0}, skipped=EAGER,
        broken="config",
        failure="huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder"),
    Case(CPU + "fatal-model-path-missing", outcome="failed", ready=False, seconds={"container": 0}, skipped=EAGER,
        broken="config", failure="huggingface_hub.errors.HFValidationError: Repo id must be in the form"),
    Case(CPU + "fatal-port-in-use", outcome="failed", ready=False, seconds={"container": 0}, skipped=EAGER,
        broken="config", failure="OSError: [Errno 98] Address already in use"),
    Case(CPU + "f_badarch", outcome="failed", ready=False, seconds={"container": 0}, skipped=EAGER, broken="config",
        failure="Value error, The checkpoint you are trying to load has model type `totallynew` but Transformers"),
    Case(CPU + "f_badarg", outcome="failed", ready=False, seconds={}, broken="container",
        failure="vllm: error: unrecognized arguments: --no-such-flag 3"),
    Case(CPU + "f_badquant", outcome="failed", ready=False, seconds={"container": 0}, skipped=EAGER, broken="config",
        failure="Value error, Unknown quantization method: foo. Must be one of"),
    Case(CPU + "f_maxlen", outcome="failed", ready=False, seconds={"container": 0}, skipped=EAGER, broken="config",
        failure="Value error, User-specified max_model_len (999999) is greater than"),
    Case(
        CPU + "f_missing",
        outcome="failed",
        ready=False,
        seconds={"container": 0, "config": 6, "engine_init": 8},
        skipped=("download", "compile", "capture"),
        broken="weights",
        failure="FileNotFoundError: Weight files referenced in index but missing: {'tiny/missing/model-00003-of-00004",
        process="Worker",
    ),
    Case(CPU + "f_nomodel_off", outcome="failed", ready=False, seconds={"container": 0}, skipped=EAGER,
        broken="config",
        failure="huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder"),
    # three chained exceptions: the last one says it in a person's words
    Case(CPU + "f_nomodel_on", outcome="failed", ready=False, seconds={"container": 0}, skipped=EAGER,
        broken="config", failure="OSError: We couldn't connect to 'https://huggingface.co' to load the files"),
    Case(CPU + "f_nvfp4", outcome="failed", ready=False, seconds={"container": 0, "config": 15, "engine_init": 8},
        skipped=("download", "compile", "capture"), broken="weights",
        failure="ValueError: Failed to find a kernel that can implement the NVFP4 linear layer. Reasons:",
        process="Worker", facts={"quantization": "modelopt_fp4", "kv_cache_dtype": "fp8_e4m3"}),
    Case(CPU + "f_port", outcome="failed", ready=False, seconds={"container": 0}, skipped=EAGER, broken="config",
        failure="OSError: [Errno 98] Address already in use"),
    # EngineDeadError in it is how a stopped engine looks from the API server
    Case(CPU + "sigint-idle", outcome="stopped", ready=False, seconds={}, skipped=("container",)),
    Case(CPU + "sigterm-inflight", outcome="stopped", ready=False, seconds={}, skipped=("container",)),
]  # fmt: skip

ALL = [*STARTS, *FAILURES]


@pytest.mark.parametrize("case", ALL, ids=[case.log for case in ALL])
def test_a_real_log_is_read_right(case: Case) -> None:
    timeline = track(run_log(case.log))
    states = {phase.id.value: phase.state for phase in timeline.phases}
    over = {phase.id.value: phase.seconds for phase in timeline.phases if phase.state is PhaseState.DONE}
    over.pop("ready", None)
    assert over == pytest.approx(case.seconds, abs=0.002)
    assert {name for name, state in states.items() if state is PhaseState.SKIPPED} == set(case.skipped)
    assert [name for name, state in states.items() if state is PhaseState.RUNNING] == [case.running] * bool(
        case.running
    )
    assert [name for name, state in states.items() if state is PhaseState.FAILED] == [case.broken] * bool(case.broken)
    assert (timeline.outcome, timeline.ready) == (case.outcome, case.ready)
    assert {name: timeline.phase(name).detail for name in case.details} == case.details
    assert {name: getattr(timeline.facts, name) for name in case.facts} == case.facts
    assert timeline.seconds == (None if case.total is None else pytest.approx(case.total, abs=0.002))
    if case.failure:
        assert timeline.failure is not None
        assert case.failure in timeline.failure.line
        assert timeline.failure.process == case.process
        assert not timeline.failure.guess
    else:
        assert timeline.failure is None


def test_every_log_of_the_fixtures_has_an_expectation() -> None:
    streams = {name.removesuffix(".stdout").removesuffix(".stderr") for name in log_names()}
    assert streams == {case.log for case in ALL}


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


@pytest.mark.parametrize("name", [case.log for case in ALL if case.total is not None])
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
    assert (parts.phases, parts.facts, parts.failure, parts.outcome) == (
        whole.phases,
        whole.facts,
        whole.failure,
        whole.outcome,
    )


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(max_size=120) | st.sampled_from(read_log(GB10)), max_size=30))
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
    assert before.outcome is Outcome.READY
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


@pytest.mark.parametrize(
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
    assert timeline.outcome is Outcome.READY
    assert timeline.failure is None
    assert timeline.seconds == 14
    again = track([*first, *first])
    assert again.failure is not None
    assert again.failure.line == "OSError: [Errno 98] Address already in use"


def test_several_api_servers_print_one_banner_each_of_one_start() -> None:
    tracker = LogTracker()
    feed(tracker, line("21:00:00", "vLLM API server version 0.16.0", "ApiServer_0"))
    feed(tracker, line("21:00:05", "Initializing a V1 LLM engine (v0.16.0) with config: model='x'"))
    timeline = feed(tracker, line("21:00:06", "vLLM API server version 0.16.0", "ApiServer_1"))
    assert timeline.phase("engine_init").state is PhaseState.RUNNING


def test_a_usage_error_after_a_served_start_belongs_to_the_next_one() -> None:
    timeline = track([*run_log(CPU + "01-first-start")[:101], "vllm serve: error: unrecognized arguments: --x"])
    assert timeline.outcome is Outcome.FAILED
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
    assert timeline.outcome is Outcome.STARTING


def test_the_old_eras_prefix_on_every_line_changes_nothing() -> None:
    old = [text if text.startswith("(") else f"(APIServer pid=1) {text}" for text in run_log(CPU + "f_missing")]
    timeline = track(old)
    assert timeline.failure is not None
    assert timeline.failure.line.startswith("FileNotFoundError: Weight files referenced")


@pytest.mark.parametrize(
    ("code", "outcome", "words"),
    [
        (0, Outcome.STOPPED, ""),
        (143, Outcome.STOPPED, ""),
        (137, Outcome.FAILED, "killed (exit code 137)"),
        (127, Outcome.FAILED, "bash: vllm: command not found"),
    ],
)
def test_a_container_that_ended_without_a_reason_is_a_guess(code: int, outcome: Outcome, words: str) -> None:
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
