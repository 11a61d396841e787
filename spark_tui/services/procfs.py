"""The machine as the kernel tells it under /proc and /sys. What cannot be read says why; nothing raises for it."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from spark_tui.domain.errors import NoSpaceLeft, SparkError
from spark_tui.domain.host.detectors import SharedFile
from spark_tui.domain.host.identity import GB10_PCI_ID, HostIdentity, parse_release, product_label
from spark_tui.domain.host.ledger import container_id
from spark_tui.domain.host.memory import MemInfo, parse_meminfo
from spark_tui.domain.reading import Missing, Ok, Reading
from spark_tui.domain.text import clean_line
from spark_tui.services.procfs_read import read, text_or_empty

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
