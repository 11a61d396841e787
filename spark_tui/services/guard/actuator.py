"""What the memory guard acts with, on a machine that may stop answering at any moment."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import http.client
import json
import os
import resource
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from spark_tui.domain.engine.container import ContainerFacts, ContainerStatus
from spark_tui.domain.engine.runtimes import runtime_named
from spark_tui.domain.engine.state import api_port, runtime_of
from spark_tui.domain.errors import SparkError
from spark_tui.domain.host.breakdown import container_id
from spark_tui.domain.host.drop_caches import Route, compact_route, routes
from spark_tui.domain.host.guard import GuardedEngine, GuardEntry
from spark_tui.domain.quantities import human_bytes
from spark_tui.services.files import FILE_MODE, PrivateFolder, is_locked
from spark_tui.services.host.drop_caches import SystemCacheDropper
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


class SystemGuardHands:
    """The GuardHands port. `root` is where /proc and /sys are seen."""

    def __init__(
        self,
        docker: GuardDocker,
        dropper: SystemCacheDropper,
        *,
        root: Path = Path("/"),
        ready: Callable[[int, str], bool] | None = None,
    ) -> None:
        self._docker = docker
        self._dropper = dropper
        self._root = root
        self._ready = ready or answers
        self._facts: dict[str, ContainerFacts] = {}
        self._restarting: tuple[ContainerFacts, ...] = ()
        self._ready_starts: set[tuple[str, float]] = set()
        self._cgroups: dict[str, str] = {}

    # --- before ---------------------------------------------------------------------------------------

    def prepare(self) -> str:
        """Locks memory, sets name, OOM score and priority as far as allowed. Returns what could not be had."""
        missing = [_lock_memory(), _rename(), self._protect()]
        gc.collect()
        gc.freeze()
        return "; ".join(filter(None, missing))

    def _protect(self) -> str:
        with contextlib.suppress(OSError):  # a courtesy to ourselves: without it the normal priority serves
            os.setpriority(os.PRIO_PROCESS, 0, _NICE)
        for score in _OOM_SCORES:
            try:
                (self._root / "proc/self/oom_score_adj").write_text(str(score))
            except OSError:
                continue
            return "" if score < 0 else f"OOM score {score} (lower needs root)"
        return "OOM score unchanged"

    # --- looking --------------------------------------------------------------------------------------

    def engines(self) -> tuple[GuardedEngine, ...]:
        """The engines that run. Raises SparkError."""
        known = {identity: self._inspected(identity) for identity in self._docker.running()}
        self._facts = known
        engines = [facts for facts in known.values() if runtime_of(facts)]
        self._restarting = tuple(facts for facts in engines if facts.restart_policy)
        found = tuple(self._engine(facts) for facts in engines if facts.status is not ContainerStatus.RESTARTING)
        self._cgroups = {engine.id: self._kill_file(engine) for engine in found}
        return found

    def restarting(self) -> tuple[ContainerFacts, ...]:
        """The engines that Docker starts again by itself, as the last `engines` saw them."""
        return self._restarting

    def log(self, container: str, since: str) -> tuple[LogLine, ...]:
        """The last lines of its log that are later than `since`. Raises SparkError."""
        known = self._facts.get(container)
        return self._docker.log(container, since, _LOG_LINES, tty=known is not None and known.tty)

    def _inspected(self, identity: str) -> ContainerFacts:
        """Asked once per container, and again while it has no process."""
        known = self._facts.get(identity)
        if known is not None and known.pid and _alive(self._root, known.pid, identity):
            return known
        return self._docker.inspect(identity)

    def _engine(self, facts: ContainerFacts) -> GuardedEngine:
        return GuardedEngine(
            id=facts.id,
            name=facts.name,
            pid=facts.pid,
            ours=facts.ours,
            loading=not self._is_ready(facts),
            started_at=facts.started_at or 0.0,
        )

    def _is_ready(self, facts: ContainerFacts) -> bool:
        """Whether it has answered since its start. Asked until it has, and never again: serving is for a life."""
        port, start = api_port(facts), (facts.id, facts.started_at or 0.0)
        if port is None or start in self._ready_starts:
            return True
        if self._ready(port, runtime_named(runtime_of(facts)).health_path):
            self._ready_starts.add(start)
            return True
        return False

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

    # --- acting ---------------------------------------------------------------------------------------

    def stop(self, engine: GuardedEngine, grace_seconds: int) -> str:
        """`docker stop`: SIGTERM now, SIGKILL after the grace time, by dockerd."""
        if self._docker.send_stop(engine.id, grace_seconds):
            return f"docker stop, {grace_seconds} s grace"
        return self._signal(engine, signal.SIGTERM) or "no way reached it"

    def kill(self, engine: GuardedEngine) -> str:
        """`docker kill`, so that Docker does not start it again; and the kernel's ways at once, where allowed."""
        ways = ["docker kill"] if self._docker.send_kill(engine.id) else []
        path = self._cgroups.get(engine.id, "")
        if path and _write(path, b"1"):
            ways.append("cgroup.kill")
        else:
            ways.append(self._signal(engine, signal.SIGKILL))
        return ", ".join(filter(None, ways)) or "no way reached it"

    def _signal(self, engine: GuardedEngine, number: signal.Signals) -> str:
        """To its first process, once it is certain that the pid is still that container's."""
        if not engine.pid or not _alive(self._root, engine.pid, engine.id):
            return ""
        try:
            os.kill(engine.pid, number)
        except OSError:
            return ""
        return f"{number.name} to pid {engine.pid}"

    def close(self) -> None:
        """Lets go of Docker's socket. What it was asked to do goes on."""
        self._docker.close()

    # --- memory ---------------------------------------------------------------------------------------

    def drop_cache(self) -> bool:
        """Drops the cache where that is granted."""
        return any(self._dropped(route) for route in routes(self._dropper.access_now()) if route.silent)

    def _dropped(self, route: Route) -> bool:
        try:
            self._dropper.drop_now(route)
        except SparkError:
            return False
        return True

    def compact(self) -> bool:
        """Compacts memory where that is granted."""
        route = compact_route(self._dropper.access_now())
        if route is None:
            return False
        try:
            self._dropper.compact_now(route)
        except SparkError:
            return False
        return True


def answers(port: int, path: str = "/health") -> bool:
    """Whether the server on that port of this machine takes requests: any answer but `not yet` (503) says so."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HEALTH_SECONDS)
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        return connection.getresponse().status < http.client.INTERNAL_SERVER_ERROR
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _alive(root: Path, pid: int, identity: str) -> bool:
    try:
        return container_id((root / f"proc/{pid}/cgroup").read_text()) == identity
    except OSError:
        return False


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
    """All of this process stays in memory: it must not wait for its own pages when the box thrashes."""
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    free = limit == resource.RLIM_INFINITY or os.geteuid() == 0
    flags = _MCL_CURRENT | (_MCL_FUTURE if free else 0)  # under a limit, what comes later would not be had at all
    library = ctypes.CDLL(None, use_errno=True)
    if library.mlockall(flags) == 0:
        return ""
    allowed = "no limit" if limit == resource.RLIM_INFINITY else human_bytes(limit)
    return f"memory not locked ({os.strerror(ctypes.get_errno()).lower()}; the limit is {allowed})"


def _rename() -> str:
    library = ctypes.CDLL(None, use_errno=True)
    return "" if library.prctl(_PR_SET_NAME, COMM, 0, 0, 0) == 0 else "name unchanged"


_KEPT: Final = 100
_CLAIM_TRIES, _CLAIM_PAUSE = 5, 0.02
"""Whoever asks whether a guard runs holds the lock for a moment."""
_MOST_BYTES: Final = 256 * 1024
_FIELDS: Final = ("act", "engine", "reason", "how")


class FileGuardJournal:
    """The GuardJournal port in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = PrivateFolder(folder)
        self._journal = folder / "journal.jsonl"
        self._lock = folder / "lock"
        self._claimed: int | None = None

    def claim(self) -> bool:
        """Makes this process the one guard of this user; false when another one is. The kernel ends the claim of a
        process that dies. Raises OSError."""
        self._folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
        for _ in range(_CLAIM_TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_CLAIM_PAUSE)
            else:
                self._claimed = descriptor
                return True
        os.close(descriptor)
        return False

    def release(self) -> None:
        """Ends the claim."""
        claimed, self._claimed = self._claimed, None
        if claimed is not None:
            os.close(claimed)

    def running(self) -> bool:
        """Whether a guard runs now, in any process."""
        return self._claimed is not None or is_locked(self._lock)

    def add(self, entry: GuardEntry) -> None:
        """Keeps an entry, and of the earlier ones the last hundred. Raises OSError."""
        kept = (*self.entries(), entry)[-_KEPT:]
        self._folder.write(self._journal, [_line(each) for each in kept])

    def entries(self) -> tuple[GuardEntry, ...]:
        """The last entries, oldest first. A line that is none is passed over."""
        try:
            content = self._folder.read(self._journal, _MOST_BYTES)
        except OSError:
            return ()
        lines = (content or b"").decode("utf-8", "replace").splitlines()
        return tuple(entry for line in lines if (entry := _entry(line)) is not None)


def _line(entry: GuardEntry) -> bytes:
    told = {"at": entry.at, **{name: getattr(entry, name) for name in _FIELDS}}
    return f"{json.dumps(told)}\n".encode()


def _entry(line: str) -> GuardEntry | None:
    try:
        told: Any = json.loads(line)
    except ValueError:
        return None
    if not isinstance(told, Mapping) or not isinstance(told.get("at"), int | float):
        return None
    texts = {name: told.get(name) for name in _FIELDS}
    return GuardEntry(
        float(told["at"]), **{name: text if isinstance(text, str) else "" for name, text in texts.items()}
    )
