"""Who holds the unified memory: engines, applications, page cache, the GPU driver, and nothing.

The sources disagree on a Spark and are never added up: NVML knows what CUDA contexts hold, which is in no cgroup and no
process's RSS; the kernel knows everything except whose the driver's part is. The kernel's total counts, and NVML only
as far as the kernel leaves room.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.host.vitals import GpuProcess, GpuReading
from spark_tui.domain.quantities import GIB
from spark_tui.domain.reading import Missing, Reading

IDLE_DRIVER_BYTES: Final = int(1.5 * GIB)
"""The driver's own on an idle machine: 1.1 to 1.35 GiB were measured."""

_CONTAINER: Final = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class EngineShare:
    """The CUDA memory of one container, in bytes. `container` is its id, and `name` its name; both are empty for a
    process in no container, which `pids` names."""

    name: str
    memory: int
    pids: tuple[int, ...]
    container: str = ""


@dataclass(frozen=True, slots=True)
class MemoryBreakdown:
    """The unified memory in parts that add up to `total` exactly, in bytes.

    `engines` is None where the driver does not report them (`no_engines` says why); `apps` then includes them. `apps`
    are processes, shared memory and the kernel. `driver` is the GPU driver's beyond its live processes: its own needs,
    pinned memory, and contexts of dead processes; None where unknown (`no_driver`), and `apps` then includes it.
    `cache` stays after a drop, `droppable` goes; None where the kernel does not report it, and `cache` is then all.
    """

    total: int
    engines: tuple[EngineShare, ...] | None
    apps: int
    driver: int | None
    cache: int
    droppable: int | None
    free: int
    no_engines: str = ""
    no_driver: str = ""

    @property
    def engine_memory(self) -> int | None:
        """All engines together."""
        return None if self.engines is None else sum(share.memory for share in self.engines)

    @property
    def sizes(self) -> tuple[int, int, int, int, int, int]:
        """Engines, apps, driver, cache, droppable, free; what is unknown is 0 and part of a neighbour."""
        return (self.engine_memory or 0, self.apps, self.driver or 0, self.cache, self.droppable or 0, self.free)

    @property
    def orphaned(self) -> int:
        """Driver memory beyond an idle driver's: leaked contexts of dead processes, or pinned memory."""
        return max(0, (self.driver or 0) - IDLE_DRIVER_BYTES)


def container_id(cgroup: str) -> str:
    """The Docker container of a process, from its `/proc/PID/cgroup`; empty for one in no container.

    `0::/system.slice/docker-<id>.scope` with systemd, `0::/docker/<id>` without.
    """
    found = _CONTAINER.search(cgroup)
    return found[1] if found else ""


def memory_breakdown(
    mem: MemInfo,
    gpu: Reading[GpuReading],
    containers: Mapping[int, str] | None = None,
    names: Mapping[str, str] | None = None,
) -> MemoryBreakdown:
    """`containers` maps process ids to container ids, `names` those to container names."""
    free = min(mem.free, mem.total)
    in_use = mem.total - free - mem.cache
    droppable = None if mem.droppable is None else min(mem.droppable, mem.cache)
    engines, driver, no_engines, no_driver = None, None, "", ""
    if isinstance(gpu, Missing):
        no_engines = gpu.reason
    elif not gpu.value.unified:
        no_engines = "this GPU has its own memory: its processes use none of this"
    elif isinstance(known := gpu.value.compute_memory(), Missing):
        no_engines = known.reason
    else:
        engines = _shares(gpu.value.processes or (), in_use, containers or {}, names or {})
    held = sum(share.memory for share in engines or ())
    if mem.unaccounted is None:
        no_driver = "the kernel does not print every category"
    elif no_engines or isinstance(gpu, Missing):
        no_driver = no_engines
    else:
        live = sum(process.memory or 0 for process in gpu.value.processes or ())  # those that only draw too
        driver = min(max(0, mem.unaccounted - live), in_use - held)
    apps, cache = in_use - held - (driver or 0), mem.cache - (droppable or 0)
    return MemoryBreakdown(mem.total, engines, apps, driver, cache, droppable, free, no_engines, no_driver)


def _shares(
    processes: tuple[GpuProcess, ...], room: int, containers: Mapping[int, str], names: Mapping[str, str]
) -> tuple[EngineShare, ...]:
    """One share per container, and one for each CUDA process in none; the largest first. Cut in proportion where NVML
    claims more than is in use."""
    groups: dict[str, list[GpuProcess]] = {}
    for process in processes:
        if process.compute:
            groups.setdefault(containers.get(process.pid, "") or f"pid {process.pid}", []).append(process)
    claimed = sum(process.memory or 0 for members in groups.values() for process in members)
    shares = []
    for key, members in groups.items():
        identity = "" if key.startswith("pid ") else key
        memory = sum(process.memory or 0 for process in members)
        if claimed > room:
            memory = memory * room // claimed
        name = names.get(identity, identity[:12]) if identity else ""
        shares.append(EngineShare(name, memory, tuple(sorted(process.pid for process in members)), identity))
    return tuple(sorted(shares, key=lambda share: (-share.memory, share.name, share.pids)))
