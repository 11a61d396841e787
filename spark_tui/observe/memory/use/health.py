"""Looks for what no single figure shows: a stalled engine, a GPU stuck at low power, leaked shared memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Final

from msgspec import Struct, field

from spark_tui.base.context import Context
from spark_tui.base.engine.message import ChatParameters, ChatRequest, Message, Role
from spark_tui.base.engine.state import Endpoint, EngineState
from spark_tui.base.errors import EngineDead, EngineFailed, EngineUnreachable, SparkError
from spark_tui.base.executors import end_tasks, in_thread
from spark_tui.base.finding import AlarmId, Finding, Ok, Reading, Severity, value_of
from spark_tui.base.host import detectors
from spark_tui.base.host.vitals import GpuReading
from spark_tui.base.ports import Clock, EngineApi, HostProbe
from spark_tui.base.quantities import MIB
from spark_tui.base.store import AlarmBoard, Store
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.metrics.use.metrics import EngineMetricsCollector

TOKENS_SECONDS: Final = 5.0
SHARED_SECONDS: Final = 60.0
"""To learn who has a file open, every process is looked into."""
LEAK_WORTH_BYTES: Final = 64 * MIB
_STUCK: Final = (EngineUnreachable, EngineDead, EngineFailed)

Tokens = Callable[[str], detectors.TokenSample | None]
"""The latest counters of an engine by its name; None where its metrics cannot be read."""


class _WatchedStart(Struct):
    """One start of an engine: its suspicion, and the counters made of its log lines."""

    start: tuple[str, float | None]
    state: detectors.StallState = field(default_factory=detectors.StallState)
    last_line: int = -1
    generated: float = 0.0
    prompt: float = 0.0


class HealthWatch(Struct, eq=False):
    """Watches until cancelled. In read-only mode no engine is asked anything: a suspicion stays one."""

    store: Store
    clock: Clock
    host: HostProbe
    api: EngineApi
    supervisor: EngineSupervisor
    alarms: AlarmBoard
    tokens: Tokens = lambda _: None
    read_only: bool = False
    _engines: dict[str, _WatchedStart] = field(default_factory=dict)
    _power: detectors.LowPowerState = field(default_factory=detectors.LowPowerState)

    @classmethod
    def from_context(cls, context: Context) -> HealthWatch:
        return cls(
            context.store,
            context.clock,
            context.host,
            context.api,
            context[EngineSupervisor],
            context.alarms,
            lambda engine: context[EngineMetricsCollector].of(engine).token_sample(),
            read_only=context.settings.read_only,
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._every(TOKENS_SECONDS, self.look_at_engines))
            group.create_task(self._every(SHARED_SECONDS, self.look_at_shared_memory))

    async def _every(self, seconds: float, look: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self.clock.sleep(seconds)
            await look()

    # --- the GPU --------------------------------------------------------------------------------------

    def gpu_read(self, reading: Reading[GpuReading]) -> None:
        if not isinstance(reading, Ok):
            self._power = detectors.LowPowerState()
        else:
            self._power = detectors.watch_power(self._power, reading.value, self.clock.monotonic())
        if self._power.stuck:
            self.alarms.raise_(
                Finding(AlarmId.LOW_POWER, Severity.ERROR, self._power.sentence, remedy=detectors.LOW_POWER_REMEDY)
            )
        else:
            self.alarms.clear(AlarmId.LOW_POWER, over="The GPU clock is normal again.")

    # --- engines --------------------------------------------------------------------------------------

    async def look_at_engines(self) -> None:
        """One look at every engine that serves; a suspicion is put to the proof."""
        serving = {view.name: view for view in self.store.world.known(ENGINES) if view.state is EngineState.SERVING}
        for name in [name for name in self._engines if name not in serving]:
            del self._engines[name]
            self.alarms.clear(AlarmId.STALL, name)
        await asyncio.gather(*(self._look(view) for view in serving.values()))

    async def _look(self, view: EngineView) -> None:
        start = (view.container.id, view.container.started_at)
        watched = self._engines.get(view.name)
        if watched is None or watched.start != start:
            watched = self._engines[view.name] = _WatchedStart(start)
        if (sample := self._sample(watched, view)) is not None:
            watched.state = detectors.watch_tokens(watched.state, sample)
        if watched.state.stall is detectors.Stall.SUSPECTED and not self.read_only:
            answered = await self._answers(view)
            if self._engines.get(view.name) is watched:
                watched.state = detectors.probed(watched.state, answered=answered)
        state, name = watched.state, view.name
        if state.stall is detectors.Stall.NONE:
            self.alarms.clear(AlarmId.STALL, name, over=f"{name}: generating tokens again.")
        else:
            severity = Severity.ERROR if state.stall is detectors.Stall.CONFIRMED else Severity.WARNING
            sentence = state.sentence(self.clock.monotonic())
            self.alarms.raise_(Finding(AlarmId.STALL, severity, sentence, remedy=detectors.STALL_REMEDY, subject=name))

    def _sample(self, watched: _WatchedStart, view: EngineView) -> detectors.TokenSample | None:
        """New counters: from the engine's metrics, else made of what the log's new lines say of the serving."""
        found, last = self.tokens(view.name), watched.state.last
        if found is not None:
            return found if last is None or found.at > last.at else None
        for line in view.samples:
            if line.running is not None and line.line is not None and line.line > watched.last_line:
                watched.last_line = line.line
                watched.generated += line.generation_rate or 0.0
                watched.prompt += line.prompt_rate or 0.0
                found = detectors.TokenSample(self.clock.monotonic(), line.running, watched.generated, watched.prompt)
        return found

    async def _answers(self, view: EngineView) -> bool:
        """Whether a request for one token is answered. What proves nothing counts as an answer."""
        watch = self.supervisor.find(view.name)
        endpoint, served = watch.endpoint if watch is not None else None, view.served_name
        if endpoint is None or not served:
            return True
        request = ChatRequest(served, (Message(Role.USER, "ping"),), ChatParameters(max_tokens=1))
        answer = asyncio.ensure_future(self._ask(endpoint, request))
        limit = asyncio.ensure_future(self.clock.sleep(detectors.PROBE_SECONDS))
        try:
            await asyncio.wait((answer, limit), return_when=asyncio.FIRST_COMPLETED)
            return answer.done() and answer.result()
        finally:
            await end_tasks(answer, limit)

    async def _ask(self, endpoint: Endpoint, request: ChatRequest) -> bool:
        try:
            async with aclosing(self.api.chat(endpoint, request)) as events:
                async for _ in events:
                    return True
        except _STUCK:
            return False
        except SparkError:  # a refusal is an answer
            return True
        return True

    # --- shared memory --------------------------------------------------------------------------------

    async def look_at_shared_memory(self) -> None:
        files = value_of(await in_thread(self.host.shared_files))
        if files is None:
            return
        leak = detectors.leaked(
            files, engines_run=any(view.container.running for view in self.store.world.known(ENGINES))
        )
        if leak.size >= LEAK_WORTH_BYTES:
            self.alarms.raise_(Finding(AlarmId.LEAK, Severity.WARNING, leak.sentence, remedy=leak.remedy))
        else:
            self.alarms.clear(AlarmId.LEAK)
