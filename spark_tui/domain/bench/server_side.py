"""The server's own figures for the time of a benchmark: what its histograms and counters say, beside ours.

The difference of two pages of vLLM's `/metrics` has the exact sum and count of every latency, so its mean is exact;
its quantiles are known no finer than their bucket. A page counts every client's requests: when it counts more than
we sent, somebody else used the engine meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from spark_tui.domain.bench.record import Outcome, RequestRecord
from spark_tui.domain.metrics.page import Change, Family, MetricPage, Snapshot, restarted


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


def _histogram(change: Change, family: Family) -> Histogram | None:
    found = change.histogram(family)
    if found is None or found.sum is None:
        return None
    buckets, low, below = [], 0.0, 0.0
    for high, upto in zip(found.bounds, found.counts, strict=True):
        buckets.append(Bucket(low, high, upto - below))
        low, below = high, upto
    return Histogram(found.count, found.sum, tuple(buckets))


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
