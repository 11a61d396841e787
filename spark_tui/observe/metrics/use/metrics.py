"""The metrics of every engine that serves: asked again and again, kept for six hours, passed to subscribers."""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from math import nan
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.engine.metrics_page import Family, MetricPage, Snapshot
from spark_tui.base.engine.state import Endpoint, EngineState
from spark_tui.base.errors import EngineUnreachable, SparkError
from spark_tui.base.executors import Poller, pause
from spark_tui.base.finding import Missing, Ok, Reading, Stale, value_of
from spark_tui.base.host.detectors import TokenSample
from spark_tui.base.host.series import HOST, Gap, MetricId, Sample, SeriesView
from spark_tui.base.jobs import JobView, StepState
from spark_tui.base.ports import Clock, MetricsSource
from spark_tui.base.store import Store
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.metrics.model.serving import (
    EngineMetrics,
    HostReadings,
    MetricWindow,
    engine_values,
    host_values,
)

CAPACITY: Final = 6 * 3600
"""Six hours at one sample a second. A row takes 8 bytes for its time and 4 for each metric: 2.4 MB for an engine with
all 26, 0.8 MB for the host."""
MAX_GAPS: Final = 500
STEP_BACK_SECONDS: Final = 1.0
"""A clock that was set back by more moves what was recorded along with it."""


class SeriesRing:
    """The series of one engine, or of the machine. Times rise strictly, whatever the clock does."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._times = array("d")
        self._columns: dict[MetricId, array[float]] = {}
        self._oldest = 0
        self._gaps: deque[Gap] = deque(maxlen=MAX_GAPS)
        self._open = False
        self._restarts: deque[float] = deque(maxlen=MAX_GAPS)

    def __len__(self) -> int:
        return len(self._times)

    @property
    def last_time(self) -> float | None:
        """When the latest row was added, seconds since the epoch."""
        return self._times[self._oldest - 1] if self._times else None

    # --- writing --------------------------------------------------------------------------------------

    def add(self, at: float, values: Mapping[MetricId, float], *, gap: str = "", restarted: bool = False) -> float:
        """Adds a row and returns its time. `gap` says why it has no values; the gap lasts until the next row that has
        some."""
        at = self._rising(at)
        for metric in values:
            if metric not in self._columns:
                self._columns[metric] = array("f", [nan]) * len(self._times)
        last = self._gaps[-1] if self._open and self._gaps else None
        if last is not None:
            self._gaps[-1] = replace(last, end=at)
        self._open = bool(gap)
        if gap and (last is None or last.reason != gap):
            self._gaps.append(Gap(at, at, gap))
        if restarted:
            self._restarts.append(at)
        if len(self._times) < self._capacity:
            self._times.append(at)
            for metric, column in self._columns.items():
                column.append(values.get(metric, nan))
            return at
        row, self._oldest = self._oldest, (self._oldest + 1) % self._capacity
        self._times[row] = at
        for metric, column in self._columns.items():
            column[row] = values.get(metric, nan)
        return at

    def _rising(self, at: float) -> float:
        last = self.last_time
        if last is None or at > last:
            return at
        if last - at <= STEP_BACK_SECONDS:
            return last + 0.001
        seconds = at - last - 0.001
        for index, time in enumerate(self._times):
            self._times[index] = time + seconds
        gaps = [Gap(gap.begin + seconds, gap.end + seconds, gap.reason) for gap in self._gaps]
        self._gaps = deque(gaps, maxlen=MAX_GAPS)
        self._restarts = deque((time + seconds for time in self._restarts), maxlen=MAX_GAPS)
        return at

    # --- reading --------------------------------------------------------------------------------------

    def view(self, metric: MetricId, since: float, now: float, *, step: float, reason: str = "") -> SeriesView:
        """The rows from `since` on. A gap that has not ended lasts until `now`."""
        times, column, oldest = self._times, self._columns.get(metric), self._oldest
        if oldest and times[0] <= since:  # all of it is in the part that was written over last
            pieces = [slice(bisect_left(times, since, 0, oldest), oldest)]
        else:
            pieces = [slice(bisect_left(times, since, oldest), len(times)), slice(0, oldest)]
        shown, values = array("d"), array("f")
        for piece in pieces:
            shown += times[piece]
            if column is not None:
                values += column[piece]
        if column is None:
            values = array("f", [nan]) * len(shown)
        gaps = list(self._gaps)
        if self._open and gaps:
            gaps[-1] = replace(gaps[-1], end=max(now, gaps[-1].end))
        shown_gaps = tuple(gap for gap in gaps if gap.end >= since)
        restarts = tuple(time for time in self._restarts if time >= since)
        return SeriesView(metric, shown, values, shown_gaps, restarts, reason, step)


_SHARED_POWER: Final = Missing("another engine is busy: GPU power cannot be attributed")

Start = tuple[str, float | None]
"""The container's id, and when it was started: another pair is another start."""


class FollowedEngine:
    """Feed it every look, good or failed; times are seconds since the epoch."""

    def __init__(self, name: str, reason: str = "not read yet") -> None:
        self.name = name
        self.ring = SeriesRing()
        self.metrics: EngineMetrics | None = None
        self.error: SparkError | None = None
        self.reason = reason
        """Why there is nothing new; empty while looks succeed."""
        self.reasons: dict[MetricId, str] = {}
        """Why one series has no value now."""
        self._window = MetricWindow()
        self._start: Start | None = None
        self._fresh = False
        self._warming = False
        self._at = 0.0

    # --- looks ----------------------------------------------------------------------------------------

    def started(self, start: Start) -> None:
        """The start that is looked at from now on; the same one again changes nothing."""
        if self._start != start:
            self._fresh = self._start is not None
            self._start = start
            self._warming = False
            self._window.clear()

    def warming_up(self, now: float) -> Sample | None:
        """Our own warm-up request is under way: it is left out of the figures. A gap, once."""
        if self._warming:
            return None
        self._warming = True
        self._window.clear(rebase=True)
        return self.ended("the engine is warming up", now)

    def took(self, snapshot: Snapshot, now: float, *, alone: bool) -> Sample:
        """A good look. `alone`: no other engine works, so that the GPU's power is this one's."""
        restarted = self._window.add(snapshot) or self._fresh
        self._fresh = self._warming = False
        metrics = self._window.metrics()
        assert metrics is not None  # noqa: S101 - a window that was just given a snapshot has one
        if not alone and isinstance(metrics.energy, Ok):
            metrics = replace(metrics, energy=_SHARED_POWER)
        self.metrics, self._at, self.error, self.reason = metrics, now, None, ""
        values, self.reasons = engine_values(metrics)
        at = self.ring.add(now, values, restarted=restarted)
        return Sample(self.name, at, values, restarted=restarted)

    def failed(self, error: SparkError, now: float) -> Sample:
        self.error = error
        return self._gap(error.summary, now)

    def ended(self, why: str, now: float) -> Sample:
        self.error = None
        return self._gap(why, now)

    def _gap(self, why: str, now: float) -> Sample:
        self.reason = why
        return Sample(self.name, self.ring.add(now, {}, gap=why), gap=why)

    # --- what is known --------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        rate = value_of(self.metrics.decode_rate) if self.metrics is not None and not self.reason else None
        return bool(rate)

    def series(self, metric: MetricId, window_seconds: float, now: float, step: float) -> SeriesView:
        reason = self.reason or self.reasons.get(metric, "")
        return self.ring.view(metric, now - window_seconds, now, step=step, reason=reason)

    def current(self) -> Reading[EngineMetrics]:
        """The window now; stale with the reason when the last look failed."""
        return self._reading(self.metrics)

    def lifetime(self) -> Reading[EngineMetrics]:
        return self._reading(self._window.lifetime(self._at))

    def _reading(self, metrics: EngineMetrics | None) -> Reading[EngineMetrics]:
        if metrics is None:
            return Missing(self.reason)
        return Stale(metrics, self._at, self.reason) if self.reason else Ok(metrics, self._at)

    def parts(self) -> dict[str, EngineMetrics]:
        """By data-parallel rank where the server has several engines; else empty."""
        ranks = self._window.engines
        if len(ranks) < 2:
            return {}
        parts = ((rank, self._window.metrics(rank)) for rank in ranks)
        return {rank: metrics for rank, metrics in parts if metrics is not None}

    def token_sample(self) -> TokenSample | None:
        """The latest counters; None where the server has none, and while looks fail."""
        return None if self.reason else self._window.token_sample()


FAST_SECONDS: Final = 1.0
"""While a front end shows them."""
SLOW_SECONDS: Final = 5.0
"""Otherwise: every look writes an access line into the engine's own log."""
TIMEOUT_SECONDS: Final = 6.0
MAX_ENGINES: Final = 16
"""Engines that are remembered; of those that are gone the oldest is forgotten first."""
_UNKNOWN: Final = "not serving"

Listener = Callable[[Sample], None]
_POLLED: Final = (EngineState.SERVING, EngineState.NOT_ANSWERING)


class _EnginePoll(Struct):
    """The poller of an engine that serves, and the task that it runs in."""

    poller: Poller[MetricPage]
    task: asyncio.Task[None]
    state: EngineState


class EngineMetricsCollector:
    """Follows the engines of the store until cancelled. Everything belongs on the event loop.

    `endpoint` gives the address of an engine's API, by its name; None while it has none.
    """

    @classmethod
    def from_context(cls, context: Context) -> EngineMetricsCollector:
        return cls(context.ports.metrics, context.store, context.clock, context[EngineSupervisor].endpoint_of)

    def __init__(
        self, source: MetricsSource, store: Store, clock: Clock, endpoint: Callable[[str], Endpoint | None]
    ) -> None:
        self._source = source
        self._store = store
        self._clock = clock
        self._endpoint = endpoint
        self._engines: dict[str, FollowedEngine] = {}
        self._asking: dict[str, _EnginePoll] = {}
        self._host = FollowedEngine(HOST)
        self._listeners: list[Listener] = []
        self._looking = 0
        self._wake = asyncio.Event()
        self._joules = 0.0
        self._powered = 0.0
        self._host_at: float | None = None

    # --- the loops ------------------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._host_loop())
                async for world in self._store.changes(min_interval=0.5):
                    self._follow(group, value_of(world[ENGINES]) or (), _warming(world.jobs))
        finally:
            self._asking.clear()

    async def _host_loop(self) -> None:
        while True:
            self._wake.clear()
            self._sample_host()
            await pause(self._clock, self._interval, self._wake)

    def _follow(self, group: asyncio.TaskGroup, views: tuple[EngineView, ...], warming: frozenset[str]) -> None:
        """Begins to ask engines that serve, and stops to ask those that do not, or that a launch warms up."""
        seen = {view.name: view for view in views}
        for view in views:
            if view.state in _POLLED and view.container.running and view.name not in warming:
                self._begin(group, view)
        for name in warming & seen.keys():
            engine, container = self._engines.setdefault(name, FollowedEngine(name)), seen[name].container
            engine.started((container.id, container.started_at))
            if name in self._asking:
                self._asking.pop(name).task.cancel()
            if gap := engine.warming_up(self._clock.now()):
                self._publish(gap)
        for name in [name for name in self._asking if name not in seen or seen[name].state not in _POLLED]:
            self._asking.pop(name).task.cancel()
            self._publish(self._engines[name].ended(_why_not(seen.get(name)), self._clock.now()))
        gone = [engine for engine in self._engines.values() if engine.name not in self._asking]
        gone.sort(key=lambda engine: engine.ring.last_time or 0.0)
        for engine in gone[: max(0, len(self._engines) - MAX_ENGINES)]:
            del self._engines[engine.name]

    def _begin(self, group: asyncio.TaskGroup, view: EngineView) -> None:
        engine = self._engines.setdefault(view.name, FollowedEngine(view.name))
        engine.started((view.container.id, view.container.started_at))
        asking = self._asking.get(view.name)
        if asking is None:
            poller = Poller(
                f"The metrics page of {engine.name}",
                lambda: self._read(engine.name),
                lambda page: self._took(engine, page),
                lambda error: self._publish(engine.failed(error, self._clock.now())),
                clock=self._clock,
                interval=self._interval,
                timeout=TIMEOUT_SECONDS,
            )
            self._asking[view.name] = _EnginePoll(poller, group.create_task(poller.run()), view.state)
            return
        if view.state is EngineState.SERVING and asking.state is not EngineState.SERVING:
            asking.poller.wake()  # it may be in the middle of a long pause after failures
        asking.state = view.state

    # --- one look -------------------------------------------------------------------------------------

    async def _read(self, name: str) -> MetricPage:
        endpoint = self._endpoint(name)
        if endpoint is None:
            raise EngineUnreachable(f"{name} has published no port.", "Launch it with a port.")
        return await self._source.read(endpoint)

    def _took(self, engine: FollowedEngine, page: MetricPage) -> None:
        snapshot = Snapshot(self._clock.monotonic(), page, self._joules, self._powered)
        alone = not any(other.busy for other in self._engines.values() if other is not engine)
        self._publish(engine.took(snapshot, self._clock.now(), alone=alone))

    def _sample_host(self) -> None:
        """One row of the host's series, from what the store has; and the energy that was drawn since the last one."""
        world, monotonic = self._store.world, self._clock.monotonic()
        passed = 0.0 if self._host_at is None else monotonic - self._host_at
        self._host_at = monotonic
        values, reasons = host_values(HostReadings(world.gpu, world.memory, world.vitals))
        watts = values.get(MetricId.GPU_POWER)
        if watts is not None and 0 < passed <= 3 * SLOW_SECONDS:
            self._joules += watts * passed
            self._powered += passed
        gap = "" if values else next(iter(reasons.values()), "")
        self._host.reasons, self._host.reason = reasons, gap
        at = self._host.ring.add(self._clock.now(), values, gap=gap)
        self._publish(Sample(HOST, at, values, gap))

    # --- attention ------------------------------------------------------------------------------------

    @property
    def _interval(self) -> float:
        return FAST_SECONDS if self._looking else SLOW_SECONDS

    def attend(self) -> ExitStack:
        """Engines are asked once a second until the returned stack is closed, the first time at once."""
        self._looking += 1
        self._change_pace()
        if self._looking == 1:
            self._wake.set()
            for asking in self._asking.values():
                asking.poller.wake()
        attention = ExitStack()
        attention.callback(self._look_away)
        return attention

    def _look_away(self) -> None:
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

    def _publish(self, sample: Sample) -> None:
        for listener in tuple(self._listeners):
            listener(sample)

    # --- what is known --------------------------------------------------------------------------------

    def of(self, engine: str) -> FollowedEngine:
        """What is known of an engine by its container's name, and of the host by HOST; nothing of an unknown one."""
        return self._host if engine == HOST else self._engines.get(engine) or FollowedEngine(engine, _UNKNOWN)

    def series(self, engine: str, metric: MetricId, window_seconds: float) -> SeriesView:
        """The last `window_seconds` of a series, six hours at most. For the series of the host (`metric.of_host`) it
        does not matter which engine is named."""
        of = self.of(HOST if metric.of_host else engine)
        return of.series(metric, window_seconds, self._clock.now(), SLOW_SECONDS)

    def current(self, engine: str) -> Reading[EngineMetrics]:
        """The latest metrics of an engine: stale with the reason when the last look failed."""
        return self.of(engine).current()

    def lifetime(self, engine: str) -> Reading[EngineMetrics]:
        """The same since the server's start: latencies of all requests since then."""
        return self.of(engine).lifetime()


def _warming(jobs: tuple[JobView, ...]) -> frozenset[str]:
    """Engines to which a launch is sending its warm-up request."""
    now = ((job.title, job.current) for job in jobs if job.state is StepState.RUNNING)
    return frozenset(name for name, step in now if step and step.id == "warm" and step.state is StepState.RUNNING)


def _why_not(view: EngineView | None) -> str:
    if view is None:
        return "the container was removed"
    container = view.container
    if container.running:
        return f"the engine is {view.word.value}"
    code = "" if container.exit_code is None else f" with exit code {container.exit_code}"
    return f"the engine has ended{code}"


async def in_flight(context: Context, name: str) -> int | None:
    """How many requests that engine answers now, by its last metrics, else by asking it; None where it does not say."""
    collector = context.made(EngineMetricsCollector)
    latest = value_of(collector.current(name)) if collector is not None else None
    running = value_of(latest.running) if latest is not None else None
    endpoint = context[EngineSupervisor].endpoint_of(name)
    if running is None and endpoint is not None:
        try:
            running = (await context.ports.metrics.read(endpoint)).total(Family.RUNNING)
        except SparkError:
            return None
    return None if running is None else int(running)
