"""Logs for tests of verdicts and findings: real ones by name, and lines as a version of vLLM would write them."""

from __future__ import annotations

from spark_tui.base.engine.container import ContainerFacts, ContainerStatus
from spark_tui.base.engine.state import EngineState, Exposure
from spark_tui.observe.explain.model.serving import ServingSample
from spark_tui.observe.explain.model.timeline import BootTimeline, EngineFacts
from spark_tui.observe.explain.model.tracker import LogTracker
from spark_tui.observe.explain.model.view import EngineView


def core(*messages: str, level: str = "INFO", source: str = "x.py:1") -> list[str]:
    """Lines of the engine core, one second after the other."""
    return [
        f"(EngineCore pid=94) {level} 04-01 17:{number // 60:02d}:{number % 60:02d} [{source}] {message}"
        for number, message in enumerate(messages)
    ]


def banner(version: str, model: str = "acme/model-NVFP4", args: str = "") -> list[str]:
    """The logo's rows and the arguments."""
    head = "(APIServer pid=1) INFO 04-01 17:00:00 [utils.py:299]"
    more = f", {args}" if args else ""
    return [
        f"{head}  ▄▄ ▄█ █     █     █ ▀▄▀ █  version {version}",
        f"{head}   █▄█▀ █     █     █     █  model   {model}",
        f"{head} non-default args: {{'model_tag': '{model}'{more}, 'model': '{model}'}}",
    ]


def track(lines: list[str]) -> BootTimeline:
    """The timeline of a log."""
    tracker = LogTracker()
    tracker.feed_many(("", line) for line in lines)
    return tracker.timeline()


def facts_of(lines: list[str]) -> EngineFacts:
    """What a log says about its engine."""
    return track(lines).facts


def samples_of(lines: list[str]) -> tuple[ServingSample, ...]:
    """What a log says about serving."""
    tracker = LogTracker()
    tracker.feed_many(("", line) for line in lines)
    return tracker.samples


def stats(
    at: int, *, prompt: float = 0.0, generation: float = 0.0, running: int = 0, waiting: int = 0, kv: float = 1.0,
    prefix: float | None = 0.0, more: str = "",
) -> str:  # fmt: skip
    """A line of vLLM's periodic statistics, `at` seconds after 18:00."""
    hits = "" if prefix is None else f", Prefix cache hit rate: {prefix:.1f}%"
    return (
        f"(APIServer pid=1) INFO 04-01 18:{at // 60:02d}:{at % 60:02d} [loggers.py:335] Engine 000: Avg prompt "
        f"throughput: {prompt:.1f} tokens/s, Avg generation throughput: {generation:.1f} tokens/s, Running: {running} "
        f"reqs, Waiting: {waiting} reqs{more}, GPU KV cache usage: {kv:.1f}%{hits}"
    )


def drafts(at: int, accepted: int, drafted: int, positions: str = "0.964, 0.893") -> str:
    """A line of vLLM's statistics on speculation."""
    return (
        f"(APIServer pid=1) INFO 04-01 18:{at // 60:02d}:{at % 60:02d} [metrics.py:120] SpecDecoding metrics: Mean "
        f"acceptance length: 2.86, Accepted throughput: 0.75 tokens/s, Drafted throughput: 0.81 tokens/s, Accepted: "
        f"{accepted} tokens, Drafted: {drafted} tokens, Per-position acceptance rate: {positions}, Avg Draft "
        f"acceptance rate: {accepted / drafted if drafted else float('nan'):.1%}"
    )


PRESSED = tuple(stats(at, prompt=10.0, generation=9.0, running=2, waiting=3, kv=97.0) for at in range(0, 40, 10))
"""Four intervals of an engine whose KV cache is full."""


def view_of(
    lines: list[str], state: EngineState = EngineState.SERVING, exit_code: int | None = None, first_line: int = 0
) -> EngineView:
    """An engine with that log; with an exit code, one that has ended."""
    tracker = LogTracker()
    tracker.feed_many(("", line) for line in lines)
    status = ContainerStatus.RUNNING if exit_code is None else ContainerStatus.EXITED
    if exit_code is not None:
        tracker.container_ended(exit_code)
    container = ContainerFacts("a" * 64, "qwen", "vllm/vllm-openai:x", "", status, exit_code=exit_code)
    return EngineView(
        container, state, "vllm", Exposure.LOCAL, timeline=tracker.timeline(), samples=tracker.samples,
        first_line=first_line,
    )  # fmt: skip
