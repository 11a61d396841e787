"""Who holds the unified memory: engines, applications, page cache, the driver on nobody's behalf, and nothing.

The ledgers of a Spark disagree and are never added up: NVML knows what CUDA contexts hold, which stands in no cgroup
and no process's RSS; the kernel knows everything but whose the driver's part is. The kernel's total is the truth, and
NVML is believed no further than what the kernel leaves room for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.host.vitals import GpuProcess, GpuReading
from spark_tui.domain.quantities import GIB
from spark_tui.domain.reading import Missing, Ok, Reading

IDLE_DRIVER_BYTES: Final = int(1.5 * GIB)
"""What the driver holds for itself on an idle box: 1.1 to 1.35 GiB were measured."""

_CONTAINER: Final = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)
_NOT_TOLD: Final = "the kernel does not print every category"
_OWN_MEMORY: Final = "this GPU has memory of its own: its processes hold nothing of this pool"


@dataclass(frozen=True, slots=True)
class EngineShare:
    """What the CUDA processes of one container hold, in bytes. `container` is its id, and `name` its name; both are
    empty for processes in no container, which `pids` then tells."""

    name: str
    memory: int
    pids: tuple[int, ...]
    container: str = ""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The pool cut into parts that add up to `total` exactly, in bytes.

    `engines` is None when the driver does not tell (`no_engines` says why); `apps` then includes them. `apps` are
    processes, shared memory and the kernel itself. `driver` is what the GPU driver holds beyond its live processes:
    its own needs, pinned memory, and contexts of processes that have died; None where that cannot be told apart
    (`no_driver`), and `apps` then includes it. `cache` stays after a drop, `droppable` goes; None when the kernel
    does not tell, and `cache` is then all of it.
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
        """Engines, apps, driver, cache, droppable, free; what is not known apart is 0 and part of a neighbour."""
        return (self.engine_memory or 0, self.apps, self.driver or 0, self.cache, self.droppable or 0, self.free)

    @property
    def orphaned(self) -> int:
        """Driver memory beyond what an idle driver takes: contexts that outlived their process, or pinned memory."""
        return max(0, (self.driver or 0) - IDLE_DRIVER_BYTES)


def container_id(cgroup: str) -> str:
    """The Docker container of a process, from its `/proc/PID/cgroup`; empty for one in no container.

    `0::/system.slice/docker-<id>.scope` with systemd, `0::/docker/<id>` without.
    """
    found = _CONTAINER.search(cgroup)
    return found[1] if found else ""


def ledger(
    mem: MemInfo,
    gpu: Reading[GpuReading],
    containers: Mapping[int, str] | None = None,
    names: Mapping[str, str] | None = None,
) -> Ledger:
    """Cuts the pool. `containers` maps process ids to container ids, `names` those to container names."""
    free = min(mem.free, mem.total)
    in_use = mem.total - free - mem.cache
    droppable = None if mem.droppable is None else min(mem.droppable, mem.cache)
    claims = _claims(gpu)
    engines = no_engines = None
    if isinstance(claims, Missing):
        no_engines = claims.reason
    else:
        engines = _shares(claims.value, in_use, containers or {}, names or {})
    held = 0 if engines is None else sum(share.memory for share in engines)
    driver = _driver(mem, gpu, claims)
    if not isinstance(driver, Missing):
        driver = Ok(min(driver.value, in_use - held))
    idle = 0 if isinstance(driver, Missing) else driver.value
    return Ledger(
        total=mem.total,
        engines=engines,
        apps=in_use - held - idle,
        driver=None if isinstance(driver, Missing) else driver.value,
        cache=mem.cache - (droppable or 0),
        droppable=droppable,
        free=free,
        no_engines=no_engines or "",
        no_driver=driver.reason if isinstance(driver, Missing) else "",
    )


def _claims(gpu: Reading[GpuReading]) -> Reading[tuple[GpuProcess, ...]]:
    """The CUDA processes, each with its memory; Missing when one is not reported: a sum without it would be wrong."""
    if isinstance(gpu, Missing):
        return gpu
    if not gpu.value.unified:
        return Missing(_OWN_MEMORY)
    told = gpu.value.compute_memory()
    if isinstance(told, Missing):
        return told
    return Ok(tuple(process for process in gpu.value.processes or () if process.compute))


def _shares(
    processes: tuple[GpuProcess, ...], room: int, containers: Mapping[int, str], names: Mapping[str, str]
) -> tuple[EngineShare, ...]:
    """One share per container, and one for each process in none; the largest first. Cut in proportion where NVML
    claims more than is in use."""
    groups: dict[str, list[GpuProcess]] = {}
    for process in processes:
        groups.setdefault(containers.get(process.pid, "") or f"pid {process.pid}", []).append(process)
    claimed = sum(process.memory or 0 for process in processes)
    shares = []
    for key, members in groups.items():
        identity = "" if key.startswith("pid ") else key
        memory = sum(process.memory or 0 for process in members)
        if claimed > room:
            memory = memory * room // claimed
        name = names.get(identity, identity[:12]) if identity else ""
        shares.append(EngineShare(name, memory, tuple(sorted(process.pid for process in members)), identity))
    return tuple(sorted(shares, key=lambda share: (-share.memory, share.name, share.pids)))


def _driver(mem: MemInfo, gpu: Reading[GpuReading], claims: Reading[tuple[GpuProcess, ...]]) -> Reading[int]:
    """What no kernel category and no live GPU process accounts for."""
    if mem.unaccounted is None:
        return Missing(_NOT_TOLD)
    if isinstance(claims, Missing) or isinstance(gpu, Missing):
        return Missing(claims.reason if isinstance(claims, Missing) else "")
    live = sum(process.memory or 0 for process in gpu.value.processes or ())  # those that only draw too
    return Ok(max(0, mem.unaccounted - live))
