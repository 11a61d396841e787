"""The guard at work on fakes: what it does, to whom, and what it keeps; and the guard of one launch."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from spark_tui.core.cache import CacheControl
from spark_tui.core.guard import Guard, LoadGuard
from spark_tui.domain.engine.container import ContainerFacts
from spark_tui.domain.errors import DaemonNotRunning, SparkError
from spark_tui.domain.host.drop_caches import TEE_COMPACT, TEE_DROP, Access
from spark_tui.domain.host.guard import Act, GuardedEngine, GuardEntry, Policy
from spark_tui.domain.quantities import GIB
from spark_tui.domain.reading import Missing, Ok
from spark_tui.services.ports import LogLine
from tests.core.kit import Kit
from tests.core.test_cache import LOADED, MEASURING
from tests.fakes_host import IDLE_MEMORY, FakeClock, FakeDropper, FakeHost
from tests.gb10_fixtures import crash_timeline, interpolated

OLD = GuardedEngine("1" * 64, "old", 11, started_at=10.0)
YOUNG = GuardedEngine("2" * 64, "young", 22, started_at=20.0)
FOREIGN = GuardedEngine("3" * 64, "foreign", 33, ours=False, started_at=30.0)


@dataclass
class FakeActuator:
    """GuardActuator that note what they were asked."""

    running: tuple[GuardedEngine, ...] = (OLD, YOUNG)
    done: list[tuple[str, str]] = field(default_factory=list)
    error: SparkError | None = None
    allowed: bool = True
    closed: bool = False
    on_engines: Callable[[], None] = lambda: None
    loops: tuple[ContainerFacts, ...] = ()
    lines: tuple[LogLine, ...] | SparkError = ()

    def prepare(self) -> str:
        return ""

    def engines(self) -> tuple[GuardedEngine, ...]:
        self.on_engines()
        if self.error is not None:
            raise self.error
        return self.running

    def restarting(self) -> tuple[ContainerFacts, ...]:
        return self.loops

    def log(self, container: str, since: str) -> tuple[LogLine, ...]:
        self.done.append(("log", since))
        if isinstance(self.lines, SparkError):
            raise self.lines
        return self.lines

    def stop(self, engine: GuardedEngine, grace_seconds: int) -> str:
        self.done.append(("stop", engine.name))
        return f"docker stop, {grace_seconds} s grace"

    def kill(self, engine: GuardedEngine) -> str:
        self.done.append(("kill", engine.name))
        return "docker kill"

    def drop_cache(self) -> bool:
        self.done.append(("drop", ""))
        return self.allowed

    def compact(self) -> bool:
        self.done.append(("compact", ""))
        return self.allowed

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeJournal:
    """A GuardJournal in memory."""

    kept: list[GuardEntry] = field(default_factory=list)
    error: OSError | None = None
    claimed: bool = False

    def claim(self) -> bool:
        was, self.claimed = self.claimed, True
        return not was

    def release(self) -> None:
        self.claimed = False

    def running(self) -> bool:
        return self.claimed

    def add(self, entry: GuardEntry) -> None:
        if self.error is not None:
            raise self.error
        self.kept.append(entry)

    def entries(self) -> tuple[GuardEntry, ...]:
        return tuple(self.kept)


class Post:
    """A guard on fakes. `spend` lets time pass; chores are done as the second thread would, at its pace."""

    def __init__(self, *, only_ours: bool = True, policy: Policy | None = None) -> None:
        self.clock, self.host, self.actuator, self.journal = FakeClock(), FakeHost(), FakeActuator(), FakeJournal()
        self.heard: list[GuardEntry] = []
        self.guard = Guard(
            self.host, self.actuator, self.journal, self.clock, policy or Policy(load_free_floor=0),
            only_ours=only_ours, on_entry=self.heard.append,
        )  # fmt: skip
        self.guard.refresh()

    def memory(self, usable: float, free: float | None = None) -> None:
        size = int(usable * GIB)
        self.host.memory_value = Ok(
            replace(IDLE_MEMORY, available=size, free=size if free is None else int(free * GIB))
        )

    def spend(self, seconds: float, usable: Callable[[float], float]) -> None:
        began = self.clock.monotonic()
        while (at := self.clock.monotonic() - began) <= seconds:
            self.memory(usable(at))
            self.clock.tick(self.guard.tick().next_in)

    def chores(self) -> None:
        """What the second thread has to do, now."""
        stop = threading.Event()
        stop.set()
        self.guard.do_chores(stop)


def test_the_recorded_crash_ends_the_youngest_of_our_engines_and_the_reason_is_kept() -> None:
    post, points = Post(), crash_timeline()
    post.spend(points[-1][0], lambda at: interpolated(points, at) / GIB)
    assert post.actuator.done == [("stop", "young")]
    post.chores()
    [entry] = post.journal.kept
    assert entry.engine == "young"
    assert entry.act == Act.STOP
    assert "gone in" in entry.reason
    assert entry.how == "docker stop, 10 s grace"
    assert post.heard == post.journal.kept


def test_a_foreign_engine_is_stopped_only_where_that_was_asked_for() -> None:
    for only_ours, expected in ((True, []), (False, [("stop", "foreign")])):
        post = Post(only_ours=only_ours)
        post.actuator.running = (FOREIGN,)
        post.guard.refresh()
        post.spend(2.0, lambda _: 1.9)
        assert post.actuator.done == expected


def test_one_that_does_not_heed_the_stop_is_killed_and_no_other_with_it() -> None:
    post = Post()
    post.spend(30.0, lambda _: 1.9)
    assert post.actuator.done == [("stop", "young"), ("kill", "young")]


def test_one_that_ended_in_time_costs_no_other_engine_while_memory_comes_back_late() -> None:
    post = Post()
    post.spend(1.0, lambda _: 1.9)
    assert post.actuator.done == [("stop", "young")]
    post.actuator.running = (OLD,)
    post.guard.refresh()
    post.spend(60.0, lambda _: 1.9)
    assert post.actuator.done == [("stop", "young")]


def test_when_memory_is_back_it_guards_the_next_one() -> None:
    post = Post()
    post.spend(1.0, lambda _: 1.9)
    post.actuator.running = (OLD,)
    post.guard.refresh()
    post.spend(1.0, lambda _: 60.0)
    post.spend(1.0, lambda _: 1.9)
    assert post.actuator.done == [("stop", "young"), ("stop", "old")]


def test_a_daemon_that_does_not_answer_is_no_empty_box() -> None:
    post = Post()
    post.actuator.error = DaemonNotRunning("Docker does not answer.", "Wait.")
    post.guard.refresh()
    assert "Docker does not answer" in post.guard.problem
    post.spend(1.0, lambda _: 1.9)
    assert post.actuator.done == [("stop", "young")]
    post.actuator.error = None
    post.guard.refresh()
    assert post.guard.problem == ""


def test_nothing_is_done_where_nothing_runs_or_memory_cannot_be_read() -> None:
    post = Post()
    post.actuator.running = ()
    post.guard.refresh()
    post.spend(5.0, lambda _: 0.1)
    post.actuator.running = (OLD,)
    post.guard.refresh()
    post.host.memory_value = Missing("/proc/meminfo: permission denied")
    assert post.guard.tick().act is Act.NOTHING
    assert post.actuator.done == []


def test_pressure_is_read_only_when_memory_is_short_and_counts_then() -> None:
    post = Post()
    post.host.pressure_value = Ok(90.0)
    post.spend(30.0, lambda _: 60.0)
    assert post.actuator.done == []
    post.spend(25.0, lambda _: 6.0)
    assert post.actuator.done == [("stop", "young")]


def test_while_an_engine_loads_the_cache_is_dropped_one_at_a_time_and_kept_in_the_journal() -> None:
    post = Post(policy=Policy())
    post.actuator.running = (replace(YOUNG, loading=True),)
    post.guard.refresh()
    post.memory(60.0, free=2.0)
    for _ in range(20):
        post.guard.tick()
        post.clock.tick(0.5)
    assert post.actuator.done == [], "the slow thread has not come to it"
    post.chores()
    assert post.actuator.done == [("drop", "")]
    assert [entry.act for entry in post.journal.kept] == ["drop the cache"]


def test_of_two_that_load_one_may_be_measuring_and_the_cache_is_left_alone() -> None:
    post = Post(policy=Policy())
    post.actuator.running = (replace(OLD, loading=True), replace(YOUNG, loading=True))
    post.guard.refresh()
    post.memory(60.0, free=2.0)
    post.guard.tick()
    post.chores()
    assert post.actuator.done == []


def test_a_drop_that_is_not_allowed_leaves_no_trace() -> None:
    post = Post(policy=Policy())
    post.actuator.running, post.actuator.allowed = (replace(YOUNG, loading=True),), False
    post.guard.refresh()
    post.memory(60.0, free=2.0)
    post.guard.tick()
    post.chores()
    assert post.journal.kept == []


def test_a_journal_that_cannot_be_written_stops_no_guard() -> None:
    post = Post()
    post.journal.error = OSError(28, "No space left on device")
    post.spend(1.0, lambda _: 1.9)
    post.chores()
    assert post.actuator.done == [("stop", "young")]
    assert "No space left" in post.guard.problem
    assert len(post.heard) == 1


def test_it_runs_until_it_is_told_to_end() -> None:
    post, stop = Post(), threading.Event()
    post.memory(60.0)
    thread = threading.Thread(target=post.guard.run, args=(stop,))
    thread.start()
    stop.set()
    thread.join(10)
    assert not thread.is_alive()
    assert post.actuator.closed


def test_what_it_decided_last_is_kept_though_it_ends() -> None:
    post, stop = Post(policy=Policy(calm_interval=0.01, near_interval=0.01)), threading.Event()
    post.memory(1.9)
    thread = threading.Thread(target=post.guard.run, args=(stop,))
    thread.start()
    for _ in range(1000):
        if post.actuator.done:
            break
        thread.join(0.01)
    stop.set()
    thread.join(10)
    assert [entry.engine for entry in post.journal.kept] == ["young"]


# --- the guard of one launch ----------------------------------------------------------------------------


class Launch:
    """A launch of `tiny` that loads, with a cache that fills free memory."""

    def __init__(self, access: Access) -> None:
        self.kit = Kit()
        self.dropper = FakeDropper(self.kit.host, access)
        core = self.kit.context
        cache = CacheControl(self.dropper, self.kit.docker, self.kit.host, core.supervisor, core.store, self.kit.clock)
        self.guard = LoadGuard(self.kit.host, cache, core.supervisor, self.kit.clock)
        self.fill()

    def fill(self) -> None:
        """The checkpoint's pages have taken what was free."""
        self.kit.host.memory_value = Ok(replace(LOADED, free=5 * GIB))

    @property
    def told(self) -> list[str]:
        return [event.text for event in self.kit.context.store.world.events]


GRANTED = Access(sudo=TEE_DROP, sudo_compact=TEE_COMPACT, has_sudo=True)


async def test_from_create_to_ready_free_memory_is_kept_up() -> None:
    launch = Launch(GRANTED)
    async with launch.guard.during("tiny"):
        await launch.kit.clock.advance(0.1)
        assert len(launch.dropper.dropped) == 1
        launch.fill()
        await launch.kit.clock.advance(1.0)
        assert len(launch.dropper.compacted) == 1, "then free memory is put together"
        await launch.kit.clock.advance(5.0)
        assert len(launch.dropper.dropped) == 2
    launch.fill()
    await launch.kit.clock.advance(30.0)
    assert len(launch.dropper.dropped) == 2, "ready: the cache is its owner's again"
    assert "tiny loads, 5.0 GiB free while an engine loads, below 8.0" in launch.told[0]


async def test_it_never_ends_an_engine() -> None:
    launch = Launch(GRANTED)
    launch.kit.host.memory_value = Ok(replace(IDLE_MEMORY, free=GIB // 2, available=GIB // 2))
    launch.kit.docker.add_container("tiny")
    async with launch.guard.during("tiny"):
        await launch.kit.clock.advance(30.0)
    assert launch.kit.docker.asked("stop") == []


async def test_it_waits_while_another_engine_measures_memory() -> None:
    launch = Launch(GRANTED)
    launch.kit.docker.add_container("other", lines=MEASURING)
    await launch.kit.context.supervisor.look()
    async with launch.guard.during("tiny"):
        await launch.kit.clock.advance(10.0)
    assert launch.dropper.dropped == []


async def test_without_a_silent_way_it_does_nothing_and_says_nothing() -> None:
    launch = Launch(Access(has_sudo=True))
    async with launch.guard.during("tiny"):
        await launch.kit.clock.advance(10.0)
    assert launch.told == []


async def test_a_way_that_fails_ends_it_with_a_word_and_not_the_launch() -> None:
    launch = Launch(GRANTED)
    launch.dropper.errors = [SparkError("The cache could not be dropped (sudo).", "") for _ in range(9)]
    async with launch.guard.during("tiny"):
        await launch.kit.clock.advance(20.0)
    assert len(launch.told) == 1
    assert "load guard of tiny has ended" in launch.told[0]


async def test_a_cancelled_launch_ends_its_guard() -> None:
    launch = Launch(GRANTED)

    async def work() -> None:
        async with launch.guard.during("tiny"):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await launch.kit.clock.advance(0.1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert launch.kit.clock.sleepers == 0
