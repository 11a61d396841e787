"""The memory guard's outside: what it acts with, its journal, its own process, and its systemd unit.

The actuator works on a machine that may stop answering at any moment. Requests go to Docker's bare socket, without
waiting for answers; what does not reach dockerd goes to the kernel: the container's cgroup, or its first process. The
Docker SDK, threads and new modules have no place on that way.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import http.client
import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from spark_tui.base.context import GuardPorts
from spark_tui.base.engine.container import ContainerFacts, ContainerStatus
from spark_tui.base.engine.runtimes import runtime_named
from spark_tui.base.engine.state import api_port, runtime_of
from spark_tui.base.errors import SparkError
from spark_tui.base.files import FILE_MODE, FOLDER_MODE, PrivateFolder, end_of, is_locked
from spark_tui.base.host.guard import GuardedEngine, GuardEntry
from spark_tui.base.host.memory import container_id
from spark_tui.base.ports import GuardDocker, GuardJournal, LogLine
from spark_tui.base.quantities import human_bytes
from spark_tui.base.settings import Settings, variable_of
from spark_tui.base.text import clean_line
from spark_tui.base.untrusted import load_json
from spark_tui.machine.docker.socket import DockerSocket

if TYPE_CHECKING:
    from filelock import FileLock

COMM: Final = b"spark-tui-guard"
"""Rules for the out-of-memory killer on these machines look for `python`, `vllm`, `ray`."""
HEALTH_SECONDS: Final = 0.5
_PR_SET_NAME: Final = 15
_MCL_CURRENT, _MCL_FUTURE = 1, 2
_OOM_SCORES: Final = (-900, 0, 100)
_NICE: Final = -10
_LOG_LINES: Final = 4_000
"""Of an engine that has just been started again: the end of the start before is among them."""
_UNREACHED: Final = "not reached by any way"


class SystemGuardActuator:
    """The GuardActuator port. `drop` and `compact` free memory by ways that need no person, false where none works.
    `root` is where /proc and /sys are seen."""

    def __init__(
        self,
        docker: GuardDocker,
        drop: Callable[[], bool],
        compact: Callable[[], bool],
        *,
        root: Path = Path("/"),
        ready: Callable[[int, str], bool] | None = None,
    ) -> None:
        self._docker = docker
        self.drop_cache, self.compact = drop, compact
        self._root = root
        self._ready = ready or answers
        self._facts: dict[str, ContainerFacts] = {}
        self._restarting: tuple[ContainerFacts, ...] = ()
        self._ready_starts: set[tuple[str, float]] = set()
        self._cgroups: dict[str, str] = {}

    def prepare(self) -> str:
        """Locks memory, sets name, OOM score and priority as far as permitted. Returns what was not permitted."""
        renamed = ctypes.CDLL(None).prctl(_PR_SET_NAME, COMM, 0, 0, 0) == 0
        missing = [_lock_memory(), "" if renamed else "name unchanged"]
        with contextlib.suppress(OSError):  # without it the normal priority serves
            os.setpriority(os.PRIO_PROCESS, 0, _NICE)
        missing.append("OOM score unchanged")
        for score in _OOM_SCORES:
            with contextlib.suppress(OSError):
                (self._root / "proc/self/oom_score_adj").write_text(str(score))
                missing[-1] = "" if score < 0 else f"OOM score {score} (lower needs root)"
                break
        gc.collect()
        gc.freeze()
        return "; ".join(filter(None, missing))

    def engines(self) -> tuple[GuardedEngine, ...]:
        """The engines that run. A container is asked once, and again while it has no process. Raises SparkError."""
        known = self._facts
        self._facts = {
            each: facts
            if (facts := known.get(each)) is not None and facts.pid and self._cgroup(facts.pid, each)
            else self._docker.inspect(each)
            for each in self._docker.running()
        }
        engines = [facts for facts in self._facts.values() if runtime_of(facts)]
        self._restarting = tuple(facts for facts in engines if facts.restart_policy)
        found = tuple(self._engine(facts) for facts in engines if facts.status is not ContainerStatus.RESTARTING)
        self._cgroups = {engine.id: self._kill_file(engine) for engine in found}
        return found

    def restarting(self) -> tuple[ContainerFacts, ...]:
        return self._restarting

    def log(self, container: str, since: str) -> tuple[LogLine, ...]:
        known = self._facts.get(container)
        return self._docker.log(container, since, _LOG_LINES, tty=known is not None and known.tty)

    def _engine(self, facts: ContainerFacts) -> GuardedEngine:
        """Whether it has answered since its start is asked until it has, and never again."""
        port, start = api_port(facts), (facts.id, facts.started_at or 0.0)
        loading = port is not None and start not in self._ready_starts
        if loading and port is not None and self._ready(port, runtime_named(runtime_of(facts)).health_path):
            self._ready_starts.add(start)
            loading = False
        return GuardedEngine(facts.id, facts.name, facts.pid, facts.ours, loading, facts.started_at or 0.0)

    def _cgroup(self, pid: int, identity: str) -> str:
        """The line of /proc/PID/cgroup; empty where the process is gone or no longer that container's."""
        try:
            text = (self._root / f"proc/{pid}/cgroup").read_text()
        except OSError:
            return ""
        return text if container_id(text) == identity else ""

    def _kill_file(self, engine: GuardedEngine) -> str:
        """The `cgroup.kill` of its container; empty where it is not ours to write."""
        text = self._cgroup(engine.pid, engine.id)
        if not text.startswith("0::/"):
            return ""
        path = f"{self._root}/sys/fs/cgroup{text[3:].splitlines()[0]}/cgroup.kill".replace("//", "/")
        return path if os.access(path, os.W_OK) else ""

    # --- acting ---------------------------------------------------------------------------------------

    def stop(self, engine: GuardedEngine, grace_seconds: int) -> str:
        """`docker stop`: SIGTERM now, SIGKILL after the grace time, by dockerd."""
        if self._docker.send_stop(engine.id, grace_seconds):
            return f"docker stop, {grace_seconds} s grace"
        return self._signal(engine, signal.SIGTERM) or _UNREACHED

    def kill(self, engine: GuardedEngine) -> str:
        """`docker kill`, so that Docker does not restart it; and the kernel's ways at once, where permitted."""
        ways = ["docker kill"] if self._docker.send_kill(engine.id) else []
        path = self._cgroups.get(engine.id, "")
        ways.append("cgroup.kill" if path and _write(path, b"1") else self._signal(engine, signal.SIGKILL))
        return ", ".join(filter(None, ways)) or _UNREACHED

    def _signal(self, engine: GuardedEngine, number: signal.Signals) -> str:
        if not engine.pid or not self._cgroup(engine.pid, engine.id):
            return ""
        try:
            os.kill(engine.pid, number)
        except OSError:
            return ""
        return f"{number.name} to pid {engine.pid}"

    def close(self) -> None:
        self._docker.close()


def answers(port: int, path: str = "/health") -> bool:
    """Whether the server on that port of this machine takes requests: any answer except `not yet` (503) says so."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HEALTH_SECONDS)
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        return connection.getresponse().status < http.client.INTERNAL_SERVER_ERROR
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _write(path: str, data: bytes) -> bool:
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            return os.write(descriptor, data) == len(data)
        finally:
            os.close(descriptor)
    return False


def _lock_memory() -> str:
    """All of this process stays in memory: it must not wait for its own pages when the machine thrashes."""
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    unlimited = limit == resource.RLIM_INFINITY or os.geteuid() == 0
    flags = _MCL_CURRENT | (_MCL_FUTURE if unlimited else 0)  # under a limit, later allocations would fail
    library = ctypes.CDLL(None, use_errno=True)
    if library.mlockall(flags) == 0:
        return ""
    allowed = "no limit" if limit == resource.RLIM_INFINITY else human_bytes(limit)
    return f"memory not locked ({os.strerror(ctypes.get_errno()).lower()}; the limit is {allowed})"


# --- the journal ------------------------------------------------------------------------------------------

_ENTRIES_KEPT: Final = 100
_CLAIM_SECONDS, _CLAIM_PAUSE = 0.1, 0.02
"""`is_locked` holds the lock for a moment."""
_MOST_BYTES: Final = 256 * 1024
_FIELDS: Final = ("act", "engine", "reason", "how")


class FileGuardJournal:
    """The GuardJournal port: a small private file that every front end reads, and the lock of the one guard."""

    def __init__(self, folder: Path) -> None:
        self._folder = PrivateFolder(folder)
        self._journal = folder / "journal.jsonl"
        self._lock = folder / "lock"
        self._claimed: FileLock | None = None

    def claim(self) -> bool:
        """Makes this process the one guard of this user; false when another one is. The kernel ends the claim of a
        process that dies. Raises OSError."""
        from filelock import FileLock, Timeout

        self._folder.path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        lock = FileLock(self._lock, mode=FILE_MODE, thread_local=False)
        try:
            lock.acquire(timeout=_CLAIM_SECONDS, poll_interval=_CLAIM_PAUSE)
        except Timeout:
            return False
        self._claimed = lock
        return True

    def release(self) -> None:
        claimed, self._claimed = self._claimed, None
        if claimed is not None:
            claimed.release()

    def running(self) -> bool:
        return self._claimed is not None or is_locked(self._lock)

    def add(self, entry: GuardEntry) -> None:
        """Keeps an entry, and of the earlier ones the last hundred. Raises OSError."""
        kept = (*self.entries(), entry)[-_ENTRIES_KEPT:]
        rows = ({"at": each.at, **{name: getattr(each, name) for name in _FIELDS}} for each in kept)
        self._folder.write(self._journal, [f"{json.dumps(row)}\n".encode() for row in rows])

    def entries(self) -> tuple[GuardEntry, ...]:
        """The last entries, oldest first. A line that is none is skipped."""
        try:
            content = self._folder.read(self._journal, _MOST_BYTES)
        except OSError:
            return ()
        found = []
        for line in (content or b"").decode("utf-8", "replace").splitlines():
            try:
                row: Any = load_json(line)
            except ValueError:
                continue
            if isinstance(row, dict) and isinstance(row.get("at"), int | float) and 0 <= row["at"] < 1e11:
                texts = (row.get(name) for name in _FIELDS)
                found.append(GuardEntry(float(row["at"]), *(text if isinstance(text, str) else "" for text in texts)))
        return tuple(found)


# --- its own process --------------------------------------------------------------------------------------

_START_LOOK_SECONDS: Final = 0.05
_SETTINGS: Final = ("guard_serving_gib", "guard_loading_gib", "stop_crash_loops")
_VARIABLES: Final = ("HOME", "PATH", "LANG", "TMPDIR", "VIRTUAL_ENV", "XDG_", "LC_", "DOCKER_", "PYTHON")
"""What it is given of our environment, by the beginning of the name: no token that we were started with."""


class GuardProcess(Struct, eq=False):
    """The GuardStarter port: `spark-tui guard` in a session of its own, with these settings. `environ` has the address
    of the Docker that is meant, where it is not the default."""

    _settings: Settings
    environ: Mapping[str, str]
    _journal: GuardJournal
    _log: Path
    _local_docker: Callable[[], bool]

    def start(self) -> None:
        """Starts it, and waits until it runs. Does nothing where one runs, or where Docker is on another machine.
        Raises SparkError."""
        if self._journal.running() or not self._local_docker():
            return
        from spark_tui.machine.detached import START_SECONDS, start_detached

        try:
            own = {name: value for name, value in self.environ.items() if name.startswith(_VARIABLES)}
            values = {variable_of(key): str(getattr(self._settings, key)) for key in _SETTINGS}
            start_detached(("guard", "--while-engines-run"), self._log, own | values)
        except (OSError, subprocess.SubprocessError) as error:
            raise _failed(str(error)) from error
        deadline = time.monotonic() + START_SECONDS
        while not self._journal.running():
            if time.monotonic() > deadline:
                raise _failed(self._last_line())
            time.sleep(_START_LOOK_SECONDS)

    def _last_line(self) -> str:
        try:
            lines = end_of(self._log, _MOST_BYTES).splitlines()
        except OSError as error:
            return str(error)
        return next((line for line in reversed(lines) if line.strip()), "")


def guarding(ports: Any) -> GuardPorts:
    """What the guard of this machine works with."""
    docker = DockerSocket(ports.docker_environ)
    journal, log = FileGuardJournal(ports.folders.guard), ports.folders.guard / "guard.log"
    return GuardPorts(
        SystemGuardActuator(docker, ports.dropper.drop_silently, ports.dropper.compact_silently),
        journal,
        ports.boot,
        GuardProcess(ports.settings, ports.docker_environ, journal, log, docker.local),
    )


def _failed(why: str) -> SparkError:
    return SparkError(
        "The memory guard did not start.",
        "See why: spark-tui guard. Without it no engine is stopped before the machine freezes.",
        detail=clean_line(why),
    )
