"""One container under watch: its log buffer, its boot history, its health."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from spark_tui.core.log_buffer import LogBuffer
from spark_tui.core.pause import pause
from spark_tui.domain.engine.boot import BootTracker
from spark_tui.domain.engine.container import ContainerFacts
from spark_tui.domain.engine.endpoint import Endpoint, Health, ServedModel
from spark_tui.domain.engine.serving_lines import ServingReader
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.engine.timeline import Outcome
from spark_tui.domain.engine.view import EngineView, api_port, endpoint_of, exposure_of, runtime_of, state_of
from spark_tui.domain.errors import ApiKeyRejected, SparkError
from spark_tui.domain.models.checkpoint import CheckpointFacts
from spark_tui.domain.reading import value_of
from spark_tui.services.ports import CheckpointSource, Clock, ContainerEngine, EngineApi, LogLine, SecretStore

STARTING_POLL_SECONDS = 1.0
SERVING_POLL_SECONDS = 15.0
"""Every probe writes an access line into the engine's own log: once it serves, ask seldom."""

HEAD_LINES = 50_000
TAIL_LINES = 20_000


class EngineWatch:
    """Follows one container from now until `close`. `changed` is called when its view may differ."""

    def __init__(
        self,
        container: ContainerFacts,
        docker: ContainerEngine,
        api: EngineApi,
        secrets: SecretStore,
        clock: Clock,
        changed: Callable[[], None],
        checkpoints: CheckpointSource | None = None,
    ) -> None:
        self.container = container
        self.buffer = LogBuffer()
        self._checkpoints = checkpoints
        self._checkpoint: CheckpointFacts | None = None
        self._asked_for = ""
        self._docker = docker
        self._api = api
        self._secrets = secrets
        self._clock = clock
        self._changed = changed
        self._tasks: list[asyncio.Task[None]] = []
        self._poll_now = asyncio.Event()
        self.log_read = asyncio.Event()
        self._moved = asyncio.Condition()
        self._start_read = asyncio.Event()
        self._asked = asyncio.Event()
        self._reset()

    def _reset(self) -> None:
        self._tracker = BootTracker(self.container.started_at)
        self._serving = ServingReader()
        self._first_line = self.buffer.end
        self._health = Health.UNKNOWN
        self._models: tuple[ServedModel, ...] = ()
        self._version = ""
        self._was_serving = False
        self.stop_requested = False
        self.log_read.clear()

    # --- life -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins to read the log, and to ask for health while the container runs."""
        self._start_read.clear()
        self._asked.clear()
        self._spawn(self._read_log())
        if self.container.running:
            self._spawn(self._poll_health())
        else:
            self._asked.set()

    async def close(self) -> None:
        """Ends the reading and the polling."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def update(self, container: ContainerFacts) -> None:
        """Takes the latest facts; a new start of the same container begins its history anew."""
        before, self.container = self.container, container
        restarted = container.running and container.started_at != before.started_at
        if restarted or (container.running and not before.running):
            await self.close()
            self._reset()
            self.start()
        elif before.running and not container.running:
            self._health = Health.UNKNOWN
            self._tracker.container_ended(container.exit_code)
        if before != container:
            await self._note()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    # --- the log --------------------------------------------------------------------------------------

    async def _read_log(self) -> None:
        try:
            last = await self._read_head()
            if self.container.running:
                self._start_read.set()
            await self._follow(last)
            self.buffer.end_of_log("the container has ended")
            if not self.container.running:
                self._tracker.container_ended(self.container.exit_code)
        except SparkError as error:
            self.buffer.fail(str(error))
        self._start_read.set()
        await self._note()

    async def _read_head(self) -> str:
        """Reads from this start's first line until the server was ready, or to the end. Returns the last stamp."""
        since, count = stamp_of_start(self.container), 0
        async with aclosing(
            self._docker.logs(self.container.id, follow=False, since=since)
        ) as batches:  # closing it early costs nothing: a week of log is not read for its first minute
            async for batch in batches:
                await self._take(batch)
                since, count = batch[-1].stamp, count + len(batch)
                if self._tracker.timeline().ready or count > HEAD_LINES:
                    break
        return since

    async def _follow(self, last: str) -> None:
        """Follows from where the head ended; of a long log only the tail is kept for reading."""
        async with aclosing(
            self._docker.logs(self.container.id, follow=self.container.running, since=last, tail=TAIL_LINES)
        ) as batches:
            async for batch in batches:
                await self._take(batch)

    async def _take(self, batch: Sequence[LogLine]) -> None:
        self.buffer.extend(batch)
        before, told = self._tracker.timeline(), self._serving.samples
        self._tracker.feed_many(batch)
        self._serving.feed_many(batch)
        if self._tracker.timeline() != before:
            if self._tracker.timeline().ready and not before.ready:
                self._poll_now.set()
            self._look_up_checkpoint()
            await self._note()
        elif self._serving.samples is not told:
            await self._note()

    def _look_up_checkpoint(self) -> None:
        """Reads the model's files once its name is known."""
        model = self._tracker.timeline().facts.model or self.container.model
        if self._checkpoints is not None and model and model != self._asked_for:
            self._asked_for = model
            self._spawn(self._read_checkpoint(self._checkpoints, model))

    async def _read_checkpoint(self, checkpoints: CheckpointSource, model: str) -> None:
        self._checkpoint = value_of(await asyncio.to_thread(checkpoints.read, model))
        await self._note()

    # --- health ---------------------------------------------------------------------------------------

    @property
    def endpoint(self) -> Endpoint | None:
        """Where the API is, key included; None while no port is published."""
        key = self._secrets.api_key(self.container.api_key_file) if self.container.api_key_file else None
        return endpoint_of(self.container, key)

    async def _poll_health(self) -> None:
        while self.container.running:
            await self.check_health()
            self._asked.set()
            serving = self.state is EngineState.SERVING
            self._poll_now.clear()
            await pause(self._clock, SERVING_POLL_SECONDS if serving else STARTING_POLL_SECONDS, self._poll_now)

    async def check_health(self) -> Health:
        """Asks `/health`, and `/v1/models` when they are not known yet."""
        endpoint = self.endpoint
        if endpoint is None:
            return Health.UNKNOWN
        health = await self._api.health(endpoint)
        if health is Health.OK and not self._models:
            try:
                self._models = await self._api.models(endpoint)
                self._version = await self._api.version(endpoint)
            except ApiKeyRejected:
                self._was_serving = True  # it serves; without its key we cannot ask what
            except SparkError:
                health = Health.UNKNOWN  # between two states: the next poll tells
        if health is not self._health or (self._models and not self._was_serving):
            self._health = health
            self._was_serving = self._was_serving or bool(self._models)
            await self._note()
        return health

    # --- what others see ------------------------------------------------------------------------------

    @property
    def state(self) -> EngineState:
        """Where the engine stands."""
        state = state_of(self.container, self._health, self._models, self._was_serving)
        if state not in (EngineState.STOPPED, EngineState.FAILED):
            return state
        if self.stop_requested:  # 137 after our own stop is the end of the grace time, not a failure
            return EngineState.STOPPED
        # vLLM's API server ends with code 0 when its engine core has died: then the log tells, and not the code.
        died = self.container.exit_code == 0 and self._tracker.timeline().outcome is Outcome.FAILED
        return EngineState.FAILED if died else state

    def mark_warm(self, seconds: float) -> None:
        """The first request was answered: the JIT is warm."""
        self._tracker.mark_warm(seconds)
        self._changed()

    def view(self) -> EngineView:
        """The engine as the front ends show it."""
        port = api_port(self.container)
        return EngineView(
            container=self.container,
            state=self.state,
            runtime=runtime_of(self.container),
            exposure=exposure_of(self.container, port),
            port=port,
            health=self._health,
            models=self._models,
            version=self._version or self._tracker.timeline().facts.version,
            timeline=self._tracker.timeline(),
            samples=self._serving.samples,
            checkpoint=self._checkpoint,
            first_line=self._first_line,
        )

    async def moved(self) -> EngineView:
        """Waits for the next change and returns the view."""
        async with self._moved:
            await self._moved.wait()
        return self.view()

    async def settled(self) -> None:
        """Waits until the log of this start has been read once and, while it runs, its health was asked once."""
        await self._start_read.wait()
        await self._asked.wait()

    async def _note(self) -> None:
        self._changed()
        async with self._moved:
            self._moved.notify_all()


def stamp_of_start(container: ContainerFacts) -> str:
    """A stamp just before this start: the log of a container that was started again holds earlier starts too."""
    if container.started_at is None or container.finished_at is None:
        return ""
    return datetime.fromtimestamp(container.started_at - 0.001, UTC).isoformat().replace("+00:00", "Z")
