"""Everything about memory that is only worth its price while somebody looks: processes, containers, vital signs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from spark_tui.core.store import Store, World
from spark_tui.domain.engine.view import EngineView
from spark_tui.domain.host.gpu import GpuProcess
from spark_tui.domain.host.guard import GuardEntry
from spark_tui.domain.host.processes import ContainerMemory, HostProcess
from spark_tui.domain.host.vitals import VitalCounters, Vitals, vitals_between
from spark_tui.domain.reading import NOT_READ_YET, Missing, Reading, value_of
from spark_tui.services.ports_vitals import VitalsProbe

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


class NoVitals:
    """The VitalsProbe of a world without a machine."""

    _WHY: Final = Missing("this machine is simulated")

    def counters(self) -> VitalCounters:
        """Nothing."""
        return VitalCounters(0.0, self._WHY, self._WHY, self._WHY, self._WHY, self._WHY, self._WHY)

    def processes(self, gpu: Sequence[GpuProcess], limit: int) -> Reading[tuple[HostProcess, ...]]:
        """Nothing."""
        return self._WHY

    def container_memory(self, pid: int) -> Reading[ContainerMemory]:
        """Nothing."""
        return self._WHY


class MemoryInspector:
    """Looks when it is asked; of two looks the second one has rates."""

    def __init__(self, probe: VitalsProbe, store: Store, guard: Callable[[], Reading[GuardStanding]]) -> None:
        self._probe = probe
        self._store = store
        self._guard = guard
        self._before: VitalCounters | None = None

    async def look(self) -> MemoryDetail:
        """One look, in a thread: it reads hundreds of files. Never raises."""
        return await asyncio.to_thread(self._look, self._store.world)

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
