"""What the memory guard acts with, on a machine that may stop answering at any moment.

Docker is spoken to over its bare socket, without waiting for answers. What does not reach dockerd goes to the kernel:
the container's cgroup, or its first process. The Docker SDK, threads and new modules have no place here.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import http.client
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from spark_tui.domain.engine.container import ContainerFacts, ContainerStatus
from spark_tui.domain.engine.runtimes import runtime_named
from spark_tui.domain.engine.state import api_port, runtime_of
from spark_tui.domain.host.breakdown import container_id
from spark_tui.domain.host.guard import GuardedEngine
from spark_tui.domain.quantities import human_bytes
from spark_tui.services.ports import GuardDocker, LogLine

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


class MemoryRelief(Protocol):
    """Frees memory by ways that need no person. False where none is permitted or works."""

    def drop_silently(self) -> bool:
        """Drops the page cache. Blocks for seconds."""

    def compact_silently(self) -> bool:
        """Compacts free memory."""


class SystemGuardActuator:
    """The GuardActuator port. `root` is where /proc and /sys are seen."""

    def __init__(
        self,
        docker: GuardDocker,
        relief: MemoryRelief,
        *,
        root: Path = Path("/"),
        ready: Callable[[int, str], bool] | None = None,
    ) -> None:
        self._docker = docker
        self._relief = relief
        self._root = root
        self._ready = ready or answers
        self._facts: dict[str, ContainerFacts] = {}
        self._restarting: tuple[ContainerFacts, ...] = ()
        self._ready_starts: set[tuple[str, float]] = set()
        self._cgroups: dict[str, str] = {}

    # --- before ---------------------------------------------------------------------------------------

    def prepare(self) -> str:
        """Locks memory, sets name, OOM score and priority as far as permitted. Returns what was not permitted."""
        missing = [_lock_memory(), _rename()]
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

    # --- looking --------------------------------------------------------------------------------------

    def engines(self) -> tuple[GuardedEngine, ...]:
        """The engines that run. Raises SparkError."""
        self._facts = {identity: self._inspected(identity) for identity in self._docker.running()}
        engines = [facts for facts in self._facts.values() if runtime_of(facts)]
        self._restarting = tuple(facts for facts in engines if facts.restart_policy)
        found = tuple(self._engine(facts) for facts in engines if facts.status is not ContainerStatus.RESTARTING)
        self._cgroups = {engine.id: self._kill_file(engine) for engine in found}
        return found

    def restarting(self) -> tuple[ContainerFacts, ...]:
        """The engines that Docker restarts by itself, as the last `engines` saw them."""
        return self._restarting

    def log(self, container: str, since: str) -> tuple[LogLine, ...]:
        """The last lines of its log that are later than `since`. Raises SparkError."""
        known = self._facts.get(container)
        return self._docker.log(container, since, _LOG_LINES, tty=known is not None and known.tty)

    def _inspected(self, identity: str) -> ContainerFacts:
        """Asked once per container, and again while it has no process."""
        known = self._facts.get(identity)
        if known is not None and known.pid and self._alive(known.pid, identity):
            return known
        return self._docker.inspect(identity)

    def _engine(self, facts: ContainerFacts) -> GuardedEngine:
        """Whether it has answered since its start is asked until it has, and never again."""
        port, start = api_port(facts), (facts.id, facts.started_at or 0.0)
        loading = port is not None and start not in self._ready_starts
        if loading and port is not None and self._ready(port, runtime_named(runtime_of(facts)).health_path):
            self._ready_starts.add(start)
            loading = False
        return GuardedEngine(facts.id, facts.name, facts.pid, facts.ours, loading, facts.started_at or 0.0)

    def _kill_file(self, engine: GuardedEngine) -> str:
        """The `cgroup.kill` of its container; empty where it is not ours to write."""
        try:
            text = (self._root / f"proc/{engine.pid}/cgroup").read_text()
        except OSError:
            return ""
        if container_id(text) != engine.id or not text.startswith("0::/"):
            return ""
        path = f"{self._root}/sys/fs/cgroup{text[3:].splitlines()[0]}/cgroup.kill".replace("//", "/")
        return path if os.access(path, os.W_OK) else ""

    def _alive(self, pid: int, identity: str) -> bool:
        """Whether the pid is still that container's."""
        try:
            return container_id((self._root / f"proc/{pid}/cgroup").read_text()) == identity
        except OSError:
            return False

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
        if not engine.pid or not self._alive(engine.pid, engine.id):
            return ""
        try:
            os.kill(engine.pid, number)
        except OSError:
            return ""
        return f"{number.name} to pid {engine.pid}"

    def drop_cache(self) -> bool:
        """Drops the cache where that is permitted."""
        return self._relief.drop_silently()

    def compact(self) -> bool:
        """Compacts memory where that is permitted."""
        return self._relief.compact_silently()

    def close(self) -> None:
        """Closes Docker's socket. Requests that were sent are carried out."""
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
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(descriptor, data)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


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


def _rename() -> str:
    library = ctypes.CDLL(None, use_errno=True)
    return "" if library.prctl(_PR_SET_NAME, COMM, 0, 0, 0) == 0 else "name unchanged"
