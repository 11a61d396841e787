"""Everything about memory that is only worth its price while somebody looks: processes, containers, vital signs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_tui.core.store import AlarmBoard, Store, World
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.event import Severity
from spark_tui.domain.host.alarm import Alarm, AlarmKind
from spark_tui.domain.host.breakdown import Ledger, ledger
from spark_tui.domain.host.guard import GuardEntry
from spark_tui.domain.host.memory import Judgement, Level, MemInfo, fall_rate, severity
from spark_tui.domain.host.vitals import ContainerMemory, HostProcess, VitalCounters, Vitals, vitals_between
from spark_tui.domain.logs.view import EngineView
from spark_tui.domain.reading import NOT_READ_YET, Missing, Ok, Reading, Stale, value_of
from spark_tui.services.executors import in_thread
from spark_tui.services.ports import Clock, HostProbe, VitalsProbe

PROCESSES: Final = 40
NO_GUARD: Final = Missing("there is nothing to guard: this Spark is simulated")


@dataclass(frozen=True, slots=True)
class ContainerShare:
    """One running engine's part: what CUDA holds for it (None: not told), and what the kernel charges to it."""

    name: str
    id: str
    ours: bool
    gpu: int | None
    cpu: Reading[ContainerMemory]


@dataclass(frozen=True, slots=True)
class GuardStanding:
    """Whether a memory guard runs, in any process of this user, and what it did, oldest first."""

    running: bool
    entries: tuple[GuardEntry, ...] = ()

    @property
    def last(self) -> GuardEntry | None:
        """Its last act."""
        return self.entries[-1] if self.entries else None


@dataclass(frozen=True, slots=True)
class MemoryDetail:
    """One look."""

    processes: Reading[tuple[HostProcess, ...]] = NOT_READ_YET
    containers: tuple[ContainerShare, ...] = ()
    vitals: Vitals = field(default_factory=Vitals)
    guard: Reading[GuardStanding] = NOT_READ_YET


class MemoryInspector:
    """Looks when it is asked; of two looks the second one has rates."""

    def __init__(self, probe: VitalsProbe, store: Store, guard: Callable[[], Reading[GuardStanding]]) -> None:
        self._probe = probe
        self._store = store
        self._guard = guard
        self._before: VitalCounters | None = None

    async def look(self) -> MemoryDetail:
        """One look, in a thread: it reads hundreds of files. Never raises."""
        return await in_thread(self._look, self._store.world)

    def _look(self, world: World) -> MemoryDetail:
        gpu = value_of(world.gpu)
        processes = self._probe.processes(gpu.processes or () if gpu is not None else (), PROCESSES)
        after = self._probe.counters()
        vitals, self._before = vitals_between(self._before, after), after
        return MemoryDetail(processes, self._containers(world), vitals, self._guard())

    def _containers(self, world: World) -> tuple[ContainerShare, ...]:
        ledger = value_of(world.ledger)
        held = {share.container: share.memory for share in (ledger.engines or ())} if ledger is not None else {}
        told = ledger is not None and ledger.engines is not None
        views = [view for view in value_of(world.engines) or () if view.container.running]
        return tuple(self._share(view, held.get(view.container.id, 0) if told else None) for view in views)

    def _share(self, view: EngineView, gpu: int | None) -> ContainerShare:
        facts = view.container
        cpu = self._probe.container_memory(facts.pid) if facts.pid else Missing("Docker names no process of it")
        return ContainerShare(view.name, facts.id, facts.ours, gpu, cpu)


_MOST_REMEMBERED = 256


class LedgerReader:
    """Cuts the pool by the World's readings, each CUDA process mapped to its container. One look into /proc per new
    process: a pid's container does not change while it lives."""

    def __init__(self, host: HostProbe) -> None:
        self._host = host
        self._containers: dict[int, str] = {}

    def read(self, world: World, names: Mapping[str, str] | None = None) -> Reading[Ledger]:
        """The ledger now; as fresh as the memory reading that it is cut from. `names` are of containers by their id,
        for who knows them from elsewhere than the World."""
        if isinstance(world.memory, Missing):
            return Missing(world.memory.reason)
        gpu = value_of(world.gpu)
        pids = [process.pid for process in (gpu.processes or ())] if gpu is not None else []
        known = {view.container.id: view.name for view in value_of(world.engines) or ()} | dict(names or {})
        found = ledger(world.memory.value, world.gpu, self._owners(pids), known)
        if isinstance(world.memory, Stale):
            return Stale(found, world.memory.at, world.memory.error)
        return Ok(found, world.memory.at)

    def _owners(self, pids: list[int]) -> dict[int, str]:
        known = {pid: self._containers[pid] for pid in pids if pid in self._containers}
        self._containers = known | {
            pid: self._host.container_of(pid) for pid in pids[:_MOST_REMEMBERED] if pid not in known
        }
        return self._containers


TREND_SECONDS: Final = 6.0
CALM_SECONDS: Final = 15.0
"""An alarm that has been over for so long is over: memory near a floor goes up and down."""
_LOADING: Final = (EngineState.STARTING, EngineState.RESTARTING)
_SEVERITIES: Final = {Level.TIGHT: Severity.WARNING, Level.CRITICAL: Severity.ERROR}
_REMEDY: Final = "Stop an engine, or lower its memory share. The guard does it in time: spark-tui guard --install"


class MemoryWatch:
    """Called once a second with what was read."""

    def __init__(self, store: Store, clock: Clock, ledger: LedgerReader, alarms: AlarmBoard) -> None:
        self._store = store
        self._clock = clock
        self._ledger = ledger
        self._alarms = alarms
        self._points: deque[tuple[float, int]] = deque(maxlen=64)
        self._bad_at: float | None = None

    def sampled(self, memory: Reading[MemInfo], pressure: Reading[float]) -> None:
        """Judges a fresh reading, as it came, and cuts the ledger from what the World shows."""
        self._store.update(ledger=self._ledger.read(self._store.world))
        mem = value_of(memory)
        if mem is None:
            return
        now = self._clock.monotonic()
        self._points.append((now, mem.usable))
        while now - self._points[0][0] > TREND_SECONDS:
            self._points.popleft()
        found = severity(
            mem, falling=fall_rate(tuple(self._points)), pressure=value_of(pressure), loading=self._loading()
        )
        self._settle(found, now)

    def _loading(self) -> bool:
        return any(view.state in _LOADING for view in value_of(self._store.world.engines) or ())

    def _settle(self, found: Judgement, now: float) -> None:
        """Shows a worse level at once, and a better one when it has lasted."""
        if found.level is not Level.OK:
            self._bad_at = now
            self._store.update(judgement=found)
            self._alarms.raise_(Alarm(AlarmKind.MEMORY, _SEVERITIES[found.level], f"Memory: {found.reason}", _REMEDY))
        elif self._bad_at is not None and now - self._bad_at >= CALM_SECONDS:
            self._bad_at = None
            self._store.update(judgement=found)
            self._alarms.clear(AlarmKind.MEMORY, over="Memory is in order again.")
