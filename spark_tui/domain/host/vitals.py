"""The machine's vital signs beside memory and GPU: processors by cluster, temperatures, disks, links, faults.

Counters that only ever grow are read by a service; what happened per second between two readings is worked out here.
Every part may be missing on its own, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from spark_tui.domain.reading import Missing, Ok, Reading

T = TypeVar("T")
U = TypeVar("U")

ONE_READING = Missing("two readings are needed")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Processors of one kind: `X925` or `A725` on a GB10. `cpus` are their numbers."""

    name: str
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """A processor's ticks since boot: those in which it worked, and all."""

    busy: int
    total: int


@dataclass(frozen=True, slots=True)
class FaultCounters:
    """Since boot: page faults that had to read from disk, pages swapped in and out, processes that the kernel ended
    for want of memory, and allocations that waited for compaction."""

    major: int = 0
    swapped_in: int = 0
    swapped_out: int = 0
    oom_kills: int = 0
    compaction_stalls: int = 0


@dataclass(frozen=True, slots=True)
class DiskCounters:
    """Bytes read and written since boot, and milliseconds with a request under way."""

    read: int
    written: int
    busy_ms: int


@dataclass(frozen=True, slots=True)
class LinkCounters:
    """Bytes received and sent since it came up. `speed` in Mbit/s, None while it is down or not told."""

    received: int
    sent: int
    up: bool
    speed: int | None = None


@dataclass(frozen=True, slots=True)
class Temperature:
    """The hottest sensor of one kind, degrees Celsius; `limit` is where the hardware gives up, None when not told."""

    name: str
    celsius: float
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class VitalCounters:
    """One reading; `at` in monotonic seconds."""

    at: float
    clusters: Reading[tuple[Cluster, ...]]
    cpus: Reading[Mapping[int, CpuTimes]]
    temperatures: Reading[tuple[Temperature, ...]]
    disks: Reading[Mapping[str, DiskCounters]]
    links: Reading[Mapping[str, LinkCounters]]
    faults: Reading[FaultCounters]


@dataclass(frozen=True, slots=True)
class ClusterLoad:
    """How busy the processors of one kind were, per cent of all of them."""

    name: str
    cpus: int
    percent: float


@dataclass(frozen=True, slots=True)
class DiskRate:
    """Bytes per second; `busy_percent` of the time with a request under way."""

    name: str
    read: float
    written: float
    busy_percent: float


@dataclass(frozen=True, slots=True)
class LinkRate:
    """Bytes per second. `speed` in Mbit/s."""

    name: str
    received: float
    sent: float
    up: bool
    speed: int | None = None


@dataclass(frozen=True, slots=True)
class FaultRate:
    """Per second; `oom_kills` since boot."""

    major: float
    swapped_in: float
    swapped_out: float
    compaction_stalls: float
    oom_kills: int


@dataclass(frozen=True, slots=True)
class Vitals:
    """What happened between two readings."""

    clusters: Reading[tuple[ClusterLoad, ...]] = ONE_READING
    temperatures: Reading[tuple[Temperature, ...]] = ONE_READING
    disks: Reading[tuple[DiskRate, ...]] = ONE_READING
    links: Reading[tuple[LinkRate, ...]] = ONE_READING
    faults: Reading[FaultRate] = ONE_READING


def vitals_between(before: VitalCounters | None, after: VitalCounters) -> Vitals:
    """Rates between two readings; temperatures need one. A counter that has fallen counts as standing still."""
    if before is None or after.at <= before.at:
        return Vitals(temperatures=after.temperatures)
    seconds = after.at - before.at
    return Vitals(
        clusters=_loads(before.cpus, after.cpus, after.clusters),
        temperatures=after.temperatures,
        disks=_both(before.disks, after.disks, lambda old, new: _disk_rates(old, new, seconds)),
        links=_both(before.links, after.links, lambda old, new: _link_rates(old, new, seconds)),
        faults=_both(before.faults, after.faults, lambda old, new: _fault_rate(old, new, seconds)),
    )


def _both(before: Reading[T], after: Reading[T], work: Callable[[T, T], U]) -> Reading[U]:
    if isinstance(after, Missing):
        return after
    if isinstance(before, Missing):
        return ONE_READING
    return Ok(work(before.value, after.value), after.at)


def _rate(old: int, new: int, seconds: float) -> float:
    return max(0, new - old) / seconds


def _loads(
    before: Reading[Mapping[int, CpuTimes]],
    after: Reading[Mapping[int, CpuTimes]],
    clusters: Reading[tuple[Cluster, ...]],
) -> Reading[tuple[ClusterLoad, ...]]:
    if isinstance(clusters, Missing):
        return clusters
    return _both(before, after, lambda old, new: tuple(_load(each, old, new) for each in clusters.value))


def _load(cluster: Cluster, old: Mapping[int, CpuTimes], new: Mapping[int, CpuTimes]) -> ClusterLoad:
    pairs = [(old[cpu], new[cpu]) for cpu in cluster.cpus if cpu in old and cpu in new]
    total = sum(max(0, now.total - was.total) for was, now in pairs)
    busy = sum(max(0, now.busy - was.busy) for was, now in pairs)
    return ClusterLoad(cluster.name, len(cluster.cpus), min(100.0, 100.0 * busy / total) if total else 0.0)


def _disk_rates(
    old: Mapping[str, DiskCounters], new: Mapping[str, DiskCounters], seconds: float
) -> tuple[DiskRate, ...]:
    return tuple(
        DiskRate(
            name,
            _rate(old[name].read, now.read, seconds),
            _rate(old[name].written, now.written, seconds),
            min(100.0, _rate(old[name].busy_ms, now.busy_ms, seconds) / 10),
        )
        for name, now in sorted(new.items())
        if name in old
    )


def _link_rates(
    old: Mapping[str, LinkCounters], new: Mapping[str, LinkCounters], seconds: float
) -> tuple[LinkRate, ...]:
    return tuple(
        LinkRate(
            name,
            _rate(old[name].received, now.received, seconds),
            _rate(old[name].sent, now.sent, seconds),
            now.up,
            now.speed,
        )
        for name, now in sorted(new.items())
        if name in old
    )


def _fault_rate(old: FaultCounters, new: FaultCounters, seconds: float) -> FaultRate:
    return FaultRate(
        major=_rate(old.major, new.major, seconds),
        swapped_in=_rate(old.swapped_in, new.swapped_in, seconds),
        swapped_out=_rate(old.swapped_out, new.swapped_out, seconds),
        compaction_stalls=_rate(old.compaction_stalls, new.compaction_stalls, seconds),
        oom_kills=new.oom_kills,
    )


def hottest(found: Sequence[Temperature]) -> tuple[Temperature, ...]:
    """One per name, the hottest."""
    kept: dict[str, Temperature] = {}
    for each in found:
        if each.name not in kept or each.celsius > kept[each.name].celsius:
            kept[each.name] = each
    return tuple(kept.values())
