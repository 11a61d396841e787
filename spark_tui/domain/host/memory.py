"""The unified-memory pool as `/proc/meminfo` tells it. Sizes in bytes.

`used` is what nobody can have back without ending a process: MemTotal - MemAvailable. `cache` is page cache
and reclaimable slab, of which `droppable` can be given up at once (drop_caches skips dirty, mapped and
shared-memory pages).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spark_tui.domain.quantities import GIB, KIB, MIB, gib, human_duration
from spark_tui.domain.reading import Missing, Reading


@dataclass(frozen=True, slots=True)
class MemInfo:
    """The fields of `/proc/meminfo` that matter; None where the kernel does not print one.

    `huge_total` and `huge_free` count pages of `huge_page` bytes.
    """

    total: int
    free: int
    available: int
    buffers: int = 0
    cached: int = 0
    shmem: int = 0
    reclaimable: int = 0
    mapped: int | None = None
    dirty: int | None = None
    writeback: int | None = None
    active_file: int | None = None
    inactive_file: int | None = None
    swap_total: int = 0
    swap_free: int = 0
    huge_total: int = 0
    huge_free: int = 0
    huge_page: int = 0
    swap_cached: int = 0
    anon: int | None = None
    slab_unreclaimable: int | None = None
    kernel_stack: int | None = None
    page_tables: int | None = None
    page_tables_secondary: int = 0
    per_cpu: int = 0
    cma_free: int = 0

    @property
    def cache(self) -> int:
        """Page cache and reclaimable slab, shared memory excluded (it is not cache, though counted in Cached)."""
        return max(0, min(self.buffers + self.cached + self.reclaimable - self.shmem, self.total - self.free))

    @property
    def in_use(self) -> int:
        """Neither free nor cache: processes, shared memory, kernel, and what the GPU driver holds."""
        return max(0, self.total - self.free - self.cache)

    @property
    def used(self) -> int:
        """What nobody can have back without ending a process."""
        return max(0, self.total - self.available)

    @property
    def droppable(self) -> int | None:
        """What drop_caches would release now; None where the kernel does not tell."""
        if self.active_file is None or self.inactive_file is None:
            return None
        held = (self.mapped or 0) + (self.dirty or 0) + (self.writeback or 0)
        return max(0, self.active_file + self.inactive_file + self.reclaimable - held)

    @property
    def allocatable(self) -> int:
        """What a CUDA allocation can get at most, swap left aside.

        NVIDIA's rule for integrated GPUs: with huge pages reserved only the free ones of them count, else
        MemAvailable does.
        """
        return self.huge_free * self.huge_page if self.huge_total and self.huge_page else self.available

    @property
    def usable(self) -> int:
        """MemAvailable without the free pages of the contiguous-memory area, which neither the driver nor the kernel
        can use for itself: on a box that dies they can be all that is left."""
        return max(0, self.available - min(self.cma_free, self.free))

    @property
    def unaccounted(self) -> int | None:
        """What no category of the kernel holds: on a Spark the GPU driver has it, for live contexts and dead ones.

        About 1.1 to 1.35 GiB on an idle desktop. None where the kernel does not print every category.
        """
        told = (self.anon, self.slab_unreclaimable, self.kernel_stack, self.page_tables)
        known = [size for size in told if size is not None]
        if len(known) < len(told):
            return None
        shared = self.free + self.buffers + self.cached + self.swap_cached + self.reclaimable
        return max(0, self.total - shared - sum(known) - self.page_tables_secondary - self.per_cpu)

    @property
    def swap_used(self) -> int:
        """Bytes in swap."""
        return max(0, self.swap_total - self.swap_free)


_SIZES: Final[Mapping[str, str]] = {
    "MemTotal": "total",
    "MemFree": "free",
    "MemAvailable": "available",
    "Buffers": "buffers",
    "Cached": "cached",
    "Shmem": "shmem",
    "Mapped": "mapped",
    "Dirty": "dirty",
    "Writeback": "writeback",
    "Active(file)": "active_file",
    "Inactive(file)": "inactive_file",
    "SwapTotal": "swap_total",
    "SwapFree": "swap_free",
    "Hugepagesize": "huge_page",
    "KReclaimable": "KReclaimable",
    "SReclaimable": "SReclaimable",
    "SwapCached": "swap_cached",
    "AnonPages": "anon",
    "SUnreclaim": "slab_unreclaimable",
    "KernelStack": "kernel_stack",
    "PageTables": "page_tables",
    "SecPageTables": "page_tables_secondary",
    "Percpu": "per_cpu",
    "CmaFree": "cma_free",
}
_COUNTS: Final[Mapping[str, str]] = {"HugePages_Total": "huge_total", "HugePages_Free": "huge_free"}
_NEEDED: Final = (("total", "MemTotal"), ("free", "MemFree"), ("available", "MemAvailable"))
_MOST_DIGITS: Final = 15
"""An exabyte in kB. A longer number is no size, and int() refuses very long ones."""


def parse_meminfo(text: str) -> MemInfo:
    """`/proc/meminfo` as text -> MemInfo.

    KReclaimable (all reclaimable kernel memory) is preferred to SReclaimable. A line that is not `Name: number kB`
    is passed over: a size without its unit is not guessed. Raises ValueError when a field without which nothing can
    be said (MemTotal, MemFree, MemAvailable) is absent.
    """
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name in _SIZES:
            words = rest.split()
            if len(words) == 2 and words[1] == "kB" and _is_number(words[0]):
                found[_SIZES[name]] = int(words[0]) * KIB
        elif name in _COUNTS and _is_number(rest.strip()):
            found[_COUNTS[name]] = int(rest)
    for needed, name in _NEEDED:
        if not found.get(needed) and (needed == "total" or needed not in found):
            raise ValueError(f"/proc/meminfo has no {name}")
    slab = found.pop("SReclaimable", 0)
    found["reclaimable"] = found.pop("KReclaimable", slab)
    for part in ("free", "available"):  # a container's own meminfo (lxcfs) can say more than there is
        found[part] = min(found[part], found["total"])
    return MemInfo(**found)


def _is_number(word: str) -> bool:
    return len(word) <= _MOST_DIGITS and word.isascii() and word.isdigit()


def steady(shown: MemInfo | None, read: MemInfo, step: int = 64 * MIB) -> MemInfo:
    """`read` with every size that moved less than `step` kept as shown.

    A quiet box drifts by a few MiB a second; without this the strip would be repainted for nothing.
    """
    if shown is None:
        return read

    def keep(old: int | None, new: int | None) -> int | None:
        return old if old is not None and new is not None and abs(new - old) < step else new

    kept = {name: keep(getattr(shown, name), getattr(read, name)) for name in MemInfo.__dataclass_fields__}
    counts = {name: getattr(read, name) for name in ("huge_total", "huge_free", "huge_page")}
    return MemInfo(**(kept | counts))


@dataclass(frozen=True, slots=True)
class StripParts:
    """The pool cut into parts that add up to the total exactly, in the order in which they are drawn.

    `engine` is what CUDA processes hold; None when the driver does not tell, `no_engine` then says why, and `apps`
    includes it. `cache` is what drop_caches would leave, `droppable` what it would release; None when the kernel
    does not tell them apart, and `cache` is then all of it.
    """

    engine: int | None
    apps: int
    cache: int
    droppable: int | None
    free: int
    no_engine: str = ""

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """Engine, apps, cache, droppable, free; what is not known apart is 0 here and part of its neighbour."""
        return (self.engine or 0, self.apps, self.cache, self.droppable or 0, self.free)


def strip_parts(mem: MemInfo, engine_bytes: Reading[int]) -> StripParts:
    """Cuts the pool. `engine_bytes` is NVML's sum over CUDA processes: a ledger of its own, never trusted for more
    than what is in use at all.

    A stale sum counts: what an engine holds does not move in seconds.
    """
    free = min(mem.free, mem.total)
    cache, in_use = mem.cache, mem.total - free - mem.cache
    droppable = None if mem.droppable is None else min(mem.droppable, cache)
    left = cache - (droppable or 0)
    if isinstance(engine_bytes, Missing):
        return StripParts(None, in_use, left, droppable, free, engine_bytes.reason)
    engine = max(0, min(engine_bytes.value, in_use))
    return StripParts(engine, in_use - engine, left, droppable, free)


SERVING_FLOOR: Final = 2 * GIB
"""Below it a serving box is in danger. Healthy ones were recorded down to 3.9 GiB, read in the unkindest way."""
LOADING_FLOOR: Final = 3 * GIB
"""While an engine loads, more is taken every moment; a stopped start costs minutes, a frozen box the plug."""
CLOSE: Final = 1.5
"""Up to so many times the floor it is close to it."""
TREND_BELOW: Final = 12 * GIB
"""A fall is judged below this: above it a load on its way to a healthy end falls as fast as one to a bad end."""
GONE_SOON_SECONDS: Final = 10.0
GONE_SECONDS: Final = 60.0
PRESSURE_BELOW: Final = 8 * GIB
THRASHING_PERCENT: Final = 40.0
"""PSI `some avg10`. In normal service it is 0.00 for days (hermes-agent #90713)."""
WAITING_PERCENT: Final = 1.0
MIN_TREND_SECONDS: Final = 2.0


class Level(StrEnum):
    """How much memory matters now."""

    OK = "ok"
    TIGHT = "tight"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The level and the reason, in words; no reason when all is well."""

    level: Level = Level.OK
    reason: str = ""


def fall_rate(points: Sequence[tuple[float, int]]) -> float:
    """Bytes per second that go away, from `(seconds, usable bytes)` oldest first; negative when memory comes back.

    Zero for less than two seconds of history: a step is no trend.
    """
    if len(points) < 2:
        return 0.0
    (began, first), (ended, last) = points[0], points[-1]
    span = ended - began
    return (first - last) / span if span >= MIN_TREND_SECONDS else 0.0


def severity(mem: MemInfo, *, falling: float = 0.0, pressure: float | None = None, loading: bool = False) -> Judgement:
    """The judgement of one moment. `falling` is `fall_rate` of the last seconds, `pressure` PSI `some avg10` per cent
    (None: not known), `loading` that an engine starts."""
    floor = LOADING_FLOOR if loading else SERVING_FLOOR
    usable = mem.usable
    left = usable / falling if falling > 0 else None
    rate = f"{gib(usable)} GiB usable, and {gib(falling)} GiB/s less"
    if usable < floor:
        return Judgement(Level.CRITICAL, f"{gib(usable)} GiB usable, below the floor of {gib(floor)}")
    if left is not None and usable < TREND_BELOW and left < GONE_SOON_SECONDS:
        return Judgement(Level.CRITICAL, f"{rate}: gone in {human_duration(left)}")
    if pressure is not None and pressure >= THRASHING_PERCENT and usable < PRESSURE_BELOW:
        return Judgement(Level.CRITICAL, f"{gib(usable)} GiB usable, {pressure:.0f} % of the time spent waiting for it")
    if usable < CLOSE * floor:
        return Judgement(Level.TIGHT, f"{gib(usable)} GiB usable, close to the floor of {gib(floor)}")
    if left is not None and usable < TREND_BELOW and left < GONE_SECONDS:
        return Judgement(Level.TIGHT, f"{rate}: gone in {human_duration(left)}")
    if pressure is not None and pressure >= WAITING_PERCENT and usable < PRESSURE_BELOW:
        return Judgement(Level.TIGHT, f"{gib(usable)} GiB usable, {pressure:.1f} % of the time spent waiting for it")
    return Judgement()
