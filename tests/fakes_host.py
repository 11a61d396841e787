"""Fakes of the host-side ports: a clock that moves by hand, a host, a GPU, secrets and an archive in memory."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import select
import socket
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from spark_tui.base.engine.container import ContainerFacts
from spark_tui.base.engine.runtimes import KEY_VARIABLES
from spark_tui.base.errors import SparkError
from spark_tui.base.finding import Missing, Ok, Reading, value_of
from spark_tui.base.host.detectors import SharedFile
from spark_tui.base.host.memory import Access, MemInfo, Route, SystemFile
from spark_tui.base.host.vitals import GpuReading, HostIdentity
from spark_tui.base.ports import LogLine
from spark_tui.base.protocol import Router, RouteRequest
from spark_tui.base.quantities import GIB
from spark_tui.base.secret import Secret

T = TypeVar("T")

EPOCH = 1_800_000_000.0
"""2027-01-15 08:00:00 UTC: where a FakeClock starts."""


class FakeClock:
    """Time stands still until `advance`. Sleepers wake in the order of their times, each at its own time."""

    def __init__(self, now: float = EPOCH, monotonic: float = 1000.0) -> None:
        self._offset = now - monotonic
        self._time = monotonic
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self._time + self._offset

    def monotonic(self) -> float:
        return self._time

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._time + seconds, next(self._order), waiter))
        await waiter

    @property
    def sleepers(self) -> int:
        """How many sleeps are under way."""
        return sum(not waiter.done() for _, _, waiter in self._sleepers)

    def jump(self, seconds: float) -> None:
        """Sets the wall clock, as a person or a time service does; no time passes."""
        self._offset += seconds

    def tick(self, seconds: float) -> None:
        """Moves time without waking anybody: for code that does not sleep."""
        self._time += seconds

    async def advance(self, seconds: float) -> None:
        """Moves time, wakes whoever is due, and lets every task run until all of them wait for something else."""
        end = self._time + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, waiter = heapq.heappop(self._sleepers)
            if not waiter.done():
                self._time = max(self._time, due)
                waiter.set_result(None)
                await settle()
        self._time = end
        await settle()

    async def until(self, condition: Callable[[], bool], *, step: float = 0.1, most: float = 600.0) -> None:
        """Advances until the condition holds; fails after `most` seconds of this clock."""
        end = self._time + most
        await settle()
        while not condition():
            assert self._time < end, f"not so after {most:g} s"
            await self.advance(step)


async def settle(rounds: int = 50) -> None:
    """Gives every ready task its turns, and waits for calls on threads and for Docker's streams, but not for what a
    simulated daemon or Hub answers later by this clock. A task that is always ready gets `rounds` turns, a call that
    hangs `PATIENCE_SECONDS`; other input and output is not waited for."""
    loop: Any = asyncio.get_running_loop()
    began, worked = time.monotonic(), time.process_time()
    before: frozenset[object] | None = None
    while True:
        idle = 0
        for _ in range(rounds):
            await asyncio.sleep(0)
            idle = 0 if loop._ready else idle + 1
            if idle == 3:
                break
        waits = _all_wait(loop)
        # Where they wait since before these turns, all that they have asked and handed over has had its turns.
        if waits is not None and (not waits or waits == before) and not (idle == 3 and loop._ready):
            return
        if time.monotonic() - began > PATIENCE_SECONDS and time.process_time() - worked > WORK_SECONDS:
            _CALLS.difference_update([call for call in _CALLS if call.get_loop() is loop])  # waited for once
            return
        before = waits
        if waits is None:
            await asyncio.sleep(0.0005)


def _all_wait(loop: Any) -> frozenset[object] | None:
    """The waits of clients' threads for their server, if all that these do now is to wait; else None. Each wait is
    another object: where the same ones are found twice, no thread has done anything in between."""
    calls = sum(call.get_loop() is loop for call in _CALLS)
    threads = [thread for thread in threading.enumerate() if _LOOPS.get(thread) is loop]
    streams = {thread for thread in threads if thread.name in STREAMS}
    waits = {thread: wait for thread in threads if (wait := _WAITS.get(thread)) is not None and wait.lasts()}
    if not streams <= waits.keys() or calls > len(waits) - len(streams):
        return None
    return frozenset(waits.values())


class _Wait:
    """A thread of a client waits here until there is something to read, and only then reads it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._thread = threading.current_thread()

    def until_readable(self, seconds: float | None) -> None:
        _WAITS[self._thread] = self
        self._readable(seconds)
        del _WAITS[self._thread]

    def lasts(self) -> bool:
        try:
            return not self._readable(0) and _WAITS.get(self._thread) is self
        except ValueError:  # it has just been closed
            return False

    def _readable(self, seconds: float | None) -> bool:
        waiting = select.poll()
        waiting.register(self._sock, select.POLLIN)
        return bool(waiting.poll(None if seconds is None else seconds * 1000))


def _read_into(reader: Any, buffer: Any) -> Any:
    """`socket.SocketIO.readinto`, through which every answer of a daemon comes."""
    _wait_for(reader._sock)
    return _readinto(reader, buffer)


def _received(sock: socket.socket, *arguments: Any) -> Any:
    """`socket.socket.recv`, through which every answer of a Hub comes."""
    _wait_for(sock)
    return _recv(sock, *arguments)


def _wait_for(sock: socket.socket) -> None:
    if threading.current_thread().name.startswith(CLIENTS):
        _Wait(sock).until_readable(sock.gettimeout())


def _begin(thread: threading.Thread) -> None:
    """`threading.Thread.start`: who began it. A thread may outlive its loop, and waits then for nobody."""
    with suppress(RuntimeError):
        _LOOPS[thread] = asyncio.get_running_loop()
    _start(thread)


CLIENTS = ("docker-", "hub-")
STREAMS = ("docker-log", "docker-events", "docker-pull")
_LOOPS: weakref.WeakKeyDictionary[threading.Thread, asyncio.AbstractEventLoop] = weakref.WeakKeyDictionary()
_start = threading.Thread.start
threading.Thread.start = _begin  # type: ignore[assignment,method-assign]
_WAITS: dict[threading.Thread, _Wait] = {}
_readinto = socket.SocketIO.readinto
socket.SocketIO.readinto = _read_into  # type: ignore[assignment,method-assign]
_recv = socket.socket.recv
socket.socket.recv = _received  # type: ignore[assignment,method-assign]


async def begun(clock: FakeClock, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """That work, as a task which now sleeps on this clock, or has ended. It may do so through a call on a thread."""
    sleepers, task = clock.sleepers, asyncio.create_task(work)
    while clock.sleepers <= sleepers and not task.done():
        await asyncio.sleep(0.001)
    return task


def _counted(call: Any, *, loop: Any = None) -> asyncio.Future[Any]:
    """`asyncio.wrap_future`, through which every call on a thread comes back to its loop."""
    waiter: asyncio.Future[Any] = _wrap_future(call, loop=loop)
    _CALLS.add(waiter)
    waiter.add_done_callback(_CALLS.discard)
    return waiter


PATIENCE_SECONDS = 2.0
WORK_SECONDS = 1.0
"""Of a processor, before a call is taken for one that hangs: a machine may have much else to do."""
_CALLS: weakref.WeakSet[asyncio.Future[Any]] = weakref.WeakSet()
_wrap_future = asyncio.wrap_future
asyncio.wrap_future = _counted


SPARK = HostIdentity("spark-test", "DGX Spark", "6.17.0-1014-nvidia", "aarch64", 20, is_spark=True)
IDLE_MEMORY = MemInfo(
    total=121 * GIB,
    free=110 * GIB,
    available=116 * GIB,
    cached=6 * GIB,
    active_file=3 * GIB,
    inactive_file=2 * GIB,
    swap_total=16 * GIB,
    swap_free=16 * GIB,
)


@dataclass
class FakeHost:
    """A HostProbe of plain attributes: set what the test needs."""

    identity_value: HostIdentity = SPARK
    memory_value: Reading[MemInfo] = field(default_factory=lambda: Ok(IDLE_MEMORY, EPOCH))
    pressure_value: Reading[float] = field(default_factory=lambda: Ok(0.0, EPOCH))
    uptime_value: Reading[float] = field(default_factory=lambda: Ok(86_400.0, EPOCH))
    ports: dict[int, str] = field(default_factory=dict)
    folders: set[Path] = field(default_factory=set)
    files: set[Path] = field(default_factory=set)
    all_folders: bool = True
    made: list[Path] = field(default_factory=list)
    make_error: SparkError | None = None
    free: Reading[int] = field(default_factory=lambda: Ok(2000 * GIB, EPOCH))
    memory_reads: int = 0
    kernel: tuple[str, ...] = ()
    containers: dict[int, str] = field(default_factory=dict)
    parents: dict[int, int] = field(default_factory=dict)
    processes: tuple[ContainerFacts, ...] = ()
    shared: Reading[tuple[SharedFile, ...]] = field(default_factory=lambda: Ok((), EPOCH))

    def identity(self) -> HostIdentity:
        return self.identity_value

    def memory(self) -> Reading[MemInfo]:
        self.memory_reads += 1
        return self.memory_value

    def memory_pressure(self) -> Reading[float]:
        return self.pressure_value

    def uptime(self) -> Reading[float]:
        return self.uptime_value

    def port_owner(self, port: int) -> str | None:
        return self.ports.get(port)

    def kernel_lines(self, at: float) -> tuple[str, ...]:
        return self.kernel

    def addresses(self) -> tuple[str, ...]:
        return ("127.0.0.1", "10.0.0.9")

    def has_folder(self, path: Path) -> bool:
        return self.all_folders or path in self.folders

    def has_file(self, path: Path) -> bool:
        return self.all_folders or path in self.files

    def make_folders(self, paths: Sequence[Path]) -> None:
        if self.make_error is not None:
            raise self.make_error
        self.made.extend(paths)
        self.folders.update(paths)

    def free_disk(self, path: Path) -> Reading[int]:
        return self.free

    def container_of(self, pid: int) -> str:
        return self.containers.get(pid, "")

    def lineage(self, pid: int) -> tuple[int, ...]:
        return (pid, *((parent,) if (parent := self.parents.get(pid)) else ()))

    def bare_engines(self) -> tuple[ContainerFacts, ...]:
        return self.processes

    def shared_files(self) -> Reading[tuple[SharedFile, ...]]:
        return self.shared


@dataclass
class FakeRouters:
    """A Routers port: programs by launch, as long as they run."""

    installed: bool = True
    running: dict[str, RouteRequest] = field(default_factory=dict)

    def available(self) -> bool:
        return self.installed

    def start(self, request: RouteRequest) -> Router:
        self.running[request.launch] = request
        return Router(request.launch, 4000, 1)

    def runs(self, router: Router) -> bool:
        return router.launch in self.running

    def end(self, router: Router) -> bool:
        self.running.pop(router.launch, None)
        return True


@dataclass
class FakeGpu:
    """A GpuProbe that says what it is told to."""

    value: Reading[GpuReading] = field(default_factory=lambda: Missing("no NVIDIA GPU here"))
    reads: int = 0
    late: bool = False
    """The first reading is not answered."""
    started: bool = False
    closed: bool = False

    def start(self) -> None:
        self.started = True

    async def read(self) -> Reading[GpuReading]:
        self.reads += 1
        if self.late and self.reads == 1:
            await asyncio.Event().wait()
        return self.value

    async def close(self) -> None:
        self.closed = True


@dataclass
class FakeDropper:
    """A CacheDropper that empties the host's cache: what is allowed, what fails, and what was written, by path."""

    host: FakeHost = field(default_factory=FakeHost)
    allowed: Access = field(default_factory=Access)
    errors: list[SparkError] = field(default_factory=list)
    dropped: list[Route] = field(default_factory=list)
    compacted: list[Route] = field(default_factory=list)
    gate: asyncio.Event | None = None
    objection: str = ""
    code: int = 0
    who: tuple[str, int] = ("spark0", 1000)
    files: dict[str, str] = field(default_factory=dict)
    terminal: list[tuple[str, ...]] = field(default_factory=list)

    async def access(self) -> Access:
        return self.allowed

    async def drop(self, route: Route) -> bool:
        if self.gate is not None:
            await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        self.dropped.append(route)
        self.empty()
        return True

    def empty(self) -> None:
        """All but a GiB of the cache is free."""
        if (mem := value_of(self.host.memory_value)) is not None:
            self.host.memory_value = Ok(replace(mem, free=mem.free + mem.cached - GIB, cached=GIB))

    async def compact(self, route: Route) -> None:
        self.compacted.append(route)

    def on_terminal(self, argv: Sequence[str]) -> int:
        self.terminal.append(tuple(argv))
        self.empty()
        return self.code

    async def check_grant(self, text: str) -> str:
        return self.objection

    def write_files(self, files: Sequence[SystemFile]) -> int:
        self.files.update({file.path: file.text for file in files})
        return self.code

    def remove_files(self, paths: Sequence[str]) -> int:
        for path in paths:
            self.files.pop(path, None)
        return self.code

    def user(self) -> tuple[str, int]:
        return self.who

    async def close(self) -> None:
        return None


@dataclass
class FakeSecrets:
    """A SecretStore in memory. `files` is what env files hold, by their path."""

    token: Secret | None = None
    folder: Path = Path("/home/test/.config/spark-tui/secrets")
    files: dict[Path, dict[str, Secret]] = field(default_factory=dict)
    keys_made: int = 0

    def hf_token(self) -> Secret | None:
        return self.token

    def api_key(self, path: str) -> Secret | None:
        kept = self.files.get(Path(path), {})
        return next((kept[name] for name in KEY_VARIABLES if name in kept), None)

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.env"

    def env_file(self, name: str, values: dict[str, Secret]) -> Path:
        self.files[self.path(name)] = dict(values)
        return self.path(name)

    def new_key(self) -> Secret:
        self.keys_made += 1
        return Secret(f"key-{self.keys_made}")


@dataclass
class FakeArchive:
    """A LogArchive in memory."""

    saved: dict[Path, tuple[LogLine, ...]] = field(default_factory=dict)
    error: OSError | None = None

    def save(self, name: str, lines: Sequence[LogLine]) -> Path:
        if self.error is not None:
            raise self.error
        path = Path(f"/archive/{name}-{len(self.saved) + 1}.log")
        self.saved[path] = tuple(lines)
        return path
