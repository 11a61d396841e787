"""The doctor's readings, from files. `root` is where the host's file system is seen."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from spark_tui.base.engine.runtimes import server_of
from spark_tui.base.files import read_plain
from spark_tui.base.finding import Missing, Ok, Reading
from spark_tui.base.host.detectors import EngineProcess, Link, StoreState
from spark_tui.base.host.memory import container_id
from spark_tui.base.text import clean_line, truncate
from spark_tui.base.untrusted import load_json
from spark_tui.machine.procfs import listeners, psutil_at, text_or_empty, why

_VERSION: Final = re.compile(r"Kernel Module(?: for \w+)?\s+(\d[\d.]*)")
"""The wording of the open and of the closed module."""
_ENGINES: Final = re.compile(r"VLLM::|vllm serve|vllm\.entrypoints|sglang|trtllm-serve|llama-server|ollama runner")
_OTHERS: Final = re.compile(r"spark[_-]tui|^\S*earlyoom ")
"""Programs that name engines in their command line and are none: earlyoom prefers to end them."""
_CDI_FOLDERS: Final = ("etc/cdi", "var/run/cdi", "run/cdi")
_TOOLKITS: Final = ("nvidia-ctk", "nvidia-container-runtime-hook", "nvidia-container-toolkit")
_GATEWAY: Final = "00000000"
_MOST_ENTRIES: Final = 5_000
_KERNEL_LINES: Final = 5_000


class FileDoctorProbe:
    """The DoctorProbe port."""

    def __init__(self, environ: Mapping[str, str], root: Path = Path("/")) -> None:
        self._environ = environ
        self._root = root

    def user(self) -> tuple[str, bool]:
        number = os.getuid()
        try:
            return pwd.getpwuid(number).pw_name, number == 0
        except KeyError:
            return str(number), number == 0

    def driver(self) -> Reading[str]:
        """`/proc/driver/nvidia/version`."""
        text = text_or_empty(self._root / "proc/driver/nvidia/version")
        if not text:
            return Missing("the NVIDIA kernel module is not loaded")
        found = _VERSION.search(text)
        return Ok(found[1]) if found else Missing("/proc/driver/nvidia/version names no version")

    def kernel_number(self, name: str) -> Reading[int]:
        words = text_or_empty(self._root / f"proc/sys/{name}").split()
        return Ok(int(words[0])) if words and words[0].isdigit() else Missing(f"/proc/sys/{name} holds no number")

    def earlyoom(self) -> Reading[str]:
        """From the processes: its settings file may say otherwise."""
        lines = (words for _, words in self._command_lines() if Path(words[0]).name == "earlyoom")
        return Ok(truncate(clean_line(" ".join(next(lines, ()))), 300))

    def engine_processes(self) -> Reading[tuple[EngineProcess, ...]]:
        """By their command lines; left out are those in containers, and servers (listed as engines) with their own."""
        psutil, found = psutil_at(self._root), []
        lines = dict(self._command_lines())
        servers = {pid for pid, words in lines.items() if server_of(tuple(words)) is not None}
        for pid, words in lines.items():
            line = " ".join(words)
            if pid == os.getpid() or not _ENGINES.search(line) or _OTHERS.search(line):
                continue
            cgroup = text_or_empty(self._root / f"proc/{pid}/cgroup")
            if not cgroup or container_id(cgroup):
                continue
            try:
                above = pid
                while above > 1 and above not in servers:
                    above = psutil.Process(above).ppid()
                if above in servers:
                    continue
                memory = psutil.Process(pid).memory_info().rss
            except (psutil.Error, OSError):  # gone
                continue
            name = clean_line(text_or_empty(self._root / f"proc/{pid}/comm"))
            found.append(EngineProcess(pid, name or "?", memory))
        return Ok(tuple(found))

    def _command_lines(self) -> Iterator[tuple[int, list[str]]]:
        psutil = psutil_at(self._root)
        with contextlib.suppress(FileNotFoundError):  # no /proc
            for process in psutil.process_iter():
                with contextlib.suppress(psutil.Error, PermissionError):  # gone, or another user's
                    if words := [word for word in process.cmdline() if word]:
                        yield process.pid, words

    def clock_synchronised(self) -> Reading[bool]:
        """systemd-timesyncd leaves a file; chrony's socket counts as well."""
        if (self._root / "run/systemd/timesync/synchronized").exists():
            return Ok(True)
        if (self._root / "run/chrony").exists() or (self._root / "run/ntpd.sock").exists():
            return Ok(True)
        if (self._root / "run/systemd/timesync").is_dir():
            return Ok(False)
        return Missing("no known time service")

    def kernel_log(self) -> Reading[tuple[str, ...]]:
        """From the journal. Users that may not read it see an empty one."""
        program = shutil.which("journalctl", path=self._environ.get("PATH", ""))
        if program is None:
            return Missing("journalctl is not installed")
        words = (program, "-kqb", "--no-pager", "-o", "short-iso", "-n", str(_KERNEL_LINES))
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=5, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            return Missing(clean_line(str(error)))
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        return Ok(tuple(lines)) if lines else Missing("the journal shows no line of the kernel: sudo spark-tui doctor")

    def relogin(self) -> bool:
        try:
            group = grp.getgrnam("docker")
        except KeyError:
            return False
        return self.user()[0] in group.gr_mem and group.gr_gid not in os.getgroups()

    def toolkit(self) -> Reading[str]:
        """On the search path, or where Debian's packages put it."""
        for name in _TOOLKITS:
            if found := shutil.which(name, path=self._environ.get("PATH", "")):
                return Ok(found)
            if (self._root / "usr/bin" / name).is_file():
                return Ok(f"/usr/bin/{name}")
        return Ok("")

    def cdi(self) -> Reading[tuple[str, ...]]:
        found = (entry for folder in _CDI_FOLDERS for entry in sorted((self._root / folder).glob("*")))
        return Ok(tuple(clean_line(f"/{entry.relative_to(self._root)}") for entry in found if entry.is_file()))

    def registries(self) -> Reading[tuple[str, ...]]:
        """Names alone: what is behind them is a secret."""
        home = self._environ.get("HOME") or str(Path.home())
        path = Path(self._environ.get("DOCKER_CONFIG") or f"{home}/.docker") / "config.json"
        try:
            config = load_json(read_plain(path))
        except FileNotFoundError:
            return Ok(())
        except (OSError, ValueError) as error:
            return Missing(f"{path}: {error}")
        parts = [config.get(key) for key in ("auths", "credHelpers")] if isinstance(config, dict) else []
        return Ok(tuple(sorted({clean_line(name) for part in parts if isinstance(part, dict) for name in part})))

    def folder(self, path: Path) -> Reading[StoreState]:
        """Two levels are searched for files of other users."""
        try:
            there = next(folder for folder in (path, *path.parents) if folder.exists())
            usage = psutil_at(self._root).disk_usage(str(there))
            if not path.is_dir():
                return Ok(StoreState(str(path), exists=False, writable=False, free=usage.free, total=usage.total))
            foreign, writable = list(_foreign(path)), os.access(path, os.W_OK | os.X_OK)
        except OSError as error:
            return Missing(f"{path}: {why(error)}")
        return Ok(StoreState(str(path), True, writable, usage.free, usage.total, len(foreign), next(iter(foreign), "")))

    def links(self) -> tuple[Reading[tuple[Link, ...]], str]:
        """`/sys/class/net` and the routing table: psutil knows neither what is wireless nor the default route."""
        folder = self._root / "sys/class/net"
        try:
            names = sorted(entry.name for entry in os.scandir(folder))
        except OSError as error:
            return Missing(f"/sys/class/net: {why(error)}"), ""
        found = []
        for name in names:
            if text_or_empty(folder / name / "operstate") == "up":
                speed = text_or_empty(folder / name / "speed")
                wireless = (folder / name / "wireless").exists()
                found.append(Link(clean_line(name), wireless, int(speed) if speed.isdigit() else None))
        lines = text_or_empty(self._root / "proc/net/route").splitlines()[1:]
        routes = [words for line in lines if len(words := line.split()) > 6 and words[1] == _GATEWAY]
        return Ok(tuple(found)), min(routes, key=lambda words: int(words[6]), default=[""])[0]

    def taken(self, ports: Sequence[int]) -> tuple[int, ...]:
        """By the kernel's tables: nothing is connected to."""
        found = listeners(self._root)
        return tuple(port for port in ports if port in found)


def _foreign(path: Path) -> Iterator[str]:
    """Entries of other users, at most `_MOST_ENTRIES` looked at; a folder that cannot be read is one."""
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
