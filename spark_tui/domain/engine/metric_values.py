"""From measured metrics to the series that are kept: one reading for each `MetricId`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Final

from spark_tui.domain.engine.metric_change import Change
from spark_tui.domain.engine.metric_names import Family
from spark_tui.domain.engine.metric_quantiles import Latency, Quantile
from spark_tui.domain.engine.metric_series import MetricId
from spark_tui.domain.engine.metrics import Drafting, EngineMetrics, measure
from spark_tui.domain.engine.serving_lines import ServingSample
from spark_tui.domain.host.gpu import GpuReading, engine_memory
from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.quantities import GIB
from spark_tui.domain.reading import Missing, Ok, Reading, value_of

Values = tuple[dict[MetricId, float], dict[MetricId, str]]
"""What has a value, and why the rest has none."""

_LATENCIES: Final[Mapping[MetricId, tuple[str, str]]] = {
    MetricId(f"{name}_{quantile}_seconds"): (name, quantile)
    for name in ("ttft", "itl", "e2e", "queue")
    for quantile in ("p50", "p95", "p99")
}


def engine_values(metrics: EngineMetrics) -> Values:
    """The series of one engine, in the units of their `MetricId`."""
    return _split({metric: _engine_reading(metrics, metric) for metric in MetricId if not metric.of_host})


def _engine_reading(metrics: EngineMetrics, metric: MetricId) -> Reading[float]:
    if metric in _LATENCIES:
        name, quantile = _LATENCIES[metric]
        found: Reading[Latency] = getattr(metrics, name)
        return found if isinstance(found, Missing) else Ok(_of_quantile(found.value, quantile))
    return _ENGINE[metric](metrics)


def _of_quantile(latency: Latency, name: str) -> float:
    quantile: Quantile = getattr(latency, name)
    return quantile.value


def _percent(share: Reading[float]) -> Reading[float]:
    return share if isinstance(share, Missing) else Ok(share.value * 100)


def _per_minute(count: Reading[float], seconds: float | None) -> Reading[float]:
    if isinstance(count, Missing):
        return count
    return Ok(count.value * 60 / seconds) if seconds else Missing("a rate needs two looks at the engine")


def _by_reason(metrics: EngineMetrics, reason: str) -> Reading[float]:
    count = dict(metrics.waiting_by_reason).get(reason)
    return Missing("the server does not tell why requests wait") if count is None else Ok(count)


def _draft(metrics: EngineMetrics, pick: Callable[[Drafting], float | None]) -> Reading[float]:
    if isinstance(metrics.drafting, Missing):
        return metrics.drafting
    value = pick(metrics.drafting.value)
    return Missing("the server does not tell") if value is None else Ok(value)


_ENGINE: Final[Mapping[MetricId, Callable[[EngineMetrics], Reading[float]]]] = {
    MetricId.PREFILL_RATE: lambda m: m.prefill_rate,
    MetricId.DECODE_RATE: lambda m: m.decode_rate,
    MetricId.ENERGY: lambda m: m.energy,
    MetricId.RUNNING: lambda m: m.running,
    MetricId.WAITING: lambda m: m.waiting,
    MetricId.WAITING_CAPACITY: lambda m: _by_reason(m, "capacity"),
    MetricId.WAITING_DEFERRED: lambda m: _by_reason(m, "deferred"),
    MetricId.FINISHED_RATE: lambda m: _per_minute(m.finished_count, m.seconds),
    MetricId.FAILED_RATE: lambda m: _per_minute(m.failed_count, m.seconds),
    MetricId.KV_USAGE: lambda m: _percent(m.kv_usage),
    MetricId.PREFIX_HITS: lambda m: _percent(m.prefix_hits),
    MetricId.PREEMPTION_RATE: lambda m: _per_minute(m.preemptions, m.seconds),
    MetricId.ACCEPTANCE: lambda m: _percent(_draft(m, lambda d: d.acceptance)),
    MetricId.ACCEPTED_LENGTH: lambda m: _draft(m, lambda d: d.length),
}


def serving_sample(change: Change, at: float) -> ServingSample:
    """The interval as the findings take it, `at` seconds since the epoch."""
    metrics = measure(change)
    drafted, accepted = change.grown(Family.DRAFT_TOKENS), change.grown(Family.ACCEPTED)
    speculates = isinstance(metrics.drafting, Ok)
    return ServingSample(
        at=at,
        prompt_rate=value_of(metrics.prefill_rate),
        generation_rate=value_of(metrics.decode_rate),
        running=_whole(value_of(metrics.running)),
        waiting=_whole(value_of(metrics.waiting)),
        preemptions=_whole(value_of(metrics.preemptions)),
        kv_percent=value_of(_percent(metrics.kv_usage)),
        prefix_hit_percent=value_of(_percent(metrics.prefix_hits)),
        accepted=_whole(accepted) if speculates else None,
        drafted=_whole(drafted) if speculates else None,
        positions=metrics.drafting.value.positions if isinstance(metrics.drafting, Ok) else (),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


# --- the box ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HostLook:
    """The GPU and the memory at one moment."""

    gpu: Reading[GpuReading]
    memory: Reading[MemInfo]


def host_values(look: HostLook) -> Values:
    """The series of the box. What is stale is no value: the graph of a dead driver is a gap."""
    gpu, memory = look.gpu, look.memory
    read: dict[MetricId, Reading[float]] = {
        MetricId.GPU_UTILIZATION: _of_gpu(gpu, "utilization_percent"),
        MetricId.GPU_POWER: _of_gpu(gpu, "power_watts"),
        MetricId.GPU_CLOCK: _of_gpu(gpu, "sm_clock_mhz"),
        MetricId.GPU_TEMPERATURE: _of_gpu(gpu, "temperature_c"),
        MetricId.MEMORY_AVAILABLE: _of_memory(memory, "available"),
        MetricId.MEMORY_IN_USE: _of_memory(memory, "in_use"),
        MetricId.MEMORY_ENGINES: _held(gpu),
    }
    return _split(read)


def _of_gpu(gpu: Reading[GpuReading], field: str) -> Reading[float]:
    if not isinstance(gpu, Ok):
        return Missing(gpu.reason if isinstance(gpu, Missing) else gpu.error)
    value: float | None = getattr(gpu.value, field)
    return Missing("the driver does not report it") if value is None else Ok(float(value))


def _of_memory(memory: Reading[MemInfo], field: str) -> Reading[float]:
    if not isinstance(memory, Ok):
        return Missing(memory.reason if isinstance(memory, Missing) else memory.error)
    size: int = getattr(memory.value, field)
    return Ok(size / GIB)


def _held(gpu: Reading[GpuReading]) -> Reading[float]:
    if not isinstance(gpu, Ok):
        return Missing(gpu.reason if isinstance(gpu, Missing) else gpu.error)
    held = engine_memory(gpu)
    return Ok(held.value / GIB) if isinstance(held, Ok) else Missing(getattr(held, "reason", ""))


def _split(read: Mapping[MetricId, Reading[float]]) -> Values:
    values: dict[MetricId, float] = {}
    reasons: dict[MetricId, str] = {}
    for metric, reading in read.items():
        if isinstance(reading, Missing):
            reasons[metric] = reading.reason
        elif isfinite(reading.value):
            values[metric] = reading.value
        else:
            reasons[metric] = "the server's figure is not a number"
    return values, reasons
