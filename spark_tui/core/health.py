"""Looks for what no single figure shows: a stalled engine, a GPU stuck at low power, leaked shared memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from spark_tui.core.engines import EngineSupervisor
from spark_tui.core.store import AlarmBoard, Store
from spark_tui.domain.chat.message import ChatParameters, ChatRequest, Message, Role
from spark_tui.domain.engine.state import Endpoint, EngineState
from spark_tui.domain.errors import EngineDead, EngineFailed, EngineUnreachable, SparkError
from spark_tui.domain.finding import AlarmId, Finding, Severity
from spark_tui.domain.host.detectors import (
    LOW_POWER_REMEDY,
    PROBE_SECONDS,
    STALL_REMEDY,
    LowPowerState,
    Stall,
    StallState,
    TokenSample,
    leaked,
    probed,
    watch_power,
    watch_tokens,
)
from spark_tui.domain.host.vitals import GpuReading
from spark_tui.domain.logs.serving import ServingSample
from spark_tui.domain.logs.view import EngineView
from spark_tui.domain.quantities import MIB
from spark_tui.domain.reading import Ok, Reading, value_of
from spark_tui.services.executors import in_thread
from spark_tui.services.ports import Clock, EngineApi, HostProbe

TOKENS_SECONDS: Final = 5.0
SHARED_SECONDS: Final = 60.0
"""To learn who has a file open, every process is looked into."""
LEAK_WORTH_BYTES: Final = 64 * MIB
_STUCK: Final = (EngineUnreachable, EngineDead, EngineFailed)

Tokens = Callable[[str], TokenSample | None]
"""The latest counters of an engine by its name; None where its metrics cannot be read."""


@dataclass(slots=True)
class _Watched:
    """One start of an engine: its suspicion, and the counters made of its log lines."""

    start: tuple[str, float | None]
    state: StallState = field(default_factory=StallState)
    last_line: int = -1
    generated: float = 0.0
    prompt: float = 0.0


class HealthWatch:
    """Watches until cancelled. In read-only mode no engine is asked anything: a suspicion stays one."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        host: HostProbe,
        api: EngineApi,
        supervisor: EngineSupervisor,
        alarms: AlarmBoard,
        tokens: Tokens = lambda _: None,
        *,
        read_only: bool = False,
    ) -> None:
        self._store = store
        self._clock = clock
        self._host = host
        self._api = api
        self._supervisor = supervisor
        self._alarms = alarms
        self._tokens = tokens
        self._read_only = read_only
        self._engines: dict[str, _Watched] = {}
        self._power = LowPowerState()

    async def run(self) -> None:
        """Looks until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._every(TOKENS_SECONDS, self.look_at_engines))
            group.create_task(self._every(SHARED_SECONDS, self.look_at_shared_memory))

    async def _every(self, seconds: float, look: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._clock.sleep(seconds)
            await look()

    # --- the GPU --------------------------------------------------------------------------------------

    def gpu_read(self, reading: Reading[GpuReading]) -> None:
        """Called with every reading of the GPU."""
        if not isinstance(reading, Ok):
            self._power = LowPowerState()
        else:
            self._power = watch_power(self._power, reading.value, self._clock.monotonic())
        if self._power.stuck:
            self._alarms.raise_(
                Finding(AlarmId.LOW_POWER, Severity.ERROR, self._power.sentence, remedy=LOW_POWER_REMEDY)
            )
        else:
            self._alarms.clear(AlarmId.LOW_POWER, over="The GPU clock is normal again.")

    # --- engines --------------------------------------------------------------------------------------

    async def look_at_engines(self) -> None:
        """One look at every engine that serves; a suspicion is put to the proof."""
        serving = {view.name: view for view in self._views() if view.state is EngineState.SERVING}
        for name in [name for name in self._engines if name not in serving]:
            del self._engines[name]
            self._alarms.clear(AlarmId.STALL, name)
        await asyncio.gather(*(self._look(view) for view in serving.values()))

    async def _look(self, view: EngineView) -> None:
        start = (view.container.id, view.container.started_at)
        watched = self._engines.get(view.name)
        if watched is None or watched.start != start:
            watched = self._engines[view.name] = _Watched(start)
        for sample in self._samples(watched, view):
            watched.state = watch_tokens(watched.state, sample)
        if watched.state.probe_wanted and not self._read_only:
            answered = await self._answers(view)
            if self._engines.get(view.name) is watched:
                watched.state = probed(watched.state, answered=answered)
        self._show(view.name, watched.state)

    def _samples(self, watched: _Watched, view: EngineView) -> list[TokenSample]:
        """New counters: from the engine's metrics, else from the lines that it writes about its serving."""
        told = self._tokens(view.name)
        if told is not None:
            last = watched.state.last
            return [told] if last is None or told.at > last.at else []
        return _of_lines(watched, view.samples, self._clock.monotonic())

    async def _answers(self, view: EngineView) -> bool:
        """Whether a request for one token is answered. What proves nothing counts as an answer."""
        watch = self._supervisor.find(view.name)
        endpoint, served = watch.endpoint if watch is not None else None, view.served_name
        if endpoint is None or not served:
            return True
        request = ChatRequest(served, (Message(Role.USER, "ping"),), ChatParameters(max_tokens=1))
        answer = asyncio.ensure_future(self._ask(endpoint, request))
        limit = asyncio.ensure_future(self._clock.sleep(PROBE_SECONDS))
        try:
            await asyncio.wait((answer, limit), return_when=asyncio.FIRST_COMPLETED)
            return answer.done() and answer.result()
        finally:
            for task in (answer, limit):
                task.cancel()
            await asyncio.gather(answer, limit, return_exceptions=True)

    async def _ask(self, endpoint: Endpoint, request: ChatRequest) -> bool:
        try:
            async with aclosing(self._api.chat(endpoint, request)) as events:
                async for _ in events:
                    return True
        except _STUCK:
            return False
        except SparkError:  # a refusal is an answer
            return True
        return True

    def _show(self, name: str, state: StallState) -> None:
        sentence = state.sentence(self._clock.monotonic())
        if state.stall is Stall.NONE:
            self._alarms.clear(AlarmId.STALL, name, over=f"{name}: generating tokens again.")
            return
        severity = Severity.ERROR if state.stall is Stall.CONFIRMED else Severity.WARNING
        self._alarms.raise_(Finding(AlarmId.STALL, severity, sentence, remedy=STALL_REMEDY, subject=name))

    def _views(self) -> tuple[EngineView, ...]:
        return value_of(self._store.world.engines) or ()

    # --- shared memory --------------------------------------------------------------------------------

    async def look_at_shared_memory(self) -> None:
        """One look at /dev/shm."""
        files = value_of(await in_thread(self._host.shared_files))
        if files is None:
            return
        leak = leaked(files, engines_run=any(view.container.running for view in self._views()))
        if leak.size >= LEAK_WORTH_BYTES:
            self._alarms.raise_(Finding(AlarmId.LEAK, Severity.WARNING, leak.sentence, remedy=leak.remedy))
        else:
            self._alarms.clear(AlarmId.LEAK)


def _of_lines(watched: _Watched, samples: tuple[ServingSample, ...], now: float) -> list[TokenSample]:
    """Counters that grow by what each new line says; empty while there is none."""
    found = []
    for sample in samples:
        if sample.running is None or sample.line is None or sample.line <= watched.last_line:
            continue
        watched.last_line = sample.line
        watched.generated += sample.generation_rate or 0.0
        watched.prompt += sample.prompt_rate or 0.0
        found.append(TokenSample(now, sample.running, watched.generated, watched.prompt))
    return found[-1:]
