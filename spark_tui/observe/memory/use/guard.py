"""Keeps the machine from freezing: the watchdog over what serves, and the guard of one launch.

The watchdog runs in a thread of its own, or is a process's only business (`spark-tui guard`). On its way from a look
at memory to the stop of an engine there is no event loop, no new module and no waiting; everything slow (asking Docker
what runs, dropping the cache, writing the journal) is done by a second thread.
"""

from __future__ import annotations

import asyncio
import math
import queue
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.errors import SparkError
from spark_tui.base.executors import in_thread
from spark_tui.base.finding import Ok, Severity, value_of
from spark_tui.base.host.guard import (
    START,
    Decision,
    GuardAction,
    GuardContext,
    GuardedEngine,
    GuardEntry,
    GuardState,
    Policy,
    decide,
    ended,
    sample_of,
    victim,
)
from spark_tui.base.ports import Clock, GuardActuator, GuardJournal, GuardStarter, HostProbe
from spark_tui.base.quantities import GIB
from spark_tui.base.store import Store
from spark_tui.observe.engines.use.crash_loops import LoopEnder
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.memory.use.memory import CacheControl, measuring

ENGINES_SECONDS: Final = 2.0
"""How often Docker is asked what runs; not while memory is short, when it has other things to do."""
IDLE_SECONDS: Final = 120.0
"""A guard that runs for engines alone ends this long after the last one: a restarted engine is back by then."""
AWAY_SECONDS: Final = 600.0
"""A Docker that does not answer is waited for this long."""
LOAD_SECONDS: Final = 1.0

OnEntry = Callable[[GuardEntry], None]
"""Called from the guard's second thread."""


def guard_policy(context: Context) -> Policy:
    """The floors of the settings."""
    return Policy(
        serving_floor=int(context.settings.guard_serving_gib * GIB),
        loading_floor=int(context.settings.guard_loading_gib * GIB),
    )


class Guard:
    """The watchdog. `tick` is one look and what follows from it; `run` does that until it is asked to end."""

    @classmethod
    def from_context(cls, context: Context, **options: Any) -> Guard:
        """Each time another one, with these options."""
        guarding, loops = context.guarding, context.settings.stop_crash_loops
        return cls(
            context.host,
            guarding.actuator,
            guarding.journal,
            context.clock,
            guard_policy(context),
            end_loops=loops,
            **options,
        )

    def __init__(
        self,
        host: HostProbe,
        actuator: GuardActuator,
        journal: GuardJournal,
        clock: Clock,
        policy: Policy | None = None,
        *,
        only_ours: bool = True,
        while_engines_run: bool = False,
        end_loops: bool = True,
        on_entry: OnEntry = lambda _: None,
    ) -> None:
        self._host = host
        self._actuator = actuator
        self._journal = journal
        self._clock = clock
        self._policy = policy or Policy()
        self._only_ours = only_ours
        self._on_entry = on_entry
        self._state: GuardState = START
        self._target: GuardedEngine | None = None
        self._ended: set[str] = set()
        self._chores: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._dropping = False
        self._loops = LoopEnder(actuator, clock, self._keep, only_ours=only_ours) if end_loops else None
        self._while_engines_run = while_engines_run
        self._busy_at = clock.monotonic()
        self.engines: tuple[GuardedEngine, ...] = ()
        self.problem = ""
        """Why Docker could not be asked; empty when it could."""

    # --- the fast path --------------------------------------------------------------------------------

    def tick(self) -> Decision:
        """One look at memory, and the act that it calls for. Raises nothing that memory or Docker may cause."""
        reading, policy, pressure = self._host.memory(), self._policy, None
        if not isinstance(reading, Ok):
            return Decision(next_in=policy.calm_interval)
        if reading.value.usable < policy.thrash_below:  # read only where it may count
            pressure = value_of(self._host.memory_pressure())
        sample = sample_of(reading.value, self._clock.monotonic(), pressure)
        if self._state.stopping_since is not None and self._target is None:
            self._state = ended(self._state, sample.at)
        loading = sum(engine.loading for engine in self.engines)
        alive = [engine for engine in self.engines if engine.id not in self._ended]
        target = self._target or victim(alive, only_ours=self._only_ours)
        # Of two engines that load, each may be measuring memory: then the cache is left alone.
        scene = GuardContext(target is not None, loading > 0, measuring=loading > 1)
        self._state, decision = decide(self._state, sample, policy, scene)
        match decision.act:
            case GuardAction.STOP if target is not None:
                self._target = target
                self._note(decision, target, self._actuator.stop(target, int(policy.grace)))
            case GuardAction.KILL if target is not None:
                self._target = None
                self._note(decision, target, self._actuator.kill(target))
                self._ended.add(target.id)
            case GuardAction.DROP_CACHE:
                self._relieve(decision, self._actuator.drop_cache)
            case GuardAction.COMPACT:
                self._relieve(decision, self._actuator.compact)
        return decision

    def _note(self, decision: Decision, engine: GuardedEngine, how: str) -> None:
        entry = GuardEntry(self._clock.now(), decision.act.value, engine.name, decision.reason, how)
        self._chores.put(lambda: self._keep(entry))

    def _relieve(self, decision: Decision, work: Callable[[], bool]) -> None:
        """Dropping the cache may take a while: one at a time, and elsewhere."""
        if self._dropping:
            return
        self._dropping = True
        entry = GuardEntry(self._clock.now(), decision.act.value, "", decision.reason)

        def chore() -> None:
            try:
                done = work()
            finally:
                self._dropping = False
            if done:
                self._keep(entry)

        self._chores.put(chore)

    # --- the slow path --------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Asks Docker what runs. Without an answer all stays as it was: a daemon that hangs is no empty machine."""
        try:
            self.engines = self._actuator.engines()
            self.problem = ""
        except SparkError as error:
            self.problem = str(error)
            return
        if self._loops is not None:
            self._loops.look()
        running = {engine.id for engine in self.engines}
        if self._target is not None and self._target.id not in running:
            self._target = None
        self._ended &= running

    def idle(self) -> bool:
        """Whether there has been nothing to guard for a while."""
        now = self._clock.monotonic()
        owned = [each.ours for each in self.engines] + [each.ours for each in self._actuator.restarting()]
        work = any(owned) or (bool(owned) and not self._only_ours)
        if work and not self.problem:
            self._busy_at = now
        return now - self._busy_at > (AWAY_SECONDS if work else IDLE_SECONDS)

    def _keep(self, entry: GuardEntry) -> None:
        try:
            self._journal.add(entry)
        except OSError as error:
            self.problem = f"the journal cannot be written: {error.strerror or error}"
        self._on_entry(entry)

    def do_chores(self, stop: threading.Event) -> None:
        """The second thread: what runs, and whatever else takes time."""
        while not stop.is_set():
            try:
                chore = self._chores.get(timeout=ENGINES_SECONDS)
            except queue.Empty:
                self.refresh()
                if self._while_engines_run and self.idle():
                    stop.set()
                continue
            if chore is None:
                break
            chore()
        while not self._chores.empty():
            left = self._chores.get()
            if left is not None:
                left()

    # --- life -----------------------------------------------------------------------------------------

    def run(self, stop: threading.Event) -> None:
        """Guards until `stop` is set. Blocks: give it a thread, or nothing else to do."""
        self.refresh()
        worker = threading.Thread(target=self.do_chores, args=(stop,), name="guard-chores", daemon=True)
        worker.start()
        try:
            while not stop.wait(self.tick().next_in):
                pass
        finally:
            self._chores.put(None)
            worker.join(ENGINES_SECONDS)
            self._actuator.close()


class LoadGuard:
    """Keeps memory free while one launch loads its weights: the driver takes what is free, and the checkpoint's pages
    fill that up. Where nothing allows dropping the cache without a person, it does nothing."""

    @classmethod
    def from_context(cls, context: Context) -> LoadGuard:
        return cls(context.host, context[CacheControl], context[EngineSupervisor], context.clock, guard_policy(context))

    def __init__(
        self,
        host: HostProbe,
        cache: CacheControl,
        supervisor: EngineSupervisor,
        clock: Clock,
        policy: Policy | None = None,
    ) -> None:
        self._host = host
        self._cache = cache
        self._supervisor = supervisor
        self._clock = clock
        # Without the power to end engines: that is the watchdog's.
        self._policy = replace(
            policy or Policy(), serving_floor=0, loading_floor=0, fall_below=0, kill_floor=0, thrash_below=0
        )

    @asynccontextmanager
    async def during(self, name: str) -> AsyncIterator[None]:
        """Guards for as long as the body runs: from the container's start until it is ready."""
        task = asyncio.create_task(self.run(name))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})  # unlike `await task`, hears a cancellation of its own
            if not task.cancelled():
                task.result()

    async def run(self, name: str) -> None:
        """Looks once a second until cancelled. A way that fails ends it, with a word in the event feed."""
        state = START
        while True:
            reading = self._host.memory()
            if isinstance(reading, Ok):
                sample = sample_of(reading.value, self._clock.monotonic())
                others = (view for view in self._supervisor.views() if view.name != name and view.container.running)
                scene = GuardContext(loading=True, measuring=any(measuring(view.timeline) for view in others))
                state, decision = decide(state, sample, self._policy, scene)
                try:
                    if decision.act is GuardAction.COMPACT:
                        await self._cache.compact_quietly()
                    elif (
                        decision.act is GuardAction.DROP_CACHE
                        and (result := await self._cache.drop_quietly()) is not None
                    ):
                        self._supervisor.say(f"{name} loads, {decision.reason}. {result.sentence}")
                except SparkError as error:
                    self._supervisor.say(f"the load guard of {name} has ended: {error.summary}", remedy=error.remedy)
                    return
            await self._clock.sleep(LOAD_SECONDS)


LOOK_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 300.0
"""Between two attempts to start one: a guard that ends at once would end again."""


class GuardLauncher(Struct, eq=False):
    """Starts a guard where none runs. It ends by itself, two minutes after the last engine."""

    starter: GuardStarter
    journal: GuardJournal
    store: Store
    clock: Clock
    _asked_at: float = -math.inf
    _ran: bool = False

    async def run(self) -> None:
        """Looks after the engines that run, until cancelled."""
        async for world in self.store.changes(min_interval=LOOK_SECONDS):
            if any(view.container.ours and view.container.running for view in world.known(ENGINES)):
                await self.ensure()

    async def ensure(self) -> None:
        """A guard runs afterwards, or the event feed says why not. Raises nothing."""
        now = self.clock.monotonic()
        if self.journal.running():
            self._ran = True
            return
        if self._ran:  # it never ends by itself while an engine of ours runs
            self._ran, self._asked_at = False, -math.inf
            self.store.say(
                "The memory guard was killed or has crashed. It is started again.",
                Severity.WARNING,
                "Check the kernel log for an out-of-memory kill: journalctl -k",
            )
        if now - self._asked_at < AGAIN_SECONDS:
            return
        self._asked_at = now
        try:
            await in_thread(self.starter.start)
        except SparkError as error:
            self.store.say(error.summary, Severity.WARNING, error.remedy)


def guard_launcher(context: Context) -> GuardLauncher | None:
    """None where the settings or the demo want no guard of their own."""
    settings = context.settings
    if not context.ports.has("guarding") or not settings.guard_auto or settings.read_only:
        return None
    starter, journal = context.guarding.starter, context.guarding.journal
    return GuardLauncher(starter, journal, context.store, context.clock) if starter else None
