"""The server's own figures for the time of a benchmark: what its histograms and counters say, beside ours.

The difference of two pages of vLLM's `/metrics` has the exact sum and count of every latency, so its mean is exact;
its quantiles are known no finer than their bucket. A page counts every client's requests: when it counts more than
we sent, somebody else used the engine meanwhile.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spark_tui.domain.bench.record import Outcome, RequestRecord

TTFT: Final = "vllm:time_to_first_token_seconds"
ITL: Final = "vllm:inter_token_latency_seconds"
E2E: Final = "vllm:e2e_request_latency_seconds"
QUEUE: Final = "vllm:request_queue_time_seconds"
HISTOGRAMS: Final = (TTFT, ITL, E2E, QUEUE)
PROMPT_TOKENS: Final = "vllm:prompt_tokens_total"
OUTPUT_TOKENS: Final = "vllm:generation_tokens_total"
CACHE_QUERIES: Final = "vllm:prefix_cache_queries_total"
CACHE_HITS: Final = "vllm:prefix_cache_hits_total"
PREEMPTIONS: Final = "vllm:num_preemptions_total"
DRAFTED: Final = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED: Final = "vllm:spec_decode_num_accepted_tokens_total"
COUNTERS: Final = (PROMPT_TOKENS, OUTPUT_TOKENS, CACHE_QUERIES, CACHE_HITS, PREEMPTIONS, DRAFTED, ACCEPTED)
RUNNING: Final = "vllm:num_requests_running"

_LINE: Final = re.compile(r"^(vllm:[A-Za-z0-9_:]+)(?:\{(.*)\})?[ \t]+([-+.0-9eEinfINFaNA]+)(?:[ \t]+\d+)?$")
_EDGE: Final = re.compile(r'(?:^|,)le="([^"]{1,32})"')


@dataclass(frozen=True, slots=True)
class Bucket:
    """So many observations above `low` and up to `high`; seconds."""

    low: float
    high: float
    count: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram's growth between two pages."""

    count: float
    total: float
    buckets: tuple[Bucket, ...]

    @property
    def mean(self) -> float | None:
        """Exact: the sum over the count."""
        return self.total / self.count if self.count > 0 else None

    def bucket_of(self, percent: float) -> Bucket | None:
        """The bucket in which that percentile lies."""
        wanted, seen = self.count * percent / 100, 0.0
        for bucket in self.buckets:
            seen += bucket.count
            if bucket.count > 0 and seen >= wanted - 1e-9:
                return bucket
        return None


@dataclass(frozen=True, slots=True)
class ServerSide:
    """What the server counted between two pages, over all its engines. None: it does not tell."""

    ttft: Histogram | None = None
    itl: Histogram | None = None
    e2e: Histogram | None = None
    queue: Histogram | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    cache_hit_share: float | None = None
    preemptions: float | None = None
    acceptance: float | None = None


Page = Mapping[str, Mapping[str, float]]


def read_page(text: str) -> Page:
    """The samples that matter of an exposition page, by name and by upper bucket edge (empty for the others), summed
    over all other labels: over engines and models. Lines that are none are passed over."""
    found: dict[str, dict[str, float]] = {}
    wanted = (*(f"{name}{part}" for name in HISTOGRAMS for part in ("_bucket", "_sum", "_count")), *COUNTERS, RUNNING)
    for line in text.splitlines():
        match = _LINE.match(line) if line.startswith("vllm:") else None
        if match is None or match[1] not in wanted:
            continue
        edge = _EDGE.search(match[2] or "")
        try:
            value = float(match[3])
        except ValueError:
            continue
        samples = found.setdefault(match[1], {})
        key = edge[1] if edge else ""
        samples[key] = samples.get(key, 0.0) + value
    return found


def between(before: Page, after: Page) -> ServerSide | None:
    """What was added. None where a counter fell, for then the engine was restarted in between, or where the pages hold
    nothing that is known."""
    if not after or any(_fell(before, after, name) for name in (*COUNTERS, *(f"{name}_count" for name in HISTOGRAMS))):
        return None
    queries, hits = _grown(before, after, CACHE_QUERIES), _grown(before, after, CACHE_HITS)
    drafted, accepted = _grown(before, after, DRAFTED), _grown(before, after, ACCEPTED)
    return ServerSide(
        ttft=_histogram(before, after, TTFT),
        itl=_histogram(before, after, ITL),
        e2e=_histogram(before, after, E2E),
        queue=_histogram(before, after, QUEUE),
        prompt_tokens=_grown(before, after, PROMPT_TOKENS),
        output_tokens=_grown(before, after, OUTPUT_TOKENS),
        cache_hit_share=hits / queries if queries and hits is not None else None,
        preemptions=_grown(before, after, PREEMPTIONS),
        acceptance=accepted / drafted if drafted and accepted is not None else None,
    )


def running(page: Page) -> float | None:
    """Requests that the server works on now."""
    return page.get(RUNNING, {}).get("")


def _grown(before: Page, after: Page, name: str) -> float | None:
    value = after.get(name, {}).get("")
    return None if value is None else value - before.get(name, {}).get("", 0.0)


def _fell(before: Page, after: Page, name: str) -> bool:
    return before.get(name, {}).get("", 0.0) > after.get(name, {}).get("", 0.0)


def _histogram(before: Page, after: Page, name: str) -> Histogram | None:
    count, total = _grown(before, after, f"{name}_count"), _grown(before, after, f"{name}_sum")
    if count is None or total is None:
        return None
    first, last = before.get(f"{name}_bucket", {}), after.get(f"{name}_bucket", {})
    edges = sorted((_edge(text), value - first.get(text, 0.0)) for text, value in last.items())
    buckets, low, below = [], 0.0, 0.0
    for high, cumulative in edges:
        buckets.append(Bucket(low, high, cumulative - below))
        low, below = high, cumulative
    return Histogram(count, total, tuple(buckets))


def _edge(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.inf


# --- beside ours --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Check:
    """One figure from both sides. Seconds, or tokens for counts. `agrees` is None where it cannot be judged."""

    what: str
    ours: float
    low: float
    high: float
    agrees: bool | None


MEAN_TOLERANCE: Final = 0.10
"""The server measures inside, we measure outside: the way to it and back is in ours and not in its."""


def cross_check(side: ServerSide, records: Sequence[RequestRecord]) -> tuple[Check, ...]:
    """Our figures for all these requests beside the server's for the same time.

    Means are compared within 10 % or a millisecond; medians with the bucket in which the server's median lies, widened
    as much. Only meaningful when nobody else used the engine, and nothing was cancelled.
    """
    whole = [record for record in records if record.chunks]
    checks = [_count("output tokens", side.output_tokens, (record.completion_tokens for record in records))]
    checks.append(_count("prompt tokens", side.prompt_tokens, (record.prompt_tokens for record in records)))
    if all(record.outcome is Outcome.COMPLETE for record in records):
        for name, histogram, values in (
            ("TTFT", side.ttft, [record.ttft for record in whole]),
            ("ITL", side.itl, [itl for record in whole for itl in record.itls]),
            ("E2E", side.e2e, [record.e2e for record in whole]),
        ):
            checks += _latency(name, histogram, sorted(value for value in values if value is not None))
    return tuple(check for check in checks if check is not None)


def others(side: ServerSide, records: Sequence[RequestRecord]) -> int:
    """Requests that the server finished meanwhile and that were not ours."""
    if side.e2e is None:
        return 0
    return max(0, round(side.e2e.count) - sum(bool(record.chunks) for record in records))


def _count(what: str, theirs: float | None, ours: Iterable[int | None]) -> Check | None:
    if theirs is None:
        return None
    total = float(sum(count for count in ours if count is not None))
    return Check(what, total, theirs, theirs, total == theirs)


def _latency(name: str, histogram: Histogram | None, values: Sequence[float]) -> list[Check | None]:
    if histogram is None or not values or histogram.mean is None:
        return []
    mean = math.fsum(values) / len(values)
    theirs = histogram.mean
    checks: list[Check | None] = [Check(f"{name} mean", mean, theirs, theirs, _near(mean, theirs, theirs))]
    bucket = histogram.bucket_of(50)
    if bucket is not None:
        median = values[len(values) // 2]
        checks.append(Check(f"{name} median", median, bucket.low, bucket.high, _near(median, bucket.low, bucket.high)))
    return checks


def _near(value: float, low: float, high: float) -> bool:
    slack = max(0.001, MEAN_TOLERANCE * value)
    return low - slack <= value <= high + slack
