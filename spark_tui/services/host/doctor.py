"""The doctor's readings, from files. `root` is where the host's file system is seen."""

from __future__ import annotations

import grp
import json
import os
import pwd
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from spark_tui.domain.doctor.check import EngineProcess, Link, StoreState
from spark_tui.domain.host.breakdown import container_id
from spark_tui.domain.reading import Missing, Ok, Reading
from spark_tui.domain.text import clean_line, truncate

_SMALL_FILE: Final = 65_536
_VERSION: Final = re.compile(r"Kernel Module(?: for \w+)?\s+(\d[\d.]*)")
_ENGINES: Final = re.compile(r"VLLM::|vllm serve|vllm\.entrypoints|sglang|trtllm-serve|llama-server|ollama runner")
_CDI_FOLDERS: Final = ("etc/cdi", "var/run/cdi", "run/cdi")
_TOOLKITS: Final = ("nvidia-ctk", "nvidia-container-runtime-hook", "nvidia-container-toolkit")
_LISTEN: Final = "0A"
_GATEWAY: Final = "00000000"
_MOST_ENTRIES: Final = 5_000


class FileDoctorProbe:
    """The DoctorProbe port."""

    def __init__(self, environ: Mapping[str, str], root: Path = Path("/")) -> None:
        self._environ = environ
        self._root = root

    def user(self) -> tuple[str, bool]:
        """By the real user id; a number where it has no name."""
        number = os.getuid()
        try:
            return pwd.getpwuid(number).pw_name, number == 0
        except KeyError:
            return str(number), number == 0

    def driver(self) -> Reading[str]:
        """`/proc/driver/nvidia/version`, the open and the closed module's wording."""
        text = self._text("proc/driver/nvidia/version")
        if isinstance(text, Missing):
            return Missing("the NVIDIA kernel module is not loaded")
        found = _VERSION.search(text)
        return Ok(found[1]) if found else Missing("/proc/driver/nvidia/version names no version")

    def kernel_number(self, name: str) -> Reading[int]:
        """One number."""
        text = self._text(f"proc/sys/{name}")
        if isinstance(text, Missing):
            return text
        word = text.split(maxsplit=1)[0] if text.strip() else ""
        return Ok(int(word)) if word.isdigit() else Missing(f"/proc/sys/{name} holds no number")

    def earlyoom(self) -> Reading[str]:
        """From the processes: its settings file may say otherwise."""
        for pid in self._pids():
            words = self._arguments(pid)
            if words and Path(words[0]).name == "earlyoom":
                return Ok(truncate(clean_line(" ".join(words)), 300))
        return Ok("")

    def engine_processes(self) -> Reading[tuple[EngineProcess, ...]]:
        """By their command lines; what is in a container is somebody's engine, and not an orphan."""
        own, found = os.getpid(), []
        for pid in self._pids():
            line = " ".join(self._arguments(pid))
            if pid == own or not _ENGINES.search(line) or "spark_tui" in line or "spark-tui" in line:
                continue
            cgroup = self._text(f"proc/{pid}/cgroup")
            if isinstance(cgroup, Missing) or container_id(cgroup):
                continue
            name = self._text(f"proc/{pid}/comm")
            shown = clean_line(name).strip() if not isinstance(name, Missing) else "?"
            found.append(EngineProcess(pid, shown, self._resident(pid)))
        return Ok(tuple(found))

    def _resident(self, pid: int) -> int:
        text = self._text(f"proc/{pid}/status")
        match = re.search(r"VmRSS:\s+(\d+) kB", text) if not isinstance(text, Missing) else None
        return int(match[1]) * 1024 if match else 0

    def clock_synchronised(self) -> Reading[bool]:
        """systemd-timesyncd leaves a file; chrony's socket counts as well."""
        if (self._root / "run/systemd/timesync/synchronized").exists():
            return Ok(True)
        if (self._root / "run/chrony").exists() or (self._root / "run/ntpd.sock").exists():
            return Ok(True)
        if (self._root / "run/systemd/timesync").is_dir():
            return Ok(False)
        return Missing("no time service that is known here")

    def docker_group(self) -> tuple[bool, bool]:
        """In the file, and in this session."""
        try:
            group = grp.getgrnam("docker")
        except KeyError:
            return False, False
        listed, now = self.user()[0] in group.gr_mem, group.gr_gid in os.getgroups()
        return listed or now, listed and not now

    def toolkit(self) -> Reading[str]:
        """On the search path, or where Debian's packages put it."""
        for name in _TOOLKITS:
            if found := shutil.which(name, path=self._environ.get("PATH", "")):
                return Ok(found)
            if (self._root / "usr/bin" / name).is_file():
                return Ok(f"/usr/bin/{name}")
        return Ok("")

    def cdi(self) -> Reading[tuple[str, ...]]:
        """Files in the folders that Docker reads."""
        found: list[str] = []
        for folder in _CDI_FOLDERS:
            path = self._root / folder
            try:
                found += sorted(f"/{folder}/{entry.name}" for entry in os.scandir(path) if entry.is_file())
            except OSError:
                continue  # most machines have one of the three, or none
        return Ok(tuple(clean_line(name) for name in found))

    def registries(self) -> Reading[tuple[str, ...]]:
        """Names alone: what is behind them is a secret."""
        home = self._environ.get("HOME") or str(Path.home())
        folder = self._environ.get("DOCKER_CONFIG") or f"{home}/.docker"
        try:
            told = json.loads(_read(Path(folder) / "config.json"))
        except FileNotFoundError:
            return Ok(())
        except (OSError, ValueError) as error:
            return Missing(f"{folder}/config.json: {error}")
        logins = told.get("auths") if isinstance(told, dict) else None
        helpers = told.get("credHelpers") if isinstance(told, dict) else None
        names = [*(logins if isinstance(logins, dict) else ()), *(helpers if isinstance(helpers, dict) else ())]
        return Ok(tuple(sorted({clean_line(name) for name in names})))

    def folder(self, path: Path) -> Reading[StoreState]:
        """Two levels are looked at for files of others."""
        try:
            if not path.is_dir():
                free, total = _space(path)
                return Ok(StoreState(str(path), exists=False, writable=False, free=free, total=total))
            free, total = _space(path)
            foreign = list(_foreign(path))
            return Ok(
                StoreState(
                    str(path), exists=True, writable=os.access(path, os.W_OK | os.X_OK), free=free, total=total,
                    foreign=len(foreign), foreign_example=foreign[0] if foreign else "",
                )
            )  # fmt: skip
        except OSError as error:
            return Missing(f"{path}: {error.strerror or error}")

    def links(self) -> tuple[Reading[tuple[Link, ...]], str]:
        """`/sys/class/net` and the routing table."""
        folder = self._root / "sys/class/net"
        try:
            names = sorted(entry.name for entry in os.scandir(folder))
        except OSError as error:
            return Missing(f"/sys/class/net: {error.strerror or error}"), ""
        up = tuple(self._link(name) for name in names if self._word(f"sys/class/net/{name}/operstate") == "up")
        return Ok(up), self._default_link()

    def _link(self, name: str) -> Link:
        wireless = (self._root / f"sys/class/net/{name}/wireless").exists()
        speed = self._word(f"sys/class/net/{name}/speed")
        return Link(clean_line(name), wireless, int(speed) if speed.isdigit() else None)

    def _default_link(self) -> str:
        text = self._text("proc/net/route")
        lines = text.splitlines()[1:] if not isinstance(text, Missing) else ()
        routes = [words for line in lines if len(words := line.split()) > 6 and words[1] == _GATEWAY]
        return min(routes, key=lambda words: int(words[6]), default=[""])[0]

    def taken(self, ports: Sequence[int]) -> tuple[int, ...]:
        """By the kernel's tables: nothing is connected to."""
        listening: set[int] = set()
        for table in ("tcp", "tcp6"):
            text = self._text(f"proc/net/{table}")
            for line in text.splitlines()[1:] if not isinstance(text, Missing) else ():
                words = line.split()
                if len(words) > 3 and words[3] == _LISTEN:
                    listening.add(int(words[1].rpartition(":")[2], 16))
        return tuple(port for port in ports if port in listening)

    # --- files ----------------------------------------------------------------------------------------

    def _pids(self) -> list[int]:
        try:
            return sorted(int(entry.name) for entry in os.scandir(self._root / "proc") if entry.name.isdigit())
        except OSError:
            return []

    def _arguments(self, pid: int) -> list[str]:
        text = self._text(f"proc/{pid}/cmdline")
        return [] if isinstance(text, Missing) else [word for word in text.split("\0") if word]

    def _word(self, path: str) -> str:
        text = self._text(path)
        return "" if isinstance(text, Missing) else text.strip()

    def _text(self, path: str) -> str | Missing:
        try:
            return _read(self._root / path)
        except OSError as error:
            return Missing(f"/{path}: {error.strerror or error}")


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_SMALL_FILE).decode("utf-8", "replace")


def _space(path: Path) -> tuple[int, int]:
    """Of the nearest folder that is there."""
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    status = os.statvfs(there)
    return status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize


def _foreign(path: Path) -> Iterator[str]:
    """Entries of others, at most `_MOST_ENTRIES` looked at; a folder that cannot be read is one."""
    own, looked = os.getuid(), 0
    for folder in (path, *(Path(entry.path) for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False))):
        try:
            entries = list(os.scandir(folder))
        except PermissionError:
            yield str(folder)
            continue
        for entry in entries:
            looked += 1
            if looked > _MOST_ENTRIES:
                return
            if entry.stat(follow_symlinks=False).st_uid != own:
                yield entry.path
