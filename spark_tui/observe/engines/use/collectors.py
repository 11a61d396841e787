"""What is read again and again, and containers whose name is wanted."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing, suppress
from typing import Final

from spark_tui.base.context import Context, Ports
from spark_tui.base.engine.container import PROCESS_ID, ContainerFacts, DaemonFacts
from spark_tui.base.engine.state import EngineState
from spark_tui.base.errors import SparkError
from spark_tui.base.executors import Poller, in_thread
from spark_tui.base.finding import NOT_READ_YET, AlarmId, Missing, Ok, Reading, Severity, Stale, aged, value_of
from spark_tui.base.host.memory import MemInfo, MemoryBreakdown, fall_rate, memory_breakdown, memory_finding, steady
from spark_tui.base.host.vitals import GpuReading, Vitals
from spark_tui.base.ports import Clock, ContainerEngine, HostProbe, LogArchive
from spark_tui.base.store import AlarmBoard, Store, World
from spark_tui.observe.explain.feature import ENGINES


async def clear_container(docker: ContainerEngine, archive: LogArchive, existing: ContainerFacts) -> str:
    """Makes room for a container of the same name. Returns what became of the old one's log, which is kept."""
    if existing.running:
        await docker.stop(existing.id)
    async with aclosing(docker.logs(existing.id, follow=False)) as batches:
        lines = [line async for batch in batches for line in batch]
    try:
        kept = f"old log kept in {archive.save(existing.name, lines)}" if lines else "replaces an earlier one"
    except OSError as error:
        why = f"The log of {existing.name} cannot be saved: {error.strerror or error}."
        raise SparkError(why, f"Free space on that disk, or remove it: docker rm {existing.name}") from error
    await docker.remove(existing.id)
    return kept


# --- collectors ------------------------------------------------------------------------------------------


GPU_SECONDS = 2.0
VITALS_SECONDS = 2.0
VITALS_DELAY_SECONDS = 1.0
"""Engines and memory come first: this one imports psutil."""
DAEMON_SECONDS = 20.0
TREND_SECONDS: Final = 6.0
CALM_SECONDS: Final = 15.0
"""An alarm ends after this long: memory near a floor goes up and down."""
_LOADING: Final = (EngineState.STARTING, EngineState.RESTARTING)
_MOST_REMEMBERED: Final = 256


# --- who holds it -----------------------------------------------------------------------------------------


class BreakdownReader:
    """Splits the memory by the World's readings, each CUDA process mapped to its container, or to the process outside
    Docker that is its engine. One look into /proc per new process: a pid's container does not change while it lives."""

    @classmethod
    def from_context(cls, context: Context) -> BreakdownReader:
        return cls(context.host)

    def __init__(self, host: HostProbe) -> None:
        self._host = host
        self._containers: dict[int, str] = {}
        self._names: Mapping[str, str] = {}

    def read(self, world: World, names: Mapping[str, str] | None = None) -> Reading[MemoryBreakdown]:
        """As fresh as the memory reading. `names` are of engines by their id, from now on beside the World's."""
        if isinstance(world.memory, Missing):
            return Missing(world.memory.reason)
        gpu = value_of(world.gpu)
        pids = [process.pid for process in (gpu.processes or ())][:_MOST_REMEMBERED] if gpu is not None else []
        self._names = self._names if names is None else names
        names = {view.container.id: view.name for view in world.known(ENGINES)} | dict(self._names)
        self._containers = {pid: self._containers.get(pid) or self.engine_of(pid, names) for pid in pids}
        found = memory_breakdown(world.memory.value, world.gpu, self._containers, names)
        if isinstance(world.memory, Stale):
            return Stale(found, world.memory.at, world.memory.error)
        return Ok(found, world.memory.at)

    def engine_of(self, pid: int, known: Collection[str]) -> str:
        """The id of the container that a process is in, or of the one of these engines outside Docker that it or a
        parent is; empty for another."""
        outside = (f"{PROCESS_ID}{each}" for each in self._host.lineage(pid))
        return self._host.container_of(pid) or next((each for each in outside if each in known), "")


# --- how bad it is ----------------------------------------------------------------------------------------


class MemoryWatch:
    """Called once a second with what was read."""

    @classmethod
    def from_context(cls, context: Context) -> MemoryWatch:
        return cls(context.store, context.clock, context[BreakdownReader], context.alarms)

    def __init__(self, store: Store, clock: Clock, breakdown: BreakdownReader, alarms: AlarmBoard) -> None:
        self._store = store
        self._clock = clock
        self._breakdown = breakdown
        self._alarms = alarms
        self._points: deque[tuple[float, int]] = deque(maxlen=64)
        self._bad_at: float | None = None

    def sampled(self, memory: Reading[MemInfo], pressure: Reading[float]) -> None:
        """Judges a fresh reading, and splits the memory that the World shows. A worse state shows at once, a better one
        when it has lasted."""
        self._store.update(breakdown=self._breakdown.read(self._store.world))
        mem, now = value_of(memory), self._clock.monotonic()
        if mem is None:
            return
        self._points.append((now, mem.usable))
        while now - self._points[0][0] > TREND_SECONDS:
            self._points.popleft()
        loading = any(view.state in _LOADING for view in self._store.world.known(ENGINES))
        found = memory_finding(
            mem, falling=fall_rate(tuple(self._points)), pressure=value_of(pressure), loading=loading
        )
        if found.severity is not Severity.OK:
            self._bad_at = now
            self._store.update(memory_state=found)
            self._alarms.raise_(found)
        elif self._bad_at is not None and now - self._bad_at >= CALM_SECONDS:
            self._bad_at = None
            self._store.update(memory_state=found)
            self._alarms.clear(AlarmId.MEMORY, over="Memory is fine again.")


# --- what is read -----------------------------------------------------------------------------------------


class Collectors:
    """Feeds the store until cancelled. A port is made with its first reading."""

    @classmethod
    def from_context(cls, context: Context) -> Collectors:
        return cls(context.store, context.ports, context.settings.refresh_seconds, context[MemoryWatch])

    def __init__(self, store: Store, ports: Ports, refresh_seconds: float, memory_watch: MemoryWatch) -> None:
        self._store = store
        self._ports = ports
        self._clock = clock = ports.clock
        self._memory_watch = memory_watch
        self.on_gpu: Callable[[Reading[GpuReading]], None] = lambda _: None
        self._gpu_asked: float | None = None
        self.daemon = Poller(
            "Docker",
            self._ask_docker,
            lambda facts: store.update(docker=Ok(facts, clock.now())),
            self._failed("docker"),
            clock=clock,
            interval=DAEMON_SECONDS,
        )
        self._host_poller = Poller(
            "the host", self._read_host, lambda _: None, self._failed("memory"), clock=clock, interval=refresh_seconds
        )
        self._gpu_poller = Poller(
            "the GPU driver", self._read_gpu, self._take_gpu, self._failed("gpu"), clock=clock, interval=GPU_SECONDS
        )
        self._vitals_poller = Poller(
            "the machine",
            self._look,
            lambda found: store.update(vitals=Ok(found, clock.now())),
            self._failed("vitals"),
            clock=clock,
            interval=VITALS_SECONDS,
        )

    async def run(self) -> None:
        """Memory first, where it was not sampled before the first frame; the GPU's helper process starts while the rest
        is imported."""
        self.sample_identity()
        async with asyncio.TaskGroup() as group:
            # A screen is renewed ten times a second: after the first frame it is the GPU's turn.
            sampled = isinstance(self._store.world.memory, Ok)
            group.create_task(self._host_poller.run(self._host_poller.interval if sampled else 0.0))
            group.create_task(self._gpu_poller.run())
            group.create_task(self.daemon.run())
            if self._ports.has("vitals"):
                await self._clock.sleep(VITALS_DELAY_SECONDS)
                group.create_task(self._vitals_poller.run())

    def sample_identity(self) -> None:
        self._store.update(identity=self._ports.host.identity())

    async def collect_once(self) -> None:
        """One reading of the host and the GPU, for a front end that does not stay."""
        self.sample_identity()
        await asyncio.gather(self._host_poller.poll(), self._gpu_poller.poll())

    async def collect_ready(self) -> None:
        """The host now, and the GPU where it was not asked lately: for decisions about memory. What an engine holds is
        known from the GPU's processes, and one launch may follow the other."""
        self.sample_host()
        if self._gpu_asked is None or self._clock.monotonic() - self._gpu_asked > 2 * GPU_SECONDS:
            await self._gpu_poller.poll()

    def sample_host(self) -> None:
        known, host = value_of(self._store.world.memory), self._ports.host
        uptime, memory, pressure = host.uptime(), host.memory(), host.memory_pressure()
        self._store.update(
            memory=Ok(steady(known, memory.value), memory.at) if isinstance(memory, Ok) else memory,
            pressure=pressure,
            uptime_minutes=Ok(int(uptime.value // 60), uptime.at) if isinstance(uptime, Ok) else uptime,
        )
        self._memory_watch.sampled(memory, pressure)

    async def sample_gpu(self, seconds: float) -> None:
        """The GPU, if it answers within that time; a later answer is for the next reading."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                self._take_gpu(await self._read_gpu())

    async def _read_host(self) -> None:
        self.sample_host()

    async def _read_gpu(self) -> Reading[GpuReading]:
        self._gpu_asked = self._clock.monotonic()
        return await self._ports.gpu.read()

    async def _ask_docker(self) -> DaemonFacts:
        return await self._ports.docker.daemon()

    async def _look(self) -> Vitals:
        return await in_thread(self._ports.vitals.look)

    def _take_gpu(self, reading: Reading[GpuReading]) -> None:
        first = self._store.world.gpu is NOT_READ_YET
        self._store.update(gpu=reading)
        if first:
            self.sample_host()  # now it is known which engine holds how much
        self.on_gpu(reading)

    def _failed(self, slice_: str) -> Callable[[SparkError], object]:
        """What was read last stays, and is stale from now on."""
        return lambda error: self._store.update(**{slice_: aged(getattr(self._store.world, slice_), str(error))})
