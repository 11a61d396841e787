"""The records of single requests, what the server counted meanwhile, percentiles and 95 % confidence intervals.

Percentiles are as `vllm bench serve` computes them: they interpolate linearly between order statistics (numpy's
default): the value at rank `(n - 1) * p / 100` of the sorted sample, counted from 0."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

from msgspec import Struct, field

from spark_tui.base.engine.answer import EventTooLong, SseDecoder, api_error, stream_error
from spark_tui.base.engine.metrics_page import Change, Family, MetricPage, Snapshot, percentile, restarted
from spark_tui.base.text import clean_line, truncate
from spark_tui.base.untrusted import load_json

CONFIDENCE: Final = 0.95

# Student's t for a two-sided interval of 95 %, by degrees of freedom; beyond the table the next smaller entry is
# taken, which errs on the wide side.
_T95: Final = (
    (1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (6, 2.447), (7, 2.365), (8, 2.306), (9, 2.262),
    (10, 2.228), (11, 2.201), (12, 2.179), (13, 2.160), (14, 2.145), (15, 2.131), (16, 2.120), (17, 2.110),
    (18, 2.101), (19, 2.093), (20, 2.086), (25, 2.060), (30, 2.042), (40, 2.021), (60, 2.000), (120, 1.980),
)  # fmt: skip


class ConfidenceInterval(Struct, frozen=True):
    """A 95 % confidence interval."""

    low: float
    high: float


class Distribution(Struct, frozen=True):
    """A sample in figures; the unit is its values'. `std` is the sample's standard deviation (n - 1), 0 for one
    value. `median_interval` is None where the sample is too small to have one (fewer than 6 values)."""

    count: int
    mean: float
    std: float
    least: float
    p50: float
    p90: float
    p95: float
    p99: float
    most: float
    median_interval: ConfidenceInterval | None = None


def distribution(values: Iterable[float]) -> Distribution | None:
    """The figures of a sample; None for an empty one: there is no zero to report."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Distribution(
        count=len(ordered),
        mean=math.fsum(ordered) / len(ordered),
        std=deviation(ordered),
        least=ordered[0],
        p50=percentile(ordered, 50),
        p90=percentile(ordered, 90),
        p95=percentile(ordered, 95),
        p99=percentile(ordered, 99),
        most=ordered[-1],
        median_interval=median_interval(ordered),
    )


def deviation(values: Sequence[float]) -> float:
    """The sample's standard deviation (n - 1); 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def mean_interval(values: Sequence[float]) -> ConfidenceInterval | None:
    """The mean's 95 % interval by Student's t; None for fewer than two values."""
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    half = student_t(len(values) - 1) * deviation(values) / math.sqrt(len(values))
    return ConfidenceInterval(mean - half, mean + half)


def median_interval(ordered: Sequence[float]) -> ConfidenceInterval | None:
    """The median's interval between two order statistics, whatever the distribution: it covers the true median with at
    least 95 %. None for fewer than 6 values, with which no pair of them does."""
    count = len(ordered)
    tail, rank = 0.5**count if count < 1000 else 0.0, 0
    if count >= 1000:
        rank = math.floor(count / 2 - 1.96 * math.sqrt(count) / 2)
        return ConfidenceInterval(ordered[rank], ordered[count - 1 - rank])
    if 2 * tail > 1 - CONFIDENCE:
        return None
    probability = tail
    while True:  # the largest rank whose both tails together stay within 5 %
        probability = probability * (count - rank) / (rank + 1)
        if 2 * (tail + probability) > 1 - CONFIDENCE:
            return ConfidenceInterval(ordered[rank], ordered[count - 1 - rank])
        tail, rank = tail + probability, rank + 1


def student_t(freedom: int) -> float:
    """Student's t for a two-sided 95 % interval."""
    return next(value for degrees, value in reversed(_T95) if degrees <= max(1, freedom))


# --- record ----------------------------------------------------------------------------------------------


class RequestOutcome(StrEnum):
    """How a request ended. Only the first kind enters latency figures; all others are reported beside them."""

    COMPLETE = "complete"
    SHORT = "short"
    TRUNCATED = "truncated"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RequestRecord(Struct, frozen=True):
    """One request. `stream` counts the level's streams from 0; `chunks` are the times of the pieces that held a
    choice. Token counts are the server's own, None where it gave none. `error` says what went wrong, in one line."""

    number: int
    stream: int
    sent: float
    ended: float
    asked_input: int
    asked_output: int
    chunks: tuple[float, ...] = ()
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str = ""
    status: int = 0
    error: str = ""
    cancelled: bool = False

    @property
    def outcome(self) -> RequestOutcome:
        if self.cancelled:
            return RequestOutcome.CANCELLED
        if self.error and not self.chunks:
            return RequestOutcome.FAILED
        if self.error:
            return RequestOutcome.TRUNCATED
        if not self.chunks or self.completion_tokens is None:
            return RequestOutcome.FAILED
        return RequestOutcome.COMPLETE if self.completion_tokens >= self.asked_output else RequestOutcome.SHORT

    @property
    def ttft(self) -> float | None:
        """Seconds to the first token."""
        return self.chunks[0] - self.sent if self.chunks else None

    @property
    def e2e(self) -> float | None:
        """Seconds to the last token."""
        return self.chunks[-1] - self.sent if self.chunks else None

    @property
    def itls(self) -> tuple[float, ...]:
        return tuple(after - before for before, after in pairwise(self.chunks))

    @property
    def tpot(self) -> float | None:
        """Seconds per token after the first one; None for fewer than two tokens."""
        tokens = self.completion_tokens
        if tokens is None or tokens < 2 or not self.chunks:
            return None
        return (self.chunks[-1] - self.chunks[0]) / (tokens - 1)

    @property
    def decode_rate(self) -> float | None:
        """Tokens per second of this stream after its first token: 1 / TPOT."""
        tpot = self.tpot
        return 1 / tpot if tpot else None

    @property
    def stream_rate(self) -> float | None:
        """Tokens per second of this stream with its waiting and prefill: tokens / E2E."""
        e2e = self.e2e
        return self.completion_tokens / e2e if e2e and self.completion_tokens is not None else None

    @property
    def prefill_rate(self) -> float | None:
        """Prompt tokens per second up to the first token, those found in the prefix cache left out. It contains the
        queue and one decode step, so it is a little below the engine's own prefill rate, and more so for short
        prompts."""
        ttft = self.ttft
        if not ttft or self.prompt_tokens is None:
            return None
        computed = self.prompt_tokens - (self.cached_tokens or 0)
        return computed / ttft if computed > 0 else None

    @property
    def wrong_length(self) -> bool:
        """The server counted another number of prompt tokens than was meant."""
        return self.prompt_tokens is not None and self.prompt_tokens != self.asked_input


DONE = "[DONE]"
COMPLETIONS_PATH = "/v1/completions"
MAX_ERROR_CHARS = 300


class Reply(Struct):
    """What a stream held: the times of the pieces with a choice, the usage, and how it ended."""

    chunks: list[float] = field(default_factory=list)
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str = ""
    done: bool = False
    error: str = ""


class WireExchange(Struct, frozen=True):
    """One request on the wire: `pieces` are (time, body bytes) as they came, `broken` why the connection failed."""

    number: int
    stream: int
    sent: float
    ended: float
    asked_input: int
    asked_output: int
    status: int = 0
    pieces: tuple[tuple[float, bytes], ...] = ()
    broken: str = ""
    cancelled: bool = False


def record_of(exchange: WireExchange) -> RequestRecord:
    """The record of an exchange. Never raises: what cannot be read is the record's error."""
    reply = Reply()
    if exchange.status == 200:
        read_stream(exchange.pieces, reply)
        if not reply.error and not exchange.broken and not exchange.cancelled:
            if not reply.done and not reply.finish_reason:
                reply.error = "the answer broke off"
            elif reply.completion_tokens is None:
                reply.error = "the server reported no usage: its tokens cannot be counted"
    elif exchange.status:
        body = b"".join(piece for _, piece in exchange.pieces).decode("utf-8", "replace")
        reply.error = api_error(exchange.status, body, path=COMPLETIONS_PATH).summary
    return RequestRecord(
        number=exchange.number,
        stream=exchange.stream,
        sent=exchange.sent,
        ended=exchange.ended,
        asked_input=exchange.asked_input,
        asked_output=exchange.asked_output,
        chunks=tuple(reply.chunks),
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        cached_tokens=reply.cached_tokens,
        finish_reason=reply.finish_reason,
        status=exchange.status,
        error=truncate(clean_line(reply.error or exchange.broken), MAX_ERROR_CHARS),
        cancelled=exchange.cancelled,
    )


def read_stream(pieces: Iterable[tuple[float, bytes]], reply: Reply) -> None:
    """Fills the reply. An event has the time of the piece that completed it."""
    decoder = SseDecoder()
    for at, piece in pieces:
        try:
            for data in decoder.feed(piece):
                _event(data, at, reply)
        except EventTooLong as error:
            reply.error = f"the engine sent {error}"
        if reply.error or reply.done:
            return


def _event(data: str, at: float, reply: Reply) -> None:
    if data.strip() == DONE:
        reply.done = True
        return
    try:
        event = load_json(data)
    except ValueError:
        reply.error = f"the engine sent something that is not JSON: {data[:80]}"
        return
    if not isinstance(event, dict):
        return
    if event.get("error") or event.get("object") == "error":
        reply.error = stream_error(event).summary
        return
    choices = event.get("choices")
    if isinstance(choices, list) and choices:
        reply.chunks.append(at)
        reason = choices[0].get("finish_reason") if isinstance(choices[0], dict) else None
        if isinstance(reason, str) and reason:
            reply.finish_reason = reason
            if reason == "abort":  # vLLM, for the answers that a shutdown interrupts
                reply.error = "the engine aborted the answer"
    usage = event.get("usage")
    if isinstance(usage, dict):
        reply.prompt_tokens = _count(usage.get("prompt_tokens"), reply.prompt_tokens)
        reply.completion_tokens = _count(usage.get("completion_tokens"), reply.completion_tokens)
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict):
            reply.cached_tokens = _count(details.get("cached_tokens"), reply.cached_tokens)


def _count(value: Any, before: int | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else before


# --- server side -----------------------------------------------------------------------------------------


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
