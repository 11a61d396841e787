"""The composition root's part that watches and guards: memory, engines that hang or crash again and again."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from spark_tui.core.context_ground import ContextGround
from spark_tui.domain.errors import RefusedError

if TYPE_CHECKING:
    from spark_tui.core.alarms import AlarmBoard
    from spark_tui.core.cache import CacheControl
    from spark_tui.core.context_ports import GuardPorts
    from spark_tui.core.guard import Guard, LoadGuard, OnEntry
    from spark_tui.core.guard_keeper import GuardKeeper
    from spark_tui.core.health_watch import HealthWatch
    from spark_tui.core.memory_detail import GuardStanding, MemoryInspector
    from spark_tui.core.memory_ledger import LedgerReader
    from spark_tui.core.memory_watch import MemoryWatch
    from spark_tui.core.restart_breaker import RestartBreaker
    from spark_tui.domain.host.guard import Policy
    from spark_tui.domain.reading import Reading


class MemoryContext(ContextGround):
    """The pool: who holds it, what guards it, what is given back."""

    @cached_property
    def cache(self) -> CacheControl:
        """The page cache, given up on a person's wish."""
        from spark_tui.core.cache import CacheControl, NothingAllowed

        dropper = self._ports.dropper or NothingAllowed()
        return CacheControl(dropper, self.docker, self.host, self.supervisor, self.store, self.clock)

    @cached_property
    def load_guard(self) -> LoadGuard:
        """Keeps memory free while a launch loads."""
        from spark_tui.core.guard import LoadGuard

        return LoadGuard(self.host, self.cache, self.supervisor, self.clock, self.guard_policy)

    @cached_property
    def ledger(self) -> LedgerReader:
        """Who holds the pool."""
        from spark_tui.core.memory_ledger import LedgerReader

        return LedgerReader(self.host)

    @cached_property
    def alarms(self) -> AlarmBoard:
        """What is wrong now."""
        from spark_tui.core.alarms import AlarmBoard

        return AlarmBoard(self.store)

    @cached_property
    def memory_inspector(self) -> MemoryInspector:
        """Processes, containers and vital signs, for who looks."""
        from spark_tui.core.memory_detail import MemoryInspector, NoVitals

        return MemoryInspector(self._ports.vitals or NoVitals(), self.store, self._guard_standing)

    def _guard_standing(self) -> Reading[GuardStanding]:
        from spark_tui.core.memory_detail import NO_GUARD, GuardStanding
        from spark_tui.domain.reading import Ok

        ports = self._ports.guarding
        if ports is None:
            return NO_GUARD
        return Ok(GuardStanding(ports.journal.running(), ports.journal.entries()), self.clock.now())

    @cached_property
    def memory_watch(self) -> MemoryWatch:
        """Memory judged second by second."""
        from spark_tui.core.memory_watch import MemoryWatch

        return MemoryWatch(self.store, self.clock, self.ledger, self.alarms)

    @cached_property
    def health(self) -> HealthWatch:
        """Wedged engines, a stuck power state, leaked shared memory."""
        from spark_tui.core.health_watch import HealthWatch

        return HealthWatch(
            self.store, self.clock, self.host, self.api, self.supervisor, self.alarms, self.metrics.token_sample,
            read_only=self.settings.read_only,
        )  # fmt: skip

    @cached_property
    def restart_breaker(self) -> RestartBreaker:
        """Ends crash loops of our own engines."""
        from spark_tui.core.restart_breaker import RestartBreaker, no_entries

        guarding, settings = self._ports.guarding, self.settings
        return RestartBreaker(
            self.docker, self.supervisor, self.store, self.clock, self.alarms,
            guarding.journal.entries if guarding is not None else no_entries,
            acting=settings.stop_crash_loops and not settings.read_only,
        )  # fmt: skip

    @cached_property
    def guard_keeper(self) -> GuardKeeper | None:
        """Makes a guard run while an engine of ours does; None where the settings or the demo want none."""
        from spark_tui.core.guard_keeper import GuardKeeper

        ports = self._ports.guarding
        if ports is None or ports.starter is None or not self.settings.guard_auto or self.settings.read_only:
            return None
        return GuardKeeper(ports.starter, ports.journal, self.supervisor, self.store, self.clock)

    @property
    def guard_policy(self) -> Policy:
        """The guard's figures, with the floors of the settings."""
        from spark_tui.domain.host.guard import Policy
        from spark_tui.domain.quantities import GIB

        serving, loading = self.settings.guard_serving_gib, self.settings.guard_loading_gib
        return Policy(serving_floor=int(serving * GIB), loading_floor=int(loading * GIB))

    @property
    def guarding(self) -> GuardPorts:
        """The guard's outside world. Raises RefusedError where there is none: in the demo."""
        if self._ports.guarding is None:
            raise RefusedError("There is nothing to guard here: this Spark is simulated.", "Leave out --demo.")
        return self._ports.guarding

    def new_guard(self, on_entry: OnEntry, *, only_ours: bool = True, while_engines_run: bool = False) -> Guard:
        """A watchdog, which the caller runs; with `while_engines_run` it ends by itself some time after the last of
        them. Raises RefusedError in the demo."""
        from spark_tui.core.guard import Guard

        ports = self.guarding
        return Guard(
            self.host, ports.hands, ports.journal, self.clock, self.guard_policy,
            only_ours=only_ours, while_engines_run=while_engines_run, end_loops=self.settings.stop_crash_loops,
            on_entry=on_entry,
        )  # fmt: skip
