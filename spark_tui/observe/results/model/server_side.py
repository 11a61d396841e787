"""The server's own figures for the time of a benchmark: what its histograms and counters say, beside ours.

The difference of two pages of vLLM's `/metrics` has the exact sum and count of every latency, so its mean is exact;
its quantiles are known no finer than their bucket. A page counts every client's requests: when it counts more than
we sent, another client used the engine meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from spark_tui.base.engine.metrics_page import Change, Family, MetricPage, Snapshot, restarted
from spark_tui.observe.results.model.record import RequestOutcome, RequestRecord


class HistogramBucket(Struct, frozen=True):
    """`count` observations above `low` and up to `high`; seconds."""

    low: float
    high: float
    count: float


class ServerHistogram(Struct, frozen=True):
    """A histogram's growth between two pages."""

    count: float
    total: float
    buckets: tuple[HistogramBucket, ...]

    @property
    def mean(self) -> float | None:
        """Exact: the sum over the count."""
        return self.total / self.count if self.count > 0 else None

    def bucket_of(self, percent: float) -> HistogramBucket | None:
        wanted, seen = self.count * percent / 100, 0.0
        for bucket in self.buckets:
            seen += bucket.count
            if bucket.count > 0 and seen >= wanted - 1e-9:
                return bucket
        return None


class ServerSide(Struct, frozen=True):
    """What the server counted between two pages, over all its engines. None: not reported."""

    ttft: ServerHistogram | None = None
    itl: ServerHistogram | None = None
    e2e: ServerHistogram | None = None
    queue: ServerHistogram | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    cache_hit_share: float | None = None
    preemptions: float | None = None
    acceptance: float | None = None


def between(before: MetricPage, after: MetricPage) -> ServerSide | None:
    """What was added. None where the engine was restarted in between, or where one of the pages is empty."""
    if not before.groups or not after.groups or restarted(before, after):
        return None
    change = Change(Snapshot(0.0, before), Snapshot(0.0, after), None)
    queries, hits = change.grown(Family.PREFIX_QUERIES), change.grown(Family.PREFIX_HITS)
    drafted, accepted = change.grown(Family.DRAFT_TOKENS), change.grown(Family.ACCEPTED)
    return ServerSide(
        ttft=_histogram(change, Family.TTFT),
        itl=_histogram(change, Family.ITL),
        e2e=_histogram(change, Family.E2E),
        queue=_histogram(change, Family.QUEUE),
        prompt_tokens=change.grown(Family.PROMPT),
        output_tokens=change.grown(Family.GENERATED),
        cache_hit_share=hits / queries if queries and hits is not None else None,
        preemptions=change.grown(Family.PREEMPTIONS),
        acceptance=accepted / drafted if drafted and accepted is not None else None,
    )


def _histogram(change: Change, family: Family) -> ServerHistogram | None:
    found = change.histogram(family)
    if found is None or found.sum is None:
        return None
    buckets, low, below = [], 0.0, 0.0
    for high, upto in zip(found.bounds, found.counts, strict=True):
        buckets.append(HistogramBucket(low, high, upto - below))
        low, below = high, upto
    return ServerHistogram(found.count, found.sum, tuple(buckets))


class ServerCheck(Struct, frozen=True):
    """One figure from both sides. Seconds, or tokens for counts. `agrees` is None where it cannot be judged."""

    what: str
    ours: float
    low: float
    high: float
    agrees: bool | None = None


MEAN_TOLERANCE: Final = 0.10
"""The server measures inside, we measure outside: the way to it and back is in ours and not in its."""


def cross_check(side: ServerSide, records: Sequence[RequestRecord]) -> tuple[ServerCheck, ...]:
    """Our figures for all these requests beside the server's for the same time.

    Means are compared within 10 % or a millisecond; medians with the bucket in which the server's median lies, widened
    as much. Only meaningful when no other client used the engine, and nothing was cancelled.
    """
    checks = []
    for what, theirs, counts in (
        ("output tokens", side.output_tokens, [record.completion_tokens for record in records]),
        ("prompt tokens", side.prompt_tokens, [record.prompt_tokens for record in records]),
    ):
        if theirs is not None:
            total = float(sum(count for count in counts if count is not None))
            checks.append(ServerCheck(what, total, theirs, theirs, total == theirs))
    if any(record.outcome is not RequestOutcome.COMPLETE for record in records):
        return tuple(checks)
    for what, histogram, values in (
        ("TTFT", side.ttft, [record.ttft for record in records]),
        ("ITL", side.itl, [itl for record in records for itl in record.itls]),
        ("E2E", side.e2e, [record.e2e for record in records]),
    ):
        ours = sorted(value for value in values if value is not None)
        if histogram is None or histogram.mean is None or not ours:
            continue
        mean, median, bucket = math.fsum(ours) / len(ours), ours[len(ours) // 2], histogram.bucket_of(50)
        checks.append(_check(f"{what} mean", mean, histogram.mean, histogram.mean))
        if bucket is not None:
            checks.append(_check(f"{what} median", median, bucket.low, bucket.high))
    return tuple(checks)


def _check(what: str, ours: float, low: float, high: float) -> ServerCheck:
    slack = max(0.001, MEAN_TOLERANCE * ours)
    return ServerCheck(what, ours, low, high, low - slack <= ours <= high + slack)


def others(side: ServerSide, records: Sequence[RequestRecord]) -> int:
    """Requests that the server finished meanwhile and that were not ours."""
    if side.e2e is None:
        return 0
    return max(0, round(side.e2e.count) - sum(bool(record.chunks) for record in records))
