"""The unified-memory pool as `/proc/meminfo` tells it. Sizes in bytes.

`used` is what nobody can have back without ending a process: MemTotal - MemAvailable. `cache` is page cache
and reclaimable slab, of which `droppable` can be given up at once (drop_caches skips dirty, mapped and
shared-memory pages).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_tui.domain.quantities import KIB, MIB


@dataclass(frozen=True, slots=True)
class MemInfo:
    """The fields of `/proc/meminfo` that matter; None where the kernel does not print one."""

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

    @property
    def cache(self) -> int:
        """Page cache and reclaimable slab, shared memory excluded (it is not cache, though counted in Cached)."""
        return max(0, min(self.buffers + self.cached + self.reclaimable - self.shmem, self.total - self.free))

    @property
    def in_use(self) -> int:
        """Neither free nor cache: processes, shared memory, kernel, and what the GPU driver holds."""
        return max(0, self.total - self.free - self.cache)

    @property
    def droppable(self) -> int | None:
        """What drop_caches would release now; None where the kernel does not tell."""
        if self.active_file is None or self.inactive_file is None:
            return None
        held = (self.mapped or 0) + (self.dirty or 0) + (self.writeback or 0)
        return max(0, self.active_file + self.inactive_file + self.reclaimable - held)

    @property
    def swap_used(self) -> int:
        """Bytes in swap."""
        return max(0, self.swap_total - self.swap_free)


_FIELDS: Mapping[str, str] = {
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
}


def parse_meminfo(text: str) -> MemInfo:
    """`/proc/meminfo` as text -> MemInfo.

    KReclaimable (all reclaimable kernel memory) is preferred to SReclaimable. Raises ValueError when a field
    without which nothing can be said (MemTotal, MemFree, MemAvailable) is absent.
    """
    found: dict[str, int] = {}
    reclaimable: dict[str, int] = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        words = rest.split()
        if not colon or not words or not words[0].isdigit():
            continue
        size = int(words[0]) * (KIB if len(words) > 1 and words[1] == "kB" else 1)
        if name in _FIELDS:
            found[_FIELDS[name]] = size
        elif name in ("KReclaimable", "SReclaimable"):
            reclaimable[name] = size
    for needed, name in (("total", "MemTotal"), ("free", "MemFree"), ("available", "MemAvailable")):
        if needed not in found:
            raise ValueError(f"/proc/meminfo has no {name}")
    found["reclaimable"] = reclaimable.get("KReclaimable", reclaimable.get("SReclaimable", 0))
    return MemInfo(**found)


def steady(shown: MemInfo | None, read: MemInfo, step: int = 64 * MIB) -> MemInfo:
    """`read` with every size that moved less than `step` kept as shown.

    A quiet box drifts by a few MiB a second; without this the strip would be repainted for nothing.
    """
    if shown is None:
        return read

    def keep(old: int | None, new: int | None) -> int | None:
        return old if old is not None and new is not None and abs(new - old) < step else new

    kept = {name: keep(getattr(shown, name), getattr(read, name)) for name in MemInfo.__dataclass_fields__}
    return MemInfo(**kept)  # type: ignore[arg-type]  # required fields are ints on both sides
