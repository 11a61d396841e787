"""The details of memory, for who looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from spark_tui.base.adapters import GuardPorts
from spark_tui.base.context import Context
from spark_tui.base.executors import in_thread
from spark_tui.base.finding import NOT_READ_YET, Missing, Ok, Reading, value_of
from spark_tui.base.host.vitals import ContainerMemory, HostProcess, Vitals
from spark_tui.base.ports import Clock, VitalsProbe
from spark_tui.base.store import Store, World

if TYPE_CHECKING:  # the first frame shows memory, and nothing of these
    from spark_tui.base.host.guard import GuardEntry

PROCESSES: Final = 40


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
