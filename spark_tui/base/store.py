"""The World: frozen slices of everything on screen. Equal values are dropped; subscribers get the latest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from spark_tui.base.errors import SparkError
from spark_tui.base.feature import Slice
from spark_tui.base.finding import (
    NOT_READ_YET,
    AlarmId,
    Event,
    EventKind,
    Finding,
    Reading,
    Severity,
    appended,
    value_of,
)
from spark_tui.base.host.memory import ALL_WELL, MemInfo, MemoryBreakdown
from spark_tui.base.host.vitals import GpuReading, HostIdentity, Vitals
from spark_tui.base.secret import mask_secrets

if TYPE_CHECKING:
    from spark_tui.base.engine.container import DaemonFacts
    from spark_tui.base.engine.units import BootStatus, ScheduleStatus
    from spark_tui.base.gateway import GatewayStatus
    from spark_tui.base.host.memory import DropResult
    from spark_tui.base.jobs import BenchStatus, JobView
    from spark_tui.base.launches import ClusterRecord
    from spark_tui.base.ports import Clock
    from spark_tui.base.protocol import NodeLook

T = TypeVar("T")


class Named(Protocol):
    """What has a name."""

    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=Named)

MIN_INTERVAL_SECONDS = 0.1
"""At most ten pushes a second to one subscriber."""


class World(Struct, frozen=True):
    """Everything that the front ends show, but for logs and chat, which have a cadence of their own: fields of types
    of the ground floor, and the slices that rooms declare."""

    identity: HostIdentity = field(default_factory=lambda: HostIdentity(hostname=""))
    uptime_minutes: Reading[int] = NOT_READ_YET
    memory: Reading[MemInfo] = NOT_READ_YET
    pressure: Reading[float] = NOT_READ_YET
    gpu: Reading[GpuReading] = NOT_READ_YET
    vitals: Reading[Vitals] = NOT_READ_YET
    docker: Reading[DaemonFacts] = NOT_READ_YET
    jobs: tuple[JobView, ...] = ()
    events: tuple[Event, ...] = ()
    breakdown: Reading[MemoryBreakdown] = NOT_READ_YET
    memory_state: Finding = ALL_WELL
    alarms: tuple[Finding, ...] = ()
    last_drop: DropResult | None = None
    boot: Mapping[str, BootStatus] = field(default_factory=dict)
    """The engines that start with the machine, and the state of their units."""
    schedules: Mapping[str, ScheduleStatus] = field(default_factory=dict)
    """The engines that stop and start at set times."""
    bench: BenchStatus | None = None
    """The benchmark that runs in this program."""
    launches: tuple[ClusterRecord, ...] = ()
    """Launches on several nodes that this machine keeps."""
    gateway: GatewayStatus | None = None
    """The gateway that runs on this machine, in another process."""
    nodes: Mapping[str, NodeLook | SparkError] = field(default_factory=dict)
    """What each node of a cluster answered last, or why it did not, by its ssh host."""

    slices: Mapping[Slice[Any], Any] = field(default_factory=dict)
    """Those of the rooms, as far as they were read."""

    def __getitem__(self, key: Slice[T]) -> T:
        found: T = self.slices.get(key, key.default)
        return found

    def known(self, key: Slice[Reading[tuple[T, ...]]]) -> tuple[T, ...]:
        """The items of that slice, as far as they are known."""
        return value_of(self[key]) or ()

    def named(self, key: Slice[Reading[tuple[N, ...]]], name: str) -> N | None:
        """The item of that name."""
        return next((each for each in self.known(key) if each.name == name), None)

    def having(self, slices: Mapping[Slice[Any], Any]) -> World:
        """This World with these slices in the place of its own."""
        return replace(self, slices={**self.slices, **slices})


class Store:
    """Holds the one World. All calls belong on the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._world = World()
        self._subscribers: set[asyncio.Event] = set()

    @property
    def world(self) -> World:
        """The latest World."""
        return self._world

    def update(self, slices: Mapping[Slice[Any], Any] | None = None, /, **fields: Any) -> bool:
        """Replaces slices of the rooms, and fields; returns whether anything differed. An unknown field is a
        TypeError."""
        changed = {name: value for name, value in fields.items() if getattr(self._world, name) != value}
        renewed = {key: value for key, value in (slices or {}).items() if self._world[key] != value}
        if not changed and not renewed:
            return False
        self._world = replace(self._world.having(renewed), **changed)
        for event in self._subscribers:
            event.set()
        return True

    def put(self, key: Slice[T], value: T) -> bool:
        """Replaces one slice of a room; returns whether it differed."""
        return self.update({key: value})

    def say(
        self,
        text: str,
        severity: Severity = Severity.INFO,
        remedy: str = "",
        *,
        kind: EventKind = EventKind.NOTE,
        subject: str = "",
        detail: str = "",
    ) -> None:
        """Adds a line to the event feed."""
        self.add_event(Event(self._clock.now(), severity, text, remedy, kind, subject, detail))

    def fail(self, error: SparkError) -> None:
        """Adds a failure to the event feed."""
        self.say(error.summary, Severity.ERROR, error.remedy, detail=error.detail)

    def add_event(self, event: Event) -> None:
        """Secrets in texts of engines are masked: events are kept on disk."""
        event = replace(event, text=mask_secrets(event.text), detail=mask_secrets(event.detail))
        self.update(events=appended(self._world.events, event))

    async def changes(self, min_interval: float = MIN_INTERVAL_SECONDS) -> AsyncIterator[World]:
        """The World now, and then after every change; what came in between is skipped."""
        changed = asyncio.Event()
        self._subscribers.add(changed)
        try:
            yield self._world
            while True:
                await changed.wait()
                changed.clear()
                yield self._world
                await self._clock.sleep(min_interval)
        finally:
            self._subscribers.discard(changed)


class AlarmBoard:
    """The alarms of the moment, each a Finding whose `subject` is an engine or empty: shown until it is over, in the
    event feed once. All calls belong on the event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._current: dict[tuple[str, str], Finding] = {}

    def raise_(self, alarm: Finding) -> None:
        """Shows the alarm from now on; one of the same id and subject is replaced."""
        before = self._current.get((alarm.id, alarm.subject))
        self._current[alarm.id, alarm.subject] = alarm
        if before is None or alarm.severity.worse_than(before.severity):
            whose = f"{alarm.subject}: " if alarm.subject else ""
            self._store.say(
                f"{whose}{alarm.summary}", alarm.severity, alarm.remedy, kind=EventKind.ALARM, subject=alarm.subject
            )
        self._publish()

    def clear(self, id_: AlarmId, subject: str = "", over: str = "") -> None:
        """Ends an alarm, if there is one; `over` says so in the feed."""
        if self._current.pop((id_, subject), None) is None:
            return
        if over:
            self._store.say(over, kind=EventKind.ALARM, subject=subject)
        self._publish()

    def current(self, id_: AlarmId) -> tuple[Finding, ...]:
        return tuple(alarm for alarm in self._current.values() if alarm.id == id_)

    def _publish(self) -> None:
        """The worst first; of two that are as bad the more urgent."""
        urgency = list(AlarmId)
        order = sorted(
            self._current.values(),
            key=lambda alarm: (alarm.severity.rank, urgency.index(AlarmId(alarm.id)), alarm.subject),
        )
        self._store.update(alarms=tuple(order))
