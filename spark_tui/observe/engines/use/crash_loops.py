"""Ends crash loops: a container that Docker starts again and again is stopped once no start can succeed.

It may be started again a few times, and never where a restart cannot help. Every failed start leaves
less free memory behind (0.1 GiB each was measured): trying again blindly ends in a freeze.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Final

from msgspec import Struct, field

from spark_tui.base.context import Context
from spark_tui.base.engine.container import ContainerFacts
from spark_tui.base.engine.state import EngineState, runtime_of
from spark_tui.base.errors import SparkError
from spark_tui.base.finding import AlarmId, Finding, Severity, value_of
from spark_tui.base.host.guard import END_LOOP, GuardedEngine, GuardEntry
from spark_tui.base.ports import Clock, ContainerEngine, GuardActuator, LogLine
from spark_tui.base.quantities import human_duration
from spark_tui.base.store import AlarmBoard, Store
from spark_tui.observe.engines.use.engines import EngineSupervisor, stamp_before
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.explain.model.causes.cause import CauseId
from spark_tui.observe.explain.model.causes.diagnosis import explain_failure
from spark_tui.observe.explain.model.tracker import LogTracker
from spark_tui.observe.explain.model.view import EngineView, LogContext

PERMANENT: Final = frozenset((
    CauseId.NO_KV_ROOM, CauseId.KV_CACHE_TOO_SMALL, CauseId.OUT_OF_MEMORY_LOADING, CauseId.OUT_OF_MEMORY_WARMUP,
    CauseId.MAX_MODEL_LEN_TOO_LONG, CauseId.UNKNOWN_ARCHITECTURE, CauseId.UNKNOWN_QUANTIZATION,
    CauseId.QUANTIZATION_MISMATCH, CauseId.GATED_REPO, CauseId.REPO_NOT_FOUND, CauseId.WEIGHTS_CORRUPT,
    CauseId.WEIGHTS_MISSING, CauseId.PORT_IN_USE, CauseId.NO_GPU, CauseId.DRIVER_TOO_OLD, CauseId.ARCH_NOT_COMPILED,
    CauseId.MISSING_MODULE, CauseId.MISSING_FILE, CauseId.UNSUPPORTED_MODEL_FEATURE, CauseId.KERNEL_FAILURE,
    CauseId.BAD_ARGUMENT, CauseId.BAD_PARSER, CauseId.TOO_MANY_RANKS, CauseId.DISK_FULL, CauseId.PERMISSION_DENIED,
    CauseId.IMAGE_UNAVAILABLE, CauseId.STOPPED, CauseId.STOPPED_BY_GUARD,
))  # fmt: skip
"""The same command meets the same end until a person changes something; `stopped` was a person's wish.

What may heal: memory that the engine before has not given back yet, memory that moved while it was measured, the
network, a peer that was late, a process that died or was killed, and what is not known.
"""

MOST_RESTARTS: Final = 3
WITHIN_SECONDS: Final = 3600.0
"""Only ends within the last hour count: a crash a day is no loop."""


class EngineEnd(Struct, frozen=True):
    """An end of one engine: when (seconds), and the cause's id. `by_guard` says that the memory guard ended it."""

    at: float
    cause: str
    by_guard: bool = False


class RestartVerdict(Struct, frozen=True):
    """Whether it may be started again, and why (not)."""

    allowed: bool
    reason: str = ""


class Restarts(Struct):
    """What is remembered of one container. `count` is Docker's own count of its restarts, `started_at` (seconds) its
    present start. `given_up`: it was stopped for good."""

    count: int
    started_at: float | None
    ends: list[EngineEnd] = field(default_factory=list)
    given_up: bool = False
    _cause: str = ""

    def started_again(self, count: int, at: float | None) -> float | None:
        """Notes Docker's next start. Returns when the one that has ended had begun."""
        before = self.started_at
        self.count, self.started_at = count, at
        return before

    def ended(self, at: float, cause: str, *, guess: bool, by_guard: bool = False) -> RestartVerdict:
        """The verdict after one more end. A cause that is only likely has to be seen twice before it counts."""
        sure = not guess or cause == self._cause
        self._cause = cause
        self.ends.append(EngineEnd(at, cause if sure else CauseId.UNKNOWN, by_guard=by_guard))
        return may_restart(self.ends, at)


def may_restart(ends: Sequence[EngineEnd], now: float) -> RestartVerdict:
    """The verdict after the last of `ends`, which are oldest first and of one engine with unchanged settings."""
    if not ends:
        return RestartVerdict(True)
    last = ends[-1]
    if last.by_guard:
        return RestartVerdict(False, reason="stopped by the memory guard: the same settings would end there again")
    if last.cause in PERMANENT:
        return RestartVerdict(False, reason=f"{last.cause}: restarting does not help")
    recent = [end for end in ends if now - end.at <= WITHIN_SECONDS]
    if len(recent) > MOST_RESTARTS:
        span = human_duration(now - recent[0].at)
        return RestartVerdict(False, reason=f"ended {len(recent)} times within {span}")
    return RestartVerdict(True, f"restart {max(1, len(recent))} of {MOST_RESTARTS}")


MOST_LINES: Final = 50_000
UNKNOWN: Final = Finding(CauseId.UNKNOWN, Severity.ERROR, "No reason in its log.", remedy="Read its log.")
_FAILED: Final = 1
"""The exit code of a start that Docker has followed by another: Docker no longer reports the real one."""


class EndedStart:
    """A start that began at `since` (seconds; None: not known) and ended before the one that `facts` show."""

    def __init__(self, facts: ContainerFacts, since: float | None) -> None:
        self._facts = facts
        self._tracker = LogTracker(since, runtime_of(facts))
        self._count = 0
        self.stamp = "" if since is None else stamp_before(since)
        """From where its log is to be read; empty: from the beginning."""

    def feed(self, batch: Sequence[LogLine]) -> bool:
        """Takes lines as they come. False once no more are needed."""
        self._tracker.feed_many([line for line in batch if self._is_part(line)])
        self._count += len(batch)
        return self._count <= MOST_LINES and (not batch or self._is_part(batch[-1]))

    def _is_part(self, line: LogLine) -> bool:
        """Written before the next start; a line without a time counts as before."""
        try:
            until = self._facts.started_at
            return until is None or datetime.fromisoformat(line.stamp).timestamp() < until
        except ValueError:
            return True

    def cause(self) -> Finding:
        """Why it ended, according to its log."""
        facts = self._facts
        code = _FAILED if facts.exit_code is None else facts.exit_code
        self._tracker.container_ended(code)
        timeline = self._tracker.timeline()
        around = LogContext(exit_code=code, oom_killed=facts.oom_killed, error=facts.error)
        return explain_failure(timeline, around) or UNKNOWN


LOOK_SECONDS: Final = 0.5
GUARD_SECONDS: Final = 180.0
"""So long after the guard ended an engine its end counts as the guard's."""
_GUARDED: Final = ("stop the engine", "kill the engine")

GuardEntries = Callable[[], tuple[GuardEntry, ...]]


class RestartBreaker(Struct, eq=False):
    """Watches every engine that has a restart policy until cancelled. Acts on our own containers alone, and only
    where `acting`; of others it raises an alarm."""

    _docker: ContainerEngine
    _supervisor: EngineSupervisor
    _store: Store
    _clock: Clock
    _alarms: AlarmBoard
    _guarded: GuardEntries = tuple
    acting: bool = True
    _loops: dict[str, Restarts] = field(default_factory=dict)

    @classmethod
    def from_context(cls, context: Context) -> RestartBreaker:
        return cls(
            context.docker,
            context[EngineSupervisor],
            context.store,
            context.clock,
            context.alarms,
            context.guarding.journal.entries if context.ports.has("guarding") else tuple,
            acting=context.settings.stop_crash_loops and (not context.settings.read_only),
        )

    async def run(self) -> None:
        async for world in self._store.changes(min_interval=LOOK_SECONDS):
            await self.look(value_of(world[ENGINES]) or ())

    async def look(self, views: tuple[EngineView, ...]) -> None:
        """One look: whose restarts have become more."""
        watched = [view for view in views if view.container.restart_policy]
        _forget(self._loops, (view.container for view in watched))
        for view in watched:
            await self._look(view)

    async def _look(self, view: EngineView) -> None:
        facts = view.container
        loop = self._loops.get(facts.id)
        if loop is None or facts.restart_count < loop.count:  # new, or started by a person: Docker counts from 0
            self._loops[facts.id] = Restarts(facts.restart_count, facts.started_at)
            if loop is not None:
                self._alarms.clear(AlarmId.CRASH_LOOP, view.name)
            return
        if facts.restart_count == loop.count:
            if view.state is EngineState.SERVING:
                self._alarms.clear(AlarmId.CRASH_LOOP, view.name, over=f"{view.name} is serving.")
            return
        start = EndedStart(facts, loop.started_again(facts.restart_count, facts.started_at))
        cause, now = await self._cause(facts.id, start), self._clock.now()
        by_guard = any(
            entry.engine == view.name and entry.act in _GUARDED and now - entry.at < GUARD_SECONDS
            for entry in self._guarded()
        )
        verdict = loop.ended(now, cause.id, guess=cause.guess, by_guard=by_guard)
        if verdict.allowed:
            self._store.say(
                f"{view.name} ended; Docker restarted it ({verdict.reason}): {cause.summary}",
                Severity.WARNING,
                cause.remedy,
            )
            return
        if not (view.container.ours and self.acting):
            self._tell(view, f"crash loop: {verdict.reason}", Severity.WARNING, cause)
            return
        if loop.given_up:
            return
        try:
            await self._supervisor.stop(view.name)
        except SparkError as error:
            self._tell(view, f"crash loop, and stopping failed: {error.summary}", Severity.ERROR, cause)
            return
        loop.given_up = True
        ends = "its first end" if len(loop.ends) == 1 else f"{len(loop.ends)} ends"
        self._tell(view, f"stopped after {ends}: {verdict.reason}", Severity.ERROR, cause)

    def _tell(self, view: EngineView, text: str, severity: Severity, cause: Finding) -> None:
        words = f"{text}. {cause.summary}" if cause.id != CauseId.UNKNOWN else text
        remedy = f"{cause.remedy} More: spark-tui explain {view.name}".strip()
        self._alarms.raise_(Finding(AlarmId.CRASH_LOOP, severity, words, remedy=remedy, subject=view.name))

    async def _cause(self, container: str, start: EndedStart) -> Finding:
        try:
            async with aclosing(self._docker.logs(container, follow=False, since=start.stamp)) as batches:
                async for batch in batches:
                    if not start.feed(batch):
                        break
        except SparkError:  # a daemon that does not answer: then it is not known
            return UNKNOWN
        return start.cause()


def _forget(loops: dict[str, Restarts], watched: Iterable[ContainerFacts]) -> None:
    """Drops the containers that are watched no longer."""
    for gone in loops.keys() - {facts.id for facts in watched}:
        del loops[gone]


GRACE_SECONDS: Final = 10

Keep = Callable[[GuardEntry], None]


class LoopEnder:
    """Looks at what Docker restarts by itself, once per call; blocks while a log is read."""

    def __init__(self, actuator: GuardActuator, clock: Clock, keep: Keep, *, only_ours: bool = True) -> None:
        self._actuator = actuator
        self._clock = clock
        self._keep = keep
        self._only_ours = only_ours
        self._loops: dict[str, Restarts] = {}

    def look(self) -> None:
        """One look, after the actuator has asked Docker what runs."""
        watched = [facts for facts in self._actuator.restarting() if facts.ours or not self._only_ours]
        _forget(self._loops, watched)
        for facts in watched:
            self._look(facts)

    def _look(self, facts: ContainerFacts) -> None:
        loop = self._loops.get(facts.id)
        if loop is None or facts.restart_count < loop.count:  # new, or started by a person: Docker counts from 0
            self._loops[facts.id] = Restarts(facts.restart_count, facts.started_at)
            return
        if facts.restart_count == loop.count or loop.given_up:
            return
        start = EndedStart(facts, loop.started_again(facts.restart_count, facts.started_at))
        try:
            start.feed(self._actuator.log(facts.id, start.stamp))
            cause = start.cause()
        except SparkError:  # a daemon that does not answer: then it is not known
            cause = UNKNOWN
        verdict = loop.ended(self._clock.now(), cause.id, guess=cause.guess)
        if verdict.allowed:
            return
        engine = GuardedEngine(facts.id, facts.name, facts.pid, facts.ours, started_at=facts.started_at or 0.0)
        how = self._actuator.stop(engine, GRACE_SECONDS)
        loop.given_up = True
        self._keep(GuardEntry(self._clock.now(), END_LOOP, facts.name, f"{verdict.reason}. {cause.summary}", how))
