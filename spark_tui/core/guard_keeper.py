"""Sees to it that a memory guard runs while an engine of ours does: also when nobody looks."""

from __future__ import annotations

import asyncio
from typing import Final

from spark_tui.core.engines import EngineSupervisor
from spark_tui.core.store import Store
from spark_tui.domain.errors import SparkError
from spark_tui.domain.event import Severity
from spark_tui.domain.reading import value_of
from spark_tui.services.ports import Clock, GuardJournal, GuardStarter

LOOK_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 300.0
"""So long after a guard was asked for another is not: one that ends at once would end again."""


class GuardKeeper:
    """Starts a guard where none runs. It ends by itself, two minutes after the last engine."""

    def __init__(
        self,
        starter: GuardStarter,
        journal: GuardJournal,
        supervisor: EngineSupervisor,
        store: Store,
        clock: Clock,
    ) -> None:
        self._starter = starter
        self._journal = journal
        self._supervisor = supervisor
        self._store = store
        self._clock = clock
        self._asked_at: float | None = None

    async def run(self) -> None:
        """Looks after the engines that run, until cancelled."""
        async for world in self._store.changes(min_interval=LOOK_SECONDS):
            views = value_of(world.engines) or ()
            if any(view.container.ours and view.container.running for view in views):
                await self.ensure()

    async def ensure(self) -> None:
        """A guard runs afterwards, or the event feed says why not. Raises nothing."""
        now = self._clock.monotonic()
        recently = self._asked_at is not None and now - self._asked_at < AGAIN_SECONDS
        if recently or self._journal.running():
            return
        self._asked_at = now
        try:
            await asyncio.to_thread(self._starter.start)
        except SparkError as error:
            self._supervisor.say(error.summary, Severity.WARNING, error.remedy)
