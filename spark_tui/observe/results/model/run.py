"""A run as it is kept: the load, the conditions, the figures, and what has to be known before believing them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, StrEnum
from typing import Any, Final, TypeVar

from msgspec import Struct

from spark_tui.base.quantities import human_count
from spark_tui.observe.results.model.plan import (
    BenchPlan,
    Conditions,
    Content,
    LevelKey,
    PromptCache,
    Segment,
    segments,
)
from spark_tui.observe.results.model.record import (
    ConfidenceInterval,
    Distribution,
    RequestOutcome,
    RequestRecord,
    ServerCheck,
    ServerSide,
    distribution,
    mean_interval,
)

T = TypeVar("T")


class Pass(Struct, frozen=True):
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
        return self._rate([record.completion_tokens for record in self.records])

    @property
    def total_rate(self) -> float | None:
        """Prompt and output tokens per second together."""
        counts = [record.completion_tokens for record in self.records]
        return self._rate(counts + [record.prompt_tokens for record in self.records if record.chunks])

    @property
    def request_rate(self) -> float | None:
        """Complete requests per second."""
        complete = sum(record.outcome is RequestOutcome.COMPLETE for record in self.records)
        return complete / self.seconds if self.seconds > 0 else None

    def _rate(self, tokens: Iterable[int | None]) -> float | None:
        known = _known(tokens)
        return sum(known) / self.seconds if known and self.seconds > 0 else None


class Counts(Struct, frozen=True):
    """How the requests of a level ended."""

    complete: int = 0
    short: int = 0
    truncated: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def total(self) -> int:
        """All that were sent."""
        return self.bad + self.complete + self.cancelled

    @property
    def bad(self) -> int:
        """Those that neither completed nor were cancelled by us."""
        return self.short + self.truncated + self.failed


class Level(Struct, frozen=True):
    """The figures of one level. Seconds and tokens per second; None where nothing was measured.

    `output_rate` is the mean over the passes that were finished, `pass_rates` are theirs in their order, and
    `output_interval` is their mean's 95 % interval (None for one pass). `decode_rate` is per stream after its first
    token, `stream_rate` per stream with its prefill, `prefill_rate` prompt tokens per second up to the first token.
    `peak_rate` is the most tokens that arrived within any one second. `tokens_per_chunk` is above 1 where the engine
    speculates: an inter-token latency is then one between pieces of that size.
    """

    streams: int
    input_tokens: int
    output_tokens: int
    depth: bool
    counts: Counts
    passes: int
    seconds: float
    output_rate: float | None = None
    output_interval: ConfidenceInterval | None = None
    pass_rates: tuple[float, ...] = ()
    total_rate: float | None = None
    request_rate: float | None = None
    peak_rate: float | None = None
    ttft: Distribution | None = None
    itl: Distribution | None = None
    tpot: Distribution | None = None
    e2e: Distribution | None = None
    decode_rate: Distribution | None = None
    stream_rate: Distribution | None = None
    prefill_rate: Distribution | None = None
    tokens_per_chunk: float | None = None
    errors: tuple[tuple[str, int], ...] = ()
    wrong_lengths: int = 0
    cached_tokens: int | None = None

    @property
    def key(self) -> LevelKey:
        return (self.depth, self.streams, self.input_tokens)


def levels(passes: Sequence[Pass]) -> tuple[Level, ...]:
    """The figures of every level that was measured, the sweep first."""
    groups: dict[LevelKey, list[Pass]] = {}
    for each in passes:
        groups.setdefault(each.segment.key, []).append(each)
    return tuple(level(group) for _, group in sorted(groups.items()))


def level(passes: Sequence[Pass]) -> Level:
    """The figures of one level from its passes, of which there is at least one.

    Rates come from finished passes: the tail of one that was stopped has fewer streams than the level is about. When
    none was finished, from the one there is.
    """
    segment = passes[0].segment
    records = [record for each in passes for record in each.records]
    whole = [record for record in records if record.outcome is RequestOutcome.COMPLETE]
    finished = [each for each in passes if each.finished] or list(passes)
    rates = _known(each.output_rate for each in finished)
    chunks = sum(len(record.chunks) for record in whole)
    cached = _known(record.cached_tokens for record in records)
    errors = Counter(record.error for record in records if record.error and not record.cancelled)

    def over_whole(figure: Callable[[RequestRecord], float | None]) -> Distribution | None:
        return distribution(_known(map(figure, whole)))

    return Level(
        streams=segment.streams,
        input_tokens=segment.input_tokens,
        output_tokens=segment.output_tokens,
        depth=segment.depth,
        counts=Counts(**Counter(record.outcome.value for record in records)),
        passes=sum(each.finished for each in passes),
        seconds=math.fsum(each.seconds for each in passes),
        output_rate=_mean(rates),
        output_interval=mean_interval(rates),
        pass_rates=tuple(rates),
        total_rate=_mean(_known(each.total_rate for each in finished)),
        request_rate=_mean(_known(each.request_rate for each in finished)),
        peak_rate=max((_peak(each.records) for each in finished), default=None),
        ttft=over_whole(lambda record: record.ttft),
        itl=distribution(itl for record in whole for itl in record.itls),
        tpot=over_whole(lambda record: record.tpot),
        e2e=over_whole(lambda record: record.e2e),
        decode_rate=over_whole(lambda record: record.decode_rate),
        stream_rate=over_whole(lambda record: record.stream_rate),
        prefill_rate=over_whole(lambda record: record.prefill_rate),
        tokens_per_chunk=sum(record.completion_tokens or 0 for record in whole) / chunks if chunks else None,
        errors=tuple(sorted(errors.items(), key=lambda each: (-each[1], each[0]))),
        wrong_lengths=sum(record.wrong_length for record in records),
        cached_tokens=sum(cached) if cached else None,
    )


def _known(values: Iterable[T | None]) -> list[T]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _peak(records: Iterable[RequestRecord]) -> float:
    """The most tokens within one second, wherever that second begins; a chunk counts for its share of the tokens."""
    arrivals = sorted(
        (at, (record.completion_tokens or 0) / len(record.chunks)) for record in records for at in record.chunks
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


# --- scaling ----------------------------------------------------------------------------------------------

KNEE_EFFICIENCY: Final = 0.5
"""At the knee each stream still adds at least half of what the first one gives.

The deployment registry whose tables spark-tui reads lists scaling efficiency and knee without their rule; this one
agrees with its rows (36.5 % at the top and the knee at 16; 26.3 % and 8; 43.2 % and 16; 104.1 % and the top itself).
"""


class Scaling(Struct, frozen=True):
    """`efficiency` is throughput at `streams` over `streams` times the throughput of one; `most_streams` is the level
    of the highest throughput. None of the knee's fields without a level of one stream: there is no measure then."""

    efficiency: float | None
    most_streams: int
    most_throughput: float
    knee_streams: int | None = None
    knee_throughput: float | None = None
    knee_is_last: bool = False


def efficiency(throughput: Mapping[int, float], streams: int) -> float | None:
    """`T(n) / (n * T(1))`; None without a throughput of one stream."""
    one, there = throughput.get(1), throughput.get(streams)
    return there / (streams * one) if one and there is not None else None


def scaling(throughput: Mapping[int, float]) -> Scaling | None:
    """From tokens per second by number of streams. None without any.

    The scaling efficiency of the whole is that of the level with the most streams. The knee is the last level, from
    one stream upwards, that all have an efficiency of at least one half. `knee_is_last`: the curve was still good at
    the most streams that were measured, so the knee may lie beyond.
    """
    if not throughput:
        return None
    last = max(throughput)
    best = max(throughput, key=lambda streams: (throughput[streams], -streams))
    knee = None
    for streams in sorted(throughput):
        found = efficiency(throughput, streams)
        if found is None or found < KNEE_EFFICIENCY:
            break
        knee = streams
    return Scaling(
        efficiency=efficiency(throughput, last),
        most_streams=best,
        most_throughput=throughput[best],
        knee_streams=knee,
        knee_throughput=None if knee is None else throughput[knee],
        knee_is_last=knee == last,
    )


# --- the host while it was measured -----------------------------------------------------------------------


class HostSample(Struct, frozen=True):
    """The host at one moment; `at` in monotonic seconds. None: not reported."""

    at: float
    usable_bytes: int | None = None
    used_bytes: int | None = None
    power_watts: float | None = None
    temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    utilization_percent: int | None = None


class HostFigures(Struct, frozen=True):
    """The host while it was measured, over all samples. `joules_per_token` is mean power times time over the output
    tokens of all measured passes: the GPU's share only, which is what NVML reports."""

    samples: int
    used_bytes_most: int | None = None
    usable_bytes_least: int | None = None
    power_watts_mean: float | None = None
    power_watts_most: float | None = None
    temperature_c_most: int | None = None
    sm_clock_mhz_mean: float | None = None
    sm_clock_mhz_least: int | None = None
    utilization_percent_mean: float | None = None
    joules_per_token: float | None = None


def host_figures(samples: Sequence[HostSample], seconds: float, output_tokens: int) -> HostFigures:
    """Figures of the samples; `seconds` and `output_tokens` are those of all measured passes."""
    power = _known(sample.power_watts for sample in samples)
    clock = _known(sample.sm_clock_mhz for sample in samples)
    watts = sum(power) / len(power) if power else None
    return HostFigures(
        samples=len(samples),
        used_bytes_most=max(_known(sample.used_bytes for sample in samples), default=None),
        usable_bytes_least=min(_known(sample.usable_bytes for sample in samples), default=None),
        power_watts_mean=watts,
        power_watts_most=max(power, default=None),
        temperature_c_most=max(_known(sample.temperature_c for sample in samples), default=None),
        sm_clock_mhz_mean=_mean(clock),
        sm_clock_mhz_least=min(clock, default=None),
        utilization_percent_mean=_mean(_known(sample.utilization_percent for sample in samples)),
        joules_per_token=watts * seconds / output_tokens if watts is not None and output_tokens else None,
    )


# --- a run ------------------------------------------------------------------------------------------------


class RunOutcome(StrEnum):
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    STOPPED = "stopped"
    FAILED = "failed"


class BenchRun(Struct, frozen=True):
    """One run. `id` is unique, `at` seconds since the epoch, `seconds` how long it took with everything.

    `reason` says why it was stopped or failed. `pair` is the id of the other run of an A/B, with which its passes
    alternated. `lateness` is by how many seconds the clock itself came late: no latency is known any better than that.
    """

    id: str
    at: float
    plan: BenchPlan
    conditions: Conditions
    levels: tuple[Level, ...] = ()
    ending: RunOutcome = RunOutcome.COMPLETED
    reason: str = ""
    seconds: float = 0.0
    host: HostFigures = HostFigures(0)
    server: ServerSide | None = None
    checks: tuple[ServerCheck, ...] = ()
    caveats: tuple[str, ...] = ()
    pair: str = ""
    lateness: Distribution | None = None

    @property
    def sweep(self) -> tuple[Level, ...]:
        return tuple(level for level in self.levels if not level.depth)

    @property
    def depths(self) -> tuple[Level, ...]:
        return tuple(level for level in self.levels if level.depth)

    @property
    def counts(self) -> Counts:
        totals = (
            (name, sum(getattr(level.counts, name) for level in self.levels)) for name in Counts.__struct_fields__
        )
        return Counts(**dict(totals))

    @property
    def throughput(self) -> dict[int, float]:
        """Output tokens per second of all streams, by their number."""
        return {level.streams: level.output_rate for level in self.sweep if level.output_rate is not None}

    @property
    def scaling(self) -> Scaling | None:
        return scaling(self.throughput)

    @property
    def single(self) -> float | None:
        """The single-stream figure that the field compares: the median stream's tokens per second after its first
        token, with one stream."""
        alone = next((level for level in self.sweep if level.streams == 1), None)
        return alone.decode_rate.p50 if alone and alone.decode_rate else None

    @property
    def batched(self) -> float | None:
        """The most output tokens per second of any level of more than one stream."""
        return max((rate for streams, rate in self.throughput.items() if streams > 1), default=None)


# --- what has to be known ---------------------------------------------------------------------------------

SLOW_CLOCK_MHZ = 1400
"""Under load a GB10 runs at 2200 to 2500 MHz; a Spark whose power supply negotiated too little stays at 500 to 850."""

LATE_SECONDS = 0.01
"""A timer of this program's event loop is up to 1 ms late by its making; ten times that is the machine."""


def plan_caveats(plan: BenchPlan, conditions: Conditions) -> tuple[str, ...]:
    """What limits the numbers before a request is sent."""
    found = []
    most = max(plan.concurrency, default=1)
    if conditions.most_sequences is not None and most > conditions.most_sequences:
        found.append(
            f"The engine runs {conditions.most_sequences} requests at once (max_num_seqs): with more streams the rest "
            "wait, and their waiting is in TTFT."
        )
    tokens = (plan.input_tokens + plan.output_tokens) * most
    if conditions.kv_tokens is not None and tokens > conditions.kv_tokens:
        found.append(
            f"{most} streams need {human_count(tokens)} tokens of KV cache, the engine has "
            f"{human_count(conditions.kv_tokens)}: some of them wait or are preempted."
        )
    if plan.prompt_cache is PromptCache.WARM:
        found.append("All prompts are the same: TTFT is that of the prefix cache and not of prefill.")
    if conditions.speculation and plan.content is Content.RANDOM:
        found.append(
            "The engine speculates, and random tokens are hard to guess: for what a person gets, take prose as content."
        )
    if conditions.eager:
        found.append("The engine runs eager, without CUDA graphs: single-stream decode is slower than it could be.")
    return tuple(found)


def result_caveats(run: BenchRun, other_requests: int) -> tuple[str, ...]:
    """What the measurement itself says against its numbers. `other_requests` are those of other clients."""
    counts, found = run.counts, []
    if counts.failed or counts.truncated:
        found.append(f"{counts.failed + counts.truncated} of {counts.total} requests failed or broke off.")
    if counts.short:
        found.append(f"{counts.short} of {counts.total} requests ended early: the engine does not honour ignore_eos.")
    wrong = sum(level.wrong_lengths for level in run.levels)
    if wrong:
        found.append(f"{wrong} prompts were of another length than meant, by the server's own count.")
    if other_requests:
        found.append(f"The engine answered {other_requests} requests of others meanwhile: the figures are not alone.")
    cached = sum(level.cached_tokens or 0 for level in run.levels)
    share = run.server.cache_hit_share if run.server else None
    if run.plan.prompt_cache is PromptCache.COLD and (cached or (share or 0) > 0.01):
        found.append("The prefix cache knew part of the prompts, though they were meant to be new to it.")
    if run.server is not None and run.server.preemptions:
        found.append(f"{run.server.preemptions:.0f} preemptions: KV cache ran short, and work was done twice.")
    if run.lateness is not None and run.lateness.p99 > LATE_SECONDS:
        found.append(
            f"This machine was too busy to take the time well: the clock came {run.lateness.p99 * 1000:.0f} ms late "
            "(p99). Throughput holds, latencies do not: end what else runs, and measure again."
        )
    if run.ending is RunOutcome.COMPLETED and any(check.agrees is False for check in run.checks):
        what = ", ".join(check.what for check in run.checks if check.agrees is False)
        found.append(f"The server's own figures differ from ours: {what}.")
    slow, busy = run.host.sm_clock_mhz_mean, run.host.utilization_percent_mean
    if slow is not None and slow < SLOW_CLOCK_MHZ and (busy or 0) > 80 and run.conditions.is_spark:
        found.append(
            f"The GPU ran at {slow:.0f} MHz under load: a Spark does 2,400. Take its power adapter off the wall for a "
            "minute, then measure again."
        )
    return tuple(found)


# --- how long it will take --------------------------------------------------------------------------------

WARM_UP_TOKENS: Final = 16
"""A warm-up request asks for no more."""


class Estimate(Struct, frozen=True):
    """Seconds; `at_least`: prefill and waiting come on top."""

    seconds: float
    at_least: bool = False


def estimate(plan: BenchPlan, *, before: BenchRun | None = None, decode_rate: float | None = None) -> Estimate | None:
    """How long the plan takes on one engine. `before` is an earlier, completed run of the same model, `decode_rate` a
    published rate of one stream in tokens per second. None: unknown.

    From a run: its own duration, times the ratio of both loads in stream seconds, by its latencies at the nearest
    levels. Its tokenizing, warm-up and waits are so in it too.
    """
    if before is not None and before.ending is RunOutcome.COMPLETED and before.seconds > 0:
        was, will = _stream_seconds(before.plan, before.levels), _stream_seconds(plan, before.levels)
        if was and will:
            return Estimate(before.seconds * will / was)
    if decode_rate:
        rounds = sum(segment.requests / segment.streams for segment in segments(plan))
        return Estimate(rounds * plan.output_tokens / decode_rate, at_least=True)
    return None


def _stream_seconds(plan: BenchPlan, levels: Sequence[Level]) -> float | None:
    """What each stream of each segment takes, one segment after the other, by the latencies of these levels."""
    known = [(level, level.ttft, level.tpot) for level in levels if level.ttft is not None and level.tpot is not None]
    if not known:
        return None

    def request_seconds(segment: Segment) -> float:
        level, ttft, tpot = min(
            known,
            key=lambda each: (
                abs(math.log2(each[0].streams / segment.streams)),
                abs(each[0].input_tokens - segment.input_tokens),
            ),
        )
        more = max(1.0, segment.streams / level.streams)  # beyond the known levels prefill queues, steps grow slowly
        prefill = ttft.p50 * more * segment.input_tokens / level.input_tokens
        return prefill + tpot.p50 * math.sqrt(more) * (segment.output_tokens - 1)

    return sum(
        request_seconds(segment) * segment.requests / segment.streams for segment in (*segments(plan), *warm_ups(plan))
    )


def warm_ups(plan: BenchPlan) -> tuple[Segment, ...]:
    """Short requests at every level before anything is measured; their pass is number 0."""
    prompt = plan.input_tokens if plan.concurrency else min(plan.depths)
    output = max(2, min(WARM_UP_TOKENS, plan.output_tokens))
    levels = sorted({1, *plan.concurrency}) if plan.warmup else ()
    return tuple(Segment(0, streams, streams * plan.warmup, prompt, output) for streams in levels)


# --- results ----------------------------------------------------------------------------------------------


class Status(StrEnum):
    """How far a model came. A `working` one answers and was not measured; a `pending` one is still to be tried."""

    BENCHMARKED = "benchmarked"
    WORKING = "working"
    PENDING = "pending"
    FAILED = "failed"


class Result(Struct, frozen=True):
    """One entry. `at` is seconds since the epoch, `reason` why it failed or a note. A benchmark has its `run`; a
    verdict has none."""

    id: str
    at: float
    status: Status
    model: str
    quantization: str = ""
    runtime: str = ""
    platform: str = ""
    engine: str = ""
    reason: str = ""
    run: BenchRun | None = None

    @property
    def simulated(self) -> bool:
        return self.run is not None and self.run.conditions.simulated


def result_of(run: BenchRun) -> Result:
    """A run as an entry: benchmarked when one level at least has complete requests, else failed with its reason, or
    pending where it was cancelled."""
    conditions, reason = run.conditions, run.reason
    status = Status.PENDING if run.ending is RunOutcome.CANCELLED else Status.FAILED
    if run.counts.complete:
        status = Status.BENCHMARKED
    elif not reason:
        reason = next((text for level in run.levels for text, _ in level.errors), "no request was answered")
    return Result(
        id=run.id,
        at=run.at,
        status=status,
        model=conditions.model,
        quantization=conditions.quantization,
        runtime=conditions.runtime,
        platform=conditions.platform or conditions.hostname,
        engine=conditions.engine,
        reason=reason,
        run=run,
    )


RESULT_VERSION: Final = 1
HOST_KEY: Final = "box"
"""The key of a run's `host` in a file."""


def result_to_json(result: Result) -> dict[str, Any]:
    """A JSON object: enumerations as their values, infinity as `inf`, None left out."""

    def plain(value: object) -> Any:
        if isinstance(value, Enum):
            return value.value
        if isinstance(value, Struct):
            pairs = ((name, getattr(value, name)) for name in value.__struct_fields__)
            return {HOST_KEY if name == "host" else name: plain(item) for name, item in pairs if item is not None}
        if isinstance(value, tuple):
            return [plain(item) for item in value]
        return "inf" if value == math.inf else value

    return {"version": RESULT_VERSION, **plain(result)}
