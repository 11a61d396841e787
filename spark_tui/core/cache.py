"""Gives up the page cache on a person's wish, by the best way that is open, and says what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from spark_tui.core.engines import EngineSupervisor
from spark_tui.core.store import Store
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.errors import RefusedError, SparkError
from spark_tui.domain.host.drop_caches import (
    BY_HAND,
    ONE_SHOT_NAME,
    DropResult,
    Route,
    RouteKind,
    compact_route,
    measuring,
    one_shot,
    routes,
    serving_warning,
)
from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.logs.view import EngineView
from spark_tui.domain.reading import reason_of, value_of
from spark_tui.services.ports import CacheDropper, Clock, ContainerEngine, HostProbe

ONE_SHOT_SECONDS: Final = 90.0
_LOOK_SECONDS: Final = 0.2

OnTerminal = Callable[[Sequence[str]], Awaitable[int]]
"""Gives the terminal to a command, and takes it back: a full-screen front end suspends itself for it."""


class NoWayToDrop(SparkError):
    """No way is open, or none of those that are worked."""

    id = "drop_caches_no_way"


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a drop would be now. `warning` is to be shown once before it; empty when there is nothing to warn of, or
    it was shown already. `route` is the first way that needs no consent; `consent` is the container's, which a person
    has to allow; `terminal` the one where sudo asks."""

    warning: str = ""
    route: Route | None = None
    consent: Route | None = None
    terminal: Route | None = None
    droppable: int | None = None


class CacheControl:
    """One for the whole program: it remembers what it has warned of."""

    def __init__(
        self,
        dropper: CacheDropper,
        docker: ContainerEngine,
        host: HostProbe,
        supervisor: EngineSupervisor,
        store: Store,
        clock: Clock,
    ) -> None:
        self.dropper = dropper
        self._docker = docker
        self._host = host
        self._supervisor = supervisor
        self._store = store
        self._clock = clock
        self._warned: set[str] = set()
        self._busy = asyncio.Lock()

    # --- before ---------------------------------------------------------------------------------------

    async def prospect(self, image: str = "") -> Prospect:
        """What a drop would be. Raises RefusedError while an engine measures memory."""
        self._refuse_while_measuring()
        found = routes(await self.dropper.access(), await self._image(image))
        serving = self._serving()
        fresh = [view.name for view in serving if view.container.id not in self._warned]
        mem = value_of(self._host.memory())
        return Prospect(
            warning=serving_warning(fresh) if fresh else "",
            route=next((route for route in found if route.silent), None),
            consent=next((route for route in found if route.kind is RouteKind.CONTAINER), None),
            terminal=next((route for route in found if route.kind is RouteKind.TERMINAL), None),
            droppable=mem.droppable if mem is not None else None,
        )

    def warned(self) -> None:
        """The person has seen the warning: it is not shown again for the engines that serve now."""
        self._warned.update(view.container.id for view in self._serving())

    def _serving(self) -> tuple[EngineView, ...]:
        return tuple(view for view in self._supervisor.views() if view.state is EngineState.SERVING)

    def _refuse_while_measuring(self) -> None:
        busy = [view.name for view in self._supervisor.views() if view.container.running and measuring(view.timeline)]
        if busy:
            raise RefusedError(
                f"{', '.join(busy)} measures free memory for its KV cache now: more of it would fail its start.",
                "Wait until it is ready; that is a minute or two.",
            )

    async def _image(self, named: str) -> str:
        """The image for the container: the one that was named, else that of an engine, for it is here and has `sh`."""
        if named:
            if await self._docker.image(named) is None:
                raise RefusedError(f"The image {named} is not here.", "Name one that is: docker images")
            return named
        views = self._supervisor.views()
        return next((view.container.image for view in views if view.container.image), "")

    # --- the drop -------------------------------------------------------------------------------------

    async def drop(
        self, *, image: str = "", consent: bool = False, on_terminal: OnTerminal | None = None
    ) -> DropResult:
        """Drops the cache by the first way that works: silent ones, the container with the person's `consent`, and
        sudo `on_terminal` where a front end offers it. Raises RefusedError while an engine measures memory, and
        NoWayToDrop with the command to type when nothing works.
        """
        async with self._busy:
            self._refuse_while_measuring()
            open_ways = routes(await self.dropper.access(), await self._image(image) if consent else "")
            before = self._memory()
            began = self._clock.monotonic()
            kind, synced = await self._first_that_works(open_ways, on_terminal)
            result = DropResult(kind, before, self._memory(), self._clock.monotonic() - began, synced)
        self.warned()
        self._store.say(result.sentence)
        self._store.update(last_drop=result)
        return result

    async def drop_quietly(self) -> DropResult | None:
        """The same, for the load-time guard: by silent ways only, and without a word. None where there is none, where
        an engine measures memory, or where a drop is under way. Raises SparkError when a way fails."""
        if self._busy.locked():
            return None
        try:
            self._refuse_while_measuring()
        except RefusedError:
            return None
        async with self._busy:
            open_ways = tuple(route for route in routes(await self.dropper.access()) if route.silent)
            if not open_ways:
                return None
            before, began = self._memory(), self._clock.monotonic()
            kind, synced = await self._first_that_works(open_ways, None)
            result = DropResult(kind, before, self._memory(), self._clock.monotonic() - began, synced)
        self._store.update(last_drop=result)
        return result

    async def compact_quietly(self) -> bool:
        """Compacts memory where that is granted; false where it is not."""
        route = compact_route(await self.dropper.access())
        if route is not None:
            await self.dropper.compact(route)
        return route is not None

    async def _first_that_works(
        self, open_ways: Sequence[Route], on_terminal: OnTerminal | None
    ) -> tuple[RouteKind, bool]:
        failures: list[SparkError] = []
        for route in open_ways:
            if route.kind is RouteKind.TERMINAL and on_terminal is None:
                continue
            try:
                return route.kind, await self._by(route, on_terminal)
            except SparkError as error:
                failures.append(error)
        tried = "; ".join(f"{error.summary} {error.detail}".strip() for error in failures)
        raise NoWayToDrop(
            "The cache could not be dropped." if failures else "Dropping the cache needs root, and nothing allows it.",
            f"Type it once: {BY_HAND}. To allow it for good: spark-tui drop-caches --install",
            detail=tried,
        )

    async def _by(self, route: Route, on_terminal: OnTerminal | None) -> bool:
        if route.image:
            await self._in_container(route)
            return True
        if route.kind is RouteKind.TERMINAL and on_terminal is not None:
            code = await on_terminal(route.argv)
            if code != 0:
                raise NoWayToDrop(f"sudo ended with {code}.", f"Type it: {BY_HAND}")
            return True
        return await self.dropper.drop(route)

    # --- the container --------------------------------------------------------------------------------

    async def _in_container(self, route: Route) -> None:
        """A privileged container that lives for one command. What an interrupted one left is removed first."""
        spec = one_shot(route)
        if any(found.name == ONE_SHOT_NAME for found in await self._docker.containers()):
            await self._docker.remove(ONE_SHOT_NAME, force=True)
        identity = await self._docker.create(spec)
        try:
            await self._docker.start(identity)
            code = await self._end_of(identity)
            if code != 0:
                raise NoWayToDrop(
                    f"The container ended with {code}.",
                    f"Has the image {route.image} a shell? Name another with --image, or type: {BY_HAND}",
                    detail=await self._words_of(identity),
                )
        finally:
            await self._docker.remove(identity, force=True)

    async def _end_of(self, identity: str) -> int | None:
        deadline = self._clock.monotonic() + ONE_SHOT_SECONDS
        while True:
            facts = await self._docker.inspect(identity)
            if not facts.running:
                return facts.exit_code
            if self._clock.monotonic() > deadline:
                raise NoWayToDrop(
                    f"The container has not ended after {ONE_SHOT_SECONDS:.0f} s.", "The disk may be slow: try again."
                )
            await self._clock.sleep(_LOOK_SECONDS)

    async def _words_of(self, identity: str) -> str:
        lines: list[str] = []
        async with aclosing(self._docker.logs(identity, follow=False, tail=5)) as batches:
            async for batch in batches:
                lines.extend(line.text for line in batch)
        return "\n".join(lines)

    # --- readings -------------------------------------------------------------------------------------

    def _memory(self) -> MemInfo:
        reading = self._host.memory()
        mem = value_of(reading)
        if mem is None:
            raise SparkError(f"Memory cannot be read: {reason_of(reading)}.", "Is /proc mounted? Only Linux has it.")
        return mem
