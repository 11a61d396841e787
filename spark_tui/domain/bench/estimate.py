"""How long a benchmark will take, from what is known before it: an earlier run of the model, or a published speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from spark_tui.domain.bench.level import Level
from spark_tui.domain.bench.plan import BenchPlan, segments
from spark_tui.domain.bench.run import BenchRun, Ending

WARM_UP_TOKENS: Final = 16
"""A warm-up request asks for no more."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds; `at_least`: prefill and waiting come on top."""

    seconds: float
    at_least: bool = False


def estimate(plan: BenchPlan, *, before: BenchRun | None = None, decode_rate: float | None = None) -> Estimate | None:
    """How long the plan takes on one engine. `before` is an earlier, completed run of the same model, `decode_rate`
    somebody's tokens per second of one stream. None: nothing is known.

    From a run: its own duration, times the ratio of both loads in stream seconds, by its latencies at the nearest
    levels. Its tokenizing, warm-up and waits are so in it too.
    """
    if before is not None and before.ending is Ending.COMPLETED and before.seconds > 0:
        was, will = _stream_seconds(before.plan, before.levels), _stream_seconds(plan, before.levels)
        if was and will:
            return Estimate(before.seconds * will / was)
    if decode_rate:
        rounds = sum(segment.requests / segment.streams for segment in segments(plan))
        return Estimate(rounds * plan.output_tokens / decode_rate, at_least=True)
    return None


def _stream_seconds(plan: BenchPlan, levels: Sequence[Level]) -> float | None:
    """What each stream of each segment takes, one segment after the other, by the latencies of these levels."""
    total = 0.0
    for segment in segments(plan):
        found = _request_seconds(segment.streams, segment.input_tokens, segment.output_tokens, levels)
        if found is None:
            return None
        total += found * segment.requests / segment.streams
    for streams in {1, *plan.concurrency} if plan.warmup else ():
        asked = plan.input_tokens if plan.concurrency else min(plan.depths)
        output = max(2, min(WARM_UP_TOKENS, plan.output_tokens))
        total += (_request_seconds(streams, asked, output, levels) or 0.0) * plan.warmup
    return total


def _request_seconds(streams: int, prompt: int, output: int, levels: Sequence[Level]) -> float | None:
    known = [level for level in levels if level.ttft is not None and level.tpot is not None]
    if not known:
        return None
    near = min(known, key=lambda each: (abs(math.log2(each.streams / streams)), abs(each.input_tokens - prompt)))
    if near.ttft is None or near.tpot is None:
        return None
    more = max(1.0, streams / near.streams)  # beyond the levels that are known: prefill queues, steps grow slowly
    return near.ttft.p50 * more * prompt / near.input_tokens + near.tpot.p50 * math.sqrt(more) * (output - 1)
