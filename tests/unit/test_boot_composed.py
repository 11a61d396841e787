"""What the boot tracker says of starts that nobody recorded: see tests/fixtures/logs-composed/README.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pytest

from spark_tui.domain.logs.line import LogClock, parse_line
from spark_tui.domain.logs.timeline import BootTimeline, PhaseState
from spark_tui.domain.logs.tracker import LogTracker

LOGS = Path(__file__).parents[1] / "fixtures" / "logs-composed"


def read(name: str) -> list[str]:
    with (LOGS / f"{name}.log").open(encoding="utf-8", newline="\n") as file:
        return [line.removesuffix("\n") for line in file]


def track(lines: list[str]) -> BootTimeline:
    tracker = LogTracker()
    tracker.feed_many(("", line) for line in lines)
    return tracker.timeline()


@dataclass
class Case:
    """`seconds` per phase that has run and is over; what is neither there nor `pending` was skipped."""

    log: str
    seconds: dict[str, float]
    total: float | None
    outcome: str = "ready"
    broken: str = ""
    details: dict[str, str] = field(default_factory=dict)
    facts: dict[str, object] = field(default_factory=dict)


CASES = [
    Case(
        "vllm-0.14-tp2-eager",  # weights last until the slower rank has them
        seconds={"container": 2, "config": 14, "engine_init": 8, "weights": 45, "kv_cache": 7}
        | {"engine_ready": 2, "server": 3},
        total=81,
        details={"weights": "18.55 GiB", "kv_cache": "787,968 tokens", "server": "http://0.0.0.0:8000"},
        facts={"version": "0.14.1", "model": "acme/dense-NVFP4", "eager": True, "fp4_linear": "flashinfer-cutlass"}
        | {"attention": "FLASHINFER", "max_model_len": 32768, "max_concurrency": 24.05, "init_seconds": 11.21},
    ),
    Case(
        "vllm-0.17-drafter",  # downloads twice, loads shards twice, compiles twice (from the cache), captures two kinds
        seconds={"container": 0, "config": 15, "engine_init": 5, "download": 65, "weights": 113 - 65, "compile": 12}
        | {"kv_cache": 8, "autotune": 7.6, "capture": 7.4, "engine_ready": 1, "server": 3},
        total=172,
        details={"weights": "61.2 GiB", "compile": "from cache", "capture": "-0.81 GiB"},
        facts={"speculation": "eagle3 3", "compile_seconds": 8.0, "graph_actual_gib": -0.81, "kv_cache_dtype": "fp8"},
    ),
    # compile times of engines that compile at once are not added up
    Case("vllm-0.25-dp2-api2", seconds={"container": 0, "config": 12, "engine_init": 6, "weights": 4, "compile": 23,
        "kv_cache": 4} | {"capture": 7, "engine_ready": 0, "server": 7}, total=63,
        details={"compile": "torch.compile 14s", "kv_cache": "219,248 tokens", "server": "http://0.0.0.0:8000"},
        facts={"version": "0.25.1", "kv_tokens": 219_248, "compile_seconds": 14.5}),
    # captures once to measure, before the KV cache has its size
    Case("vllm-0.29-v2-runner", seconds={"container": 0, "config": 14, "engine_init": 7, "weights": 18, "compile": 25,
        "kv_cache": 5} | {"autotune": 4, "capture": 11, "engine_ready": 1, "server": 3}, total=88,
        details={"compile": "torch.compile 20s", "capture": "0.90 GiB", "kv_cache": "318,496 tokens"},
        facts={"checkpoint_gib": 27.5, "kv_gib": 48.6, "max_concurrency": 4.86, "graph_actual_gib": 0.9}),
    # no uvicorn; a record glued to the bar before it
    Case("vllm-0.33-rust-frontend", seconds={"container": 0, "config": 12, "engine_init": 5, "weights": 22,
        "compile": 10, "kv_cache": 3} | {"autotune": 5, "capture": 5, "engine_ready": 1, "server": 3}, total=66,
        details={"compile": "from cache", "server": "http://0.0.0.0:8000"},
        facts={"fp4_linear": "FlashInferCutlassNvFp4LinearKernel", "compile_seconds": 3.1, "init_seconds": 24.0}),
    Case("vllm-0.33-json-v2-runner", seconds={"container": 0, "config": 14, "engine_init": 6, "weights": 32,
        "compile": 36, "kv_cache": 4.5} | {"capture": 7.5, "engine_ready": 0.5, "server": 1.7}, total=102.2,
        details={"compile": "torch.compile 30s", "kv_cache": "1,747,626 tokens"},
        facts={"version": "0.33.0", "model": "acme/moe", "fp4_moe": "MARLIN", "quantization": "mxfp4"}),
    # two workers fail at once, their tracebacks in one another
    Case("vllm-0.31-ray-tp2-oom", seconds={"container": 0, "config": 8, "engine_init": 12}, total=None,
        outcome="failed", broken="weights", details={"weights": "1/4 shards"}),
    Case("sglang-0.5", seconds={"container": 0, "config": 14, "engine_init": 2, "weights": 21, "kv_cache": 2,
        "capture": 10} | {"engine_ready": 1, "server": 5}, total=55, details={"weights": "8.80 GB",
        "kv_cache": "834,615 tokens", "capture": "4.23 GB"},
        facts={"model": "acme/dense-FP8", "quantization": "fp8", "max_model_len": 32768, "kv_gib": 108.24}),
    Case(
        "llama-cpp-b9421",
        seconds={"container": 0.04, "config": 0.002, "weights": 11.958, "kv_cache": 0.2, "engine_ready": 2.2},
        total=14.4,
        details={"weights": "17.27 GiB", "kv_cache": "65,536 tokens"},
        facts={"version": "b9421", "model": "/models/Qwen3-30B-A3B-Q4_K_M.gguf", "quantization": "Q4_K - Medium"}
        | {"architecture": "qwen3moe", "max_model_len": 65536, "kv_gib": 6.0, "checkpoint_gib": 17.28}
        | {"url": "http://0.0.0.0:8080"},
    ),
    # ready as soon as it listens; the first request loads the model
    Case("ollama-0.12", seconds={"container": 0, "config": 0.41, "server": 0, "warm": 9.16}, total=0.41,
        facts={"version": "0.12.3", "load_gib": 18.8, "kv_gib": 0.91, "url": "http://[::]:11434"}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case.log for case in CASES])
def test_a_composed_log_is_read_right(case: Case) -> None:
    timeline = track(read(case.log))
    over = {phase.id.value: phase.seconds for phase in timeline.phases if phase.state is PhaseState.DONE}
    over.pop("ready", None)
    assert over == pytest.approx(case.seconds, abs=0.002)
    assert [phase.id.value for phase in timeline.phases if phase.state is PhaseState.FAILED] == [case.broken] * bool(
        case.broken
    )
    assert (timeline.outcome, timeline.ready) == (case.outcome, case.outcome == "ready")
    assert timeline.seconds == (None if case.total is None else pytest.approx(case.total, abs=0.002))
    assert {name: timeline.phase(name).detail for name in case.details} == case.details
    assert {name: getattr(timeline.facts, name) for name in case.facts} == case.facts
    assert (timeline.failure is not None) == (case.outcome == "failed")


def test_every_composed_log_has_an_expectation() -> None:
    assert {path.stem for path in LOGS.glob("*.log")} == {case.log for case in CASES} | {"trtllm-1.2"}


def test_tensorrt_llm_with_dockers_stamps() -> None:
    """Most of its lines have no time of their own."""
    clock, tracker, lines = LogClock(), LogTracker(), read("trtllm-1.2")
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


@pytest.mark.parametrize("case", CASES, ids=[case.log for case in CASES])
@pytest.mark.parametrize("carried", ["journald", "compose", "docker logs -t", "colours", "old era"])
def test_who_carried_the_log_changes_nothing_but_the_clock(case: Case, carried: str) -> None:
    lines = read(case.log)
    before = {
        "journald": "Nov 21 02:16:18 spark docker[812]: ",
        "compose": "vllm-1  | ",
        "docker logs -t": f"{datetime(2026, 11, 21).isoformat()}.000000000Z ",
        "colours": "\x1b[0m",
        "old era": "",
    }[carried]
    if carried == "old era":  # then every line had its process
        lines = [line if line[:1] in "({[" else f"(APIServer pid=1) {line}" for line in lines]
    plain, dressed = track(read(case.log)), track([before + line for line in lines])
    assert [phase.state for phase in dressed.phases] == [phase.state for phase in plain.phases]
    assert [phase.detail for phase in dressed.phases] == [phase.detail for phase in plain.phases]
    assert (dressed.outcome, dressed.ready) == (plain.outcome, plain.ready)
