"""The machine's vital signs beside memory and GPU: processors by cluster, temperatures, disks, links, faults.

Counters that only ever grow are read by a service; what happened per second between two readings is worked out here.
Every part may be missing on its own, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

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


SECTOR: Final = 512
"""`/proc/diskstats` counts in these, whatever the disk's own are."""
_PARTS: Final = {0xD85: "X925", 0xD87: "A725"}
"""Arm's part numbers of the GB10's two kinds (MIDR bits 15..4)."""
_DISK: Final = re.compile(r"nvme\d+n\d+|sd[a-z]+|vd[a-z]+|mmcblk\d+")
_NOT_LINKS: Final = re.compile(r"lo|docker\d*|veth.*|br-.*|virbr.*|ifb.*|dummy.*|cni.*|flannel.*|tunl.*|sit\d.*")
_CPU_LINE: Final = re.compile(r"cpu(\d+)")
_IDLE, _IO_WAIT, _GUEST = 3, 4, 8
_FAULTS: Final = {
    "pgmajfault": "major",
    "pswpin": "swapped_in",
    "pswpout": "swapped_out",
    "oom_kill": "oom_kills",
    "compact_stall": "compaction_stalls",
}


def parse_cpus(text: str) -> dict[int, CpuTimes]:
    """`/proc/stat` -> ticks by processor. Waiting for a disk is idle time; guests are in user time already."""
    found = {}
    for line in text.splitlines():
        name, *words = line.split()[:9] or [""]
        match = _CPU_LINE.fullmatch(name)
        ticks = _numbers(words)
        if match and len(ticks) > _IO_WAIT:
            total = sum(ticks[:_GUEST])
            found[int(match[1])] = CpuTimes(total - ticks[_IDLE] - ticks[_IO_WAIT], total)
    return found


def parse_faults(text: str) -> FaultCounters | None:
    """`/proc/vmstat` -> the counters that matter; None where it counts no faults."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name in _FAULTS and value.strip().isdecimal():
            found[_FAULTS[name]] = int(value)
    return FaultCounters(**found) if "major" in found else None


def parse_disks(text: str) -> dict[str, DiskCounters]:
    """`/proc/diskstats` -> whole disks: no partitions, no loop devices, of which a Spark has twenty."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) < 13 or not _DISK.fullmatch(words[2]):
            continue
        figures = _numbers(words[3:13])
        if len(figures) == 10:
            found[words[2]] = DiskCounters(figures[2] * SECTOR, figures[6] * SECTOR, figures[9])
    return found


def parse_links(text: str) -> dict[str, tuple[int, int]]:
    """`/proc/net/dev` -> bytes received and sent by link, without Docker's own and the loopback."""
    found = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        figures = _numbers(rest.split())
        if colon and len(figures) >= 9 and not _NOT_LINKS.fullmatch(name.strip()):
            found[name.strip()] = (figures[0], figures[8])
    return found


def parse_parts(cpuinfo: str) -> dict[int, int]:
    """`/proc/cpuinfo` of an Arm machine -> part number by processor. It has neither a model name nor a clock."""
    found: dict[int, int] = {}
    cpu = None
    for line in cpuinfo.splitlines():
        name, _, value = (word.strip() for word in line.partition(":"))
        if name == "processor" and value.isdecimal():
            cpu = int(value)
        elif name == "CPU part" and cpu is not None:
            part = hexadecimal(value)
            if part is not None:
                found[cpu] = part
    return found


def part_of_midr(midr: int) -> int:
    """The part number in `midr_el1`."""
    return midr >> 4 & 0xFFF


def clusters_of(
    cpus: Iterable[int], parts: Mapping[int, int] | None = None, capacities: Mapping[int, int] | None = None
) -> tuple[Cluster, ...]:
    """Processors by kind, the strongest kind first: by part number, else by the capacity that the kernel gives them
    (1024 for the strongest), else all in one."""
    numbers = sorted(cpus)
    parts, capacities = parts or {}, capacities or {}
    if numbers and all(cpu in parts for cpu in numbers):
        kinds = {cpu: _PARTS.get(parts[cpu], f"part {parts[cpu]:#x}") for cpu in numbers}
    elif numbers and all(cpu in capacities for cpu in numbers) and len({capacities[cpu] for cpu in numbers}) > 1:
        most = max(capacities[cpu] for cpu in numbers)
        kinds = {cpu: "big" if capacities[cpu] == most else "little" for cpu in numbers}
    else:
        kinds = dict.fromkeys(numbers, "CPU")
    names = sorted(set(kinds.values()), key=lambda name: (_STRONGEST.get(name, 1), name))
    return tuple(Cluster(name, tuple(cpu for cpu in numbers if kinds[cpu] == name)) for name in names)


_STRONGEST: Final = {"X925": 0, "big": 0, "A725": 2, "little": 2}


def hexadecimal(text: str) -> int | None:
    """`0xd85` -> 3461; None for anything else."""
    try:
        return int(text, 16)
    except ValueError:
        return None


def _numbers(words: Iterable[str]) -> list[int]:
    """As many numbers as there are at the beginning."""
    found = []
    for word in words:
        if not (word.isascii() and word.isdecimal() and len(word) <= 20):
            break
        found.append(int(word))
    return found


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process with a GPU context. `memory` in bytes, None where the driver does not report it.

    `compute` is false for those that only draw (Xorg, a desktop).
    """

    pid: int
    memory: int | None = None
    compute: bool = True


class Throttle(StrEnum):
    """What holds the clock below what the load asks for."""

    POWER_CAP = "power cap"
    HW_SLOWDOWN = "hardware slowdown"
    SYNC_BOOST = "sync boost"
    THERMAL = "thermal"
    HW_THERMAL = "hardware thermal"
    POWER_BRAKE = "power brake"


REASON_BITS: Final[Mapping[int, Throttle]] = {
    0x04: Throttle.POWER_CAP,
    0x08: Throttle.HW_SLOWDOWN,
    0x10: Throttle.SYNC_BOOST,
    0x20: Throttle.THERMAL,
    0x40: Throttle.HW_THERMAL,
    0x80: Throttle.POWER_BRAKE,
}
"""nvmlClocksEventReason* of nvidia-ml-py 13. Idle (0x1), a set application clock (0x2) and the display's (0x100) are
no throttling."""


NOTICEABLE: Final = 0.1
"""A share of the time. Under any load the counters run a little."""


@dataclass(frozen=True, slots=True)
class Throttled:
    """What held the clock down, and for which share of the time between two readings, 0 to 1."""

    kind: Throttle
    share: float


def throttled_between(
    before: Mapping[Throttle, int], after: Mapping[Throttle, int], seconds: float
) -> tuple[Throttled, ...]:
    """What two readings of the cumulative counters (nanoseconds) say of the time between them, the largest first.

    A GB10's momentary bits stay 0 while these counters run: they are what tells. A counter that has fallen (another
    driver) counts for nothing.
    """
    if seconds <= 0:
        return ()
    grown = {kind: value - before[kind] for kind, value in after.items() if kind in before}
    found = [Throttled(kind, min(1.0, held / (seconds * 1e9))) for kind, held in grown.items() if held > 0]
    return tuple(sorted(found, key=lambda each: (-each.share, each.kind)))


def throttled_now(bits: int) -> tuple[Throttled, ...]:
    """What the momentary bits say, for drivers without counters."""
    return tuple(Throttled(kind, 1.0) for bit, kind in REASON_BITS.items() if bits & bit)


@dataclass(frozen=True, slots=True)
class GpuReading:
    """None means that the driver does not report the value.

    `throttled` is what held the clock down since the reading before; None until there are two, or where the driver
    does not tell. `unified` says that the GPU has no memory of its own: then `memory_used` and `memory_total` are
    None, and the truth is in `/proc/meminfo`.
    """

    name: str
    utilization_percent: int | None = None
    power_watts: float | None = None
    temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    unified: bool = False
    driver: str = ""
    processes: tuple[GpuProcess, ...] | None = None
    throttled: tuple[Throttled, ...] | None = None

    @property
    def held_by(self) -> str:
        """What keeps the clock down for a noticeable share of the time, `thermal` for example; empty when nothing."""
        return next((each.kind.value for each in self.throttled or () if each.share >= NOTICEABLE), "")

    @property
    def figures(self) -> tuple[str, ...]:
        """`92 %`, `45 W`, `2400 MHz`, `61 C`, `clock held by thermal`: what is known of its load, in this order."""
        known = (
            (self.utilization_percent, "{} %"),
            (self.power_watts, "{:.0f} W"),
            (self.sm_clock_mhz, "{} MHz"),
            (self.temperature_c, "{} C"),
            (self.held_by or None, "clock held by {}"),
        )
        return tuple(shape.format(value) for value, shape in known if value is not None)

    def compute_memory(self) -> Reading[int]:
        """Bytes that CUDA processes hold together: the engine's part of the pool. Missing when one of them is not
        reported, for a sum without it would be a wrong one."""
        if self.processes is None:
            return Missing("the driver does not list GPU processes")
        held = [process.memory for process in self.processes if process.compute]
        known = [memory for memory in held if memory is not None]
        if len(known) < len(held):
            return Missing("NVML process memory not reported")
        return Ok(sum(known))


def engine_memory(gpu: Reading[GpuReading]) -> Reading[int]:
    """The engine's part of the pool as far as the GPU could be read; the reason why not otherwise."""
    return gpu if isinstance(gpu, Missing) else gpu.value.compute_memory()


@dataclass(frozen=True, slots=True)
class HostProcess:
    """One process; sizes in bytes. `pss` charges shared pages to their users in equal parts; None where that may not
    be read. `gpu` is what CUDA holds for it, which stands in neither; None where the driver does not tell.
    `container` is a container's id, empty for none."""

    pid: int
    name: str
    rss: int
    pss: int | None = None
    swap: int | None = None
    gpu: int | None = None
    container: str = ""
    uid: int = 0

    @property
    def weight(self) -> int:
        """What it holds of the pool as far as that is known."""
        return (self.pss if self.pss is not None else self.rss) + (self.gpu or 0)


@dataclass(frozen=True, slots=True)
class ContainerMemory:
    """What the kernel charges to a container, in bytes: all, its anonymous memory, its page cache, shared memory and
    swap. CUDA memory is in none of them: `docker stats` and `--memory` do not see it."""

    current: int
    anon: int | None = None
    file: int | None = None
    shmem: int | None = None
    swap: int | None = None
    limit: int | None = None


def heaviest(found: Iterable[HostProcess], limit: int) -> tuple[HostProcess, ...]:
    """The first `limit` by weight; of equal ones the older."""
    return tuple(sorted(found, key=lambda each: (-each.weight, each.pid))[:limit])


def parse_cgroup_memory(current: str, stat: str = "", swap: str = "", limit: str = "") -> ContainerMemory | None:
    """`memory.current`, `memory.stat`, `memory.swap.current` and `memory.max` of a cgroup (version 2); None where the
    first holds no number."""
    size = _size(current)
    if size is None:
        return None
    told = dict(line.split(maxsplit=1) for line in stat.splitlines() if len(line.split(maxsplit=1)) == 2)
    return ContainerMemory(
        current=size,
        anon=_size(told.get("anon", "")),
        file=_size(told.get("file", "")),
        shmem=_size(told.get("shmem", "")),
        swap=_size(swap),
        limit=_size(limit),
    )


def _size(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 20 else None
