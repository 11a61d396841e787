"""The series that are kept of an engine and its host: names, units, bounds, and a stretch of one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite, isnan
from typing import Final, NamedTuple


class MetricGroup(StrEnum):
    """What a series is about; the order is that of a screen."""

    SPEED = "speed"
    REQUESTS = "requests"
    LATENCY = "latency"
    CACHE = "KV cache"
    SPECULATION = "speculation"
    GPU = "GPU"
    MEMORY = "memory"


class MetricId(StrEnum):
    """A series. Its value is the name that `--json` and the history use."""

    PREFILL_RATE = "prefill_tokens_per_second"
    DECODE_RATE = "decode_tokens_per_second"
    ENERGY = "energy_joules_per_token"
    RUNNING = "running_requests"
    WAITING = "waiting_requests"
    WAITING_CAPACITY = "waiting_for_capacity_requests"
    WAITING_DEFERRED = "waiting_deferred_requests"
    FINISHED_RATE = "finished_requests_per_minute"
    FAILED_RATE = "failed_requests_per_minute"
    TTFT_P50 = "ttft_p50_seconds"
    TTFT_P95 = "ttft_p95_seconds"
    TTFT_P99 = "ttft_p99_seconds"
    ITL_P50 = "itl_p50_seconds"
    ITL_P95 = "itl_p95_seconds"
    ITL_P99 = "itl_p99_seconds"
    E2E_P50 = "e2e_p50_seconds"
    E2E_P95 = "e2e_p95_seconds"
    E2E_P99 = "e2e_p99_seconds"
    QUEUE_P50 = "queue_p50_seconds"
    QUEUE_P95 = "queue_p95_seconds"
    QUEUE_P99 = "queue_p99_seconds"
    KV_USAGE = "kv_usage_percent"
    PREFIX_HITS = "prefix_hit_percent"
    PREEMPTION_RATE = "preemptions_per_minute"
    ACCEPTANCE = "draft_acceptance_percent"
    ACCEPTED_LENGTH = "accepted_length_tokens"
    GPU_UTILIZATION = "gpu_utilization_percent"
    GPU_POWER = "gpu_power_watts"
    GPU_CLOCK = "gpu_sm_clock_mhz"
    GPU_TEMPERATURE = "gpu_temperature_celsius"
    MEMORY_AVAILABLE = "memory_available_gib"
    MEMORY_IN_USE = "memory_in_use_gib"
    MEMORY_ENGINES = "memory_engines_gib"

    @property
    def facts(self) -> Metric:
        """Label, unit, bounds."""
        return METRICS[self]

    @property
    def label(self) -> str:
        """What a graph is headed with: `decode`, `TTFT p95`."""
        return METRICS[self].label

    @property
    def unit(self) -> str:
        """The unit of the values: `tok/s`, `s`, `%`; empty for a count."""
        return METRICS[self].unit

    @property
    def domain(self) -> tuple[float, float | None]:
        """The least value of an axis, and the greatest where there is one (100 for per cent)."""
        return METRICS[self].domain

    @property
    def decimals(self) -> int:
        """Figures after the point that mean something."""
        return METRICS[self].decimals

    @property
    def group(self) -> MetricGroup:
        """What it is about."""
        return METRICS[self].group

    @property
    def of_host(self) -> bool:
        """It is the host's and not one engine's: the same series whichever engine it is asked for."""
        return METRICS[self].group in (MetricGroup.GPU, MetricGroup.MEMORY)


@dataclass(frozen=True, slots=True)
class Metric:
    """How a series is drawn. `domain` is `(least, greatest)`, None where there is no greatest."""

    label: str
    unit: str
    group: MetricGroup
    decimals: int = 0
    domain: tuple[float, float | None] = (0.0, None)


_PERCENT: Final = (0.0, 100.0)


def _latency(label: str, decimals: int) -> Metric:
    return Metric(label, "s", MetricGroup.LATENCY, decimals)


METRICS: Final[Mapping[MetricId, Metric]] = {
    MetricId.PREFILL_RATE: Metric("prefill", "tok/s", MetricGroup.SPEED, 0),
    MetricId.DECODE_RATE: Metric("decode", "tok/s", MetricGroup.SPEED, 1),
    MetricId.ENERGY: Metric("energy", "J/tok", MetricGroup.SPEED, 2),
    MetricId.RUNNING: Metric("running", "req", MetricGroup.REQUESTS),
    MetricId.WAITING: Metric("waiting", "req", MetricGroup.REQUESTS),
    MetricId.WAITING_CAPACITY: Metric("waiting for capacity", "req", MetricGroup.REQUESTS),
    MetricId.WAITING_DEFERRED: Metric("waiting, deferred", "req", MetricGroup.REQUESTS),
    MetricId.FINISHED_RATE: Metric("finished", "req/min", MetricGroup.REQUESTS, 1),
    MetricId.FAILED_RATE: Metric("failed", "req/min", MetricGroup.REQUESTS, 1),
    MetricId.TTFT_P50: _latency("TTFT p50", 2),
    MetricId.TTFT_P95: _latency("TTFT p95", 2),
    MetricId.TTFT_P99: _latency("TTFT p99", 2),
    MetricId.ITL_P50: _latency("inter-token p50", 3),
    MetricId.ITL_P95: _latency("inter-token p95", 3),
    MetricId.ITL_P99: _latency("inter-token p99", 3),
    MetricId.E2E_P50: _latency("end to end p50", 1),
    MetricId.E2E_P95: _latency("end to end p95", 1),
    MetricId.E2E_P99: _latency("end to end p99", 1),
    MetricId.QUEUE_P50: _latency("queue p50", 2),
    MetricId.QUEUE_P95: _latency("queue p95", 2),
    MetricId.QUEUE_P99: _latency("queue p99", 2),
    MetricId.KV_USAGE: Metric("KV cache", "%", MetricGroup.CACHE, 1, _PERCENT),
    MetricId.PREFIX_HITS: Metric("prefix hits", "%", MetricGroup.CACHE, 1, _PERCENT),
    MetricId.PREEMPTION_RATE: Metric("preemptions", "/min", MetricGroup.CACHE, 1),
    MetricId.ACCEPTANCE: Metric("drafts accepted", "%", MetricGroup.SPECULATION, 1, _PERCENT),
    MetricId.ACCEPTED_LENGTH: Metric("accepted length", "tok/step", MetricGroup.SPECULATION, 2, (1.0, None)),
    MetricId.GPU_UTILIZATION: Metric("GPU", "%", MetricGroup.GPU, 0, _PERCENT),
    MetricId.GPU_POWER: Metric("power", "W", MetricGroup.GPU, 1),
    MetricId.GPU_CLOCK: Metric("SM clock", "MHz", MetricGroup.GPU),
    MetricId.GPU_TEMPERATURE: Metric("temperature", "C", MetricGroup.GPU),
    MetricId.MEMORY_AVAILABLE: Metric("available", "GiB", MetricGroup.MEMORY, 1),
    MetricId.MEMORY_IN_USE: Metric("in use", "GiB", MetricGroup.MEMORY, 1),
    MetricId.MEMORY_ENGINES: Metric("engines", "GiB", MetricGroup.MEMORY, 1),
}


@dataclass(frozen=True, slots=True)
class Sample:
    """Everything that one reading of an engine, or of the host, gave: what the history keeps.

    `engine` is the container's name, empty for the series of the machine. `at` is in seconds since the epoch. A metric
    that is not in `values` had no value then; `gap` says why none had one, and is empty otherwise. `restarted`: this
    is the first look at a new start of the engine. Values are finite.
    """

    engine: str
    at: float
    values: Mapping[MetricId, float] = field(default_factory=dict)
    gap: str = ""
    restarted: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch without values, seconds since the epoch, and why."""

    begin: float
    end: float
    reason: str


@dataclass(frozen=True, slots=True)
class SeriesView:
    """A stretch of one series: a copy, oldest first.

    `times` are seconds since the epoch, strictly rising; `values` has one for each, NaN where there was none. Each
    NaN is either in one of the `gaps` (the engine could not be asked), or there was nothing to measure (no request
    finished, nothing was drafted). `reason` says why the last value is absent, and is empty when there is one.
    `restarts` are the times at which a new start of the engine was first seen. `step` is the expected distance of two
    samples in seconds: two that are further apart than some steps have a hole between them.
    """

    metric: MetricId
    times: Sequence[float] = ()
    values: Sequence[float] = ()
    gaps: tuple[Gap, ...] = ()
    restarts: tuple[float, ...] = ()
    reason: str = ""
    step: float = 1.0

    @property
    def last(self) -> float | None:
        """The latest value; None when the latest look gave none."""
        return self.values[-1] if self.values and not isnan(self.values[-1]) else None

    @property
    def summary(self) -> Summary | None:
        """Least, mean and greatest value; None without any."""
        known = [value for value in self.values if isfinite(value)]
        return Summary(min(known), sum(known) / len(known), max(known)) if known else None

    def at(self, time: float) -> float | None:
        """The value of the sample nearest to `time`; None where it has none, or there is none within three steps."""
        index = bisect_left(self.times, time)
        near = [i for i in (index - 1, index) if 0 <= i < len(self.times)]
        best = min(near, key=lambda i: abs(self.times[i] - time), default=None)
        if best is None or abs(self.times[best] - time) > 3 * self.step or isnan(self.values[best]):
            return None
        return self.values[best]

    def gap_at(self, time: float) -> str:
        """Why there is no value at `time`; empty when it is in no gap."""
        return next((gap.reason for gap in self.gaps if gap.begin <= time <= gap.end), "")


@dataclass(frozen=True, slots=True)
class Summary:
    """Of the finite values of a series."""

    least: float
    mean: float
    greatest: float


HOST: Final = ""
"""The source of the series that are the machine's and not an engine's."""


class SeriesKey(NamedTuple):
    """One series: `source` is the engine's container name, `HOST` for the machine's own; `metric` is a
    `MetricId` value."""

    source: str
    metric: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of one series in buckets of `step` seconds, oldest first.

    `times` are the buckets' beginnings, seconds since the epoch and whole steps; `least`, `mean` and `greatest` have
    one value for each, NaN where there was none. Mean and extremes come from the samples themselves, however often
    they were thinned. `gaps` say why an engine could not be asked, `restarts` when a new start of it was first seen.
    """

    key: SeriesKey
    step: float
    times: Sequence[float] = ()
    least: Sequence[float] = ()
    mean: Sequence[float] = ()
    greatest: Sequence[float] = ()
    gaps: tuple[Gap, ...] = ()
    restarts: tuple[float, ...] = ()

    @property
    def view(self) -> SeriesView:
        """The means, as a live series has them. Raises ValueError for a metric that this version does not know."""
        metric = MetricId(self.key.metric)
        return SeriesView(metric, self.times, self.mean, self.gaps, self.restarts, step=self.step)
