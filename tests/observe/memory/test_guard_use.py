"""The guard at work on fakes: what it does, to whom, and what it keeps; and the guard of one launch."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from spark_tui.base.context import GuardPorts
from spark_tui.base.engine.container import LABEL_PRESET, ContainerFacts
from spark_tui.base.errors import DaemonNotRunning, SparkError
from spark_tui.base.finding import Missing, Ok, Severity
from spark_tui.base.host.guard import GuardAction, GuardedEngine, GuardEntry, Policy
from spark_tui.base.host.memory import TEE_COMPACT, TEE_DROP, Access
from spark_tui.base.ports import LogLine
from spark_tui.base.quantities import GIB
from spark_tui.observe.engines.use.engines import EngineSupervisor, explain_container
from spark_tui.observe.explain.feature import EXPLANATIONS
from spark_tui.observe.explain.model.starts import start_record
from spark_tui.observe.explain.show import explanation_object
from spark_tui.observe.memory.use.guard import AGAIN_SECONDS, Guard, GuardLauncher, LoadGuard
from spark_tui.observe.memory.use.memory import CacheControl
from tests.fakes_host import IDLE_MEMORY, FakeClock, FakeDropper, FakeHost
from tests.gb10_fixtures import crash_timeline, interpolated
from tests.kit import Kit
from tests.observe.memory.test_cache import LOADED, MEASURING

OLD = GuardedEngine("1" * 64, "old", 11, started_at=10.0)
YOUNG = GuardedEngine("2" * 64, "young", 22, started_at=20.0)
FOREIGN = GuardedEngine("3" * 64, "foreign", 33, ours=False, started_at=30.0)


@dataclass
class FakeActuator:
    """A GuardActuator that notes what it was asked."""

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

    def __init__(self, *engines: GuardedEngine, only_ours: bool = True, policy: Policy | None = None) -> None:
        self.clock, self.host, self.actuator, self.journal = FakeClock(), FakeHost(), FakeActuator(), FakeJournal()
        self.heard: list[GuardEntry] = []
        self.guard = Guard(
            self.host, self.actuator, self.journal, self.clock, policy or Policy(load_free_floor=0),
            only_ours=only_ours, on_entry=self.heard.append,
        )  # fmt: skip
        self.runs(*(engines or (OLD, YOUNG)))

    def runs(self, *engines: GuardedEngine) -> None:
        """These engines run, and the guard knows it."""
        self.actuator.running = engines
        self.guard.refresh()

    def memory(self, usable: float, free: float | None = None) -> None:
        size = int(usable * GIB)
        self.host.memory_value = Ok(
            replace(IDLE_MEMORY, available=size, free=size if free is None else int(free * GIB))
        )

    def spend(self, seconds: float, usable: float | Callable[[float], float]) -> None:
        began = self.clock.monotonic()
        while (at := self.clock.monotonic() - began) <= seconds:
            self.memory(usable(at) if callable(usable) else usable)
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
    assert (entry.engine, entry.act, entry.how) == ("young", GuardAction.STOP, "docker stop, 10 s grace")
    assert "gone in" in entry.reason
    assert post.heard == post.journal.kept


@pytest.mark.parametrize(("only_ours", "expected"), [(True, []), (False, [("stop", "foreign")])])
def test_a_foreign_engine_is_stopped_only_where_that_was_asked_for(
    only_ours: bool, expected: list[tuple[str, str]]
) -> None:
    post = Post(FOREIGN, only_ours=only_ours)
    post.spend(2.0, 1.9)
    assert post.actuator.done == expected


def test_one_that_ignores_the_stop_is_killed_and_no_other_with_it() -> None:
    post = Post()
    post.spend(30.0, 1.9)
    assert post.actuator.done == [("stop", "young"), ("kill", "young")]


def test_one_that_ended_in_time_costs_no_other_engine_until_memory_is_back_and_short_again() -> None:
    post = Post()
    post.spend(1.0, 1.9)
    post.runs(OLD)
    post.spend(60.0, 1.9)
    assert post.actuator.done == [("stop", "young")]
    post.spend(1.0, 60.0)
    post.spend(1.0, 1.9)
    assert post.actuator.done == [("stop", "young"), ("stop", "old")]


def test_a_daemon_that_does_not_answer_is_no_empty_machine() -> None:
    post = Post()
    post.actuator.error = DaemonNotRunning("Docker does not answer.", "Wait.")
    post.guard.refresh()
    assert "Docker does not answer" in post.guard.problem
    post.spend(1.0, 1.9)
    assert post.actuator.done == [("stop", "young")]
    post.actuator.error = None
    post.guard.refresh()
    assert post.guard.problem == ""


def test_nothing_is_done_where_nothing_runs_or_memory_cannot_be_read() -> None:
    post = Post()
    post.runs()
    post.spend(5.0, 0.1)
    post.runs(OLD)
    post.host.memory_value = Missing("/proc/meminfo: permission denied")
    assert post.guard.tick().act is GuardAction.NOTHING
    assert post.actuator.done == []


def test_pressure_is_read_only_when_memory_is_short_and_counts_then() -> None:
    post = Post()
    post.host.pressure_value = Ok(90.0)
    post.spend(30.0, 60.0)
    assert post.actuator.done == []
    post.spend(25.0, 6.0)
    assert post.actuator.done == [("stop", "young")]


LOADS = (replace(OLD, loading=True), replace(YOUNG, loading=True))


@pytest.mark.parametrize(
    ("engines", "allowed", "done", "kept"),
    [
        pytest.param(LOADS[1:], True, [("drop", "")], ["drop the cache"], id="loads"),
        pytest.param(LOADS[1:], False, [("drop", "")], [], id="not-allowed"),
        pytest.param(LOADS, True, [], [], id="another-may-measure"),
    ],
)
def test_while_an_engine_loads_the_cache_is_dropped_by_the_slow_thread_one_at_a_time(
    engines: tuple[GuardedEngine, ...], allowed: bool, done: list[tuple[str, str]], kept: list[str]
) -> None:
    post = Post(*engines, policy=Policy())
    post.actuator.allowed = allowed
    post.memory(60.0, free=2.0)
    for _ in range(20):
        post.guard.tick()
        post.clock.tick(0.5)
    assert post.actuator.done == [], "the slow thread has not come to it"
    post.chores()
    assert post.actuator.done == done
    assert [entry.act for entry in post.journal.kept] == kept


def test_a_journal_that_cannot_be_written_stops_no_guard() -> None:
    post = Post()
    post.journal.error = OSError(28, "No space left on device")
    post.spend(1.0, 1.9)
    post.chores()
    assert post.actuator.done == [("stop", "young")]
    assert "No space left" in post.guard.problem
    assert len(post.heard) == 1


def test_it_runs_until_it_is_ended_and_its_last_act_is_kept() -> None:
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
    assert not thread.is_alive()
    assert post.actuator.closed
    assert [entry.engine for entry in post.journal.kept] == ["young"]


# --- the guard of one launch ----------------------------------------------------------------------------


class Launch:
    """A launch of `tiny` that loads, with a cache that fills free memory."""

    def __init__(self, access: Access) -> None:
        self.kit = Kit()
        self.dropper = FakeDropper(self.kit.host, access)
        core = self.kit.context
        cache = CacheControl(
            self.dropper, self.kit.docker, self.kit.host, core[EngineSupervisor], core.store, self.kit.clock
        )
        self.guard = LoadGuard(self.kit.host, cache, core[EngineSupervisor], self.kit.clock)
        self.fill()

    def fill(self) -> None:
        """The checkpoint's pages have taken what was free."""
        self.kit.host.memory_value = Ok(replace(LOADED, free=5 * GIB))

    @property
    def events(self) -> list[str]:
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
    assert "tiny loads, 5.0 GiB free while an engine loads, below 8.0" in launch.events[0]


async def test_it_never_ends_an_engine() -> None:
    launch = Launch(GRANTED)
    launch.kit.host.memory_value = Ok(replace(IDLE_MEMORY, free=GIB // 2, available=GIB // 2))
    launch.kit.docker.add_container("tiny")
    async with launch.guard.during("tiny"):
        await launch.kit.clock.advance(30.0)
    assert launch.kit.docker.asked("stop") == []


@pytest.mark.parametrize(
    ("access", "other"), [(GRANTED, True), (Access(has_sudo=True), False)], ids=["another-measures", "no-silent-way"]
)
async def test_it_leaves_the_cache_alone(access: Access, other: bool) -> None:
    launch = Launch(access)
    if other:
        launch.kit.docker.add_container("other", lines=MEASURING)
        await launch.kit.context[EngineSupervisor].look()
    async with launch.guard.during("tiny"):
        await launch.kit.clock.advance(10.0)
    assert (launch.dropper.dropped, launch.events) == ([], [])


async def test_a_way_that_fails_ends_it_with_a_word_and_not_the_launch() -> None:
    launch = Launch(GRANTED)
    launch.dropper.errors = [SparkError("The cache could not be dropped (sudo).", "") for _ in range(9)]
    async with launch.guard.during("tiny"):
        await launch.kit.clock.advance(20.0)
    assert len(launch.events) == 1
    assert "load guard of tiny has ended" in launch.events[0]


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


# --- a guard while an engine of ours runs -----------------------------------------------------------------


@dataclass
class FakeStarter:
    """A GuardStarter whose guard holds the journal's claim."""

    journal: FakeJournal
    starts: int = 0
    error: SparkError | None = None
    ends_at_once: bool = False
    kit: Kit = field(default_factory=Kit)

    def start(self) -> None:
        self.starts += 1
        if self.error is not None:
            raise self.error
        self.journal.claimed = not self.ends_at_once

    def launcher(self) -> GuardLauncher:
        context = self.kit.context
        return GuardLauncher(self, self.journal, context.store, self.kit.clock)


@pytest.mark.parametrize("ends_at_once", [False, True])
async def test_a_launch_starts_one_and_one_that_ends_at_once_is_not_started_again_and_again(ends_at_once: bool) -> None:
    starter = FakeStarter(FakeJournal(), ends_at_once=ends_at_once)
    launcher = starter.launcher()
    for _ in range(5):
        await launcher.ensure()
        starter.kit.clock.tick(5.0)
    assert starter.starts == 1
    starter.kit.clock.tick(AGAIN_SECONDS)
    await launcher.ensure()
    assert starter.starts == 1 + ends_at_once


async def test_one_that_was_killed_is_reported_and_started_again_at_once() -> None:
    starter = FakeStarter(FakeJournal())
    launcher = starter.launcher()
    await launcher.ensure()
    await launcher.ensure()
    starter.journal.claimed = False
    await launcher.ensure()
    assert starter.starts == 2
    [event] = starter.kit.context.store.world.events
    assert (event.severity, "journalctl" in event.remedy) == (Severity.WARNING, True)


ENDS = [("stop the engine", 143), ("kill the engine", 137), ("stop the engine", 0), ("end the crash loop", 1)]


@pytest.mark.parametrize(("act", "code"), ENDS)
async def test_why_the_guard_ended_an_engine_stands_with_the_engine_and_in_its_history(act: str, code: int) -> None:
    kit = Kit()
    journal = FakeJournal()
    vars(kit.context.ports)["guarding"] = GuardPorts(FakeActuator(), journal, None)  # type: ignore[arg-type]
    facts = kit.docker.add_container("qwen", argv=("vllm", "serve", "m"), labels=((LABEL_PRESET, "qwen"),))
    kit.docker.write("qwen", "INFO 07-01 10:00:00 [api_server.py:1] vLLM API server version 0.20.0")
    kit.docker.end(facts.name, code)
    ended = kit.docker.named("qwen")
    assert ended is not None
    assert ended.started_at is not None
    assert ended.finished_at is not None
    journal.kept = [
        GuardEntry(ended.started_at - 9_000, act, "qwen", "an earlier start"),
        GuardEntry(ended.finished_at, act, "qwen", "1.2 GiB usable", "docker stop"),
        GuardEntry(ended.finished_at, act, "other", "0.9 GiB usable"),
    ]
    async with kit.supervised():
        await kit.clock.advance(2)
        [view] = kit.context[EngineSupervisor].views()
        cause = kit.context.store.world[EXPLANATIONS]["qwen"].cause
        assert cause is not None
        assert (cause.id, "1.2 GiB usable" in cause.summary, cause.guess) == ("stopped_by_guard", True, False)
        assert cause.remedy
        record = start_record(view)
        assert record is not None
        assert (record.cause, "1.2 GiB" in record.failure) == ("stopped_by_guard", True)
        context = kit.context
        found = await explain_container(
            view.container, kit.docker, kit.api, kit.host, kit.clock, context.checkpoints, journal=journal
        )
        assert explanation_object(found)["failure"]["cause"] == "stopped_by_guard"


async def test_why_there_is_none_is_an_event_and_the_launch_continues() -> None:
    starter = FakeStarter(FakeJournal(), error=SparkError("The memory guard could not be started.", "See why."))
    await starter.launcher().ensure()
    event = starter.kit.context.store.world.events[-1]
    assert event.text == "The memory guard could not be started."
    assert event.remedy == "See why."


async def test_an_engine_of_ours_that_is_found_running_is_guarded_and_a_foreign_one_is_not() -> None:
    starter = FakeStarter(FakeJournal())
    kit = starter.kit
    async with kit.supervised():
        watching = asyncio.create_task(starter.launcher().run())
        kit.docker.add_container("theirs", argv=("vllm", "serve", "m"))
        await kit.clock.advance(12)
        assert starter.starts == 0
        kit.docker.add_container("ours", argv=("vllm", "serve", "m"), labels=((LABEL_PRESET, "qwen"),))
        await kit.until(lambda: starter.starts == 1)
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
