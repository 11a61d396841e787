"""Watches every engine on this machine: ours and foreign, running and ended.

A container outlives this program. At start every engine is found again; its log is read from its first line until the
server was ready (for the boot history), and then followed.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from spark_tui.base.context import Context, Ports
from spark_tui.base.engine.container import ContainerFacts, ContainerStatus, ImageFacts, outside_docker
from spark_tui.base.engine.state import (
    Endpoint,
    EngineState,
    Health,
    ServedModel,
    api_port,
    endpoint_of,
    exposure_of,
    model_argument,
    runtime_of,
    state_of,
)
from spark_tui.base.errors import (
    ApiKeyRejected,
    ContainerNotFound,
    DaemonNotRunning,
    EngineDead,
    EngineUnreachable,
    SparkError,
)
from spark_tui.base.executors import end_tasks, failure_of, in_thread, keep, pause
from spark_tui.base.finding import Event, EventKind, Ok, Severity, aged, value_of
from spark_tui.base.host.guard import GuardEntry, end_by_guard
from spark_tui.base.ports import (
    CheckpointSource,
    Clock,
    ContainerEngine,
    EngineApi,
    GuardJournal,
    HostProbe,
    LogLine,
)
from spark_tui.base.quantities import GIB, human_duration
from spark_tui.base.store import Store
from spark_tui.machine.engines import EngineFinder
from spark_tui.observe.explain.feature import ENGINES, EXPLANATIONS
from spark_tui.observe.explain.model.timeline import StartOutcome
from spark_tui.observe.explain.model.view import Baseline, EngineView, LogContext
from spark_tui.observe.explain.use import LogBuffer

if TYPE_CHECKING:
    from spark_tui.base.checkpoint import CheckpointFacts
    from spark_tui.observe.explain.model.explain import Explanation

T = TypeVar("T")

STARTING_POLL_SECONDS = 1.0
SERVING_POLL_SECONDS = 15.0
"""Every probe writes an access line into the engine's own log: once it serves, ask seldom."""
MOST_GRACE_SECONDS: Final = 600.0
"""Between a signal to end and the end: requests may be answered first."""
HEALTH_TRIES: Final = 5
"""An engine on a busy machine answers late; each look has its own short limit."""
HEAD_LINES = 50_000
TAIL_LINES = 20_000
SLICE_LINES = 400
"""Lines that are read in one go: 3 ms on a slow core."""


class EngineWatch:
    """Follows one container from now until `close`. `changed` is called when its view may differ, `failed` with what
    could not be read and is tried again."""

    def __init__(
        self, container: ContainerFacts, ports: Ports, changed: Callable[[], None], failed: Callable[[SparkError], None]
    ) -> None:
        self.container = container
        self.buffer = LogBuffer()
        self._checkpoint: CheckpointFacts | None = None
        self._asked_for = ""
        self._image: ImageFacts | None = None
        self._ports = ports
        self._changed = changed
        self._failed = failed
        self._tasks: list[asyncio.Task[None]] = []
        self._poll_now = asyncio.Event()
        self.log_read = asyncio.Event()
        """Set once the log has been read to its end."""
        self.follows = asyncio.Event()
        """Once set, the log is read on after the start of an engine that runs, and its model's files are looked at."""
        self.changes = 0
        self._moved = asyncio.Condition()
        self.start_read = asyncio.Event()
        """Set once the log of an engine that runs was read as far as it had come, or up to ready."""
        self._asked = asyncio.Event()
        self._reset()

    def _reset(self) -> None:
        from spark_tui.observe.explain.model.tracker import LogTracker

        self._tracker = LogTracker(self.container.started_at, runtime_of(self.container))
        self._first_line = self.buffer.end
        self._log_since, self._log_lines = stamp_of_start(self.container), 0
        self._health = Health.UNKNOWN
        self._models: tuple[ServedModel, ...] = ()
        self._version = ""
        self._was_serving = False
        self.kernel_lines: tuple[str, ...] = ()
        """What the kernel said around its end, where it failed."""
        self._guard: GuardEntry | None = None
        self.stop_requested = False
        self.signalled_at = -math.inf
        """When Docker last sent it a signal to end, epoch seconds."""
        self.log_read.clear()

    # --- life -----------------------------------------------------------------------------------------

    def start(self) -> None:
        self.start_read.clear()
        self._asked.clear()
        self._spawn(self._read_log, lambda _: None)  # the buffer has it, and Docker's state is one event for all
        if self.container.running:
            self._spawn(self._poll_health)
            if self.container.ours and self._image is None:
                self._spawn(self._read_image)
        else:
            self._asked.set()
            self._spawn(self._read_end)

    async def close(self) -> None:
        tasks, self._tasks = self._tasks, []
        await end_tasks(*tasks)

    async def update(self, container: ContainerFacts) -> None:
        """Takes the latest facts; a new start of the same container begins a new history."""
        before, self.container = self.container, container
        if container.started_at != before.started_at or (container.running and not before.running):
            # Also one that has ended already: between two looks an engine may start and fail.
            await self.close()
            self._reset()
            self.start()
        elif before.running and not container.running:
            self._health = Health.UNKNOWN
            if self.log_read.is_set():  # else once its last lines are read: they say why
                self._tracker.container_ended(container.exit_code)
            self._spawn(self._read_end)
        if before != container:
            await self._note()

    def _spawn(self, work: Callable[[], Awaitable[None]], failed: Callable[[SparkError], None] | None = None) -> None:
        kept = keep(self.container.name, work, self._ports.clock, failed or self._failed)
        self._tasks.append(asyncio.create_task(kept))

    # --- the log --------------------------------------------------------------------------------------

    async def _read_log(self) -> None:
        """From this start's first line until the server was ready; then it is followed, of a long log only the tail."""
        if self.container.bare:
            hint = f" Try: systemctl status {self.container.pid}" if self.container.pid else ""
            self.buffer.end_of_log(f"it runs outside Docker ({self.container.where}).{hint}")
            self.start_read.set()
            self.log_read.set()
            return
        name, read = self.container.id, self._ports.docker.logs
        try:
            async with aclosing(read(name, follow=False, since=self._log_since)) as batches:
                async for batch in batches:
                    await self._take(batch)
                    if self._tracker.timeline().ready or self._log_lines > HEAD_LINES:
                        break  # a week of log is not read for its first minute
            running = self.container.running
            if running:
                self.start_read.set()
                await self.follows.wait()
                self._look_at_model()
            async with aclosing(read(name, follow=running, since=self._log_since, tail=TAIL_LINES)) as batches:
                async for batch in batches:
                    await self._take(batch)
            self.buffer.end_of_log("the container has ended")
            if not self.container.running:
                self._tracker.container_ended(self.container.exit_code)
        except (SparkError, OSError) as error:
            self.buffer.fail(str(failure_of("Its log", error)))
            if self.container.running:
                raise  # it is read on from here
        finally:
            self.start_read.set()
            self.log_read.set()
            await self._note()

    async def _take(self, batch: Sequence[LogLine]) -> None:
        """In slices: keys are answered between them, however many lines a flood hands over at once."""
        for start in range(0, len(batch), SLICE_LINES):
            await self._read_slice(batch[start : start + SLICE_LINES])
            await asyncio.sleep(0)
        self._log_since, self._log_lines = batch[-1].stamp, self._log_lines + len(batch)

    async def _read_slice(self, batch: Sequence[LogLine]) -> None:
        self.buffer.extend(batch)
        before, samples = self._tracker.timeline(), self._tracker.samples
        self._tracker.feed_many(batch)
        timeline = self._tracker.timeline()
        if timeline == before and self._tracker.samples is samples:
            return
        if timeline.ready and not before.ready:
            self._poll_now.set()
        self._look_at_model()
        await self._note()

    def _look_at_model(self) -> None:
        """For the explanation, which is for those who stay."""
        model = self._tracker.timeline().facts.model or model_argument(self.container)
        if model and model != self._asked_for and self.follows.is_set() and self._ports.has("checkpoints"):
            self._asked_for = model
            self._spawn(lambda: self._read_checkpoint(model))

    async def _read_checkpoint(self, model: str) -> None:
        self._checkpoint = value_of(await in_thread(self._ports.checkpoints.read, model))
        await self._note()

    async def _read_image(self) -> None:
        """Its names in registries, for the record of its start."""
        with suppress(SparkError):
            self._image = await self._ports.docker.image(self.container.image_id or self.container.image)
            await self._note()

    async def _read_end(self) -> None:
        """What the kernel and the memory guard said of its end."""
        if self._ports.has("guarding"):
            self._guard = await guard_entry(self.container, self._ports.guarding.journal)
            if self._guard is not None:
                await self._note()
        self.kernel_lines = await kernel_lines(self.container, self._ports.host)

    async def was_stopped(self) -> bool:
        """Whether a person, a program or the memory guard ended it, as far as that is known; false while it runs."""
        await self._read_end()
        ended = self.state is EngineState.STOPPED and self.container.exit_code != 137  # SIGKILL: of the kernel, too
        return not self.container.running and (self._asked_to_stop or ended or self._guard is not None)

    @property
    def _asked_to_stop(self) -> bool:
        """We stopped it, or Docker sent a signal to end: no signal that the engine ignored long ago."""
        asked = (self.container.finished_at or 0.0) - self.signalled_at < MOST_GRACE_SECONDS
        return self.stop_requested or asked

    # --- health ---------------------------------------------------------------------------------------

    @property
    def endpoint(self) -> Endpoint | None:
        """Where the API is, key included; None while no port is published."""
        key = self._ports.secrets.api_key(self.container.api_key_file) if self.container.api_key_file else None
        return endpoint_of(self.container, key)

    async def _poll_health(self) -> None:
        while self.container.running:
            await self.check_health()
            self._asked.set()
            self._poll_now.clear()
            seconds = SERVING_POLL_SECONDS if self.state is EngineState.SERVING else STARTING_POLL_SECONDS
            await pause(self._ports.clock, seconds, self._poll_now)

    async def check_health(self) -> Health:
        """Asks `/health`, and `/v1/models` when they are not known yet."""
        endpoint = self.endpoint
        if endpoint is None:
            return Health.UNKNOWN
        health = await self._ports.api.health(endpoint)
        if health is Health.OK and not self._models:
            try:
                self._models = await self._ports.api.models(endpoint)
                self._version = await self._ports.api.version(endpoint)
            except ApiKeyRejected:
                self._was_serving = True  # it serves; without its key we cannot ask what
            except SparkError:
                health = Health.UNKNOWN  # between two states: the next poll decides
        if health is not self._health or (self._models and not self._was_serving):
            self._health = health
            self._was_serving = self._was_serving or bool(self._models)
            await self._note()
        return health

    async def reach(self) -> tuple[Endpoint, Health]:
        """Where it can be asked, and what its health is. Raises EngineUnreachable or EngineDead, with the reason why it
        cannot be asked."""
        name, endpoint = self.container.name, self.endpoint
        if not self.container.running:
            status = self.container.status.value
            raise EngineUnreachable(f"{name} is not running ({status}).", f"Start it: spark-tui restart {name}")
        if self.container.status is ContainerStatus.PAUSED:
            raise EngineUnreachable(f"{name} is paused in Docker.", f"Resume it: docker unpause {name}")
        if endpoint is None:
            remedy = "Launch it from a preset, or publish its port: docker run -p ..."
            raise EngineUnreachable(f"{name} publishes no port.", remedy)
        for _ in range(HEALTH_TRIES):
            if (health := await self.check_health()) is not Health.UNKNOWN:
                break
        why = f"Read why: spark-tui logs {name}\nStart it again: spark-tui restart {name}"
        if self.container.bare:
            why = outside_docker(self.container).remedy
        if health is Health.DEAD:
            raise EngineDead(f"The engine of {name} is dead; only its web server answers.", why)
        if health is Health.FAILING:
            raise EngineUnreachable(f"{name} is {health.value}.", why)
        return endpoint, health

    def not_ready(self, health: Health) -> EngineUnreachable:
        """The error of an engine that cannot be asked yet."""
        name = self.container.name
        return EngineUnreachable(
            f"{name} is not ready yet: port {self.view().port} is {health.value}.",
            "Wait: spark-tui ps" if self.container.bare else f"Follow its start: spark-tui logs {name} -f",
        )

    # --- what others see ------------------------------------------------------------------------------

    @property
    def state(self) -> EngineState:
        container, outcome = self.container, self._tracker.timeline().outcome
        state = state_of(container, self._health, self._models, self._was_serving)
        if state not in (EngineState.STOPPED, EngineState.FAILED):
            return state
        # Who was asked to end has not failed, whatever the code: 137 is the end of a grace time.
        if self._asked_to_stop or outcome is StartOutcome.STOPPED:
            return EngineState.STOPPED
        # vLLM's API server ends with code 0 when its engine core has died: then the log decides, not the code.
        died = container.exit_code == 0 and outcome is StartOutcome.FAILED
        return EngineState.FAILED if died else state

    def mark_warm(self, seconds: float) -> None:
        """The first request was answered: the JIT is warm."""
        self._tracker.mark_warm(seconds)
        self._changed()

    def view(self) -> EngineView:
        port, timeline = api_port(self.container), self._tracker.timeline()
        return EngineView(
            container=self.container,
            state=self.state,
            runtime=runtime_of(self.container),
            exposure=exposure_of(self.container, port),
            port=port,
            health=self._health,
            models=self._models,
            version=self._version or timeline.facts.version,
            timeline=timeline,
            # Of its first minute alone they say nothing about now, and are as many as came with its last line.
            samples=self._tracker.samples if self.follows.is_set() else (),
            checkpoint=self._checkpoint,
            first_line=self._first_line,
            stopping=self.stop_requested and self.container.running,
            image=self._image,
            guard=None if self.container.running else self._guard,
        )

    async def moved(self, since: int) -> None:
        """Waits until there are more changes than the `changes` read before."""
        async with self._moved:
            await self._moved.wait_for(lambda: self.changes > since)

    async def settled(self) -> None:
        """Waits until the log of this start has been read once and, while it runs, its health was asked once."""
        await self.start_read.wait()
        await self._asked.wait()

    async def _note(self) -> None:
        self.changes += 1
        self._changed()
        async with self._moved:
            self._moved.notify_all()


def stamp_of_start(container: ContainerFacts) -> str:
    """A stamp just before this start: the log of a container that was started again holds earlier starts too."""
    if container.started_at is None or container.finished_at is None:
        return ""
    return stamp_before(container.started_at)


def stamp_before(seconds: float) -> str:
    """A stamp as Docker writes it, a millisecond before a moment."""
    return datetime.fromtimestamp(seconds - 0.001, UTC).isoformat().replace("+00:00", "Z")


REFRESH_SECONDS = 30.0
AWAY_SECONDS = 5.0
"""Between two attempts to reach a Docker that is away: asking costs next to nothing."""
SETTLE_SECONDS = 0.15
PUBLISH_SECONDS = 0.25
"""The first change is shown at once; of those that follow each other, four a second."""
EXPLAIN_SECONDS = 5.0
LOOK_SECONDS = 3.0
SILENT_SECONDS: Final = 5.0
LISTED_SECONDS: Final = 10.0
"""Docker lists containers in milliseconds; while it pulls onto a slow disk, in seconds."""


class EngineSupervisor:
    """Finds engines, watches each, and publishes their views to the store."""

    @classmethod
    def from_context(cls, context: Context) -> EngineSupervisor:
        return cls(context.ports, context.store, context[EngineFinder])

    def __init__(self, ports: Ports, store: Store, finder: EngineFinder | None = None) -> None:
        self._ports = ports
        self._store = store
        self._finder = finder or EngineFinder(ports)
        self._watches: dict[str, EngineWatch] = {}
        self._dirty = asyncio.Event()
        self._refresh_wanted = asyncio.Event()
        self._refresh_lock = asyncio.Lock()
        self._found = asyncio.Event()
        self._asked = asyncio.Event()
        self._known: dict[str, EngineState] = {}
        self._explained: dict[str, tuple[EngineView, Explanation]] = {}
        self.docker_problem = ""
        """Why Docker does not answer now; empty when it does, or was not asked yet."""
        self._blind = ""  # why engines outside Docker are not known
        self.on_views: Callable[[tuple[EngineView, ...]], None] = lambda _: None
        """Called with every engine whenever something may have changed; must be quick."""
        self.baseline: Callable[[ContainerFacts], Baseline | None] = lambda _: None
        """How fast the same engine was before; must be quick."""

    # --- the loops ------------------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for loop in (self._refresh_loop, self._event_loop, self._publish_loop, self._explain_loop):
                    group.create_task(keep("Engines", loop, self._ports.clock, self._fail))
        finally:
            await self.close()

    async def close(self) -> None:
        self.on_views(self.views())
        watches, self._watches = list(self._watches.values()), {}
        for watch in watches:
            await watch.close()

    async def _refresh_loop(self) -> None:
        while True:
            self._refresh_wanted.clear()
            await self.refresh()
            await pause(self._ports.clock, REFRESH_SECONDS, self._refresh_wanted)
            await self._ports.clock.sleep(SETTLE_SECONDS)  # events come in bursts: one refresh for all of them

    async def _event_loop(self) -> None:
        pause = 1.0
        while True:
            try:
                async for event in self._ports.docker.events():
                    pause = 1.0
                    watch = self._watches.get(event.container_id)
                    if watch is not None and event.asks_to_stop:
                        watch.signalled_at = event.at
                    self._refresh_wanted.set()
            except SparkError as error:
                self._fail(error)
            await self._ports.clock.sleep(pause)
            pause = min(pause * 2, AWAY_SECONDS)
            self._refresh_wanted.set()

    async def _publish_loop(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            self.publish()
            await self._ports.clock.sleep(PUBLISH_SECONDS)

    async def _explain_loop(self) -> None:
        """Some findings depend on the time alone: an engine that is stuck logs nothing."""
        while True:
            await self._ports.clock.sleep(EXPLAIN_SECONDS)
            self._explain(self.views(), again=True)

    # --- what runs ------------------------------------------------------------------------------------

    def wake(self) -> None:
        self._refresh_wanted.set()

    async def refresh(self) -> None:
        """Asks Docker for the containers; a failure leaves the last engines, marked stale."""
        async with self._refresh_lock:
            bare = await self._outside_docker()
            try:
                containers = await self._listed()
            except (SparkError, OSError) as error:
                known = (watch.container for watch in self._watches.values())
                await self._adopt((*(each for each in known if not each.bare), *bare))
                self._fail(failure_of("Docker", error))
                return
            finally:
                self._asked.set()
            self.docker_problem = ""
            await self._adopt((*containers, *bare))
            self._found.set()
            self.publish()

    async def _outside_docker(self) -> tuple[ContainerFacts, ...]:
        """The engines that run outside Docker; those known while processes cannot be listed."""
        try:
            async with self._asking(self._finder.outside()) as call:
                if not call.done():
                    raise TimeoutError(f"no answer for {SILENT_SECONDS:.0f} s")
                found, self._blind = call.result(), ""
        except (SparkError, OSError) as error:
            self._blind = str(failure_of("Processes cannot be listed", error))
            found = tuple(watch.container for watch in self._watches.values() if watch.container.bare)
        return found

    async def _listed(self) -> Sequence[ContainerFacts]:
        """The containers. Docker's engines are marked stale while the answer takes longer than `SILENT_SECONDS`."""
        async with self._asking(self._ports.docker.containers()) as call:
            if not call.done():
                self._fail(_silent(SILENT_SECONDS))
            return await call

    @asynccontextmanager
    async def _asking(self, work: Awaitable[T]) -> AsyncIterator[asyncio.Future[T]]:
        """The work, done unless it takes longer than `SILENT_SECONDS`; it is not awaited any longer."""
        answered = asyncio.Event()
        call = asyncio.ensure_future(work)
        call.add_done_callback(lambda _: answered.set())
        try:
            await pause(self._ports.clock, SILENT_SECONDS, answered)
            yield call
        finally:
            call.cancel()

    async def look(self, *, docker: bool = True) -> tuple[EngineView, ...]:
        """Every engine once, for a front end that does not stay: its start is read and its health asked.

        Raises Docker's error, also where it does not answer within `LISTED_SECONDS`; with `docker` false only what runs
        outside it. What an engine has not reported within `LOOK_SECONDS` stays unknown.
        """
        try:
            async with asyncio.timeout(LISTED_SECONDS):
                containers = await self._ports.docker.containers() if docker else ()
        except TimeoutError:
            raise _silent(LISTED_SECONDS) from None
        bare = await self._outside_docker()
        async with self._refresh_lock:
            await self._adopt((*containers, *bare), follow=False)
        settled = [asyncio.ensure_future(watch.settled()) for watch in self._watches.values()]
        if settled:
            _, late = await asyncio.wait(settled, timeout=LOOK_SECONDS)
            for task in late:
                task.cancel()
        self.publish()
        return self.views()

    async def _adopt(self, containers: Sequence[ContainerFacts], *, follow: bool = True) -> None:
        found = {container.id: container for container in containers if runtime_of(container)}
        for gone in [key for key in self._watches if key not in found]:
            await self._watches.pop(gone).close()
        for container in found.values():
            await self._look(container, follow=follow)

    async def _look(self, container: ContainerFacts, *, follow: bool = True) -> EngineWatch:
        watch = self._watches.get(container.id)
        if watch is None:
            watch = EngineWatch(container, self._ports, self._dirty.set, self._store.fail)
            self._watches[container.id] = watch
            watch.start()
        else:
            await watch.update(container)
        if follow:
            watch.follows.set()
        return watch

    async def watch(self, container: str) -> EngineWatch:
        """The watch of one engine by name or id, inspected just now. Raises ContainerNotFound."""
        facts = await self._finder.inspect(container)
        async with self._refresh_lock:
            watch = await self._look(facts)
        self.publish()
        return watch

    def find(self, name: str) -> EngineWatch | None:
        """The watch of a container by name or id prefix, without asking Docker."""
        for watch in self._watches.values():
            found = watch.container
            if name in (found.name, found.id) or (len(name) >= 12 and found.id.startswith(name)):
                return watch
        return None

    def endpoint_of(self, name: str) -> Endpoint | None:
        """Where that engine's server is."""
        watch = self.find(name)
        return watch.endpoint if watch else None

    def get(self, name: str) -> EngineWatch:
        """Like `find`; raises ContainerNotFound."""
        watch = self.find(name)
        if watch is None:
            known = ", ".join(sorted(w.container.name for w in self._watches.values())) or "none"
            raise ContainerNotFound(f"No engine named {name}.", f"Known engines: {known}.")
        return watch

    async def listed(self, seconds: float) -> None:
        """Waits until Docker has answered, or failed to; at most this many seconds."""
        await pause(self._ports.clock, seconds, self._asked)

    async def settled(self) -> None:
        """Waits until the containers are known, and each running engine's log was read and its health asked once."""
        await self._found.wait()
        running = [watch for watch in self._watches.values() if watch.container.running]
        await asyncio.gather(*(watch.settled() for watch in running))

    # --- what is shown --------------------------------------------------------------------------------

    def views(self) -> tuple[EngineView, ...]:
        """Every engine: those that run first, then by name."""
        views = [watch.view() for watch in self._watches.values()]
        return tuple(sorted(views, key=lambda view: (not view.container.running, view.name)))

    def publish(self) -> None:
        views, now = self.views(), self._ports.clock.now()
        self.on_views(views)
        if value_of(self._store.world[ENGINES]) is not None:
            for view in views:
                before = self._known.get(view.container.id)
                event = _transition(view, before, now) if before is not view.state else None
                if event is not None and not self._is_told(event, view):
                    self._store.add_event(event)
        self._known = {view.container.id: view.state for view in views}
        self._explain(views)
        if not self.docker_problem:
            self._store.put(ENGINES, aged(Ok(views, now), self._blind) if self._blind else Ok(views, now))

    def _is_told(self, event: Event, view: EngineView) -> bool:
        """Whether the feed, which outlives the program, knows already that this start is ready."""
        since = view.container.started_at or 0.0
        return event.kind is EventKind.READY and any(
            told.kind is EventKind.READY and told.subject == view.name and told.at >= since
            for told in self._store.world.events
        )

    def _explain(self, views: tuple[EngineView, ...], *, again: bool = False) -> None:
        """Renews the explanations of engines that are followed and have changed; of all of them if `again`."""
        memory = value_of(self._store.world.memory)
        pool = None if memory is None else memory.total / GIB
        ports = {view.name: view.port for view in views if view.port is not None}
        found: dict[str, tuple[EngineView, Explanation]] = {}
        for view in views:
            watch = self._watches.get(view.container.id)
            if watch is None or not watch.follows.is_set():
                continue
            before = self._explained.get(view.name)
            if before is None or again or before[0] != view:
                from spark_tui.observe.explain.model.explain import explain_view

                taken = {port for name, port in ports.items() if name != view.name}
                explanation = explain_view(
                    view,
                    now=self._ports.clock.now(),
                    pool_gib=pool,
                    taken_ports=taken,
                    kernel_lines=watch.kernel_lines,
                    baseline=self.baseline(view.container) if view.samples else None,
                )
                before = (view, explanation if before is None or before[1] != explanation else before[1])
            found[view.name] = before
        self._explained = found
        self._store.put(EXPLANATIONS, {name: explanation for name, (_, explanation) in found.items()})

    def _fail(self, error: SparkError) -> None:
        """Docker's engines stay as they were last seen; those beside it are shown as they are."""
        self.docker_problem = str(error)
        before, views = self._store.world[ENGINES], self.views()
        if any(view.container.bare for view in views) or any(each.container.bare for each in value_of(before) or ()):
            before = Ok(views, self._ports.clock.now())
        self._store.put(ENGINES, aged(before, str(error)))

    def say(self, text: str, severity: Severity = Severity.INFO, remedy: str = "", **about: Any) -> None:
        """As `Store.say`."""
        self._store.say(text, severity, remedy, **about)

    # --- on request ------------------------------------------------------------------------------

    async def stop(self, name: str, grace_seconds: int = 30) -> None:
        """Stops an engine gracefully and waits until it has ended."""
        watch = self._actable(name)
        if watch is not None and watch.container.running:
            watch.stop_requested = True
            self._dirty.set()
        await self._act(name, lambda container: self._ports.docker.stop(container, grace_seconds))

    async def restart(
        self, name: str, grace_seconds: int = 30, *, settle: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """Stops and starts an engine with the settings that it has. `settle` is awaited in between: memory of what
        has ended comes back late."""
        if settle is None:
            await self._act(name, lambda container: self._ports.docker.restart(container, grace_seconds))
            return
        await self.stop(name, grace_seconds)
        await settle()
        await self._act(name, self._ports.docker.start)

    async def remove(self, name: str) -> None:
        await self._act(name, self._ports.docker.remove)

    def _actable(self, name: str) -> EngineWatch | None:
        """Like `find`. Raises RefusedError for what Docker does not run."""
        watch = self.find(name)
        if watch is not None and watch.container.bare:
            raise outside_docker(watch.container, acts=True)
        return watch

    async def _act(self, name: str, action: Callable[[str], Awaitable[None]]) -> None:
        watch = self._actable(name)
        await action(watch.container.id if watch else name)
        await self.refresh()


NEWS_SECONDS = 120.0
"""An engine that has served for longer is only new to us."""


def _silent(seconds: float) -> DaemonNotRunning:
    return DaemonNotRunning(
        f"Docker has not answered for {seconds:.0f} s.",
        "It may be busy: wait a moment. Otherwise: sudo systemctl restart docker",
    )


def _transition(view: EngineView, before: EngineState | None, now: float) -> Event | None:
    name, took, started = view.name, view.timeline.seconds, view.container.started_at
    if view.container.bare and started is not None and now - started >= NEWS_SECONDS:
        return None  # without a log, nothing tells a start from an engine that is only new to us
    match view.state:
        case EngineState.SERVING:
            if started is not None and took is not None and now - (started + took) >= NEWS_SECONDS:
                return None
            after = f" after {human_duration(took)}" if took is not None else ""
            return Event(now, Severity.INFO, f"{name} ready{after}", "", EventKind.READY, name)
        case EngineState.FAILED:
            why = view.timeline.failure.line if view.timeline.failure else "see its log"
            text, code = view.timeline.news, view.container.exit_code
            return Event(now, Severity.ERROR, f"{name} failed (exit {code}): {why}", "", EventKind.FAILED, name, text)
        case EngineState.NOT_ANSWERING:
            text = f"{name} is not responding: {view.health.value}"
            return Event(now, Severity.WARNING, text, "Check its log.", EventKind.STALLED, name)
        case EngineState.STOPPED if before is not None:
            return Event(now, Severity.INFO, f"{name} stopped", "", EventKind.STOPPED, name)
        case EngineState.STARTING if before is not EngineState.CREATED:
            return Event(now, Severity.INFO, f"{name} is starting", "", EventKind.STARTED, name)
    return None


async def guard_entry(container: ContainerFacts, journal: GuardJournal) -> GuardEntry | None:
    """The act of the memory guard that ended a container; None for one that runs or ended otherwise."""
    if container.running or container.finished_at is None:
        return None
    entries = await in_thread(journal.entries)
    return end_by_guard(entries, container.name, container.started_at, container.finished_at)


async def kernel_lines(container: ContainerFacts, host: HostProbe) -> tuple[str, ...]:
    """What the kernel said when a container failed; empty for one that runs or ended by itself."""
    if container.running or container.exit_code in (None, 0) or container.finished_at is None:
        return ()
    return await in_thread(host.kernel_lines, container.finished_at)


async def explain_container(
    container: ContainerFacts,
    docker: ContainerEngine,
    api: EngineApi,
    host: HostProbe,
    clock: Clock,
    checkpoints: CheckpointSource,
    baseline: Baseline | None = None,
    journal: GuardJournal | None = None,
) -> Explanation:
    """Reads the log of the container's last start and explains it. Raises Docker's errors, and RefusedError for an
    engine outside Docker, which has no log here.

    Memory is bounded however long the log is: no line is kept but those that prove something.
    """
    from spark_tui.observe.explain.model.explain import LogExplainer

    if container.bare:
        raise outside_docker(container)
    reader = LogExplainer(container.started_at, runtime_of(container))
    async with aclosing(docker.logs(container.id, follow=False, since=stamp_of_start(container))) as batches:
        async for batch in batches:
            reader.feed_many(batch)
    memory, port, health = value_of(host.memory()), api_port(container), Health.UNKNOWN
    if port is not None and container.running:
        health = await api.health(Endpoint(f"http://127.0.0.1:{port}"))  # needs no key
    model = model_argument(container) or reader.model
    others = await docker.containers()
    context = LogContext.of(
        container,
        health=health,
        now=clock.now(),
        checkpoint=value_of(await in_thread(checkpoints.read, model)) if model else None,
        pool_gib=None if memory is None else memory.total / GIB,
        taken_ports={port for other in others if other.running and (port := api_port(other)) is not None},
    )
    ended_by = None if journal is None else await guard_entry(container, journal)
    around = replace(context, kernel_lines=await kernel_lines(container, host), baseline=baseline, guard=ended_by)
    return reader.explanation(around)


async def engines_here(context: Context, name: str = "") -> tuple[EngineView, ...]:
    """Every engine, that of an address as a `name` too; without Docker those outside it. Raises Docker's error where
    there are none, and an address's own."""
    if "://" in name:
        await context[EngineFinder].find(name)
    try:
        return await context[EngineSupervisor].look()
    except SparkError:
        views = await context[EngineSupervisor].look(docker=False)
        if not views:
            raise
        return views


async def view_of(context: Context, container: ContainerFacts) -> EngineView:
    """That engine as it is now. Raises ContainerNotFound."""
    views = await context[EngineSupervisor].look(docker=not container.bare)
    view = next((each for each in views if each.name == container.name), None)
    if view is None:
        raise ContainerNotFound(f"{container.name} was removed meanwhile.", "See: spark-tui ps -a")
    return view
