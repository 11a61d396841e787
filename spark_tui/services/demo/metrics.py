"""What simulated servers count, and what the demo's history keeps: with what happened before the demo was opened."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Final

from msgspec.structs import replace

from spark_tui.domain.engine.state import Endpoint
from spark_tui.domain.history import HistoryState, Record
from spark_tui.domain.logs.starts import StartBackends, StartRecord, StartSizes
from spark_tui.domain.logs.timeline import PhaseId, StartOutcome
from spark_tui.domain.metrics.page import Family, MetricPage, Slot, Snapshot, page_of
from spark_tui.domain.metrics.series import HOST, Gap, MetricId, Sample, SeriesKey, SeriesSlice
from spark_tui.domain.metrics.serving import HostReadings, MetricWindow, engine_values, host_values
from spark_tui.domain.presets.image import repository
from spark_tui.domain.reading import Ok, Reading
from spark_tui.services.demo.host import gpu_at, memory_at, vitals_at
from spark_tui.services.demo.world import (
    FAILED_NAME,
    FAILED_OURS,
    PREFIX_HITS,
    REQUEST_INTERVALS,
    SERVING_MODEL,
    SERVING_NAME,
    SERVING_PRESET,
    STATS_SECONDS,
    VERSION,
    VLLM_IMAGE,
    Counters,
    DemoWorld,
    Run,
    accepted_length,
    decode_rate,
    interval_of,
    kv_percent,
    noise,
    prompt_rate,
    streams,
)
from spark_tui.services.executors import in_thread
from spark_tui.services.ports import Clock

_JITTER: Final = (0.86, 0.93, 1.0, 1.06, 1.31)
"""How far the steps of an interval are from their mean."""
_CHAT_KV: Final = 0.004


class DemoMetrics:
    """The MetricsSource port."""

    def __init__(self, world: DemoWorld) -> None:
        self._world = world

    async def read(self, endpoint: Endpoint) -> MetricPage:
        """What the server on that port has counted; raises EngineUnreachable where none is up."""
        _, run = self._world.serving(endpoint.base_url)
        return page_at(run, self._world.clock.now())

    async def close(self) -> None:
        """Nothing is kept open."""


def page_at(run: Run, now: float) -> MetricPage:
    """What a server has counted by then; not to be asked for an earlier time than before."""
    if run.traffic:
        _count_traffic(run, now)
    return page_of(_samples(run, now))


def _count_traffic(run: Run, now: float) -> None:
    """Brings the counters of a busy server up to now, interval by interval as its log has them."""
    counters = run.counters
    at = counters.until if counters.until is not None else run.ready_at
    while at < now:
        number = int((at - run.ready_at) / STATS_SECONDS) + 1
        end = min(now, run.ready_at + number * STATS_SECONDS)
        if end <= at:  # the interval's end, but for rounding
            number, end = number + 1, min(now, run.ready_at + (number + 1) * STATS_SECONDS)
        _count_interval(counters, number, end - at)
        if end == run.ready_at + number * STATS_SECONDS and number % REQUEST_INTERVALS == 0:
            _count_requests(counters, number)
        at = end
    counters.until = at


def _count_requests(counters: Counters, number: int) -> None:
    """The requests that end with an interval: one of each stream. A crowd waits for its first token."""
    together = streams(number)
    for each in range(together):
        place = (number, each) if each else (number,)
        took = STATS_SECONDS * REQUEST_INTERVALS * (0.93 + 0.06 * noise("took", *place))
        queued = (0.02 + 0.35 * each) * noise("queued", *place)
        counters.request("length" if noise("reason", *place) > 0.8 else "stop", took, queued)
        counters.ttft.observe(0.31 + 0.9 * noise("ttft", *place) ** 2 + queued)


def _count_interval(counters: Counters, number: int, seconds: float) -> None:
    rate, length = decode_rate(number), accepted_length(number)
    if not rate:
        return
    computed = prompt_rate(number) * seconds
    counters.prompt(computed / (1 - PREFIX_HITS), computed / (1 - PREFIX_HITS) * PREFIX_HITS)
    drafts = rate / length * seconds / len(_JITTER)
    step = length / rate * streams(number)
    for share in _JITTER:
        counters.step(drafts * length, drafts, step * share)


def _samples(run: Run, now: float) -> Iterator[tuple[Slot, float]]:
    counters = run.counters
    number = interval_of(run, now)
    busy = streams(number) if run.traffic else 0
    profile = run.profile
    usage = (kv_percent(number) / 100 if run.traffic else 0.0) + _CHAT_KV * counters.running
    values: tuple[tuple[Family, float], ...] = (
        (Family.STARTED, run.started_at),
        (Family.PROMPT, counters.computed + counters.cached),
        (Family.PROMPT_COMPUTED, counters.computed),
        (Family.GENERATED, counters.generated),
        (Family.RUNNING, busy + counters.running),
        (Family.WAITING, 0),
        (Family.KV_USAGE, usage),
        (Family.KV_TOKENS, profile.capacity(run.kv_bytes).tokens),
        (Family.PREFIX_QUERIES, counters.computed + counters.cached),
        (Family.PREFIX_HITS, counters.cached),
        (Family.PREEMPTIONS, 0),
    )
    if profile.drafts:
        values += (
            (Family.DRAFTS, counters.drafts),
            (Family.DRAFT_TOKENS, profile.drafts * counters.drafts),
            (Family.ACCEPTED, sum(counters.accepted)),
        )
    yield from ((Slot(family), float(value)) for family, value in values)
    for reason in ("capacity", "deferred"):
        yield Slot(Family.WAITING_BY_REASON, label=reason), 0.0
    for reason, count in counters.finished.items():
        yield Slot(Family.FINISHED, label=reason), float(count)
    for position, accepted in enumerate(counters.accepted[: profile.drafts]):
        yield Slot(Family.ACCEPTED_BY_POSITION, label=str(position)), accepted
    yield from counters.ttft.samples(Family.TTFT)
    yield from counters.itl.samples(Family.ITL)
    yield from counters.e2e.samples(Family.E2E)
    yield from counters.queue.samples(Family.QUEUE)


# --- history ---------------------------------------------------------------------------------------------

PAST_SECONDS: Final = 6 * 3600
"""As far back as the longest window shows."""
FINE_SECONDS: Final = 4500
COARSE_STEP: Final = 30
"""Before the last hour and a quarter, in which the crowd came, samples are this far apart."""
_SILENCE: Final = (-760.0, -715.0)
"""Seconds from the opening of the demo."""
_SILENT: Final = "it did not answer within 6 s"
_STARTING: Final = "the engine is starting"


def past_of(world: DemoWorld) -> tuple[Sample, ...]:
    """Samples of the machine and of the engine that serves, oldest first, up to the opening of the demo."""
    fine, step = range(-FINE_SECONDS, 0, int(STATS_SECONDS)), COARSE_STEP
    times = [world.began_at + into for into in (*range(-PAST_SECONDS, -FINE_SECONDS, step), *fine)]
    run = next((run for run in world.named(SERVING_NAME).runs if run.traffic), None)
    engine = () if run is None else _engine(replace(run, counters=Counters()), times, world)
    return (*_host(world, times), *engine)


def _host(world: DemoWorld, times: list[float]) -> Iterator[Sample]:
    for at in times:
        gpu, memory, vitals = gpu_at(world, at), memory_at(world, at), vitals_at(world, at)
        values, _ = host_values(HostReadings(Ok(gpu, at), Ok(memory, at), Ok(vitals, at)))
        yield Sample(HOST, at, values)


def _engine(run: Run, times: list[float], world: DemoWorld) -> Iterator[Sample]:
    window, joules, last, fresh = MetricWindow(), 0.0, run.ready_at, True
    for at in times:
        into = at - world.began_at
        if at < run.started_at:
            continue
        if at < run.ready_at or _SILENCE[0] <= into < _SILENCE[1]:
            yield Sample(SERVING_NAME, at, gap=_STARTING if at < run.ready_at else _SILENT)
            continue
        joules += (gpu_at(world, at).power_watts or 0.0) * (at - last)
        last = at
        window.add(Snapshot(at, page_at(run, at), joules, at - run.ready_at))
        metrics = window.metrics()
        if metrics is not None:
            yield Sample(SERVING_NAME, at, engine_values(metrics)[0], restarted=fresh)
            fresh = False


_KEPT_SAMPLES: Final = 6 * 3600
"""Of each engine: six hours, one a second."""
_BRIDGE_SECONDS: Final = 32

# What the recorded engine's own log says of its start (GB10, vLLM 0.20.2), and of one with a full memory.
_SIZES: Final = StartSizes(
    weights_gib=21.42,
    kv_gib=28.18,
    kv_tokens=1_258_291,
    graphs_gib=0.37,
    pool_gib=121.63,
    utilization=0.5,
    context=262144,
)
_COLD: Final = (
    (PhaseId.CONFIG, 30.0),
    (PhaseId.ENGINE_INIT, 11.0),
    (PhaseId.WEIGHTS, 198.0),
    (PhaseId.COMPILE, 117.0),
    (PhaseId.KV_CACHE, 7.0),
    (PhaseId.AUTOTUNE, 15.0),
    (PhaseId.CAPTURE, 2.0),
    (PhaseId.SERVER, 3.0),
)
_WARM: Final = tuple((phase, 9.0 if phase is PhaseId.COMPILE else seconds) for phase, seconds in _COLD)


class DemoHistory:
    """The HistoryStore port. Nothing of it outlives the demo. With a `world` it remembers that one's past, which is
    worked out when it is first asked for."""

    def __init__(self, clock: Clock, world: DemoWorld | None = None) -> None:
        self._clock = clock
        self._world = world
        self._past: asyncio.Task[None] | None = None
        self._samples: defaultdict[str, deque[Sample]] = defaultdict(lambda: deque(maxlen=_KEPT_SAMPLES))
        self._starts = {start.key: start for start in _earlier(clock.now())}
        self._records = {(each.kind, each.key, each.at): each for each in (_day(world) if world is not None else ())}

    @property
    def state(self) -> HistoryState:
        return HistoryState(file="(in memory)")

    def add_sample(self, sample: Sample) -> None:
        self._samples[sample.engine].append(sample)

    def add_start(self, start: StartRecord) -> None:
        self._starts[start.key] = start

    async def add_record(self, record: Record) -> None:
        self._records[(record.kind, record.key, record.at)] = record

    async def series(
        self, keys: Sequence[SeriesKey], since: float, until: float, buckets: int
    ) -> Reading[tuple[SeriesSlice, ...]]:
        await self._recall()
        return Ok(tuple(self._stretch(key, since, until, buckets) for key in keys), self._clock.now())

    async def starts(
        self, *, engine: str = "", preset: str = "", failed: bool = False, ready: bool = False, limit: int = 200
    ) -> Reading[tuple[StartRecord, ...]]:
        found = [
            start
            for start in self._starts.values()
            if engine in ("", start.engine)
            and preset in ("", start.preset)
            and (start.failed or not failed)
            and (start.of_preset or not ready)
        ]
        found.sort(key=lambda start: start.at, reverse=True)
        return Ok(tuple(found[:limit]), self._clock.now())

    async def records(
        self, kind: str, *, key: str | None = None, since: float | None = None, limit: int = 200
    ) -> Reading[tuple[Record, ...]]:
        found = [
            record
            for record in self._records.values()
            if record.kind == kind and key in (None, record.key) and record.at >= (since or 0.0)
        ]
        found.sort(key=lambda record: record.at, reverse=True)
        return Ok(tuple(found[:limit]), self._clock.now())

    async def flush(self) -> None:
        """All is where it belongs."""

    async def close(self) -> None:
        """Nothing is open."""

    async def _recall(self) -> None:
        """The past goes before what was kept since the demo was opened. Work of a moment, once, beside the loop."""
        if self._world is None:
            return
        if self._past is None:
            self._past = asyncio.create_task(self._remember(self._world))
        await asyncio.shield(self._past)

    async def _remember(self, world: DemoWorld) -> None:
        earlier: defaultdict[str, list[Sample]] = defaultdict(list)
        for sample in await in_thread(past_of, world):
            earlier[sample.engine].append(sample)
        for source, samples in earlier.items():
            self._samples[source].extendleft(reversed(samples))

    def _stretch(self, key: SeriesKey, since: float, until: float, buckets: int) -> SeriesSlice:
        step = max(1, math.ceil((until - since) / max(1, buckets)))
        begin = math.floor(since / step) * step
        values: list[list[float]] = [[] for _ in range(max(1, math.ceil((until - begin) / step)))]
        gaps: list[Gap] = []
        restarts, last, metric, silent = [], -1, MetricId(key.metric), False
        for sample in self._samples[key.source]:
            index = int((sample.at - begin) // step)
            if not 0 <= index < len(values):
                continue
            if silent:
                gaps[-1] = replace(gaps[-1], end=sample.at)
            silent = bool(sample.gap)
            if silent:
                last = -1
                if not gaps or (gaps[-1].end, gaps[-1].reason) != (sample.at, sample.gap):
                    gaps.append(Gap(sample.at, sample.at, sample.gap))
            if sample.restarted:
                restarts.append(sample.at)
            value = sample.values.get(metric, math.nan)
            if math.isfinite(value):
                if 0 <= last < index - 1 and (index - last) * step <= _BRIDGE_SECONDS:
                    values[last + 1 : index] = [values[last]] * (index - last - 1)
                values[index] = [*values[index], value]
                last = index
        least, mean, greatest = (
            tuple(work(each) if each else math.nan for each in values) for work in (min, fmean, max)
        )
        times = tuple(float(begin + step * index) for index in range(len(values)))
        return SeriesSlice(key, float(step), times, least, mean, greatest, tuple(gaps), tuple(restarts))


def _earlier(now: float) -> tuple[StartRecord, ...]:
    """A cold start four days ago, a warm one the day after, and one that failed."""
    cold = StartRecord(
        "demo-1",
        now - 4.2 * 86_400,
        SERVING_NAME,
        preset=SERVING_PRESET,
        image=VLLM_IMAGE,
        image_id="sha256:the-one-before",
        model=SERVING_MODEL,
        runtime="vllm",
        version=VERSION,
        ready=True,
        outcome=StartOutcome.STOPPED,
        warm=False,
        seconds=sum(seconds for _, seconds in _COLD),
        phases=_COLD,
        sizes=_SIZES,
        exit_code=0,
        ended_at=now - 3.3 * 86_400,
        image_digest=f"{repository(VLLM_IMAGE)}@sha256:{'5e' * 32}",
        backends=StartBackends(
            ("FLASHINFER",),
            (("NVFP4", "moe", "FLASHINFER_CUTLASS"),),
            "FULL_AND_PIECEWISE",
            (("CUDA", "13.0.2"), ("NCCL", "2.28.9")),
        ),
        kernel="6.14.0-1015-nvidia",
        driver="580.95.05",
    )
    warm = replace(
        cold, container="demo-2", at=now - 3.2 * 86_400, warm=True, phases=_WARM,
        seconds=sum(seconds for _, seconds in _WARM), ended_at=now - 2.9 * 86_400,
    )  # fmt: skip
    failed = replace(
        cold, container="demo-3", at=now - 2.1 * 86_400, engine=FAILED_NAME, preset="", ready=False, warm=None,
        outcome=StartOutcome.FAILED, seconds=None, phases=_COLD[:2], sizes=StartSizes(utilization=0.91),
        failed_in=PhaseId.ENGINE_INIT, cause="free_memory_below_utilization",
        failure="vLLM wants 110.7 GiB (0.91 of 121.6), and 109.5 GiB were free.", exit_code=1,
        ended_at=now - 2.1 * 86_400 + 44,
    )  # fmt: skip
    return cold, warm, failed


def _day(world: DemoWorld) -> tuple[Record, ...]:
    """The events of the day so far, as the feed kept them."""
    serving, failed = world.named(SERVING_NAME), world.named(FAILED_OURS)
    ready = serving.runs[-1].ready_at
    return tuple(
        Record("event", text, at, {"severity": severity, "kind": kind, "subject": subject})
        for at, text, severity, kind, subject in (
            (serving.created_at, f"{SERVING_NAME}: launch requested", "info", "launch", SERVING_NAME),
            (serving.created_at + 1, f"{SERVING_NAME}: started", "info", "started", SERVING_NAME),
            (ready, f"{SERVING_NAME}: ready after 6m49s", "info", "ready", SERVING_NAME),
            (world.began_at + _SILENCE[0], f"{SERVING_NAME}: no answer within 6 s", "warning", "stalled", SERVING_NAME),
            (failed.created_at, f"{FAILED_OURS}: launch requested", "info", "launch", FAILED_OURS),
            (failed.created_at + 44, f"{FAILED_OURS}: failed (exit 1): memory share too large", "error", "failed",
             FAILED_OURS),
        )
    )  # fmt: skip
