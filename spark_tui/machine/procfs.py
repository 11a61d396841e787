"""The machine as the kernel shows it under /proc and /sys. What cannot be read says why; nothing raises for it.

Memory, pressure and uptime are read once a second and by hand: psutil.virtual_memory() leaves out the fields that show
which page cache is droppable, PSI it does not know, and importing it would cost the first frame.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_tui.base.errors import NoSpaceLeft, SparkError
from spark_tui.base.finding import Missing, Ok, Reading, value_of
from spark_tui.base.host.detectors import SharedFile
from spark_tui.base.host.memory import MemInfo, container_id, parse_meminfo
from spark_tui.base.host.vitals import GB10_PCI_ID, HostIdentity, parse_release, product_label
from spark_tui.base.quantities import hexadecimal
from spark_tui.base.text import clean_line, quoted

if TYPE_CHECKING:
    from spark_tui.base.engine.container import ContainerFacts

_MOST_BYTES: Final = 65_536
_STAT_FIELDS: Final = 20
"""Of /proc/PID/stat after the name: the parent is the second, the start the last of these, in ticks since boot."""
_DMI_NAMES: Final = ("product_name", "product_version", "product_family", "board_name")
_SHM_PATHS: Final = ("/dev/shm/", "/run/shm/")  # noqa: S108 - the place itself is looked at
ANOTHER_PROCESS: Final = "another process"
_MOST_JOURNAL: Final = 64 * 1024
_CUDA_DEVICE: Final = "/dev/nvidia-uvm"
"""Open in every process that computes with CUDA."""


def read(path: str) -> str:
    """In one read: half the cost of open(), and the kernel's table is of one moment. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _MOST_BYTES).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def text_or_empty(path: Path) -> str:
    """A stripped text; empty where it is absent, barred or broken."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def why(error: Exception) -> str:
    """The reason of a failed reading, for the screen."""
    words = error.strerror if isinstance(error, OSError) else ""
    return (words or str(error)).lower()


def psutil_at(root: Path) -> Any:
    """psutil, looking at the /proc of `root`."""
    import psutil

    path = str(root / "proc")
    if path != psutil.PROCFS_PATH:
        psutil.PROCFS_PATH = path
        psutil.process_iter.cache_clear()
    return psutil


def cpu_numbers(root: Path) -> tuple[int, ...]:
    """The processors that are online, of `0-19` or `0-4,6` in sysfs; empty where that is absent."""
    found: list[int] = []
    for part in text_or_empty(root / "sys/devices/system/cpu/online").split(","):
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            return ()
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def listeners(root: Path) -> dict[int, tuple[tuple[int, str], ...]]:
    """The TCP ports with a listener, each with the processes that this user may see and the address they listen on."""
    psutil, found = psutil_at(root), dict[int, tuple[tuple[int, str], ...]]()
    try:
        connections = psutil.net_connections("tcp")
    except (OSError, RuntimeError, psutil.Error):  # no such table, or one that psutil cannot parse
        return {}
    for each in connections:
        if each.status == psutil.CONN_LISTEN:
            seen = ((each.pid, each.laddr.ip),) if each.pid else ()
            found[each.laddr.port] = found.get(each.laddr.port, ()) + seen
    return found


def _lan_address() -> str:
    """The address that packets leave this machine with; no packet is sent. Empty without a route."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # reserved for documentation: any outside address will do
            return str(probe.getsockname()[0])
    except OSError:
        return ""


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
        try:
            return Ok(parse_meminfo(read(self._meminfo)), self._now())
        except OSError as error:
            return Missing(f"/proc/meminfo: {why(error)}")
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
                return Missing("pressure information is off (boot with psi=1)")
            return Missing(f"/proc/pressure/memory: {why(error)}")
        fields = next((line.split() for line in text.splitlines() if line.startswith("some avg10=")), None)
        share = _number(fields[1].removeprefix("avg10=")) if fields else None
        return Missing("/proc/pressure/memory has no `some avg10`") if share is None else Ok(share, self._now())

    def uptime(self) -> Reading[float]:
        try:
            words = read(self._uptime).split()
        except OSError as error:
            return Missing(f"/proc/uptime: {why(error)}")
        seconds = _number(words[0]) if words else None
        return Missing("/proc/uptime holds no number") if seconds is None else Ok(seconds, self._now())

    # --- read once ------------------------------------------------------------------------------------

    def identity(self) -> HostIdentity:
        """Which machine this is. Empty strings and 0 where it does not say."""
        dmi = [self._text(f"sys/class/dmi/id/{name}") for name in _DMI_NAMES]
        product, named_spark = product_label(parse_release(self._text("etc/dgx-release")), dmi)
        devices = [
            (hexadecimal(text_or_empty(device / "vendor")), hexadecimal(text_or_empty(device / "device")))
            for device in self._root.glob("sys/bus/pci/devices/*")
        ]
        is_spark = named_spark or GB10_PCI_ID in devices
        # NVIDIA's driver also has GPUs that are no PCI device of this system: Jetson, WSL.
        driver = any((self._root / path).exists() for path in ("proc/driver/nvidia", "dev/nvidiactl", "dev/dxg"))
        seen = is_spark or driver or any(vendor == GB10_PCI_ID[0] for vendor, _ in devices)
        cpuinfo, memory = self._text("proc/cpuinfo"), value_of(self.memory())
        architecture = clean_line(self._text("proc/sys/kernel/arch"))  # since Linux 6.1
        if not architecture and self._root == Path("/"):
            architecture = os.uname().machine
        elif not architecture:
            marks = (("CPU implementer", "aarch64"), ("vendor_id", "x86_64"))
            architecture = next((name for mark, name in marks if mark in cpuinfo[:4096]), "")
        return HostIdentity(
            hostname=clean_line(self._text("proc/sys/kernel/hostname")),
            product=clean_line(product) or ("NVIDIA GB10" if is_spark else ""),
            kernel=clean_line(self._text("proc/sys/kernel/osrelease")),
            architecture=architecture,
            cpu_count=len(cpu_numbers(self._root))
            or sum(line.startswith("processor") for line in cpuinfo.splitlines()),
            is_spark=is_spark,
            has_gpu=seen or (False if devices else None),
            memory=0 if memory is None else memory.total,
            lan_address=_lan_address() if self._root == Path("/") else "",
        )

    # --- ports ----------------------------------------------------------------------------------------

    def port_owner(self, port: int) -> str | None:
        """Who listens on a TCP port: `name (pid 123)`, `another process` when that cannot be read, None when free.

        Without root the processes of other users cannot be looked into; Docker's own proxy is one of them.
        """
        pids = listeners(self._root).get(port)
        names = ((pid, clean_line(self._text(f"proc/{pid}/comm"))) for pid, _ in pids or ())
        named = next((f"{name} (pid {pid})" for pid, name in names if name), ANOTHER_PROCESS)
        return None if pids is None else named

    def kernel_lines(self, at: float) -> tuple[str, ...]:
        span = (f"--since=@{at - 60:.0f}", f"--until=@{at + 5:.0f}")
        try:
            done = subprocess.run(
                ("journalctl", "-kq", "--no-pager", "-o", "short-iso", "-n", "200", *span),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=3,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return ()
        return tuple(done.stdout[-_MOST_JOURNAL:].decode("utf-8", "replace").splitlines())

    def addresses(self) -> tuple[str, ...]:
        found = psutil_at(self._root).net_if_addrs().values()
        return tuple(each.address for addresses in found for each in addresses if each.family == socket.AF_INET)

    # --- disk -----------------------------------------------------------------------------------------

    def has_folder(self, path: Path) -> bool:
        return self._inside(path).is_dir()

    def has_file(self, path: Path) -> bool:
        return self._inside(path).is_file()

    def make_folders(self, paths: Sequence[Path]) -> None:
        for path in paths:
            try:
                self._inside(path).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise folder_error(path, error) from error

    def free_disk(self, path: Path) -> Reading[int]:
        place = self._inside(path)
        there = next((folder for folder in (place, *place.parents) if folder.exists()), place)
        try:
            return Ok(psutil_at(self._root).disk_usage(str(there)).free, self._now())
        except OSError as error:
            return Missing(f"{path}: {why(error)}")

    # --- processes ------------------------------------------------------------------------------------

    def container_of(self, pid: int) -> str:
        return container_id(self._text(f"proc/{pid}/cgroup"))

    def lineage(self, pid: int) -> tuple[int, ...]:
        found: list[int] = []
        while pid > 1 and pid not in found and (born := self._born(pid))[1]:
            found.append(pid)
            pid = born[0]
        return tuple(found)

    def bare_engines(self) -> tuple[ContainerFacts, ...]:
        from spark_tui.base.engine.runtimes import server_of  # its shapes are not needed for the first frame
        from spark_tui.base.engine.state import bare_engine, gpu_server

        found: dict[int, tuple[int, ContainerFacts]] = {}
        parents: dict[int, int] = {}
        here = self._network("self")
        for entry in (self._root / "proc").glob("[0-9]*"):
            argv, pid = self._words(entry / "cmdline"), int(entry.name)
            parents[pid] = self._born(pid)[0]
            if server_of(argv) is None or container_id(text_or_empty(entry / "cgroup")):
                continue
            if here and self._network(entry.name) not in ("", here):  # its ports are not this machine's
                continue
            names = tuple(word.partition("=")[0] for word in self._words(entry / "environ"))
            parent, started = self._born(pid)
            facts = bare_engine(pid, argv, names, started) if started else None  # else it has ended meanwhile
            if facts is not None:
                found[facts.pid] = (parent, facts)
        # What a server forks has its command line, and is no server of its own.
        own = (facts for parent, facts in found.values() if parent not in found)
        others = (
            gpu_server(pid, self._words(self._root / f"proc/{pid}/cmdline"), self._born(pid)[1], port, local=local)
            for pid, port, local in self._gpu_ports(parents, found.keys())
        )
        return tuple(sorted((*own, *others), key=lambda facts: (facts.name, facts.pid)))

    def _gpu_ports(self, parents: Mapping[int, int], known: Collection[int]) -> list[tuple[int, int, bool]]:
        """Processes in no container that compute on the GPU, or whose child does, one for each port that they listen
        on, and whether that is this machine's alone. Only what this user may look into; `known` and their children are
        left out."""
        holders = [pid for pid in parents if self._computes(pid)] if self._inside(Path(_CUDA_DEVICE)).exists() else []
        ports: dict[int, dict[int, bool]] = {}
        for port, addresses in listeners(self._root).items() if holders else ():
            for pid, address in addresses:
                ports.setdefault(pid, {})[port] = address.startswith("127.") or address == "::1"
        servers: set[int] = set()
        for pid in holders:
            while pid > 1 and pid not in known and pid not in ports:
                pid = parents.get(pid, 0)  # noqa: PLW2901 - up to the process that listens
            if pid in ports and pid not in known and not container_id(self._text(f"proc/{pid}/cgroup")):
                servers.add(pid)
        return [(pid, port, local) for pid in servers for port, local in sorted(ports[pid].items())]

    def _computes(self, pid: int) -> bool:
        """Whether CUDA is open in a process; a monitor opens other devices."""
        try:
            return any(str(each.readlink()) == _CUDA_DEVICE for each in (self._root / f"proc/{pid}/fd").iterdir())
        except OSError:  # of another user, or gone
            return False

    def _born(self, pid: int) -> tuple[int, float]:
        """A process's parent, and when it began in seconds since the epoch; zeros where it has ended."""
        fields = self._text(f"proc/{pid}/stat").rpartition(")")[2].split()
        if len(fields) < _STAT_FIELDS:
            return 0, 0.0
        return int(fields[1]), self._booted() + int(fields[19]) / os.sysconf("SC_CLK_TCK")

    def _words(self, path: Path) -> tuple[str, ...]:
        """Of a list in /proc whose entries end with a null byte; empty where it is barred."""
        try:
            return tuple(path.read_bytes().decode("utf-8", "replace").split("\0")[:-1])
        except OSError:
            return ()

    def _network(self, pid: str) -> str:
        """The network namespace of a process; empty where it is barred."""
        try:
            return str((self._root / "proc" / pid / "ns/net").readlink())
        except OSError:
            return ""

    def _booted(self) -> float:
        """Seconds since the epoch."""
        lines = self._text("proc/stat").splitlines()
        return next((float(line.split()[1]) for line in lines if line.startswith("btime ")), 0.0)

    def shared_files(self) -> Reading[tuple[SharedFile, ...]]:
        """The files in /dev/shm. Not for every second: all processes are searched for who has them open."""
        now, found = self._now(), []
        try:
            entries = sorted((self._root / "dev/shm").iterdir())
        except OSError as error:
            return Missing(f"shared memory: {why(error)}")
        held, complete = self._files_in_use() if entries else (set(), True)
        for entry in entries:
            try:
                status = entry.lstat()
            except FileNotFoundError:  # removed meanwhile
                continue
            if stat.S_ISREG(status.st_mode):
                opened = True if (status.st_dev, status.st_ino) in held else (False if complete else None)
                age = max(0.0, now - status.st_mtime)
                found.append(SharedFile(entry.name, status.st_blocks * 512, age, opened))
        return Ok(tuple(found), now)

    def _files_in_use(self) -> tuple[set[tuple[int, int]], bool]:
        """Device and inode of every shared-memory file that a process has open or mapped, and whether all processes
        could be searched. By hand: psutil.Process.open_files() leaves out mapped files."""
        held: set[tuple[int, int]] = set()
        complete = True
        for pid in psutil_at(self._root).pids():
            try:
                for kind in ("fd", "map_files"):
                    for link in (self._root / f"proc/{pid}/{kind}").iterdir():
                        if str(link.readlink()).startswith(_SHM_PATHS):
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


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def folder_error(path: Path, error: OSError) -> SparkError:
    """A folder that could not be created, with the remedy."""
    summary, place = f"Cannot create the folder {path}: {why(error)}.", quoted(path)
    match error.errno:
        case errno.EACCES | errno.EPERM:
            remedy = f"Create it: sudo mkdir -p {place} && sudo chown $USER {place}"
        case errno.EEXIST | errno.ENOTDIR:
            remedy = "A file has that name: move it, or choose another folder in the settings."
        case errno.ENOSPC | errno.EDQUOT:
            return NoSpaceLeft(summary, "Free some disk space, or choose a folder on another disk in the settings.")
        case errno.EROFS:
            remedy = "That file system is read-only: choose another folder in the settings."
        case _:
            remedy = "Choose another folder in the settings."
    return SparkError(summary, remedy)
