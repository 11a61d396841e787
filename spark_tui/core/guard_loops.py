"""Crash loops while no control centre is open: the guard's slow thread sees them and has them ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from spark_tui.core.restart_cause import UNKNOWN, EndedStart
from spark_tui.domain.engine.container import ContainerFacts
from spark_tui.domain.engine.failures import Cause
from spark_tui.domain.errors import SparkError
from spark_tui.domain.host.crash_loop import Restarts
from spark_tui.domain.host.guard import GuardedEngine, GuardEntry
from spark_tui.services.ports import Clock, GuardHands

ACT: Final = "end the crash loop"
GRACE_SECONDS: Final = 10

Keep = Callable[[GuardEntry], None]


class LoopEnder:
    """Looks at what Docker restarts by itself, once per call; blocks while a log is read."""

    def __init__(self, hands: GuardHands, clock: Clock, keep: Keep, *, only_ours: bool = True) -> None:
        self._hands = hands
        self._clock = clock
        self._keep = keep
        self._only_ours = only_ours
        self._loops: dict[str, Restarts] = {}

    def look(self) -> None:
        """One look, after the hands have asked Docker what runs."""
        watched = [facts for facts in self._hands.restarting() if facts.ours or not self._only_ours]
        for gone in self._loops.keys() - {facts.id for facts in watched}:
            del self._loops[gone]
        for facts in watched:
            self._look(facts)

    def _look(self, facts: ContainerFacts) -> None:
        loop = self._loops.get(facts.id)
        if loop is None or facts.restart_count < loop.count:  # new, or started by a person: Docker counts anew
            self._loops[facts.id] = Restarts(facts.restart_count, facts.started_at)
            return
        if facts.restart_count == loop.count or loop.given_up:
            return
        cause = self._cause(facts, loop.started_again(facts.restart_count, facts.started_at))
        verdict = loop.ended(self._clock.now(), cause.id, guess=cause.guess)
        if not verdict.allowed:
            self._end(facts, loop, f"{verdict.reason}. {cause.summary}")

    def _cause(self, facts: ContainerFacts, since: float | None) -> Cause:
        start = EndedStart(facts, since)
        try:
            start.feed(self._hands.log(facts.id, start.stamp))
        except SparkError:  # a daemon that does not answer: then it is not known
            return UNKNOWN
        return start.cause()

    def _end(self, facts: ContainerFacts, loop: Restarts, reason: str) -> None:
        engine = GuardedEngine(facts.id, facts.name, facts.pid, facts.ours, started_at=facts.started_at or 0.0)
        how = self._hands.stop(engine, GRACE_SECONDS)
        loop.given_up = True
        self._keep(GuardEntry(self._clock.now(), ACT, facts.name, reason, how))
