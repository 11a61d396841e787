"""Samples of this machine and its engines: their series, how long they are kept, and other records."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import isnan
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from spark_tui.base.errors import SparkError

RAW_SECONDS: Final = 3600
"""Samples are kept as they came, one a second, for an hour."""
FINE_STEP: Final = 10
FINE_SECONDS: Final = 86_400
"""Then as least, mean and greatest of each ten seconds, for a day."""
COARSE_STEP: Final = 60
COARSE_SECONDS: Final = 30 * 86_400
"""Then of each minute, for a month; then they go."""
MOST_BYTES: Final = 128 * 1024**2
"""What the history may take on disk, its write-ahead log of some MiB apart: the oldest samples go first."""


class HistoryOff(SparkError, id="history_off"):
    """The history cannot be read or written now."""


class Record(Struct, frozen=True):
    """Anything else worth keeping: `kind` says what (`bench`, `event`), `key` of what (a preset, an engine), `at`
    when, seconds since the epoch. Kind, key and time name it: one more of the same name takes its place. `body` is
    whatever JSON can hold."""

    kind: str
    key: str
    at: float
    body: Any


class HistoryState(Struct, frozen=True):
    """Whether the history is kept. `reason` is empty while it is, else says why not, and `remedy` what to do.

    `samples_elsewhere`: another spark-tui of this user records the samples; this one reads them. `notes` are what a
    person should know once: a file that was quarantined, and where it is. `file` is where the history is.
    """

    reason: str = ""
    remedy: str = ""
    samples_elsewhere: bool = False
    notes: tuple[str, ...] = ()
    file: str = ""


# --- series ----------------------------------------------------------------------------------------------


class MetricGroup(StrEnum):
    """What a series is about; the order is that of a screen."""

    SPEED = "speed"
    REQUESTS = "requests"
    LATENCY = "latency"
    CACHE = "KV cache"
    SPECULATION = "speculation"
    GPU = "GPU"
    MEMORY = "memory"
    MACHINE = "machine"


_PERCENT: Final = (0.0, 100.0)


class MetricId(StrEnum):
    """A series. Its value is the name that `--json` and the history use; see `__new__` for the rest."""

    label: str
    unit: str
    group: MetricGroup
    decimals: int
    domain: tuple[float, float | None]

    def __new__(
        cls,
        name: str,
        label: str = "",
        unit: str = "",
        group: MetricGroup = MetricGroup.SPEED,
        decimals: int = 0,
        domain: tuple[float, float | None] = (0.0, None),
    ) -> MetricId:
        """`unit` is empty for a count, `decimals` the figures after the point that mean something, `domain` the least
        value of an axis and the greatest where there is one."""
        metric = str.__new__(cls, name)
        metric._value_ = name
        metric.label, metric.unit, metric.group, metric.decimals, metric.domain = label, unit, group, decimals, domain
        return metric

    PREFILL_RATE = "prefill_tokens_per_second", "prefill", "tok/s", MetricGroup.SPEED, 0
    DECODE_RATE = "decode_tokens_per_second", "decode", "tok/s", MetricGroup.SPEED, 1
    ENERGY = "energy_joules_per_token", "energy", "J/tok", MetricGroup.SPEED, 2
    RUNNING = "running_requests", "running", "req", MetricGroup.REQUESTS
    WAITING = "waiting_requests", "waiting", "req", MetricGroup.REQUESTS
    WAITING_CAPACITY = "waiting_for_capacity_requests", "waiting for capacity", "req", MetricGroup.REQUESTS
    WAITING_DEFERRED = "waiting_deferred_requests", "waiting, deferred", "req", MetricGroup.REQUESTS
    FINISHED_RATE = "finished_requests_per_minute", "finished", "req/min", MetricGroup.REQUESTS, 1
    FAILED_RATE = "failed_requests_per_minute", "failed", "req/min", MetricGroup.REQUESTS, 1
    TTFT_P50 = "ttft_p50_seconds", "TTFT p50", "s", MetricGroup.LATENCY, 2
    TTFT_P95 = "ttft_p95_seconds", "TTFT p95", "s", MetricGroup.LATENCY, 2
    TTFT_P99 = "ttft_p99_seconds", "TTFT p99", "s", MetricGroup.LATENCY, 2
    ITL_P50 = "itl_p50_seconds", "inter-token p50", "s", MetricGroup.LATENCY, 3
    ITL_P95 = "itl_p95_seconds", "inter-token p95", "s", MetricGroup.LATENCY, 3
    ITL_P99 = "itl_p99_seconds", "inter-token p99", "s", MetricGroup.LATENCY, 3
    E2E_P50 = "e2e_p50_seconds", "end to end p50", "s", MetricGroup.LATENCY, 1
    E2E_P95 = "e2e_p95_seconds", "end to end p95", "s", MetricGroup.LATENCY, 1
    E2E_P99 = "e2e_p99_seconds", "end to end p99", "s", MetricGroup.LATENCY, 1
    QUEUE_P50 = "queue_p50_seconds", "queue p50", "s", MetricGroup.LATENCY, 2
    QUEUE_P95 = "queue_p95_seconds", "queue p95", "s", MetricGroup.LATENCY, 2
    QUEUE_P99 = "queue_p99_seconds", "queue p99", "s", MetricGroup.LATENCY, 2
    KV_USAGE = "kv_usage_percent", "KV cache", "%", MetricGroup.CACHE, 1, _PERCENT
    PREFIX_HITS = "prefix_hit_percent", "prefix hits", "%", MetricGroup.CACHE, 1, _PERCENT
    PREEMPTION_RATE = "preemptions_per_minute", "preemptions", "/min", MetricGroup.CACHE, 1
    ACCEPTANCE = "draft_acceptance_percent", "drafts accepted", "%", MetricGroup.SPECULATION, 1, _PERCENT
    ACCEPTED_LENGTH = "accepted_length_tokens", "accepted length", "tok/step", MetricGroup.SPECULATION, 2, (1.0, None)
    GPU_UTILIZATION = "gpu_utilization_percent", "GPU", "%", MetricGroup.GPU, 0, _PERCENT
    GPU_POWER = "gpu_power_watts", "power", "W", MetricGroup.GPU, 1
    GPU_CLOCK = "gpu_sm_clock_mhz", "SM clock", "MHz", MetricGroup.GPU
    GPU_TEMPERATURE = "gpu_temperature_celsius", "temperature", "C", MetricGroup.GPU
    MEMORY_AVAILABLE = "memory_available_gib", "available", "GiB", MetricGroup.MEMORY, 1
    MEMORY_IN_USE = "memory_in_use_gib", "in use", "GiB", MetricGroup.MEMORY, 1
    MEMORY_ENGINES = "memory_engines_gib", "engines", "GiB", MetricGroup.MEMORY, 1
    CPU_UTILIZATION = "cpu_utilization_percent", "CPU", "%", MetricGroup.MACHINE, 0, _PERCENT
    DISK_RATE = "disk_megabytes_per_second", "disk", "MB/s", MetricGroup.MACHINE, 0
    NETWORK_RATE = "network_megabytes_per_second", "network", "MB/s", MetricGroup.MACHINE, 1
    LINK_RATE = "link_megabytes_per_second", "link", "MB/s", MetricGroup.MACHINE, 1
    """Received and sent between the nodes of a cluster: kept of each node of an engine."""

    @property
    def of_host(self) -> bool:
        """The host's and not one engine's: the same series whichever engine it is asked for."""
        return self.group in (MetricGroup.GPU, MetricGroup.MEMORY, MetricGroup.MACHINE)


class Sample(Struct, frozen=True):
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


class Gap(Struct, frozen=True):
    """A stretch without values, seconds since the epoch, and why."""

    begin: float
    end: float
    reason: str


class SeriesView(Struct, frozen=True):
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

    def at(self, time: float) -> float | None:
        """The value of the sample nearest to `time`; None where it has none, or there is none within three steps."""
        index = bisect_left(self.times, time)
        near = [i for i in (index - 1, index) if 0 <= i < len(self.times)]
        best = min(near, key=lambda i: abs(self.times[i] - time), default=None)
        if best is None or abs(self.times[best] - time) > 3 * self.step or isnan(self.values[best]):
            return None
        return self.values[best]


def node_source(engine: str, node: str) -> str:
    """The source of a node's series, under the name of an engine that runs on several."""
    return f"{engine}@{node}"


HOST: Final = ""
"""The source of the series that are the machine's and not an engine's."""


class SeriesKey(NamedTuple):
    """One series: `source` is the engine's container name, `HOST` for the machine's own; `metric` is a
    `MetricId` value."""

    source: str
    metric: str


class SeriesSlice(Struct, frozen=True):
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
