"""What is worth a person's attention about an engine, live or after the fact. Silent when all is well.

Pure functions; evidence is a line of the log where one proves it, so that a log view can jump to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from spark_tui.domain.engine import findings_serving as serving
from spark_tui.domain.engine import findings_start as start
from spark_tui.domain.engine.endpoint import Health
from spark_tui.domain.engine.finding import Baseline, Finding, FindingId, Level, Observation
from spark_tui.domain.engine.findings_serving import single_stream_rate
from spark_tui.domain.engine.kernels import Fp4Verdict, fp4_verdict
from spark_tui.domain.engine.serving_lines import ServingSample
from spark_tui.domain.engine.timeline import BootTimeline

__all__ = [
    "Baseline",
    "Finding",
    "FindingId",
    "Level",
    "findings",
    "sample_between",
    "single_stream_rate",
]

RULES: Final[tuple[Callable[[Observation], list[Finding]], ...]] = (
    serving.hang,
    start.graph_estimate,
    start.fp4_path,
    start.refused_backends,
    start.capture_sizes,
    serving.acceptance,
    serving.preemptions,
    serving.kv_nearly_full,
    serving.waiting,
    serving.below_baseline,
    start.unknown_variables,
    serving.prefix_cache,
    start.padding,
    start.eager,
)
"""Of findings that matter equally the earlier one is shown first."""


def findings(
    timeline: BootTimeline,
    samples: Sequence[ServingSample] = (),
    *,
    health: Health = Health.UNKNOWN,
    now: float | None = None,
    baseline: Baseline | None = None,
    pool_gib: float | None = None,
    fp4: Fp4Verdict | None = None,
) -> tuple[Finding, ...]:
    """Everything worth saying, the worst first; nothing for a healthy engine. Never raises.

    `samples` come from a `ServingReader` or from `sample_between`. A hang is only spoken of with `now` (on the clock
    of the samples) and a `health` of OK. `fp4` is the verdict where flags and checkpoint are known; else the log's.
    """
    facts = timeline.facts
    seen = Observation(facts, fp4 or fp4_verdict(facts), tuple(samples), health, now, baseline, pool_gib)
    order = tuple(Level)
    return tuple(sorted((found for rule in RULES for found in rule(seen)), key=lambda found: order.index(found.level)))


# --- from /metrics ----------------------------------------------------------------------------------------


def sample_between(
    before: Mapping[str, float], after: Mapping[str, float], seconds: float, at: float | None = None
) -> ServingSample:
    """A sample from two readings of vLLM's `/metrics`, `seconds` apart, as name -> value without labels, summed over
    engines: `vllm:prompt_tokens_total`, `vllm:num_requests_running`, `vllm:kv_cache_usage_perc` ... What is missing
    stays None; a counter that has fallen (the server was started again) counts from zero."""

    def grown(name: str) -> float | None:
        now = after.get(name)
        if now is None:
            return None
        then = before.get(name, 0.0)
        return now - then if now >= then else now

    def rate(name: str) -> float | None:
        tokens = grown(name)
        return None if tokens is None or seconds <= 0 else tokens / seconds

    hits, queries = grown("vllm:prefix_cache_hits_total"), grown("vllm:prefix_cache_queries_total")
    usage = after.get("vllm:kv_cache_usage_perc")
    return ServingSample(
        at=at,
        prompt_rate=rate("vllm:prompt_tokens_total"),
        generation_rate=rate("vllm:generation_tokens_total"),
        running=_whole(after.get("vllm:num_requests_running")),
        waiting=_whole(after.get("vllm:num_requests_waiting")),
        preemptions=_whole(grown("vllm:num_preemptions_total")),
        kv_percent=None if usage is None else usage * 100,
        prefix_hit_percent=None if hits is None or not queries else hits / queries * 100,
        accepted=_whole(grown("vllm:spec_decode_num_accepted_tokens_total")),
        drafted=_whole(grown("vllm:spec_decode_num_draft_tokens_total")),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None or value != value or abs(value) == float("inf") else int(value)
