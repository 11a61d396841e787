"""Readings of a machine: who it is, its vital signs, its GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from spark_tui.base.errors import UsageError
from spark_tui.base.finding import Missing, Ok, Reading
from spark_tui.base.quantities import GIB, gib, hexadecimal

GB10_PCI_ID: Final = (0x10DE, 0x2E12)
"""Vendor and device of the GB10's GPU. 0x2e03 and 0x2e06 are the N1X, which is no Spark."""

NOMINAL_MEMORY: Final = int(121.69 * GIB)
"""Memory of a 128 GB GB10 as vLLM logs it, in bytes; older firmware has 119.69 GiB. For machines not read yet: Sparks
with 64 GB are on sale."""


class HostIdentity(Struct, frozen=True):
    """Name and make of the machine, and its memory in bytes (64 and 128 GB Sparks are sold). Empty strings and 0 where
    unknown."""

    hostname: str
    product: str = ""
    kernel: str = ""
    architecture: str = ""
    cpu_count: int = 0
    is_spark: bool = False
    has_gpu: bool | None = None
    """An NVIDIA one; None where the machine does not list its devices."""
    memory: int = 0
    lan_address: str = ""
    """Of the interface that leads out of this machine."""


# What the makers write into DMI and into DGX_PLATFORM, in lower case with spaces -> how people call it.
_PRODUCTS: Final = (
    ("dgx spark", "DGX Spark"),
    ("gx10", "ASUS Ascent GX10"),
    ("dell pro max with gb10", "Dell Pro Max with GB10"),
    ("hp zgx nano", "HP ZGX Nano"),
    ("thinkstation pgx", "Lenovo ThinkStation PGX"),
    ("ai top atom", "Gigabyte AI TOP ATOM"),
    ("edgexpert", "MSI EdgeXpert"),
    ("veriton gn100", "Acer Veriton GN100"),
)
_PLACEHOLDERS: Final = frozenset(
    ("", "none", "default string", "system product name", "to be filled by o.e.m.", "not specified", "unknown")
)


def parse_release(text: str) -> Mapping[str, str]:
    """`/etc/dgx-release` -> its values by key.

    The file is appended to at every update, so the last of equal keys counts; HP's has no quotes, a copied one may
    have one only. Whatever is not `KEY=value` is passed over.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        key = key.strip()
        if equals and key.isidentifier():
            found[key] = value.strip().strip("\"'").strip()
    return found


def product_label(release: Mapping[str, str], dmi: Iterable[str]) -> tuple[str, bool]:
    """What to call the machine, and whether that name is a Spark's.

    The maker's own name (DGX_PLATFORM, DMI) comes before NVIDIA's, which every sibling has too; a machine that is none
    of them is called by its DMI product name, the first of `dmi`.
    """
    platform, own = release.get("DGX_PLATFORM", ""), [name.strip() for name in dmi]
    for name in (platform, *own, release.get("DGX_PRETTY_NAME", ""), release.get("DGX_NAME", "")):
        for mark, label in _PRODUCTS:
            if mark in _words(name):
                return label, True
    named = release.get("DGX_PRETTY_NAME") or release.get("DGX_NAME") or ""
    return named or next((name for name in own if _words(name) not in _PLACEHOLDERS), ""), False


def _words(name: str) -> str:
    return " ".join(name.replace("_", " ").lower().split())


class HostPaths(Struct, frozen=True):
    """Absolute directories of the host: the model store, the compile caches, and the person's home (for `~`); and the
    person's ids of user and group, None: unknown. `hubs` are other Hub caches of the person, which may be absent: a
    launch reads from them what is complete there and not in the store. From `tools`, folders of other tools, it reads a
    GGUF file that a preset names."""

    store: str
    caches: str
    home: str = ""
    owner: tuple[int, int] | None = None
    hubs: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for what, path in (("model store", self.store), ("cache folder", self.caches)):
            if not path.startswith("/") or ":" in path:
                raise UsageError(
                    f"The {what} must be an absolute path without a colon; it is {path!r}.",
                    "Correct it in the settings.",
                )


# --- vitals ----------------------------------------------------------------------------------------------


TWO_READINGS_NEEDED: Final = Missing("two readings are needed")


# --- the GPU ----------------------------------------------------------------------------------------------


class GpuProcess(Struct, frozen=True, array_like=True):
    """A process with a GPU context. `memory` is None where the driver does not report it; `compute` is false for those
    that only draw (Xorg, a desktop)."""

    pid: int
    memory: int | None = None
    compute: bool = True


class Throttle(StrEnum):
    """Why the clock is lower than the load asks for."""

    POWER_CAP = "power cap"
    HW_SLOWDOWN = "hardware slowdown"
    SYNC_BOOST = "sync boost"
    THERMAL = "thermal"
    HW_THERMAL = "hardware thermal"
    POWER_BRAKE = "power brake"


# nvmlClocksEventReason* of nvidia-ml-py 13. Idle (0x1), a set application clock (0x2) and the display's (0x100) are no
# throttling.
REASON_BITS: Final[Mapping[int, Throttle]] = {
    0x04: Throttle.POWER_CAP,
    0x08: Throttle.HW_SLOWDOWN,
    0x10: Throttle.SYNC_BOOST,
    0x20: Throttle.THERMAL,
    0x40: Throttle.HW_THERMAL,
    0x80: Throttle.POWER_BRAKE,
}
NOTICEABLE: Final = 0.1
"""A share of the time. Under any load the counters run a little."""


class Throttled(Struct, frozen=True):
    """A reason, and the share of the time between two readings in which it held the clock down, 0 to 1."""

    kind: Throttle
    share: float


def throttled_between(
    before: Mapping[Throttle, int], after: Mapping[Throttle, int], seconds: float
) -> tuple[Throttled, ...]:
    """The shares between two readings of the cumulative counters (nanoseconds), the largest first.

    A GB10's momentary bits stay 0 while these counters run. A counter that has fallen (a driver reload) is left out.
    """
    if seconds <= 0:
        return ()
    grown = {kind: value - before[kind] for kind, value in after.items() if kind in before}
    found = [Throttled(kind, min(1.0, held / (seconds * 1e9))) for kind, held in grown.items() if held > 0]
    return tuple(sorted(found, key=lambda each: (-each.share, each.kind)))


def throttled_now(bits: int) -> tuple[Throttled, ...]:
    """The reasons in the momentary bits, for drivers without counters."""
    return tuple(Throttled(kind, 1.0) for bit, kind in REASON_BITS.items() if bits & bit)


class GpuReading(Struct, frozen=True):
    """None means that the driver does not report the value.

    `throttled` covers the time since the previous reading; None for the first one, or where the driver does not report
    it. `unified`: the GPU has no memory of its own; then `memory_used` and `memory_total` are None and
    `/proc/meminfo` holds the truth.
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
        """The main reason for a low clock, `thermal` for example; empty without a noticeable one."""
        return next((each.kind.value for each in self.throttled or () if each.share >= NOTICEABLE), "")

    @property
    def own_memory(self) -> str:
        """`74.1 of 79.6 GiB`: of a GPU with memory of its own; empty for another one, or where unknown."""
        if self.memory_used is None or self.memory_total is None:
            return ""
        return f"{gib(self.memory_used)} of {gib(self.memory_total)} GiB"

    @property
    def figures(self) -> tuple[str, ...]:
        """`92 %`, `45 W`, `2400 MHz`, `61 C`, `clock held by thermal`: the known ones, in this order."""
        known = (
            (self.utilization_percent, "{} %"),
            (self.power_watts, "{:.0f} W"),
            (self.sm_clock_mhz, "{} MHz"),
            (self.temperature_c, "{} C"),
            (self.held_by or None, "clock held by {}"),
            (self.own_memory or None, "{}"),
        )
        return tuple(shape.format(value) for value, shape in known if value is not None)

    def compute_memory(self) -> Reading[int]:
        """Bytes of all CUDA processes. Missing when one of them is not reported: the sum would be wrong."""
        if self.processes is None:
            return Missing("the driver does not list GPU processes")
        sizes = [process.memory for process in self.processes if process.compute]
        known = [size for size in sizes if size is not None]
        if len(known) < len(sizes):
            return Missing("NVML process memory not reported")
        return Ok(sum(known))


OWN_MEMORY: Final = "this GPU has its own memory: its processes use none of this"


def engine_memory(gpu: Reading[GpuReading]) -> Reading[int]:
    """Bytes of all CUDA processes, or why they are unknown."""
    return gpu if isinstance(gpu, Missing) else gpu.value.compute_memory()


def shared_engine_memory(gpu: Reading[GpuReading]) -> Reading[int]:
    """The same as a part of the machine's memory: Missing for a GPU with memory of its own."""
    if not isinstance(gpu, Missing) and not gpu.value.unified:
        return Missing(OWN_MEMORY)
    return engine_memory(gpu)


# --- the machine ------------------------------------------------------------------------------------------


class CpuCluster(Struct, frozen=True):
    """Processors of one kind: `X925` or `A725` on a GB10. `cpus` are their numbers."""

    name: str
    cpus: tuple[int, ...]


class ClusterLoad(Struct, frozen=True):
    """How busy the processors of one kind were, per cent of all of them."""

    name: str
    cpus: int
    percent: float


class Temperature(Struct, frozen=True):
    """The hottest sensor of one kind, degrees Celsius; at `limit` the machine switches off, None where unknown."""

    name: str
    celsius: float
    limit: float | None = None


class DiskRate(Struct, frozen=True):
    """Bytes per second; `busy_percent` of the time with a request under way."""

    name: str
    read: float
    written: float
    busy_percent: float


class LinkRate(Struct, frozen=True):
    """Bytes per second. `speed` in Mbit/s, None while the link is down or where the driver does not report it."""

    name: str
    received: float
    sent: float
    up: bool
    speed: int | None = None


class FaultRate(Struct, frozen=True):
    """Per second: page faults read from disk, pages swapped in and out. And the processes that the kernel has killed
    for want of memory since boot."""

    major: float
    swapped_in: float
    swapped_out: float
    oom_kills: int


class Vitals(Struct, frozen=True):
    """Rates between two readings, and temperatures. Any part may be missing, with its reason."""

    clusters: Reading[tuple[ClusterLoad, ...]] = TWO_READINGS_NEEDED
    temperatures: Reading[tuple[Temperature, ...]] = TWO_READINGS_NEEDED
    disks: Reading[tuple[DiskRate, ...]] = TWO_READINGS_NEEDED
    links: Reading[tuple[LinkRate, ...]] = TWO_READINGS_NEEDED
    faults: Reading[FaultRate] = TWO_READINGS_NEEDED


Counters = Mapping[str, tuple[float, ...]]
"""Counters that only ever grow, by the name of what they count."""


def per_second(before: Counters, after: Counters, seconds: float) -> dict[str, tuple[float, ...]]:
    """The growth of each counter per second, of names in both. A counter that has fallen counts as standing still."""
    return {
        name: tuple(max(0.0, now - was) / seconds for was, now in zip(before[name], values, strict=True))
        for name, values in sorted(after.items())
        if name in before
    }


def hottest(found: Iterable[Temperature]) -> tuple[Temperature, ...]:
    """One per name, the hottest."""
    kept: dict[str, Temperature] = {}
    for each in found:
        if each.name not in kept or each.celsius > kept[each.name].celsius:
            kept[each.name] = each
    return tuple(kept.values())


_PARTS: Final = {0xD85: "X925", 0xD87: "A725"}
"""Arm's part numbers of the GB10's two kinds (MIDR bits 15..4)."""
_STRONGEST: Final = {"X925": 0, "big": 0, "A725": 2, "little": 2}


def clusters_of(
    cpus: Iterable[int], parts: Mapping[int, int] | None = None, capacities: Mapping[int, int] | None = None
) -> tuple[CpuCluster, ...]:
    """Processors by kind, the strongest first: by part number, else by the capacity that the kernel gives them (1024
    for the strongest), else all in one."""
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
    return tuple(CpuCluster(name, tuple(cpu for cpu in numbers if kinds[cpu] == name)) for name in names)


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


_VMSTAT: Final = ("pgmajfault", "pswpin", "pswpout", "oom_kill")


def parse_faults(text: str) -> tuple[int, int, int, int] | None:
    """`/proc/vmstat` -> major faults, pages swapped in and out, OOM kills; None without faults."""
    given = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
    major, *others = (int(word) if (word := given.get(name, "").strip()).isdecimal() else None for name in _VMSTAT)
    if major is None:
        return None
    swapped_in, swapped_out, kills = (value or 0 for value in others)
    return major, swapped_in, swapped_out, kills


# --- processes --------------------------------------------------------------------------------------------


class HostProcess(Struct, frozen=True):
    """One process. `pss` charges shared pages to their users in equal parts; None where this user may not read it.
    `gpu` is its CUDA memory, which is in neither; None where the driver does not report it. `container` is the id of
    its container, empty for none."""

    pid: int
    name: str
    rss: int
    pss: int | None = None
    swap: int | None = None
    gpu: int | None = None
    container: str = ""

    @property
    def weight(self) -> int:
        """Its unified memory as far as known."""
        return (self.pss if self.pss is not None else self.rss) + (self.gpu or 0)


class ContainerMemory(Struct, frozen=True):
    """What the kernel charges to a container: all, its anonymous memory, page cache, shared memory and swap. CUDA
    memory is in none of them: `docker stats` and `--memory` do not see it."""

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

    def size(text: str) -> int | None:
        text = text.strip()
        return int(text) if text.isascii() and text.isdecimal() and len(text) <= 20 else None

    total = size(current)
    if total is None:
        return None
    parts = dict(words for line in stat.splitlines() if len(words := line.split(maxsplit=1)) == 2)
    anon, file, shmem = (size(parts.get(name, "")) for name in ("anon", "file", "shmem"))
    return ContainerMemory(total, anon, file, shmem, size(swap), size(limit))
