"""Keeps watch over every engine on the box: ours and foreign, running and ended.

A container outlives this program. On start everything that runs is found again, its log is read from its first line
until the server was ready (so that the boot history is there), and then followed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from spark_tui.core.engine_watch import EngineWatch
from spark_tui.core.pause import pause
from spark_tui.core.store import Store
from spark_tui.domain.engine.container import ContainerFacts
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.engine.view import EngineView, runtime_of
from spark_tui.domain.errors import ContainerNotFound, SparkError
from spark_tui.domain.event import Event, Severity
from spark_tui.domain.quantities import human_duration
from spark_tui.domain.reading import Ok, aged, value_of
from spark_tui.services.ports import CheckpointSource, Clock, ContainerEngine, EngineApi, SecretStore

REFRESH_SECONDS = 30.0
SETTLE_SECONDS = 0.15
PUBLISH_SECONDS = 0.1


class EngineSupervisor:
    """Finds engines, watches each, and publishes their views to the store."""

    def __init__(
        self,
        docker: ContainerEngine,
        api: EngineApi,
        secrets: SecretStore,
        store: Store,
        clock: Clock,
        checkpoints: CheckpointSource | None = None,
    ) -> None:
        self._docker = docker
        self._checkpoints = checkpoints
        self._api = api
        self._secrets = secrets
        self._store = store
        self._clock = clock
        self._watches: dict[str, EngineWatch] = {}
        self._dirty = asyncio.Event()
        self._refresh_wanted = asyncio.Event()
        self._refresh_lock = asyncio.Lock()
        self._found = asyncio.Event()
        self._known: dict[str, EngineState] = {}
        self._error = ""
        self.on_views: Callable[[tuple[EngineView, ...]], None] | None = None
        """Told of every engine whenever something may have changed; must be quick."""

    # --- the loops ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Watches until cancelled, then ends every watch."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._refresh_loop())
                group.create_task(self._event_loop())
                group.create_task(self._publish_loop())
        finally:
            await self.close()

    async def close(self) -> None:
        """Ends every watch."""
        self._hand_on(self.views())
        watches, self._watches = list(self._watches.values()), {}
        for watch in watches:
            await watch.close()

    async def _refresh_loop(self) -> None:
        while True:
            self._refresh_wanted.clear()
            await self.refresh()
            await pause(self._clock, REFRESH_SECONDS, self._refresh_wanted)
            await self._clock.sleep(SETTLE_SECONDS)  # events come in bursts: one look for all of them

    async def _event_loop(self) -> None:
        pause = 1.0
        while True:
            try:
                async for _ in self._docker.events():
                    pause = 1.0
                    self._refresh_wanted.set()
            except SparkError as error:
                self._fail(error)
            await self._clock.sleep(pause)
            pause = min(pause * 2, REFRESH_SECONDS)
            self._refresh_wanted.set()

    async def _publish_loop(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            self.publish()
            await self._clock.sleep(PUBLISH_SECONDS)

    # --- what runs ------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Look at the containers now."""
        self._refresh_wanted.set()

    async def refresh(self) -> None:
        """Asks Docker what there is; a failure leaves the last engines, marked stale."""
        async with self._refresh_lock:
            try:
                containers = await self._docker.containers()
            except SparkError as error:
                self._fail(error)
                return
            self._error = ""
            await self._adopt(tuple(c for c in containers if runtime_of(c)))
            self._found.set()
            self.publish()

    async def look(self, patience: float = 3.0) -> tuple[EngineView, ...]:
        """One look, for a front end that does not stay: every engine, its start read and its health asked once.

        Raises Docker's error. What an engine has not told within `patience` seconds stays unknown.
        """
        containers = await self._docker.containers()
        async with self._refresh_lock:
            await self._adopt(tuple(c for c in containers if runtime_of(c)))
        settled = [asyncio.ensure_future(watch.settled()) for watch in self._watches.values()]
        if settled:
            _, late = await asyncio.wait(settled, timeout=patience)
            for task in late:
                task.cancel()
        self.publish()
        return self.views()

    async def _adopt(self, containers: tuple[ContainerFacts, ...]) -> None:
        found = {container.id: container for container in containers}
        for gone in [key for key in self._watches if key not in found]:
            await self._watches.pop(gone).close()
        for container in containers:
            await self._look(container)

    async def _look(self, container: ContainerFacts) -> EngineWatch:
        watch = self._watches.get(container.id)
        if watch is None:
            watch = EngineWatch(
                container, self._docker, self._api, self._secrets, self._clock, self._dirty.set, self._checkpoints
            )
            self._watches[container.id] = watch
            watch.start()
        else:
            await watch.update(container)
        return watch

    async def watch(self, container: str) -> EngineWatch:
        """The watch of one container by name or id, looked at just now. Raises ContainerNotFound."""
        facts = await self._docker.inspect(container)
        async with self._refresh_lock:
            watch = await self._look(facts)
        self.publish()
        return watch

    def find(self, name: str) -> EngineWatch | None:
        """The watch of a container by name or id prefix, without asking Docker."""
        for watch in self._watches.values():
            if watch.container.name == name or (len(name) >= 12 and watch.container.id.startswith(name)):
                return watch
        return None

    def get(self, name: str) -> EngineWatch:
        """Like `find`; raises ContainerNotFound."""
        watch = self.find(name)
        if watch is None:
            known = ", ".join(sorted(w.container.name for w in self._watches.values())) or "none"
            raise ContainerNotFound(f"There is no engine named {name}.", f"Engines here: {known}.")
        return watch

    async def settled(self) -> None:
        """Waits until Docker has told what there is, and every running engine its log and its health once."""
        await self._found.wait()
        running = [watch for watch in self._watches.values() if watch.container.running]
        await asyncio.gather(*(watch.settled() for watch in running))

    # --- what is shown --------------------------------------------------------------------------------

    def views(self) -> tuple[EngineView, ...]:
        """Every engine: those that run first, then by name."""
        views = [watch.view() for watch in self._watches.values()]
        return tuple(sorted(views, key=lambda view: (not view.container.running, view.name)))

    def publish(self) -> None:
        """Puts the views into the store, and what changed into the event feed."""
        views = self.views()
        self._hand_on(views)
        self._report(views)
        if not self._error:
            self._store.update(engines=Ok(views, self._clock.now()))

    def _hand_on(self, views: tuple[EngineView, ...]) -> None:
        if self.on_views is not None:
            self.on_views(views)

    def _fail(self, error: SparkError) -> None:
        self._error = str(error)
        self._store.update(engines=aged(self._store.world.engines, str(error)))

    def _report(self, views: tuple[EngineView, ...]) -> None:
        first_look = value_of(self._store.world.engines) is None
        for view in views:
            before = self._known.get(view.container.id)
            if before is not view.state and not first_look:
                event = _transition(view, before, self._clock.now())
                if event is not None:
                    self._store.tell(event)
        self._known = {view.container.id: view.state for view in views}

    def say(self, text: str, severity: Severity = Severity.INFO, remedy: str = "") -> None:
        """Adds a line to the event feed."""
        self._store.say(text, severity, remedy)

    # --- what a person asks ---------------------------------------------------------------------------

    async def stop(self, name: str, grace_seconds: int = 30) -> None:
        """Stops an engine gracefully and waits until it has ended."""
        watch = self.find(name)
        if watch is not None:
            watch.stop_requested = True
        await self._act(name, lambda container: self._docker.stop(container, grace_seconds))

    async def restart(
        self, name: str, grace_seconds: int = 30, *, settle: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """Stops and starts an engine with the settings that it has. `settle` is awaited in between: memory of what
        has ended comes back late."""
        if settle is None:
            await self._act(name, lambda container: self._docker.restart(container, grace_seconds))
            return
        await self.stop(name, grace_seconds)
        await settle()
        await self._act(name, self._docker.start)

    async def remove(self, name: str) -> None:
        """Removes an ended engine and its log."""
        await self._act(name, self._docker.remove)

    async def _act(self, name: str, action: Callable[[str], Awaitable[None]]) -> None:
        watch = self.find(name)
        await action(watch.container.id if watch else name)
        await self.refresh()


def _transition(view: EngineView, before: EngineState | None, now: float) -> Event | None:
    name = view.name
    match view.state:
        case EngineState.SERVING:
            if not _news(view, now):
                return None
            took = f" after {human_duration(view.timeline.seconds)}" if view.timeline.seconds is not None else ""
            return Event(now, Severity.INFO, f"{name} is serving{took}")
        case EngineState.FAILED:
            why = view.timeline.failure.line if view.timeline.failure else "see its log"
            return Event(now, Severity.ERROR, f"{name} exited {view.container.exit_code}: {why}")
        case EngineState.NOT_ANSWERING:
            return Event(now, Severity.WARNING, f"{name} does not answer: {view.health.value}", "Look at its log.")
        case EngineState.STOPPED if before is not None:
            return Event(now, Severity.INFO, f"{name} stopped")
        case EngineState.STARTING if before is not EngineState.CREATED or before is None:
            return Event(now, Severity.INFO, f"{name} is starting")
        case _:
            return None


NEWS_SECONDS = 120.0


def _news(view: EngineView, now: float) -> bool:
    """Whether it became ready just now: an engine that has served for hours is only new to us."""
    started, took = view.container.started_at, view.timeline.seconds
    return started is None or took is None or now - (started + took) < NEWS_SECONDS
