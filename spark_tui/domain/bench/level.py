"""A level: one number of streams and one prompt length, measured in several passes, in figures.

Throughput follows `vllm bench serve`: tokens that the server counted, over the time from the first request's sending
to the last one's end. Latencies are of complete requests alone; tokens of a request that ended early count as far as
the server counted them, for the engine made them in that time. How many requests were not complete, and why, always
stands beside the figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from spark_tui.domain.bench.plan import Segment
from spark_tui.domain.bench.record import Outcome, RequestRecord
from spark_tui.domain.bench.statistics import Distribution, Interval, distribution, mean_interval


@dataclass(frozen=True, slots=True)
class Pass:
    """One uninterrupted measurement of a segment. `finished` is false for one that was stopped."""

    segment: Segment
    records: tuple[RequestRecord, ...]
    finished: bool = True

    @property
    def seconds(self) -> float:
        """From the first request's sending to the last one's end; 0 without requests."""
        if not self.records:
            return 0.0
        return max(record.ended for record in self.records) - min(record.sent for record in self.records)

    @property
    def output_rate(self) -> float | None:
        """Output tokens per second of all streams together."""
        return _rate((record.completion_tokens for record in self.records), self.seconds)

    @property
    def total_rate(self) -> float | None:
        """Prompt and output tokens per second together."""
        counts = [record.completion_tokens for record in self.records]
        counts += [record.prompt_tokens for record in self.records if record.chunks]
        return _rate(counts, self.seconds)

    @property
    def request_rate(self) -> float | None:
        """Complete requests per second."""
        complete = sum(record.outcome is Outcome.COMPLETE for record in self.records)
        return complete / self.seconds if self.seconds > 0 else None


@dataclass(frozen=True, slots=True)
class Counts:
    """How the requests of a level ended."""

    complete: int = 0
    short: int = 0
    truncated: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def total(self) -> int:
        """All that were sent."""
        return self.complete + self.short + self.truncated + self.failed + self.cancelled

    @property
    def bad(self) -> int:
        """Those that neither completed nor were cancelled by us."""
        return self.short + self.truncated + self.failed

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.complete + other.complete, self.short + other.short, self.truncated + other.truncated,
            self.failed + other.failed, self.cancelled + other.cancelled,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Level:
    """The figures of one level. Seconds and tokens per second; a distribution is None where nothing was measured.

    `output_rate` is the mean over the passes that were finished, `pass_rates` are theirs in their order, and
    `output_interval` is their mean's 95 % interval (None for one pass). `decode_rate` is per stream after its first
    token, `stream_rate` per stream with its prefill, `prefill_rate` prompt tokens per second up to the first token.
    `peak_rate` is the most tokens that arrived within any one second. `tokens_per_chunk` is above 1 where the engine
    speculates: an inter-token latency is then one between pieces of so many tokens.
    """

    streams: int
    input_tokens: int
    output_tokens: int
    depth: bool
    counts: Counts
    passes: int
    seconds: float
    output_rate: float | None
    output_interval: Interval | None
    pass_rates: tuple[float, ...]
    total_rate: float | None
    request_rate: float | None
    peak_rate: float | None
    ttft: Distribution | None
    itl: Distribution | None
    tpot: Distribution | None
    e2e: Distribution | None
    decode_rate: Distribution | None
    stream_rate: Distribution | None
    prefill_rate: Distribution | None
    tokens_per_chunk: float | None
    errors: tuple[tuple[str, int], ...] = ()
    wrong_lengths: int = 0
    cached_tokens: int | None = None

    @property
    def key(self) -> tuple[bool, int, int]:
        """Levels of the sweep first, by streams; then depths, by length."""
        return (self.depth, self.streams, self.input_tokens)


def levels(passes: Sequence[Pass]) -> tuple[Level, ...]:
    """The figures of every level that was measured, the sweep first."""
    groups: dict[tuple[bool, int, int], list[Pass]] = {}
    for each in passes:
        segment = each.segment
        groups.setdefault((segment.depth, segment.streams, segment.input_tokens), []).append(each)
    return tuple(level(group) for _, group in sorted(groups.items()))


def level(passes: Sequence[Pass]) -> Level:
    """The figures of one level from its passes, of which there is at least one.

    Rates come from finished passes: the tail of one that was stopped has fewer streams than the level is about. When
    none was finished, from the one there is.
    """
    segment = passes[0].segment
    records = [record for each in passes for record in each.records]
    whole = [record for record in records if record.outcome is Outcome.COMPLETE]
    finished = [each for each in passes if each.finished] or list(passes)
    rates = _known(each.output_rate for each in finished)
    return Level(
        streams=segment.streams,
        input_tokens=segment.input_tokens,
        output_tokens=segment.output_tokens,
        depth=segment.depth,
        counts=counts(records),
        passes=sum(each.finished for each in passes),
        seconds=math.fsum(each.seconds for each in passes),
        output_rate=_mean(rates),
        output_interval=mean_interval(rates),
        pass_rates=tuple(rates),
        total_rate=_mean(_known(each.total_rate for each in finished)),
        request_rate=_mean(_known(each.request_rate for each in finished)),
        peak_rate=max((_peak(each.records) for each in finished), default=None),
        ttft=_over(whole, lambda record: record.ttft),
        itl=distribution(itl for record in whole for itl in record.itls),
        tpot=_over(whole, lambda record: record.tpot),
        e2e=_over(whole, lambda record: record.e2e),
        decode_rate=_over(whole, lambda record: record.decode_rate),
        stream_rate=_over(whole, lambda record: record.stream_rate),
        prefill_rate=_over(whole, lambda record: record.prefill_rate),
        tokens_per_chunk=_tokens_per_chunk(whole),
        errors=_errors(records),
        wrong_lengths=sum(record.wrong_length for record in records),
        cached_tokens=_total(record.cached_tokens for record in records),
    )


def counts(records: Iterable[RequestRecord]) -> Counts:
    """How they ended."""
    told = [record.outcome for record in records]
    return Counts(**{outcome.value: told.count(outcome) for outcome in Outcome})


def _rate(tokens: Iterable[int | None], seconds: float) -> float | None:
    known = [count for count in tokens if count is not None]
    return sum(known) / seconds if known and seconds > 0 else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _total(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _over(records: Iterable[RequestRecord], figure: Callable[[RequestRecord], float | None]) -> Distribution | None:
    return distribution(_known(figure(record) for record in records))


def _tokens_per_chunk(records: Sequence[RequestRecord]) -> float | None:
    chunks = sum(len(record.chunks) for record in records)
    return sum(record.completion_tokens or 0 for record in records) / chunks if chunks else None


def _errors(records: Iterable[RequestRecord]) -> tuple[tuple[str, int], ...]:
    """What went wrong and how often, the most frequent first."""
    told = [record.error for record in records if record.error and not record.cancelled]
    return tuple(sorted(((text, told.count(text)) for text in set(told)), key=lambda each: (-each[1], each[0])))


def _peak(records: Iterable[RequestRecord]) -> float:
    """The most tokens within one second, wherever that second begins; a chunk counts for its share of the tokens."""
    arrivals = sorted(
        (at, (record.completion_tokens or 0) / len(record.chunks))
        for record in records
        if record.chunks
        for at in record.chunks
    )
    most = inside = 0.0
    begin = 0
    for at, tokens in arrivals:
        inside += tokens
        while arrivals[begin][0] <= at - 1.0:
            inside -= arrivals[begin][1]
            begin += 1
        most = max(most, inside)
    return most
