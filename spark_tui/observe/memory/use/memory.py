"""Memory: who holds it, how bad it is second by second, and the details for who looks."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from spark_tui.base.adapters import GuardPorts
from spark_tui.base.context import Context
from spark_tui.base.engine.state import EngineState
from spark_tui.base.executors import in_thread
from spark_tui.base.finding import AlarmId, Severity
from spark_tui.base.host.memory import MemInfo, MemoryBreakdown, fall_rate, memory_breakdown, memory_finding
from spark_tui.base.host.vitals import ContainerMemory, HostProcess, Vitals
from spark_tui.base.ports import Clock, HostProbe, VitalsProbe
from spark_tui.base.reading import NOT_READ_YET, Missing, Ok, Reading, Stale, value_of
from spark_tui.base.store import AlarmBoard, Store, World

if TYPE_CHECKING:  # the first frame shows memory, and nothing of these
    from spark_tui.base.host.guard import GuardEntry

PROCESSES: Final = 40
TREND_SECONDS: Final = 6.0
CALM_SECONDS: Final = 15.0
"""An alarm ends after this long: memory near a floor goes up and down."""
_LOADING: Final = (EngineState.STARTING, EngineState.RESTARTING)
_MOST_REMEMBERED: Final = 256


# --- who holds it -----------------------------------------------------------------------------------------


class BreakdownReader:
    """Splits the memory by the World's readings, each CUDA process mapped to its container. One look into /proc per new
    process: a pid's container does not change while it lives."""

    @classmethod
    def from_context(cls, context: Context) -> BreakdownReader:
        return cls(context.host)

    def __init__(self, host: HostProbe) -> None:
        self._host = host
        self._containers: dict[int, str] = {}

    def read(self, world: World, names: Mapping[str, str] | None = None) -> Reading[MemoryBreakdown]:
        """As fresh as the memory reading. `names` are of containers by their id, in addition to the World's."""
        if isinstance(world.memory, Missing):
            return Missing(world.memory.reason)
        gpu = value_of(world.gpu)
        pids = [process.pid for process in (gpu.processes or ())][:_MOST_REMEMBERED] if gpu is not None else []
        known = self._containers
        self._containers = {pid: known[pid] if pid in known else self._host.container_of(pid) for pid in pids}
        names = {view.container.id: view.name for view in value_of(world.engines) or ()} | dict(names or {})
        found = memory_breakdown(world.memory.value, world.gpu, self._containers, names)
        if isinstance(world.memory, Stale):
            return Stale(found, world.memory.at, world.memory.error)
        return Ok(found, world.memory.at)


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
        loading = any(view.state in _LOADING for view in value_of(self._store.world.engines) or ())
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


# --- the details ------------------------------------------------------------------------------------------


class ContainerShare(Struct, frozen=True):
    """One running engine: its CUDA memory (None: unknown), and what the kernel charges to it."""

    name: str
    id: str
    ours: bool
    gpu: int | None
    cpu: Reading[ContainerMemory]


class GuardStatus(Struct, frozen=True):
    """Whether a memory guard runs, in any process of this user, and its acts, oldest first."""

    running: bool
    entries: tuple[GuardEntry, ...] = ()


class MemoryDetail(Struct, frozen=True):
    """One look; without `vitals` none was taken yet."""

    processes: Reading[tuple[HostProcess, ...]] = NOT_READ_YET
    containers: Reading[tuple[ContainerShare, ...]] = NOT_READ_YET
    vitals: Vitals | None = None
    guard: Reading[GuardStatus] = NOT_READ_YET


class MemoryInspector(Struct, eq=False):
    """Processes, containers and vital signs, read when asked; of two looks the second one has rates. `guarding` is None
    in the demo."""

    _probe: VitalsProbe
    _store: Store
    _clock: Clock
    _guarding: GuardPorts | None

    @classmethod
    def from_context(cls, context: Context) -> MemoryInspector:
        return cls(context.ports.vitals, context.store, context.clock, context.ports.get("guarding"))

    async def look(self) -> MemoryDetail:
        """One look, in a thread: it reads hundreds of files. Never raises."""
        return await in_thread(self._look, self._store.world)

    def guard(self) -> Reading[GuardStatus]:
        """The guard alone: reads two files."""
        if self._guarding is None:
            return Missing("nothing to guard: this Spark is simulated")
        journal = self._guarding.journal
        return Ok(GuardStatus(journal.running(), journal.entries()), self._clock.now())

    def _look(self, world: World) -> MemoryDetail:
        probe = self._probe
        gpu, breakdown = value_of(world.gpu), value_of(world.breakdown)
        processes = probe.processes(gpu.processes or () if gpu is not None else (), PROCESSES)
        known = breakdown is not None and breakdown.engines is not None
        shares = breakdown.engines or () if breakdown is not None else ()
        held = {share.container: share.memory for share in shares}
        containers: list[ContainerShare] = []
        for view in value_of(world.engines) or ():
            facts = view.container
            if facts.running:
                cpu = probe.container_memory(facts.pid) if facts.pid else Missing("Docker reports no process")
                share = held.get(facts.id, 0) if known else None
                containers.append(ContainerShare(view.name, facts.id, facts.ours, share, cpu))
        vitals = value_of(world.vitals) or probe.look()  # the collectors' where they run: rates need even intervals
        unknown = world.engines if isinstance(world.engines, Missing) else None
        return MemoryDetail(processes, unknown or Ok(tuple(containers)), vitals, self.guard())
