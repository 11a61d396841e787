"""The history of this machine: starts as they end, samples as they come, records on request, and estimates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.engine.container import ContainerFacts, ImageFacts
from spark_tui.base.engine.invocation import parse
from spark_tui.base.engine.state import EngineState
from spark_tui.base.errors import MeasurementVoid
from spark_tui.base.executors import end_tasks, in_thread
from spark_tui.base.finding import MAX_EVENTS, Event, EventKind, Missing, Ok, Reading, Severity, event_of, value_of
from spark_tui.base.host.guard import GuardEntry
from spark_tui.base.host.series import HOST, HistoryOff, HistoryState, MetricId, Record, Sample, SeriesKey, SeriesSlice
from spark_tui.base.ports import Clock, port_named
from spark_tui.base.store import Store
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.model.starts import MOST_GOOD, Eta, StartRecord, eta, merged, past_starts, start_record
from spark_tui.observe.explain.model.timeline import BootTimeline
from spark_tui.observe.explain.model.view import Baseline, EngineView
from spark_tui.observe.results.model.plan import flags_of

KNOWN_STARTS: Final = 500
"""The latest starts are held in memory: estimates are asked for many times a second."""
LOOK_SECONDS: Final = 5.0
PAST_BUCKETS: Final = 2160
"""Of six hours, ten seconds each: so the history keeps what is older than an hour."""
EVENT: Final = "event"
"""The kind of the records that the event feed leaves: `key` is its text, `body` has severity and remedy."""

T = TypeVar("T")
_Seen: TypeAlias = tuple[BootTimeline, EngineState, bool, str, ImageFacts | None]


@port_named("history")
class HistoryStore(Protocol):
    """Keeps samples, starts and records across runs of this program. Nothing of it blocks the event loop.

    What is added is never waited for (but for `add_record`) and never raises: a disk that is full or a home that
    cannot be written shows in `state`, as of the last try. Every process adds starts and records; samples are recorded
    by one process at a time. Missing says why nothing can be read.
    """

    @property
    def state(self) -> HistoryState: ...

    def add_sample(self, sample: Sample) -> None:
        """Keeps a reading of an engine or of the machine; it may take some seconds until it is on disk."""

    def add_start(self, start: StartRecord) -> None:
        """Keeps a start, in place of what was known of the same one, and writes it at once."""

    async def add_record(self, record: Record) -> None:
        """Keeps a record and returns when it is on disk. Raises HistoryOff when it cannot be kept."""

    async def series(
        self, keys: Sequence[SeriesKey], since: float, until: float, buckets: int
    ) -> Reading[tuple[SeriesSlice, ...]]:
        """A stretch of each series from `since` to `until` (seconds since the epoch), in the order of `keys`.

        In at most `buckets` buckets and one; in fewer where samples of that age are further apart. A series that is
        not known has buckets without values.
        """

    async def starts(
        self, *, engine: str = "", preset: str = "", failed: bool = False, ready: bool = False, limit: int = 200
    ) -> Reading[tuple[StartRecord, ...]]:
        """The latest starts, newest first: of one engine, of one preset, those that failed, those of presets that came
        to serve, or all."""

    async def records(
        self, kind: str, *, key: str | None = None, since: float | None = None, limit: int = 200
    ) -> Reading[tuple[Record, ...]]:
        """The latest records of a kind, newest first."""

    async def flush(self) -> None:
        """Returns when all that was added is on disk, or could not be written."""

    async def close(self) -> None: ...


class History:
    """One object for both front ends. `load` first: until then no start is known, and none is kept."""

    @classmethod
    def from_context(cls, context: Context) -> History:
        return cls(
            context[HistoryStore],
            context.clock,
            context.store,
            (lambda: context.guarding.journal.entries()) if context.ports.has("guarding") else None,  # noqa: PLW0108 - made when asked
        )

    def __init__(
        self, db: HistoryStore, clock: Clock, store: Store, acts: Callable[[], Sequence[GuardEntry]] | None = None
    ) -> None:
        """`acts` reads what the memory guard did, oldest first."""
        self._db = db
        self._clock = clock
        self._store = store
        self._starts: dict[tuple[str, float], StartRecord] = {}
        self._seen: dict[str, _Seen] = {}
        self.loaded = False
        self._reported = HistoryState()
        self._last_event: Event | None = None
        self._acts = acts
        self._acts_since = clock.now()

    @property
    def state(self) -> HistoryState:
        return self._db.state

    async def load(self) -> None:
        """Reads the latest starts and those that came to serve, once. A history that is off has none; `state` says
        why."""
        if self.loaded:
            return
        found = [
            start
            for ready in (False, True)
            for start in value_of(await self._db.starts(ready=ready, limit=KNOWN_STARTS)) or ()
        ]
        self._starts = {start.key: start for start in sorted(found, key=lambda start: start.at)}
        self.loaded = True

    async def run(self) -> None:
        """Keeps the event feed, and reports in it when the history fails or works again. Until cancelled."""
        await self.load()
        await self._restore_events()
        while True:
            self._report()
            await self._report_guard()
            await self._keep_events()
            await self._clock.sleep(LOOK_SECONDS)

    # --- starts ---------------------------------------------------------------------------------------

    def observe(self, views: Iterable[EngineView]) -> None:
        """Keeps every start that has come to serve or has ended since the last look. Cheap when nothing has."""
        if not self.loaded:
            return
        for view in views:
            container = view.container
            seen = (view.timeline, view.state, container.running, view.version, view.image)
            before = self._seen.get(container.id)
            if before is not None and before[0] is seen[0] and before[1:] == seen[1:]:
                continue
            self._seen[container.id] = seen
            world = self._store.world
            gpu = value_of(world.gpu)
            driver = gpu.driver if gpu is not None else ""
            record = start_record(view, kernel=world.identity.kernel, driver=driver)
            if record is not None:
                self._keep(replace(record, flags=flags_of(parse(container.argv, view.runtime).words)))

    def _keep(self, record: StartRecord) -> None:
        known = self._starts.get(record.key)
        record = record if known is None else merged(known, record)
        if record != known:
            self._starts[record.key] = record
            self._db.add_start(record)

    @property
    def starts(self) -> tuple[StartRecord, ...]:
        """The latest starts of this machine, oldest first, without asking the disk."""
        return tuple(self._starts.values())

    def good_starts(self, preset: str) -> tuple[StartRecord, ...]:
        """Those that served well, newest first, without asking the disk."""
        found = (start for start in self._starts.values() if start.good and start.preset == preset)
        return tuple(sorted(found, key=lambda start: -start.at)[:MOST_GOOD])

    def past(self, container: ContainerFacts) -> tuple[StartRecord, ...]:
        """The earlier starts from which this container's is estimated, latest last."""
        return past_starts(self._starts.values(), container)

    def eta(self, view: EngineView) -> Eta:
        return eta(view.timeline, self._clock.now(), self.past(view.container))

    # --- samples --------------------------------------------------------------------------------------

    async def series(
        self, engine: str, metrics: Sequence[MetricId], since: float, until: float, buckets: int
    ) -> Reading[tuple[SeriesSlice, ...]]:
        """A stretch of each of these metrics, of an engine or of the machine as `MetricId.of_host` has it.

        `since` and `until` are seconds since the epoch; at most `buckets` and one buckets. The newest ten seconds may
        not be there yet: a live series has them. Missing says why nothing can be read.
        """
        keys = [SeriesKey(HOST if metric.of_host else engine, metric.value) for metric in metrics]
        return await self._db.series(keys, since, until, buckets)

    # --- events ---------------------------------------------------------------------------------------

    def _report(self) -> None:
        """What has become of the history goes into the feed, once."""
        state, before = self._db.state, self._reported
        self._reported = state
        for note in state.notes:
            if note not in before.notes:
                self._store.say(note, Severity.WARNING)
        if state.reason and not before.reason:
            self._store.say(f"The history is off: {state.reason}.", Severity.WARNING, state.remedy)
        elif before.reason and not state.reason:
            self._store.say("The history is on again.")

    async def events(self, limit: int = MAX_EVENTS) -> Reading[tuple[Event, ...]]:
        """The latest events that were kept, oldest first; of this run and of earlier ones."""
        reading = await self._db.records(EVENT, limit=limit)
        if isinstance(reading, Missing):
            return reading
        return Ok(tuple(event_of(each.key, each.at, each.body) for each in reversed(reading.value)), reading.at)

    async def _restore_events(self) -> None:
        """The feed begins with what was kept before."""
        kept = value_of(await self.events()) or ()
        now = self._store.world.events
        self._last_event = kept[-1] if kept else None
        self._store.update(events=(*kept, *now)[-MAX_EVENTS:])
        self._acts_since = max((event.at for event in kept if event.kind is EventKind.GUARD), default=self._clock.now())

    async def _report_guard(self) -> None:
        """What a guard did, in whichever process it runs, also while no screen was open."""
        if self._acts is None:
            return
        for act in await in_thread(self._acts):
            if act.at > self._acts_since:
                self._acts_since = act.at
                text = f"{act.engine}: guard: {act.act}" if act.engine else f"guard: {act.act}"
                self._store.add_event(
                    Event(act.at, Severity.WARNING, f"{text} ({act.reason})", "", EventKind.GUARD, act.engine, act.how)
                )

    async def _keep_events(self) -> None:
        """The events since the last time; what cannot be kept now is tried again."""
        events = self._store.world.events
        begin = 0
        if self._last_event is not None:
            begin = next((i + 1 for i in range(len(events) - 1, -1, -1) if events[i] is self._last_event), 0)
        for event in events[begin:]:
            try:
                await self._db.add_record(Record(EVENT, event.text[:500], event.at, event.body))
            except HistoryOff:
                return  # `state` has the reason, and `_report` shows it
            self._last_event = event


async def keep_void(error: MeasurementVoid, context: Context) -> None:
    """As an event, where one can be kept: for a command, in which no history runs."""
    event = Event(context.clock.now(), Severity.ERROR, error.summary, error.remedy, EventKind.BENCH, error.engine)
    with suppress(HistoryOff):
        await context[HistoryStore].add_record(Record(EVENT, event.text, event.at, event.body))


async def remember(context: Context) -> None:
    """From here on earlier starts are known, and those that end are kept."""

    def baseline(container: ContainerFacts) -> Baseline | None:
        from spark_tui.observe.results.use import Results

        return context[Results].baseline(container)

    history, supervisor = context[History], context[EngineSupervisor]
    await history.load()
    supervisor.on_views = history.observe
    supervisor.baseline = baseline


async def supervised(context: Context, work: Coroutine[Any, Any, T]) -> T:
    """Runs `work` while the supervisor watches: without it the end of a container would go unnoticed."""
    try:
        await remember(context)
    except BaseException:
        work.close()
        raise
    watching = asyncio.ensure_future(context[EngineSupervisor].run())
    working = asyncio.ensure_future(work)  # after the supervisor has begun
    try:
        return await working  # cancelled, it may bring back what ran before, and is watched while it does
    finally:
        await end_tasks(watching)
