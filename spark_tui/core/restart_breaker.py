"""Ends crash loops: a container that Docker starts again and again is stopped once no start can succeed.

Every failed start of an engine leaves less free memory behind, and the last one freezes the box.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from spark_tui.core.alarms import AlarmBoard
from spark_tui.core.engines import EngineSupervisor
from spark_tui.core.store import Store
from spark_tui.domain.engine.boot import BootTracker
from spark_tui.domain.engine.container import ContainerFacts
from spark_tui.domain.engine.failures import Cause, CauseId, explain_failure
from spark_tui.domain.engine.view import EngineState, EngineView
from spark_tui.domain.errors import SparkError
from spark_tui.domain.event import Severity
from spark_tui.domain.host.alarm import Alarm, AlarmKind
from spark_tui.domain.host.crash_loop import Ended, may_restart
from spark_tui.domain.host.guard import GuardEntry
from spark_tui.domain.reading import value_of
from spark_tui.services.ports import Clock, ContainerEngine, LogLine

LOOK_SECONDS: Final = 0.5
GUARD_SECONDS: Final = 180.0
"""So long after the guard ended an engine its end counts as the guard's."""
MOST_LINES: Final = 50_000
_FAILED: Final = 1
"""The exit code of a start that Docker has followed by another: it no longer tells the real one."""
_GUARDED: Final = ("stop the engine", "kill the engine")

GuardEntries = Callable[[], tuple[GuardEntry, ...]]


def no_entries() -> tuple[GuardEntry, ...]:
    """No guard has ever run here."""
    return ()


@dataclass(slots=True)
class _Loop:
    """What is remembered of one container. `count` is Docker's own count of its restarts."""

    count: int
    started_at: float | None
    ends: list[Ended] = field(default_factory=list)
    cause: CauseId | None = None
    given_up: bool = False


class RestartBreaker:
    """Watches every engine that has a restart policy until cancelled. Acts on our own containers alone, and only
    where `acting`; of others it tells."""

    def __init__(
        self,
        docker: ContainerEngine,
        supervisor: EngineSupervisor,
        store: Store,
        clock: Clock,
        alarms: AlarmBoard,
        guarded: GuardEntries = no_entries,
        *,
        acting: bool = True,
    ) -> None:
        self._docker = docker
        self._supervisor = supervisor
        self._store = store
        self._clock = clock
        self._alarms = alarms
        self._guarded = guarded
        self._acting = acting
        self._loops: dict[str, _Loop] = {}

    async def run(self) -> None:
        """Watches until cancelled."""
        async for world in self._store.changes(min_interval=LOOK_SECONDS):
            await self.look(value_of(world.engines) or ())

    async def look(self, views: tuple[EngineView, ...]) -> None:
        """One look: whose restarts have become more."""
        watched = [view for view in views if view.container.restart_policy]
        for gone in self._loops.keys() - {view.container.id for view in watched}:
            del self._loops[gone]
        for view in watched:
            await self._look(view)

    async def _look(self, view: EngineView) -> None:
        facts = view.container
        loop = self._loops.get(facts.id)
        if loop is None:
            self._loops[facts.id] = _Loop(facts.restart_count, facts.started_at)
            return
        if facts.restart_count <= loop.count:
            if facts.restart_count < loop.count:  # a person has started it: Docker counts anew
                self._loops[facts.id] = _Loop(facts.restart_count, facts.started_at)
                self._alarms.clear(AlarmKind.CRASH_LOOP, view.name)
            elif view.state is EngineState.SERVING:
                self._alarms.clear(AlarmKind.CRASH_LOOP, view.name, over=f"{view.name} serves after all.")
            return
        since, loop.count = loop.started_at, facts.restart_count
        loop.started_at = facts.started_at
        cause = await self._cause(facts, since)
        sure = not cause.guess or cause.id is loop.cause  # what is only likely has to be seen twice
        loop.cause = cause.id
        known = cause.id if sure else CauseId.UNKNOWN
        loop.ends.append(Ended(self._clock.now(), known, by_guard=self._by_guard(view.name)))
        await self._judge(view, loop, cause)

    def _by_guard(self, name: str) -> bool:
        now = self._clock.now()
        return any(
            entry.engine == name and entry.act in _GUARDED and now - entry.at < GUARD_SECONDS
            for entry in self._guarded()
        )

    # --- the verdict ----------------------------------------------------------------------------------

    async def _judge(self, view: EngineView, loop: _Loop, cause: Cause) -> None:
        verdict = may_restart(loop.ends, self._clock.now())
        if verdict.allowed:
            self._supervisor.say(
                f"{view.name} ended and was started again by Docker ({verdict.reason}): {cause.summary}",
                Severity.WARNING,
                cause.remedy,
            )
            return
        if not (view.container.ours and self._acting):
            self._tell(view, f"ends, and Docker starts it again and again: {verdict.reason}", Severity.WARNING, cause)
            return
        if loop.given_up:
            return
        try:
            await self._supervisor.stop(view.name)
        except SparkError as error:
            self._tell(view, f"is in a crash loop and could not be stopped: {error.summary}", Severity.ERROR, cause)
            return
        loop.given_up = True
        self._tell(view, f"stopped after {_times(len(loop.ends))}: {verdict.reason}", Severity.ERROR, cause)

    def _tell(self, view: EngineView, text: str, severity: Severity, cause: Cause) -> None:
        words = f"{text}. {cause.summary}" if cause.id is not CauseId.UNKNOWN else text
        remedy = f"{cause.remedy} More: spark-tui explain {view.name}".strip()
        self._alarms.raise_(Alarm(AlarmKind.CRASH_LOOP, severity, words, remedy, view.name))

    # --- the cause ------------------------------------------------------------------------------------

    async def _cause(self, facts: ContainerFacts, since: float | None) -> Cause:
        """Why the start before this one ended, from the log between the two."""
        tracker = BootTracker(since)
        try:
            await self._read(facts, since, tracker)
        except SparkError:  # a daemon that does not answer: then it is not known
            return _UNKNOWN
        code = _FAILED if facts.exit_code is None else facts.exit_code
        tracker.container_ended(code)
        found = explain_failure(tracker.timeline(), exit_code=code, oom_killed=facts.oom_killed, error=facts.error)
        return found or _UNKNOWN

    async def _read(self, facts: ContainerFacts, since: float | None, tracker: BootTracker) -> None:
        until, count = facts.started_at, 0
        stamp = "" if since is None else _stamp(since - 0.001)
        async with aclosing(self._docker.logs(facts.id, follow=False, since=stamp)) as batches:
            async for batch in batches:
                tracker.feed_many([line for line in batch if until is None or _before(line, until)])
                count += len(batch)
                if count > MOST_LINES or (until is not None and not _before(batch[-1], until)):
                    return


_UNKNOWN: Final = Cause(CauseId.UNKNOWN, "Its log does not say why.", "Read its log.")


def _times(count: int) -> str:
    return "its first end" if count == 1 else f"{count} ends"


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _before(line: LogLine, moment: float) -> bool:
    """Whether it was written before that moment; a line without a time counts as before."""
    try:
        return datetime.fromisoformat(line.stamp).timestamp() < moment
    except ValueError:
        return True
