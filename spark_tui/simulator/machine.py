"""The machine of a simulated Spark: /proc and /sys as files, which the real readers read, and what is no file.

Files that change are written before each reading, as the kernel makes them when they are read.
"""

from __future__ import annotations

import os
import shutil
import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from spark_tui.base.engine.units import (
    BootState,
    BootStatus,
    ScheduleStatus,
    Unit,
    engine_of,
    read_timer,
    scheduled_engine,
    unit_name,
    unit_texts,
)
from spark_tui.base.finding import Ok, Reading
from spark_tui.base.host.detectors import StoreState
from spark_tui.base.host.memory import TEE_COMPACT, TEE_DROP, Access, MemInfo, Route, SystemFile
from spark_tui.base.host.vitals import GpuProcess, GpuReading, HostIdentity
from spark_tui.base.quantities import GIB, KIB, MIB
from spark_tui.machine.procfs import ProcfsHost
from spark_tui.manage.doctor.adapter import FileDoctorProbe
from spark_tui.simulator.folder import DemoFolder
from spark_tui.simulator.recording import DATA, Telemetry, telemetry
from spark_tui.simulator.world import BASE_BYTES, DISK_FREE, DISK_TOTAL, SERVING_NAME, TOTAL_BYTES, DemoWorld, Run

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


_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_HERTZ: Final = 100
_CPUS: Final = 20
_LAN: Final = "192.168.1.40"
_MEMINFO: Final = (
    ("MemTotal", "total"), ("MemFree", "free"), ("MemAvailable", "available"), ("Buffers", "buffers"),
    ("Cached", "cached"), ("SwapCached", "swap_cached"), ("Active(file)", "active_file"),
    ("Inactive(file)", "inactive_file"), ("SwapTotal", "swap_total"), ("SwapFree", "swap_free"), ("Dirty", "dirty"),
    ("Writeback", "writeback"), ("AnonPages", "anon"), ("Mapped", "mapped"), ("Shmem", "shmem"),
    ("KReclaimable", "reclaimable"), ("SReclaimable", "reclaimable"), ("SUnreclaim", "slab_unreclaimable"),
    ("KernelStack", "kernel_stack"), ("PageTables", "page_tables"),
)  # fmt: skip
_DISKSTATS: Final = "259 0 nvme0n1 0 0 {} 0 0 0 {} 0 0 {} 0\n"
_NET_DEV: Final = (
    "Inter-|\n face |\nenP7s7: {} 0 0 0 0 0 0 0 {} 0 0 0 0 0 0 0\n"
    "enp1s0f0np0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\nwlP9s9: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
)
_NET_TCP: Final = "sl local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode\n"


class Machine:
    """Its files, below `root` in a folder of the demo. Page cache is carried forward on a fixed grid of time, so that
    what is shown does not depend on how often it is asked for. `downloading`: bytes per second."""

    def __init__(self, world: DemoWorld, folder: DemoFolder, downloading: Callable[[], float] = lambda: 0.0) -> None:
        self.world, self.root, self.lock = world, folder.path / "machine", threading.Lock()
        self._folder = folder  # it ends with the last who holds it
        self._downloading = downloading
        self._written: dict[str, str] = {}
        self._processes: set[int] = set()
        self._counted: defaultdict[str, float] = defaultdict(float)
        self._at = world.began_at
        self._step = 0
        self._cache = _CACHE_AT_START
        self._pages = sum(run.held(world.began_at).pages for run in world.runs)
        self._pressure = 0.0
        (self.root / "dev/shm").mkdir(parents=True)
        files = {path: text.replace("\\n", "\n").replace("\\t", "\t") for path, text in _rows("files.tsv")}
        for pid, name, rss, pss, line in _rows("processes.tsv"):
            files |= _process(int(pid), name, line, int(rss) * MIB, int(pss) * MIB, "/init.scope")
        for path, text in files.items():
            self._write(path, text)

    def fresh(self, adapter: Any) -> Any:
        """That adapter, with the files brought up to now before each of its calls."""
        return _Fresh(adapter, self)

    def refresh(self) -> None:
        """Writes what has changed. For who holds `lock`."""
        now = self.world.settle()
        self._carry_forward(now)
        for path, text in self._files(now).items():
            self._write(path, text)
        lives = {run.pid for run in self._lives(now)}
        for pid in self._processes - lives:
            shutil.rmtree(self.root / f"proc/{pid}")
        self._processes = lives

    def drop(self) -> None:
        """Gives up the page cache, but for what is mapped and the kernel's own."""
        with self.lock:
            self._carry_forward(self.world.settle())
            self._cache = _LEAST_CACHE

    def _write(self, path: str, text: str) -> None:
        known = self._written.get(path)
        if known != text:
            if known is None:
                (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            with (self.root / path).open("w" if known is None else "r+", encoding="utf-8") as file:
                file.write(text)
                file.truncate()  # ext4 writes a file that was emptied to the disk at once: milliseconds
            self._written[path] = text

    def _lives(self, now: float) -> list[Run]:
        return [run for run in self.world.runs if run.started_at <= now and run.ended_at is None]

    def _files(self, now: float) -> dict[str, str]:
        """The files that change, each with its text."""
        memory, up = memory_at(self.world, now, self._cache), _UP_SECONDS + now - self.world.began_at
        sizes = ((name, getattr(memory, field)) for name, field in _MEMINFO)
        running = [each for each in self.world.containers.values() if each.run is not None]
        ports = (22, 11000, *(port.host_port for each in running for port in each.ports))
        listeners = (f"0: 0100007F:{port:04X} 0:0 0A 0:0 0:0 0 0 0 0 1\n" for port in ports)
        found = {
            "proc/meminfo": "".join(f"{name + ':':<16}{size // KIB:>8} kB\n" for name, size in sizes),
            "proc/pressure/memory": f"some avg10={self._pressure:.2f} avg60=0.00 avg300=0.00 total=0\n",
            "proc/uptime": f"{up:.2f} {up * _CPUS:.2f}\n",
            "proc/net/tcp": f"{_NET_TCP}{''.join(listeners)}",
        }
        containers = {run.pid: each.id for each in self.world.containers.values() for run in each.runs}
        for run in self._lives(now):
            cpu, group = run.held(now).cpu, f"/system.slice/docker-{containers[run.pid]}.scope"
            found |= _process(run.pid, "VLLM::EngineCor", "VLLM::EngineCore", int(cpu * 0.8), int(cpu * 0.7), group) | {
                f"sys/fs/cgroup{group}/memory.current": f"{int(cpu * 1.4)}\n",
                f"sys/fs/cgroup{group}/memory.stat": f"anon {cpu}\nfile {int(cpu * 0.4)}\nshmem {12 * MIB}\n",
                f"sys/fs/cgroup{group}/memory.swap.current": "0\n",
            }
        return found | self._counters(now, up)

    def _counters(self, now: float, up: float) -> dict[str, str]:
        """The files of what is counted since the machine was started."""
        for name, rate in rates_at(self.world, now, self._downloading()).items():
            self._counted[name] += rate * max(0.0, now - self._at)
        self._at = now
        count, ticks = {name: int(value) for name, value in self._counted.items()}, int(up * _HERTZ)
        busy = (count["A725" if cpu % 10 < 5 else "X925"] for cpu in range(_CPUS))
        cpus = (f"cpu{cpu} {each} 0 0 {ticks - each} 0 0 0 0 0 0\n" for cpu, each in enumerate(busy))
        return {
            "proc/stat": f"cpu 0 0 0 0 0 0 0 0 0 0\n{''.join(cpus)}btime {int(now - up)}\n",
            "proc/diskstats": _DISKSTATS.format(count["read"] // 512, count["written"] // 512, count["busy"]),
            "proc/net/dev": _NET_DEV.format(count["received"], count["sent"]),
            "proc/vmstat": f"pgmajfault {count['faults']}\npswpin 0\npswpout 0\noom_kill 0\n",
        }

    def _carry_forward(self, now: float) -> None:
        """Page cache: what was read is added, and given up where memory runs short. It does not come back."""
        world = self.world
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


def _rows(name: str) -> Iterator[list[str]]:
    """The lines of a file of data, in columns."""
    return (line.split("\t") for line in (DATA / name).read_text(encoding="utf-8").splitlines())


def _process(pid: int, name: str, line: str, rss: int, pss: int, group: str) -> dict[str, str]:
    """The files of a process, each with its text. `line`: its words, with blanks between them."""
    return {
        f"proc/{pid}/stat": f"{pid} ({name}) S 1 {'0 ' * 48}\n",
        f"proc/{pid}/comm": f"{name}\n",
        f"proc/{pid}/cmdline": "".join(f"{word}\0" for word in line.split()),
        f"proc/{pid}/cgroup": f"0::{group}\n",
        f"proc/{pid}/statm": f"{rss // _PAGE * 3} {rss // _PAGE} 0 0 0 0 0\n",
        f"proc/{pid}/smaps_rollup": f"0-f ---p 0 [rollup]\nPss: {pss // KIB} kB\nSwap: 0 kB\n",
    }


class _Fresh:
    def __init__(self, adapter: Any, machine: Machine) -> None:
        self._adapter, self._machine = adapter, machine

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._adapter, name)

        def call(*given: Any, **named: Any) -> Any:
            with self._machine.lock:
                self._machine.refresh()
                return method(*given, **named)

        return call


class SimulatedHost(ProcfsHost):
    """The HostProbe port, with answers for what is no file. Every file that a preset names is there."""

    def identity(self) -> HostIdentity:
        return replace(super().identity(), lan_address=_LAN)

    def kernel_lines(self, at: float) -> tuple[str, ...]:
        return ()

    def addresses(self) -> tuple[str, ...]:
        return ("127.0.0.1", _LAN)

    def has_folder(self, path: Path) -> bool:
        return True

    has_file = has_folder

    def free_disk(self, path: Path) -> Reading[int]:
        return Ok(DISK_FREE, self._now())


class SimulatedGpu:
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


def rates_at(world: DemoWorld, now: float, downloading: float = 0.0) -> dict[str, float]:
    """What is counted in a second: ticks of one processor of each kind, bytes of the disk and of the cable,
    milliseconds in which the disk is busy, page faults read from disk. `downloading`: bytes per second."""
    loading = any(run.stage(now) == "load" for run in world.runs)
    return {
        "X925": 31.0 if loading else 12.0,
        "A725": 4.0,
        "read": 2.1 * GIB if loading else 0.2 * MIB,
        "written": 90_000.0 + downloading,
        "busy": 640.0 if loading else 3.0,
        "received": 48_000.0 + 1.04 * downloading,
        "sent": 12_500.0,
        "faults": 12.0 if loading else 0.0,
    }


class SimulatedDoctor(FileDoctorProbe):
    """The DoctorProbe port, with answers for what is no file of the machine."""

    def user(self) -> tuple[str, bool]:
        return "spark", False

    def relogin(self) -> bool:
        return False

    def kernel_log(self) -> Reading[tuple[str, ...]]:
        return Ok(("spark kernel: NVRM: loading NVIDIA UNIX Open Kernel Module for aarch64",))

    def folder(self, path: Path) -> Reading[StoreState]:
        foreign = path.name == "vllm"
        return Ok(
            StoreState(
                str(path),
                exists=True,
                writable=True,
                free=DISK_FREE,
                total=DISK_TOTAL,
                foreign=2 * foreign,
                foreign_example=f"{path}/hub/.locks" if foreign else "",
            )
        )


class SimulatedDropper:
    """The CacheDropper port of a machine with the grant installed."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    async def access(self) -> Access:
        return Access(sudo=TEE_DROP, sudo_compact=TEE_COMPACT, has_sudo=True)

    async def drop(self, route: Route) -> bool:
        self._machine.drop()
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


class SimulatedUnits:
    """The Units port: units in memory, with their data. What serves when the demo opens starts with the machine."""

    def __init__(self) -> None:
        self._units = {unit_name(SERVING_NAME): ""}

    def all(self) -> tuple[BootStatus, ...]:
        found = ((engine_of(unit), unit) for unit in sorted(self._units))
        return tuple(BootStatus(engine, BootState.ENABLED, unit) for engine, unit in found if engine)

    def schedules(self) -> tuple[ScheduleStatus, ...]:
        on = {name: {"UnitFileState": "enabled"} for name in self._units}
        named = ((scheduled_engine(name), data) for name, data in self._units.items())
        known = (read_timer(engine, data, on, system=False, lingers=True) for engine, data in named if engine)
        now = datetime.now()
        return tuple(
            replace(each, next=min(at for at, _ in each.schedule.times(now) if at > now)) for each in known if each
        )

    def path(self, name: str) -> Path:
        return Path("/run/systemd/user") / name

    def files(self, unit: Unit, *, system: bool = False) -> Mapping[str, str]:
        return unit_texts(unit, unit.words, ())

    def install(self, unit: Unit, *, system: bool = False) -> None:
        self._units[unit.name] = unit.data

    def remove(self, name: str, *, machine: bool = True) -> bool:
        return self._units.pop(name, None) is not None
