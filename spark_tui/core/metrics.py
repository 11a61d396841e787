"""The metrics of every engine that serves: asked again and again, kept for six hours, told to whoever wants them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from spark_tui.core.metric_engine import FollowedEngine
from spark_tui.core.pause import pause
from spark_tui.core.poller import Poller
from spark_tui.core.store import Store
from spark_tui.domain.engine.endpoint import Endpoint
from spark_tui.domain.engine.metric_change import Snapshot
from spark_tui.domain.engine.metric_page import MetricPage
from spark_tui.domain.engine.metric_series import MetricId, Sample, SeriesView
from spark_tui.domain.engine.metric_values import HostLook, host_values
from spark_tui.domain.engine.metrics import EngineMetrics
from spark_tui.domain.engine.serving_lines import ServingSample
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.engine.view import EngineView
from spark_tui.domain.errors import EngineUnreachable, MetricsUnavailable, SparkError
from spark_tui.domain.host.detectors import TokenSample
from spark_tui.domain.reading import Missing, Reading, value_of
from spark_tui.services.ports import Clock
from spark_tui.services.ports_metrics import MetricsSource

FAST_SECONDS: Final = 1.0
"""While somebody looks."""
SLOW_SECONDS: Final = 5.0
"""Otherwise: every look writes an access line into the engine's own log."""
TIMEOUT_SECONDS: Final = 6.0
MAX_ENGINES: Final = 16
"""Engines that are remembered; of those that are gone the oldest is forgotten first."""
HOST: Final = ""
"""The name that the series of the box go by."""
_UNKNOWN: Final = "it does not serve"

Listener = Callable[[Sample], None]
_POLLED: Final = (EngineState.SERVING, EngineState.NOT_ANSWERING)


class NoMetrics:
    """The MetricsSource of a world that has none."""

    async def read(self, endpoint: Endpoint) -> MetricPage:
        """Raises MetricsUnavailable."""
        raise MetricsUnavailable("Engines have no metrics here.", "Their logs and their API are all they tell.")

    async def close(self) -> None:
        """Nothing is open."""


class Attention:
    """Somebody looks, until `end`. May be used as a context manager."""

    def __init__(self, collector: EngineMetricsCollector) -> None:
        self._collector: EngineMetricsCollector | None = collector

    def end(self) -> None:
        """Nobody looks any more. A second call does nothing."""
        collector, self._collector = self._collector, None
        if collector is not None:
            collector.looked_away()

    def __enter__(self) -> Attention:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


@dataclass(slots=True)
class _Asking:
    """The poller of an engine that serves, and the task that it runs in."""

    poller: Poller[MetricPage]
    task: asyncio.Task[None]
    state: EngineState


class EngineMetricsCollector:
    """Follows the engines of the store until cancelled. Everything belongs on the event loop.

    `endpoint` tells where an engine's API is, by its name; None while it has none.
    """

    def __init__(
        self, source: MetricsSource, store: Store, clock: Clock, endpoint: Callable[[str], Endpoint | None]
    ) -> None:
        self._source = source
        self._store = store
        self._clock = clock
        self._endpoint = endpoint
        self._engines: dict[str, FollowedEngine] = {}
        self._asking: dict[str, _Asking] = {}
        self._host = FollowedEngine(HOST)
        self._listeners: list[Listener] = []
        self._looking = 0
        self._wake = asyncio.Event()
        self._joules = 0.0
        self._powered = 0.0
        self._host_at: float | None = None

    # --- the loops ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Collects until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._host_loop())
                async for world in self._store.changes(min_interval=0.5):
                    self._follow(group, value_of(world.engines) or ())
        finally:
            self._asking.clear()

    async def _host_loop(self) -> None:
        while True:
            self._wake.clear()
            self._sample_host()
            await pause(self._clock, self._interval, self._wake)

    def _follow(self, group: asyncio.TaskGroup, views: tuple[EngineView, ...]) -> None:
        """Begins to ask engines that serve, and stops to ask those that do not."""
        seen = {view.name: view for view in views}
        for view in views:
            if view.state in _POLLED and view.container.running:
                self._begin(group, view)
        for name in [name for name in self._asking if name not in seen or seen[name].state not in _POLLED]:
            self._asking.pop(name).task.cancel()
            self._tell(self._engines[name].ended(_why_not(seen.get(name)), self._clock.now()))
        self._forget()

    def _begin(self, group: asyncio.TaskGroup, view: EngineView) -> None:
        engine = self._engines.setdefault(view.name, FollowedEngine(view.name))
        engine.started((view.container.id, view.container.started_at))
        asking = self._asking.get(view.name)
        if asking is None:
            poller = self._poller(engine)
            self._asking[view.name] = _Asking(poller, group.create_task(poller.run()), view.state)
            return
        if view.state is EngineState.SERVING and asking.state is not EngineState.SERVING:
            asking.poller.wake()  # it may be in the middle of a long pause after failures
        asking.state = view.state

    def _poller(self, engine: FollowedEngine) -> Poller[MetricPage]:
        return Poller(
            f"The metrics page of {engine.name}",
            lambda: self._read(engine.name),
            lambda page: self._took(engine, page),
            lambda error: self._tell(engine.failed(error, self._clock.now())),
            clock=self._clock,
            interval=self._interval,
            timeout=TIMEOUT_SECONDS,
        )

    def _forget(self) -> None:
        gone = [engine for engine in self._engines.values() if engine.name not in self._asking]
        gone.sort(key=lambda engine: engine.ring.last_time or 0.0)
        for engine in gone[: max(0, len(self._engines) - MAX_ENGINES)]:
            del self._engines[engine.name]

    # --- one look -------------------------------------------------------------------------------------

    async def _read(self, name: str) -> MetricPage:
        endpoint = self._endpoint(name)
        if endpoint is None:
            raise EngineUnreachable(f"{name} has published no port.", "Launch it with a port.")
        return await self._source.read(endpoint)

    def _took(self, engine: FollowedEngine, page: MetricPage) -> None:
        snapshot = Snapshot(self._clock.monotonic(), page, self._joules, self._powered)
        alone = not any(other.busy for other in self._engines.values() if other is not engine)
        self._tell(engine.took(snapshot, self._clock.now(), alone=alone))

    def _sample_host(self) -> None:
        """One row of the box's series, from what the store has; and the energy that was drawn since the last one."""
        world, monotonic = self._store.world, self._clock.monotonic()
        passed = 0.0 if self._host_at is None else monotonic - self._host_at
        self._host_at = monotonic
        values, reasons = host_values(HostLook(world.gpu, world.memory))
        watts = values.get(MetricId.GPU_POWER)
        if watts is not None and 0 < passed <= 3 * SLOW_SECONDS:
            self._joules += watts * passed
            self._powered += passed
        gap = "" if values else next(iter(reasons.values()), "")
        self._host.reasons, self._host.reason = reasons, gap
        at = self._host.ring.add(self._clock.now(), values, gap=gap)
        self._tell(Sample(HOST, at, values, gap))

    # --- attention ------------------------------------------------------------------------------------

    @property
    def _interval(self) -> float:
        return FAST_SECONDS if self._looking else SLOW_SECONDS

    def attend(self) -> Attention:
        """Somebody looks from now on: engines are asked once a second, the first time at once."""
        self._looking += 1
        if self._looking == 1:
            self._change_pace()
            self._wake.set()
            for asking in self._asking.values():
                asking.poller.wake()
        return Attention(self)

    def looked_away(self) -> None:
        """One of those who looked does not any more: call `Attention.end`."""
        self._looking -= 1
        self._change_pace()

    def _change_pace(self) -> None:
        for asking in self._asking.values():
            asking.poller.pace(self._interval)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Calls `listener` with every sample, on the event loop, until the returned function is called. It must be
        quick and must not raise."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def _tell(self, sample: Sample) -> None:
        for listener in tuple(self._listeners):
            listener(sample)

    # --- what is known --------------------------------------------------------------------------------

    def series(self, engine: str, metric: MetricId, window_seconds: float) -> SeriesView:
        """The last `window_seconds` of a series, six hours at most. `engine` is a container's name; for the series of
        the box (`metric.of_host`) it does not matter. Empty, with its reason, for an engine that is not known."""
        followed = self._host if metric.of_host else self._engines.get(engine)
        if followed is None:
            return SeriesView(metric, reason=_UNKNOWN, step=SLOW_SECONDS)
        return followed.series(metric, window_seconds, self._clock.now(), SLOW_SECONDS)

    def current(self, engine: str) -> Reading[EngineMetrics]:
        """The latest metrics of an engine: stale with the reason when the last look failed."""
        followed = self._engines.get(engine)
        return followed.current() if followed else Missing(_UNKNOWN)

    def lifetime(self, engine: str) -> Reading[EngineMetrics]:
        """The same since the server's start: latencies of every request that it has ever answered."""
        followed = self._engines.get(engine)
        return followed.lifetime() if followed else Missing(_UNKNOWN)

    def parts(self, engine: str) -> dict[str, EngineMetrics]:
        """By data-parallel rank where a server has several engines; else empty."""
        followed = self._engines.get(engine)
        return followed.parts() if followed else {}

    def error(self, engine: str) -> SparkError | None:
        """Why the last look failed; None when it did not."""
        followed = self._engines.get(engine)
        return followed.error if followed else None

    def token_sample(self, engine: str) -> TokenSample | None:
        """The latest counters for the wedge detector, in monotonic seconds; None where they cannot tell."""
        followed = self._engines.get(engine)
        return followed.token_sample() if followed else None

    def serving_samples(self, engine: str) -> tuple[ServingSample, ...]:
        """The last hour in intervals of ten seconds, for the findings; times are seconds since the epoch."""
        followed = self._engines.get(engine)
        return followed.serving_samples() if followed else ()


def _why_not(view: EngineView | None) -> str:
    if view is None:
        return "the container was removed"
    container = view.container
    if container.running:
        return f"the engine is {view.state.value.lower()}"
    code = "" if container.exit_code is None else f" with exit code {container.exit_code}"
    return f"the engine has ended{code}"
