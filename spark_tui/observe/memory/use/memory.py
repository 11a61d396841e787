"""Memory as it is: who holds it, alarms, and freeing the page cache."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from spark_tui.base.context import Context, GuardPorts
from spark_tui.base.engine.container import ContainerSpec, Mount
from spark_tui.base.engine.state import EngineState
from spark_tui.base.errors import RefusedError, SparkError
from spark_tui.base.executors import in_thread
from spark_tui.base.finding import NOT_READ_YET, EventKind, Missing, Ok, Reading, reason_of, value_of
from spark_tui.base.host.guard import GuardEntry
from spark_tui.base.host.memory import (
    BY_HAND,
    DROP_FILE,
    MOUNTED,
    ONE_SHOT_NAME,
    DropResult,
    MemInfo,
    Route,
    RouteKind,
    compact_route,
    routes,
)
from spark_tui.base.host.vitals import ContainerMemory, HostProcess, Vitals
from spark_tui.base.ports import CacheDropper, Clock, ContainerEngine, HostProbe, VitalsProbe
from spark_tui.base.store import Store, World
from spark_tui.observe.engines.use.collectors import BreakdownReader
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.explain.model.timeline import BootTimeline, PhaseId
from spark_tui.observe.explain.model.view import EngineView

ONE_SHOT_SECONDS: Final = 90.0
_LOOK_SECONDS: Final = 0.2

OnTerminal = Callable[[Sequence[str]], Awaitable[int]]
"""Runs a command on the terminal: a full-screen front end suspends itself meanwhile."""


class NoWayToDrop(SparkError, id="drop_caches_no_way"):
    """No way is open, or none of them worked."""


class DropPlan(Struct, frozen=True):
    """How a drop would be done now. `warning` is to be shown once before it, empty for none. `route` is the first way
    that needs no consent, `consent` the container, which a person has to allow, `terminal` the way where sudo asks."""

    warning: str = ""
    route: Route | None = None
    consent: Route | None = None
    terminal: Route | None = None
    droppable: int | None = None


def measuring(timeline: BootTimeline) -> bool:
    """The engine measures free memory for its KV cache now: memory that becomes free meanwhile fails its start (vLLM:
    `Error in memory profiling`)."""
    phase, facts = timeline.current, timeline.facts
    sized = facts.kv_gib is not None or facts.kv_tokens is not None
    return phase is not None and phase.id in (PhaseId.COMPILE, PhaseId.KV_CACHE) and not sized


def one_shot(route: Route) -> ContainerSpec:
    """The container of that route, without a network. The plain one gets the one file, which root may write without any
    privilege. A privileged one sees a writable /proc/sys: the last resort where user namespaces or a security module
    forbid the other."""
    spec = ContainerSpec(ONE_SHOT_NAME, route.image, route.argv[1:], entrypoint=route.argv[:1], network="none")
    if route.kind is RouteKind.PRIVILEGED:
        return replace(spec, privileged=True)
    return replace(spec, mounts=(Mount(DROP_FILE, MOUNTED),), security_opt=("no-new-privileges",), user="0:0")


class CacheControl(Struct, eq=False):
    """One for the whole program: it remembers its warnings."""

    dropper: CacheDropper
    docker: ContainerEngine
    host: HostProbe
    supervisor: EngineSupervisor
    store: Store
    clock: Clock
    _warned: set[str] = field(default_factory=set)
    _busy: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def from_context(cls, context: Context) -> CacheControl:
        return cls(
            context.ports.dropper, context.docker, context.host, context[EngineSupervisor], context.store, context.clock
        )

    # --- before ---------------------------------------------------------------------------------------

    async def plan(self, image: str = "") -> DropPlan:
        """How a drop would be done. Raises RefusedError while an engine measures memory."""
        self._refuse_while_measuring()
        found = routes(await self.dropper.access(), await self._image(image))
        by_kind = {route.kind: route for route in found}
        fresh = [view.name for view in self._serving() if view.container.id not in self._warned]
        warning = ""
        if fresh:
            names, verb = ", ".join(fresh), "is" if len(fresh) == 1 else "are"
            warning = (
                f"{names} {verb} serving. Weights are safe; libraries and tokenizer are read from disk again, so the "
                "next answers may be slower."
            )
        mem = value_of(self.host.memory())
        return DropPlan(
            warning=warning,
            route=next((route for route in found if route.silent), None),
            consent=by_kind.get(RouteKind.CONTAINER),
            terminal=by_kind.get(RouteKind.TERMINAL),
            droppable=mem.droppable if mem is not None else None,
        )

    def warned(self) -> None:
        """The person has seen the warning: it is not shown again for the engines that serve now."""
        self._warned.update(view.container.id for view in self._serving())

    def _serving(self) -> tuple[EngineView, ...]:
        return tuple(view for view in self.supervisor.views() if view.state is EngineState.SERVING)

    def _measuring(self) -> list[str]:
        views = self.supervisor.views()
        return [view.name for view in views if view.container.running and measuring(view.timeline)]

    def _refuse_while_measuring(self) -> None:
        if busy := self._measuring():
            raise RefusedError(
                f"{', '.join(busy)} is measuring free memory for its KV cache; freeing memory now fails its start.",
                "Wait until it is ready: a minute or two.",
            )

    async def _image(self, named: str) -> str:
        """The image for the container: the named one, else that of an engine, which is downloaded and has `sh`."""
        if named and await self.docker.image(named) is None:
            raise RefusedError(f"The image {named} is not downloaded.", "Choose a local one: docker images")
        views = self.supervisor.views()
        return named or next((view.container.image for view in views if view.container.image), "")

    # --- the drop -------------------------------------------------------------------------------------

    async def drop(
        self, *, image: str = "", consent: bool = False, on_terminal: OnTerminal | None = None
    ) -> DropResult:
        """Drops the cache by the first way that works: silent ones, the container with the person's `consent`, and sudo
        `on_terminal` where a front end offers it. Raises RefusedError while an engine measures memory, and NoWayToDrop
        with the command to type when nothing works."""
        async with self._busy:
            self._refuse_while_measuring()
            ways = routes(await self.dropper.access(), await self._image(image) if consent else "")
            result = await self._first_that_works(ways, on_terminal)
        self.warned()
        self.store.say(result.sentence, kind=EventKind.CACHE)
        return result

    async def drop_quietly(self) -> DropResult | None:
        """For the load-time guard: by silent ways only, without an event. None where there is none, where an engine
        measures memory, or where a drop is under way. Raises SparkError when a way fails."""
        if self._busy.locked() or self._measuring():
            return None
        async with self._busy:
            ways = tuple(route for route in routes(await self.dropper.access()) if route.silent)
            return await self._first_that_works(ways, None) if ways else None

    async def compact_quietly(self) -> bool:
        """Compacts memory where that is permitted; false where it is not."""
        route = compact_route(await self.dropper.access())
        if route is not None:
            await self.dropper.compact(route)
        return route is not None

    async def _first_that_works(self, ways: Sequence[Route], on_terminal: OnTerminal | None) -> DropResult:
        before, began = self._memory(), self.clock.monotonic()
        failures: list[SparkError] = []
        for route in ways:
            synced = True
            try:
                if route.image:
                    await self._in_container(route)
                elif route.kind is not RouteKind.TERMINAL:
                    synced = await self.dropper.drop(route)
                elif on_terminal is None:
                    continue
                elif code := await on_terminal(route.argv):
                    raise NoWayToDrop(f"sudo ended with exit code {code}.", f"In a shell: {BY_HAND}")
            except SparkError as error:
                failures.append(error)
            else:
                seconds = self.clock.monotonic() - began
                result = DropResult(route.kind, before, self._memory(), seconds, synced)
                self.store.update(last_drop=result)
                return result
        raise NoWayToDrop(
            "The page cache could not be freed." if failures else "Freeing the page cache needs root.",
            f"Once: {BY_HAND}. Permanently: spark-tui drop-caches --install",
            detail="; ".join(f"{error.summary} {error.detail}".strip() for error in failures),
        )

    async def _in_container(self, route: Route) -> None:
        """A container that lives for one command. One left by an interrupted drop is removed first."""
        if any(found.name == ONE_SHOT_NAME for found in await self.docker.containers()):
            await self.docker.remove(ONE_SHOT_NAME, force=True)
        identity = await self.docker.create(one_shot(route))
        try:
            await self.docker.start(identity)
            deadline = self.clock.monotonic() + ONE_SHOT_SECONDS
            while (facts := await self.docker.inspect(identity)).running:
                if self.clock.monotonic() > deadline:
                    raise NoWayToDrop(
                        f"The container has not ended after {ONE_SHOT_SECONDS:.0f} s.",
                        "The disk may be slow: try again.",
                    )
                await self.clock.sleep(_LOOK_SECONDS)
            if facts.exit_code != 0:
                async with aclosing(self.docker.logs(identity, follow=False, tail=5)) as batches:
                    last = [line.text async for batch in batches for line in batch]
                raise NoWayToDrop(
                    f"The container ended with exit code {facts.exit_code}.",
                    f"The image {route.image} needs a shell. Choose another image, or type: {BY_HAND}",
                    detail="\n".join(last),
                )
        finally:
            await self.docker.remove(identity, force=True)

    def _memory(self) -> MemInfo:
        reading = self.host.memory()
        mem = value_of(reading)
        if mem is None:
            raise SparkError(
                f"Memory cannot be read: {reason_of(reading)}.", "spark-tui needs Linux with /proc mounted."
            )
        return mem


# --- memory ----------------------------------------------------------------------------------------------


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
    _owners: BreakdownReader

    @classmethod
    def from_context(cls, context: Context) -> MemoryInspector:
        guarding = context.ports.get("guarding")
        return cls(context.ports.vitals, context.store, context.clock, guarding, context[BreakdownReader])

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
        views = world.known(ENGINES)
        held: dict[str, int] | None = None
        if breakdown is not None and breakdown.engines is not None:
            held = {share.container: share.memory for share in breakdown.engines}
        elif gpu is not None and gpu.processes and all(each.memory is not None for each in gpu.processes):
            held, ids = {}, [view.container.id for view in views]  # a GPU with memory of its own
            for each in gpu.processes:
                owner = self._owners.engine_of(each.pid, ids)
                held[owner] = held.get(owner, 0) + (each.memory or 0)
        containers: list[ContainerShare] = []
        for view in views:
            facts = view.container
            if facts.running:
                cpu = probe.container_memory(facts.pid) if facts.pid else Missing("Docker reports no process")
                share = None if held is None or facts.address else held.get(facts.id, 0)
                containers.append(ContainerShare(view.name, facts.id, facts.ours, share, cpu))
        vitals = value_of(world.vitals) or probe.look()  # the collectors' where they run: rates need even intervals
        unknown = engines if isinstance(engines := world[ENGINES], Missing) else None
        return MemoryDetail(processes, unknown or Ok(tuple(containers)), vitals, self.guard())
