"""The simulated machine: unified memory that engines fill, a GPU whose telemetry was recorded."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from spark_tui.domain.doctor import EngineProcess, Link, StoreState
from spark_tui.domain.engine.boot import BootState, BootStatus, unit_name
from spark_tui.domain.engine.container import ContainerFacts
from spark_tui.domain.engine.schedule import ScheduleStatus, read_timer, scheduled_engine
from spark_tui.domain.host.detectors import SharedFile
from spark_tui.domain.host.drop_caches import TEE_COMPACT, TEE_DROP, Access, Route, SystemFile
from spark_tui.domain.host.identity import HostIdentity
from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.host.vitals import (
    ClusterLoad,
    ContainerMemory,
    DiskRate,
    FaultRate,
    GpuProcess,
    GpuReading,
    HostProcess,
    LinkRate,
    Temperature,
    Vitals,
    heaviest,
)
from spark_tui.domain.quantities import GIB, MIB
from spark_tui.domain.reading import Missing, Ok, Reading
from spark_tui.services.demo.recording import Telemetry, telemetry
from spark_tui.services.demo.world import BASE_BYTES, DISK_FREE, DISK_TOTAL, SERVING_NAME, TOTAL_BYTES, DemoWorld

_STEP_SECONDS: Final = 0.5
_FLOOR_BYTES: Final = int(1.2 * GIB)
"""What the kernel keeps free: below it, page cache is given up."""
_CACHE_AT_START: Final = int(11.6 * GIB)
_LEAST_CACHE: Final = int(0.7 * GIB)
_BUFFERS: Final = 180 * MIB
_SLAB: Final = 940 * MIB
_SHMEM: Final = 350 * MIB
_MAPPED: Final = 420 * MIB
_SLAB_FIXED: Final = 420 * MIB
_STACKS: Final = 24 * MIB
_TABLES: Final = 90 * MIB
_DRIVER: Final = int(1.2 * GIB)
"""What the driver holds for itself: 1.1 to 1.35 GiB on an idle desktop."""
_SWAP: Final = 16_777_212 * 1024
_UP_SECONDS: Final = 6 * 86_400.0 + 4 * 3600

_DESKTOP: Final = (GpuProcess(2747, 18 * MIB, compute=False), GpuProcess(2911, 6 * MIB, compute=False))
_IDLE: Final = Telemetry(4.4, 38, 208, 0, 0)
_WITH_CONTEXT: Final = Telemetry(13.9, 52, 2411, 0, 0)  # loaded and idle: P0, full clock
_BUSY_STAGES: Final = {"compile": Telemetry(38.2, 61, 2418, 71, 0), "load": Telemetry(18.6, 54, 2411, 14, 0)}
"""The busier first."""


class DemoHost:
    """The HostProbe port. Page cache is carried forward on a fixed grid of time, so that what is shown does not
    depend on how often it is asked for."""

    def __init__(self, world: DemoWorld) -> None:
        self._world = world
        self._step = 0
        self._cache = _CACHE_AT_START
        self._pages = sum(run.held(world.began_at).pages for run in world.runs)
        self._pressure = 0.0

    def identity(self) -> HostIdentity:
        return HostIdentity(
            "spark-demo",
            "DGX Spark",
            "6.17.0-1014-nvidia",
            "aarch64",
            20,
            is_spark=True,
            memory=TOTAL_BYTES,
            lan_address="192.168.1.40",
        )

    def memory(self) -> Reading[MemInfo]:
        """Engines while they load and serve, page cache that grows while weights are read."""
        now = self._world.settle()
        self._carry_forward(now)
        return Ok(memory_at(self._world, now, self._cache), now)

    def memory_pressure(self) -> Reading[float]:
        """Zero but for the moments in which cache has to make room."""
        now = self._world.settle()
        self._carry_forward(now)
        return Ok(self._pressure, now)

    def uptime(self) -> Reading[float]:
        now = self._world.clock.now()
        return Ok(_UP_SECONDS + now - self._world.began_at, now)

    def kernel_lines(self, at: float) -> tuple[str, ...]:
        return ()

    def port_owner(self, port: int) -> str | None:
        """SSH, the dashboard, and Docker's proxy, which an ordinary user cannot look into."""
        if port == 22:
            return "sshd (pid 1203)"
        taken = port == 11000 or self._world.on_port(port) is not None
        return "another process" if taken else None

    def addresses(self) -> tuple[str, ...]:
        return ("127.0.0.1", "192.168.1.40")

    def has_folder(self, path: Path) -> bool:
        return True

    has_file = has_folder

    def make_folders(self, paths: Sequence[Path]) -> None:
        """Nothing is written to the real disk."""

    def free_disk(self, path: Path) -> Reading[int]:
        return Ok(DISK_FREE, self._world.clock.now())

    def container_of(self, pid: int) -> str:
        held = ((each.id, run.pid) for each in self._world.containers.values() for run in each.runs)
        return next((identity for identity, its in held if its == pid), "")

    def bare_engines(self) -> tuple[ContainerFacts, ...]:
        return ()

    def shared_files(self) -> Reading[tuple[SharedFile, ...]]:
        return Ok((), self._world.clock.now())

    def drop(self) -> None:
        """Gives up the page cache, but for what is mapped and the kernel's own."""
        self._carry_forward(self._world.settle())
        self._cache = _LEAST_CACHE

    def _carry_forward(self, now: float) -> None:
        """Page cache: what was read is added, and given up where memory runs short. It does not come back."""
        world = self._world
        last = int((now - world.began_at) / _STEP_SECONDS)
        while self._step < last:
            self._step += 1
            at = world.began_at + self._step * _STEP_SECONDS
            pages = sum(run.held(at).pages for run in world.runs if run.started_at <= at)
            room = TOTAL_BYTES - _used(world, at) - _FLOOR_BYTES
            wanted = self._cache + max(0, pages - self._pages)
            self._pressure = 1.4 if wanted > room and pages > self._pages else 0.0
            self._cache = max(_LEAST_CACHE, min(wanted, room))
            self._pages = max(self._pages, pages)


class DemoGpu:
    """The GpuProbe port: recorded telemetry while engines work, what an idle GB10 shows otherwise."""

    def __init__(self, world: DemoWorld) -> None:
        self._world = world

    def start(self) -> None:
        """Needs no helper."""

    async def read(self) -> Reading[GpuReading]:
        """Never fails. A GB10 reports no memory of its own, but what processes hold."""
        now = self._world.settle()
        return Ok(gpu_at(self._world, now), now)

    async def close(self) -> None:
        pass


def memory_at(world: DemoWorld, at: float, cache: int = _CACHE_AT_START) -> MemInfo:
    """Memory at a moment, with at most `cache` bytes of page cache."""
    used = _used(world, at)
    cache = max(0, min(cache, TOTAL_BYTES - used - _FLOOR_BYTES))
    free = TOTAL_BYTES - used - cache
    files = max(0, cache - _BUFFERS - _SLAB)
    cuda = sum(run.held(at).cuda for run in world.runs if run.started_at <= at)
    known = used - _SHMEM - cuda - _DRIVER
    return MemInfo(
        total=TOTAL_BYTES,
        free=free,
        available=free + int(0.96 * files) + _SLAB // 2,
        buffers=_BUFFERS,
        cached=files + _SHMEM,
        shmem=_SHMEM,
        reclaimable=_SLAB,
        mapped=min(_MAPPED, files),
        dirty=2 * MIB,
        writeback=0,
        active_file=files // 3,
        inactive_file=files - files // 3,
        swap_total=_SWAP,
        swap_free=_SWAP,
        anon=max(0, known - _SLAB_FIXED - _STACKS - _TABLES),
        slab_unreclaimable=_SLAB_FIXED,
        kernel_stack=_STACKS,
        page_tables=_TABLES,
    )


def gpu_at(world: DemoWorld, at: float) -> GpuReading:
    """The GPU at a moment, by the busiest activity."""
    stages = [run.stage(at) for run in world.runs]
    if world.chats or any(run.answers(at) for run in world.runs):
        sample = _recorded(world, at)
    elif busy := next((stage for stage in _BUSY_STAGES if stage in stages), ""):
        sample = _BUSY_STAGES[busy]
    else:
        sample = _WITH_CONTEXT if "serve" in stages else _IDLE
    held = {run.pid: run.held(at).cuda for run in world.runs if run.started_at <= at}
    engines = tuple(GpuProcess(pid, size) for pid, size in held.items() if size > 0)
    return GpuReading(
        name="NVIDIA GB10",
        utilization_percent=sample.utilization_percent,
        power_watts=sample.power_watts,
        temperature_c=sample.temperature_c,
        sm_clock_mhz=sample.sm_clock_mhz,
        unified=True,
        driver="580.142",
        processes=(*_DESKTOP, *engines),
    )


def _used(world: DemoWorld, at: float) -> int:
    """Bytes in use by the system and by engines."""
    held = [run.held(at) for run in world.runs if run.started_at <= at]
    drift = _recorded(world, at).drift_bytes if any(run.stage(at) == "serve" for run in world.runs) else 0
    return BASE_BYTES + drift + sum(each.cpu + each.cuda for each in held)


def _recorded(world: DemoWorld, at: float) -> Telemetry:
    """The recording at this time of the demo; it repeats."""
    samples = telemetry()
    into = (at - world.began_at + 97 * world.seed) % samples[-1][0]
    index = bisect_right(samples, into, key=lambda sample: sample[0])
    return samples[max(0, index - 1)][1]


_VITALS_DESKTOP: Final = (
    HostProcess(2911, "gnome-shell", 612 * MIB, 402 * MIB, 0, 6 * MIB),
    HostProcess(2747, "Xorg", 214 * MIB, 148 * MIB, 0, 18 * MIB),
    HostProcess(1460, "dockerd", 168 * MIB, 151 * MIB, 0),
    HostProcess(1402, "containerd", 92 * MIB, 74 * MIB, 0),
    HostProcess(3310, "snapd-desktop-i", 61 * MIB, 22 * MIB, 0),
    HostProcess(1187, "snapd", 58 * MIB, 41 * MIB, 0),
    HostProcess(3544, "gnome-software", 198 * MIB, 96 * MIB, 0),
    HostProcess(3102, "evolution-alarm", 84 * MIB, 31 * MIB, 0),
    HostProcess(1731, "gdm-session-wor", 12 * MIB, 4 * MIB, 0),
    HostProcess(1093, "nvidia-persiste", 6 * MIB, 2 * MIB, 0),
    HostProcess(1121, "nvidia-dcgm", 74 * MIB, 55 * MIB, 0),
    HostProcess(988, "systemd-journal", 66 * MIB, 38 * MIB, 0),
    HostProcess(1024, "systemd-resolve", 14 * MIB, 8 * MIB, 0),
    HostProcess(1, "systemd", 15 * MIB, 9 * MIB, 0),
    HostProcess(1140, "NetworkManager", 24 * MIB, 13 * MIB, 0),
    HostProcess(1175, "multipathd", 27 * MIB, 21 * MIB, 0),
    HostProcess(1209, "unattended-upgr", 33 * MIB, 17 * MIB, 0),
    HostProcess(1262, "earlyoom", 3 * MIB, 1 * MIB, 0),
    HostProcess(1313, "avahi-daemon", 5 * MIB, 2 * MIB, 0),
    HostProcess(1344, "cupsd", 12 * MIB, 5 * MIB, 0),
    HostProcess(1398, "sshd", 9 * MIB, 3 * MIB, 0),
    HostProcess(4821, "tmux: server", 11 * MIB, 7 * MIB, 0),
    HostProcess(4822, "bash", 6 * MIB, 3 * MIB, 0),
)


def vitals_at(world: DemoWorld, now: float, downloading: float = 0.0) -> Vitals:
    """Processors, heat, disks and links at a moment, and a download with its bytes per second."""
    loading = any(run.stage(now) == "load" for run in world.runs)
    loads = (ClusterLoad("X925", 10, 31.0 if loading else 12.0), ClusterLoad("A725", 10, 4.0))
    heat = (Temperature("SoC", 61.0, 104.8), Temperature("NVMe", 44.8), Temperature("ConnectX", 50.0))
    disk = DiskRate("nvme0n1", 2.1 * GIB if loading else 0.2 * MIB, 90_000.0 + downloading, 64.0 if loading else 0.3)
    links = (
        LinkRate("enP7s7", 48_000.0 + 1.04 * downloading, 12_500.0, True, 10_000),
        LinkRate("enp1s0f0np0", 0.0, 0.0, False),
        LinkRate("wlP9s9", 0.0, 0.0, False),
    )
    faults = FaultRate(12.0 if loading else 0.0, 0.0, 0.0, 0)
    return Vitals(Ok(loads, now), Ok(heat, now), Ok((disk,), now), Ok(links, now), Ok(faults, now))


class DemoVitals:
    """The VitalsProbe port. `downloading`: bytes per second."""

    def __init__(self, world: DemoWorld, downloading: Callable[[], float] = lambda: 0.0) -> None:
        self._world = world
        self._downloading = downloading

    def look(self) -> Vitals:
        return vitals_at(self._world, self._world.clock.now(), self._downloading())

    def processes(self, gpu: Sequence[GpuProcess], limit: int) -> Reading[tuple[HostProcess, ...]]:
        now = self._world.settle()
        held = {process.pid: process.memory for process in gpu}
        containers = {run.pid: each.id for each in self._world.containers.values() for run in each.runs}
        engines = [
            HostProcess(
                run.pid, "VLLM::EngineCor", int(run.held(now).cpu * 0.8), int(run.held(now).cpu * 0.7), 0,
                held.get(run.pid), containers.get(run.pid, ""),
            )
            for run in self._world.runs
            if run.started_at <= now and run.held(now).cuda > 0
        ]  # fmt: skip
        return Ok(heaviest([*engines, *_VITALS_DESKTOP], limit), now)

    def container_memory(self, pid: int) -> Reading[ContainerMemory]:
        now = self._world.settle()
        run = next((run for run in self._world.runs if run.pid == pid), None)
        if run is None:
            return Missing("it has ended")
        cpu = run.held(now).cpu
        return Ok(ContainerMemory(int(cpu * 1.4), cpu, int(cpu * 0.4), 12 * MIB, 0), now)


_NUMBERS: Final = {"vm/min_free_kbytes": 90_112, "vm/watermark_boost_factor": 15_000}


class DemoDoctorProbe:
    """The DoctorProbe port."""

    def user(self) -> tuple[str, bool]:
        return "spark", False

    def driver(self) -> Reading[str]:
        return Ok("580.142")

    def kernel_number(self, name: str) -> Reading[int]:
        return Ok(_NUMBERS.get(name, 0))

    def earlyoom(self) -> Reading[str]:
        return Ok("/usr/bin/earlyoom -m 2 -s 80 --prefer (vllm|sglang|ray|python3)")

    def engine_processes(self) -> Reading[tuple[EngineProcess, ...]]:
        return Ok(())

    def clock_synchronised(self) -> Reading[bool]:
        return Ok(True)

    def relogin(self) -> bool:
        return False

    def toolkit(self) -> Reading[str]:
        return Ok("/usr/bin/nvidia-ctk")

    def cdi(self) -> Reading[tuple[str, ...]]:
        return Ok(("/var/run/cdi/nvidia.yaml",))

    def registries(self) -> Reading[tuple[str, ...]]:
        return Ok(())

    def folder(self, path: Path) -> Reading[StoreState]:
        foreign = path.name == "vllm"
        return Ok(
            StoreState(
                str(path), exists=True, writable=True, free=DISK_FREE, total=DISK_TOTAL, foreign=2 * foreign,
                foreign_example=f"{path}/hub/.locks" if foreign else "",
            )
        )  # fmt: skip

    def links(self) -> tuple[Reading[tuple[Link, ...]], str]:
        return Ok((Link("enP7s7", wireless=False, speed=10_000), Link("wlP9s9", wireless=True))), "enP7s7"

    def taken(self, ports: Sequence[int]) -> tuple[int, ...]:
        return ()


class DemoDropper:
    """The CacheDropper port of a machine with the grant installed."""

    def __init__(self, host: DemoHost) -> None:
        self._host = host

    async def access(self) -> Access:
        return Access(sudo=TEE_DROP, sudo_compact=TEE_COMPACT, has_sudo=True)

    async def drop(self, route: Route) -> bool:
        self._host.drop()
        return True

    async def compact(self, route: Route) -> None:
        pass

    def on_terminal(self, argv: Sequence[str]) -> int:
        return 0

    async def check_grant(self, text: str) -> str:
        return ""

    def write_files(self, files: Sequence[SystemFile]) -> int:
        return 0

    def remove_files(self, paths: Sequence[str]) -> int:
        return 0

    def user(self) -> tuple[str, int]:
        return "spark", 1000

    async def close(self) -> None:
        pass


class DemoBoot:
    """The BootPort port: units in memory. What serves when the demo opens starts with the machine."""

    def __init__(self) -> None:
        self._on = [SERVING_NAME]
        self._timers: dict[str, str] = {}

    def all(self) -> tuple[BootStatus, ...]:
        return tuple(BootStatus(name, BootState.ENABLED, unit_name(name)) for name in sorted(self._on))

    def enable(self, engine: str, words: Sequence[str], *, system: bool = False) -> None:
        self._on = [*(name for name in self._on if name != engine), engine]

    def schedules(self) -> tuple[ScheduleStatus, ...]:
        on = {f"{name}.timer": {"UnitFileState": "enabled"} for name in self._timers}
        named = ((scheduled_engine(f"{name}.timer"), data) for name, data in self._timers.items())
        known = (read_timer(engine, data, on, system=False, lingers=True) for engine, data in named)
        now = datetime.now()
        return tuple(
            replace(each, next=min(at for at, _ in each.schedule.times(now) if at > now)) for each in known if each
        )

    def install_timer(
        self, name: str, title: str, words: Sequence[str], calendar: Sequence[str], *, data: str = "",
        system: bool = False,
    ) -> None:  # fmt: skip
        self._timers[name] = data

    def remove_timer(self, name: str) -> bool:
        return self._timers.pop(name, None) is not None

    def has_timer(self, name: str) -> bool:
        return name in self._timers

    def disable(self, engine: str) -> bool:
        had = engine in self._on
        self._on = [name for name in self._on if name != engine]
        return had
