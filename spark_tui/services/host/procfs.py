"""The machine as the kernel tells it under /proc and /sys. What cannot be read says why; nothing raises for it."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from spark_tui.domain.errors import NoSpaceLeft, SparkError
from spark_tui.domain.host.breakdown import container_id
from spark_tui.domain.host.detectors import SharedFile
from spark_tui.domain.host.identity import GB10_PCI_ID, HostIdentity, parse_release, product_label
from spark_tui.domain.host.memory import MemInfo, parse_meminfo
from spark_tui.domain.host.vitals import (
    Cluster,
    ContainerMemory,
    CpuTimes,
    DiskCounters,
    FaultCounters,
    GpuProcess,
    HostProcess,
    LinkCounters,
    Temperature,
    VitalCounters,
    clusters_of,
    heaviest,
    hexadecimal,
    hottest,
    parse_cgroup_memory,
    parse_cpus,
    parse_disks,
    parse_faults,
    parse_links,
    parse_parts,
    part_of_midr,
)
from spark_tui.domain.quantities import KIB, MIB
from spark_tui.domain.reading import Missing, Ok, Reading
from spark_tui.domain.text import clean_line

_MOST_BYTES: Final = 65_536


def read(path: str) -> str:
    """In one read: half the cost of open(), and the kernel's table is of one moment. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _MOST_BYTES).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def text_or_empty(path: Path) -> str:
    """A text that may be absent, barred or broken: empty then, which its readers take for `not told`."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


_LISTEN: Final = "0A"  # TCP_LISTEN in include/net/tcp_states.h
_DMI_NAMES: Final = ("product_name", "product_version", "product_family", "board_name")
_SHM_PATHS: Final = ("/dev/shm/", "/run/shm/")  # noqa: S108 - the place itself is looked at
ANOTHER_PROCESS: Final = "another process"


class ProcfsHost:
    """The HostProbe port. `root` is where the host's file system is seen; `now` stamps the readings."""

    def __init__(self, root: Path = Path("/"), *, now: Callable[[], float] = time.time) -> None:
        self._root = root
        self._now = now
        self._meminfo = str(root / "proc/meminfo")
        self._pressure = str(root / "proc/pressure/memory")
        self._uptime = str(root / "proc/uptime")

    # --- read once a second ---------------------------------------------------------------------------

    def memory(self) -> Reading[MemInfo]:
        """`/proc/meminfo`."""
        try:
            return Ok(parse_meminfo(read(self._meminfo)), self._now())
        except OSError as error:
            return Missing(f"/proc/meminfo: {_why(error)}")
        except ValueError as error:
            return Missing(str(error))

    def memory_pressure(self) -> Reading[float]:
        """PSI `some avg10` of memory, per cent: the share of the last ten seconds in which some task waited for it."""
        try:
            text = read(self._pressure)
        except FileNotFoundError:
            return Missing("this kernel has no pressure information (CONFIG_PSI)")
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                return Missing("pressure information is switched off (start the kernel with psi=1)")
            return Missing(f"/proc/pressure/memory: {_why(error)}")
        for line in text.splitlines():
            kind, *fields = line.split()[:2] or [""]
            if kind == "some" and fields and fields[0].startswith("avg10="):
                share = _number(fields[0].removeprefix("avg10="))
                if share is not None:
                    return Ok(share, self._now())
        return Missing("/proc/pressure/memory has no line `some avg10=`")

    def uptime(self) -> Reading[float]:
        """Seconds since boot."""
        try:
            text = read(self._uptime)
        except OSError as error:
            return Missing(f"/proc/uptime: {_why(error)}")
        seconds = _number(text.split(maxsplit=1)[0]) if text.strip() else None
        return Missing("/proc/uptime holds no number") if seconds is None else Ok(seconds, self._now())

    # --- read once ------------------------------------------------------------------------------------

    def identity(self) -> HostIdentity:
        """Which machine this is. Empty strings where the box does not say."""
        dmi = [self._text(f"sys/class/dmi/id/{name}") for name in _DMI_NAMES]
        product, named_spark = product_label(parse_release(self._text("etc/dgx-release")), dmi)
        is_spark = named_spark or self._has_gb10()
        return HostIdentity(
            hostname=clean_line(self._text("proc/sys/kernel/hostname")),
            product=clean_line(product) or ("NVIDIA GB10" if is_spark else ""),
            kernel=clean_line(self._text("proc/sys/kernel/osrelease")),
            architecture=self._architecture(),
            cpu_count=self._cpu_count(),
            is_spark=is_spark,
        )

    def _has_gb10(self) -> bool:
        for device in self._glob("sys/bus/pci/devices/*"):
            vendor, product = text_or_empty(device / "vendor"), text_or_empty(device / "device")
            if (_hex(vendor), _hex(product)) == GB10_PCI_ID:
                return True
        return False

    def _architecture(self) -> str:
        told = self._text("proc/sys/kernel/arch")  # since Linux 6.1
        if told:
            return clean_line(told)
        if self._root == Path("/"):
            return os.uname().machine
        first = self._text("proc/cpuinfo")[:4096]
        if "CPU implementer" in first:
            return "aarch64"
        return "x86_64" if "vendor_id" in first else ""

    def _cpu_count(self) -> int:
        """`0-19` or `0-4,6` of sysfs; cpuinfo where that is absent."""
        count = 0
        for part in self._text("sys/devices/system/cpu/online").split(","):
            first, _, last = part.partition("-")
            if not (first.isdecimal() and (last or first).isdecimal()):
                return sum(line.startswith("processor") for line in self._text("proc/cpuinfo").splitlines())
            count += max(0, int(last or first) - int(first) + 1)
        return count

    # --- ports ----------------------------------------------------------------------------------------

    def port_owner(self, port: int) -> str | None:
        """Who listens on a TCP port: `name (pid 123)`, `another process` when that cannot be read, None when free.

        Without root the processes of other users cannot be looked into; Docker's own proxy is one of them.
        """
        sockets = {f"socket:[{inode}]" for inode in self._listeners(port)}
        if not sockets:
            return None
        for pid in self._processes():
            if self._holds(pid, sockets):
                name = clean_line(self._text(f"proc/{pid}/comm"))
                return f"{name} (pid {pid})" if name else ANOTHER_PROCESS
        return ANOTHER_PROCESS

    def _listeners(self, port: int) -> Iterator[str]:
        """Inodes of the sockets that listen on `port`, IPv4 and IPv6."""
        wanted = f":{port:04X}"
        for table in ("proc/net/tcp", "proc/net/tcp6"):
            for line in self._text(table).splitlines()[1:]:
                fields = line.split()
                if len(fields) > 9 and fields[3] == _LISTEN and fields[1].endswith(wanted):
                    yield fields[9]

    def _processes(self) -> list[int]:
        try:
            return sorted(int(entry.name) for entry in (self._root / "proc").iterdir() if entry.name.isdecimal())
        except OSError:
            return []

    def _holds(self, pid: int, sockets: set[str]) -> bool:
        try:
            return any(_link(entry) in sockets for entry in (self._root / f"proc/{pid}/fd").iterdir())
        except OSError:  # another user's process, or one that has just ended
            return False

    # --- disk -----------------------------------------------------------------------------------------

    def has_folder(self, path: Path) -> bool:
        """Whether that directory exists."""
        return self._inside(path).is_dir()

    def has_file(self, path: Path) -> bool:
        """Whether that file exists; links are followed."""
        return self._inside(path).is_file()

    def make_folders(self, paths: Sequence[Path]) -> None:
        """Creates directories that are absent, parents too; raises SparkError with the reason and the remedy."""
        for path in paths:
            try:
                self._inside(path).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise folder_error(path, error) from error

    def free_disk(self, path: Path) -> Reading[int]:
        """Bytes free for this user on the file system that holds `path` (or its nearest existing parent)."""
        place = self._inside(path)
        while not place.exists() and place != place.parent:
            place = place.parent
        try:
            status = os.statvfs(place)
        except OSError as error:
            return Missing(f"{path}: {_why(error)}")
        return Ok(status.f_bavail * status.f_frsize, self._now())

    # --- processes ------------------------------------------------------------------------------------

    def container_of(self, pid: int) -> str:
        """The id of the Docker container that a process is in; empty for one in none, or that is gone."""
        return container_id(self._text(f"proc/{pid}/cgroup"))

    def shared_files(self) -> Reading[tuple[SharedFile, ...]]:
        """The files in /dev/shm. Not for every second: to learn who has them open, all processes are looked into."""
        now, found = self._now(), []
        try:
            entries = sorted((self._root / "dev/shm").iterdir())
        except OSError as error:
            return Missing(f"shared memory: {_why(error)}")
        held, complete = self._files_in_use() if entries else (set(), True)
        for entry in entries:
            try:
                status = entry.lstat()
            except FileNotFoundError:  # removed in the meantime
                continue
            if not stat.S_ISREG(status.st_mode):
                continue
            opened = True if (status.st_dev, status.st_ino) in held else (False if complete else None)
            age = max(0.0, now - status.st_mtime)
            found.append(SharedFile(entry.name, status.st_blocks * 512, age, status.st_uid, opened))
        return Ok(tuple(found), now)

    def _files_in_use(self) -> tuple[set[tuple[int, int]], bool]:
        """Device and inode of every shared-memory file that a process has open or mapped, and whether all processes
        could be looked into."""
        held: set[tuple[int, int]] = set()
        complete = True
        for pid in self._processes():
            try:
                for kind in ("fd", "map_files"):
                    for link in (self._root / f"proc/{pid}/{kind}").iterdir():
                        if _link(link).startswith(_SHM_PATHS):
                            status = link.stat()
                            held.add((status.st_dev, status.st_ino))
            except FileNotFoundError:  # a process, or a file of it, that has just gone
                continue
            except OSError:
                complete = False
        return held, complete

    # --- files ----------------------------------------------------------------------------------------

    def _inside(self, path: Path) -> Path:
        return self._root / path.relative_to(path.anchor) if path.is_absolute() else path

    def _text(self, path: str) -> str:
        return text_or_empty(self._root / path)

    def _glob(self, pattern: str) -> list[Path]:
        return sorted(self._root.glob(pattern))


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:  # closed in the meantime
        return ""


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _hex(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def folder_error(path: Path, error: OSError) -> SparkError:
    """What a person does about a folder that could not be made."""
    summary = f"The folder {path} cannot be made: {_why(error)}."
    match error.errno:
        case errno.EACCES | errno.EPERM:
            remedy = f"Make it yourself, and yours: sudo mkdir -p {path} && sudo chown $USER {path}"
        case errno.EEXIST | errno.ENOTDIR:
            remedy = "A file stands in its way: move that, or name another folder in the settings."
        case errno.ENOSPC | errno.EDQUOT:
            return NoSpaceLeft(summary, "Free some disk space, or name a folder on another disk in the settings.")
        case errno.EROFS:
            remedy = "That file system is mounted read-only: name another folder in the settings."
        case _:
            remedy = "Name another folder in the settings."
    return SparkError(summary, remedy)


PAGE: Final = os.sysconf("SC_PAGE_SIZE")
WORTH_BYTES: Final = 8 * MIB
"""Smaller processes are not looked into any closer."""
CLOSER: Final = 16
"""The kernel walks all pages of a process to share them out: only so many of the heaviest are asked about."""


class ProcessTable:
    """Reads the table anew each time. Files of other users' processes may be barred: then less is known of them."""

    def __init__(self, root: Path, now: Callable[[], float]) -> None:
        self._root = root
        self._now = now

    def read(self, gpu: Sequence[GpuProcess], limit: int) -> Reading[tuple[HostProcess, ...]]:
        """The heaviest processes, by PSS where it may be read, and every one of `gpu`. Never raises."""
        held = {process.pid: process.memory for process in gpu}
        try:
            pids = [int(entry.name) for entry in os.scandir(self._root / "proc") if entry.name.isdecimal()]
        except OSError as error:
            return Missing(f"/proc: {(error.strerror or str(error)).lower()}")
        rough = [found for pid in pids if (found := self._rough(pid, held)) is not None]
        worth = [each for each in rough if each.rss >= WORTH_BYTES or each.pid in held]
        first = heaviest(worth, max(limit, CLOSER))
        closer = [self._closer(each) for each in first[:CLOSER]]
        return Ok(heaviest([*closer, *first[CLOSER:]], limit), self._now())

    def _rough(self, pid: int, held: Mapping[int, int | None]) -> HostProcess | None:
        """What costs little: RSS and the name. None for a process that is gone, and for the kernel's own."""
        folder = f"{self._root}/proc/{pid}"
        try:
            pages = read(f"{folder}/statm").split()
            rss = int(pages[1]) * PAGE
            if not rss and pid not in held:
                return None
            return HostProcess(pid, clean_line(read(f"{folder}/comm").strip()), rss, gpu=held.get(pid))
        except (OSError, ValueError, IndexError):
            return None

    def _closer(self, process: HostProcess) -> HostProcess:
        folder = f"{self._root}/proc/{process.pid}"
        try:
            container = container_id(read(f"{folder}/cgroup"))
            process = replace(process, container=container, uid=Path(folder).stat().st_uid)
        except OSError:  # gone in the meantime
            return process
        try:
            told = _sizes(read(f"{folder}/smaps_rollup"))
        except OSError:  # another user's
            return process
        return replace(process, pss=told.get("Pss"), swap=told.get("SwapPss"))

    def container_memory(self, pid: int) -> Reading[ContainerMemory]:
        """By the cgroup of a container's first process."""
        try:
            path = next(
                (line[3:] for line in read(f"{self._root}/proc/{pid}/cgroup").splitlines() if line[:3] == "0::"), ""
            )
        except OSError as error:
            return Missing(f"/proc/{pid}/cgroup: {(error.strerror or str(error)).lower()}")
        if not path:
            return Missing("cgroups of version 1 are not read")
        folder = self._root / "sys/fs/cgroup" / path.lstrip("/")
        texts = [text_or_empty(folder / f"memory.{name}") for name in ("current", "stat", "swap.current", "max")]
        found = parse_cgroup_memory(*texts)
        return Missing(f"{path}/memory.current cannot be read") if found is None else Ok(found, self._now())


def _sizes(text: str) -> dict[str, int]:
    """`smaps_rollup`: `Pss:  1234 kB` lines in bytes."""
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB" and words[0].isdecimal():
            found[name] = int(words[0]) * KIB
    return found


_SENSORS: Final = {"acpitz": "SoC", "coretemp": "CPU", "k10temp": "CPU", "nvme": "NVMe", "mlx5": "ConnectX"}
"""hwmon names -> what people call them. Others keep their own name."""
_PRIMARY: Final = {"nvme": "Composite"}
"""Chips of which one sensor speaks for all."""
_SANE: Final = range(1, 200)
"""Degrees. A Wi-Fi card that is down reports 0."""


class ProcfsVitals:
    """The VitalsProbe port. `root` is where the host's file system is seen; clocks are arguments."""

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._root = root
        self._monotonic = monotonic
        self._now = now
        self._clusters: Reading[tuple[Cluster, ...]] | None = None
        self._sensors: tuple[tuple[Path, str], ...] | None = None
        self._limit: float | None = None
        self._table = ProcessTable(root, now)

    def counters(self) -> VitalCounters:
        """One reading. Never raises."""
        cpus = self._cpus()
        return VitalCounters(
            at=self._monotonic(),
            clusters=self._by_kind(cpus),
            cpus=cpus,
            temperatures=self._temperatures(),
            disks=self._disks(),
            links=self._links(),
            faults=self._faults(),
        )

    def processes(self, gpu: Sequence[GpuProcess], limit: int) -> Reading[tuple[HostProcess, ...]]:
        """The heaviest processes. Never raises."""
        return self._table.read(gpu, limit)

    def container_memory(self, pid: int) -> Reading[ContainerMemory]:
        """What the kernel charges to the container of a process. Never raises."""
        return self._table.container_memory(pid)

    # --- processors -----------------------------------------------------------------------------------

    def _cpus(self) -> Reading[Mapping[int, CpuTimes]]:
        text = self._told("proc/stat")
        if isinstance(text, Missing):
            return text
        found = parse_cpus(text)
        return Ok(found, self._now()) if found else Missing("/proc/stat names no processor")

    def _by_kind(self, cpus: Reading[Mapping[int, CpuTimes]]) -> Reading[tuple[Cluster, ...]]:
        """Which processor is of which kind does not change: looked up once."""
        if isinstance(cpus, Missing):
            return cpus
        if self._clusters is None:
            self._clusters = Ok(clusters_of(cpus.value, self._parts(cpus.value), self._capacities(cpus.value)))
        return self._clusters

    def _parts(self, cpus: Mapping[int, CpuTimes]) -> dict[int, int]:
        folder = self._root / "sys/devices/system/cpu"
        midrs = {cpu: hexadecimal(text_or_empty(folder / f"cpu{cpu}/regs/identification/midr_el1")) for cpu in cpus}
        found = {cpu: part_of_midr(midr) for cpu, midr in midrs.items() if midr is not None}
        return found or parse_parts(text_or_empty(self._root / "proc/cpuinfo"))

    def _capacities(self, cpus: Mapping[int, CpuTimes]) -> dict[int, int]:
        folder = self._root / "sys/devices/system/cpu"
        texts = {cpu: text_or_empty(folder / f"cpu{cpu}/cpu_capacity") for cpu in cpus}
        return {cpu: int(text) for cpu, text in texts.items() if text.isdecimal()}

    # --- temperatures ---------------------------------------------------------------------------------

    def _temperatures(self) -> Reading[tuple[Temperature, ...]]:
        if self._sensors is None:
            self._sensors = self._find_sensors()
            self._limit = self._critical()
        found = []
        for path, name in self._sensors:
            text = text_or_empty(path)
            celsius = int(text) / 1000 if text.lstrip("-").isdecimal() else 0.0
            if int(celsius) in _SANE:
                found.append(Temperature(name, celsius, self._limit if name == "SoC" else None))
        if not found:
            return Missing("no temperature sensor can be read here")
        return Ok(hottest(found), self._now())

    def _find_sensors(self) -> tuple[tuple[Path, str], ...]:
        """The files of all sensors with what they measure. Where hwmon has none, the thermal zones."""
        found = []
        for chip in sorted(self._root.glob("sys/class/hwmon/hwmon*")):
            own = text_or_empty(chip / "name")
            for sensor in sorted(chip.glob("temp*_input")):
                label = text_or_empty(chip / sensor.name.replace("_input", "_label"))
                if own not in _PRIMARY or label in ("", _PRIMARY[own]):
                    found.append((sensor, _SENSORS.get(own, clean_line(own) or "sensor")))
        if found:
            return tuple(found)
        zones = sorted(self._root.glob("sys/class/thermal/thermal_zone*"))
        kinds = ((zone, text_or_empty(zone / "type")) for zone in zones)
        return tuple((zone / "temp", _SENSORS.get(kind, clean_line(kind) or "zone")) for zone, kind in kinds)

    def _critical(self) -> float | None:
        """Where the firmware switches the machine off: 104.8 degrees on a GB10."""
        for kind in sorted(self._root.glob("sys/class/thermal/thermal_zone*/trip_point_*_type")):
            if text_or_empty(kind) == "critical":
                text = text_or_empty(kind.with_name(kind.name.replace("_type", "_temp")))
                if text.isdecimal() and int(text) // 1000 in _SANE:
                    return int(text) / 1000
        return None

    # --- disks, links, faults -------------------------------------------------------------------------

    def _disks(self) -> Reading[Mapping[str, DiskCounters]]:
        text = self._told("proc/diskstats")
        if isinstance(text, Missing):
            return text
        found = parse_disks(text)
        return Ok(found, self._now()) if found else Missing("/proc/diskstats names no disk")

    def _links(self) -> Reading[Mapping[str, LinkCounters]]:
        text = self._told("proc/net/dev")
        if isinstance(text, Missing):
            return text
        found = {name: self._link(name, *counts) for name, counts in parse_links(text).items()}
        return Ok(found, self._now()) if found else Missing("/proc/net/dev names no link")

    def _link(self, name: str, received: int, sent: int) -> LinkCounters:
        folder = self._root / "sys/class/net" / name
        speed = text_or_empty(folder / "speed")  # -1 while it is down; unreadable for some drivers
        up = text_or_empty(folder / "operstate") in ("up", "unknown")
        return LinkCounters(received, sent, up, int(speed) if speed.isdecimal() else None)

    def _faults(self) -> Reading[FaultCounters]:
        text = self._told("proc/vmstat")
        if isinstance(text, Missing):
            return text
        found = parse_faults(text)
        return Missing("/proc/vmstat counts no faults") if found is None else Ok(found, self._now())

    def _told(self, path: str) -> str | Missing:
        try:
            return (self._root / path).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            return Missing(f"/{path}: {(error.strerror or str(error)).lower()}")
