"""Whatever fails or hangs behind a port, all else goes on, says why, and works again by itself when the port does."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any

import pytest

from spark_tui.base.engine.container import PublishedPort
from spark_tui.base.engine.state import EngineState
from spark_tui.base.errors import SparkError
from spark_tui.base.executors import keep
from spark_tui.base.finding import EventKind, Ok, Severity, value_of
from spark_tui.base.host.vitals import Vitals
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.metrics.use.metrics import EngineMetricsCollector
from tests.fakes_host import FakeClock
from tests.fakes_metrics import FakeMetrics
from tests.kit import Kit

WHY = "Too many open files"


class Meter:
    """Counts the calls of a port's method that end well, and lets them fail on request."""

    def __init__(self, port: Any, name: str) -> None:
        self.ended = 0
        self._fault = ""
        self._gate = threading.Event()
        self._call = getattr(port, name)
        kinds = ((isasyncgenfunction, self._stream), (iscoroutinefunction, self._later))
        setattr(port, name, next((own for is_kind, own in kinds if is_kind(self._call)), self._now))

    def plant(self, fault: str) -> None:
        self._fault = fault
        self._gate.clear()

    def heal(self) -> None:
        self._fault = ""
        self._gate.set()

    def _raise(self) -> None:
        if self._fault == "raise":
            raise OSError(errno.EMFILE, WHY)

    async def _hold(self) -> None:
        self._raise()
        while self._fault:
            await asyncio.sleep(0.01)

    def _now(self, *given: Any, **more: Any) -> Any:
        self._raise()
        if self._fault:
            self._gate.wait(60)
        self.ended += 1
        return self._call(*given, **more)

    async def _later(self, *given: Any, **more: Any) -> Any:
        await self._hold()
        self.ended += 1
        return await self._call(*given, **more)

    async def _stream(self, *given: Any, **more: Any) -> AsyncIterator[Any]:
        await self._hold()
        async for each in self._call(*given, **more):
            await self._hold()
            self.ended += 1
            yield each


class Eyes:
    """A VitalsProbe."""

    def look(self) -> Vitals:
        return Vitals()


def machine() -> tuple[Kit, dict[str, Meter]]:
    """A Spark with an engine, and a meter at each port."""
    kit = Kit()
    kit.metrics = FakeMetrics(kit.clock)
    kit.context = kit.opened()
    vars(kit.context.ports)["vitals"] = eyes = Eyes()
    kit.docker.add_container("one", ports=(PublishedPort(8000, 8000),), lines=("INFO: Application startup complete.",))
    kit.api.serve()
    ports = {
        "memory": (kit.host, "memory"),
        "pressure": (kit.host, "memory_pressure"),
        "processes": (kit.host, "bare_engines"),
        "shared memory": (kit.host, "shared_files"),
        "gpu": (kit.gpu, "read"),
        "vitals": (eyes, "look"),
        "docker": (kit.docker, "daemon"),
        "containers": (kit.docker, "containers"),
        "events": (kit.docker, "events"),
        "logs": (kit.docker, "logs"),
        "health": (kit.api, "health"),
        "metrics": (kit.metrics, "read"),
        "presets": (kit.presets, "load"),
        "state": (kit.state, "read"),
    }
    return kit, {name: Meter(*port) for name, port in ports.items()}


REPEATED = ("memory", "pressure", "processes", "gpu", "vitals", "docker", "containers", "health", "metrics", "state")
"""What is asked again and again."""
ON_LOOP = ("memory", "pressure")
"""Files of the kernel's memory: they can fail, not hang, and are read on the event loop."""
BEHIND = {"containers": ("processes",), "memory": ("pressure",)}
"""What waits for another."""
FAULTS = [
    (name, fault) for name in machine()[1] for fault in ("raise", "hang") if fault == "raise" or name not in ON_LOOP
]


def reasons(kit: Kit) -> str:
    """All that the World says of failures."""
    world = kit.context.store.world
    readings = (world.memory, world.pressure, world.gpu, world.vitals, world.docker, world[ENGINES])
    said = [getattr(reading, "error", "") or getattr(reading, "reason", "") for reading in readings]
    return " ".join(
        [*said, *(event.text for event in world.events), kit.context[EngineMetricsCollector].of("one").reason]
    )


async def soon(kit: Kit, condition: Callable[[], bool], seconds: int = 200) -> bool:
    """Whether it holds within that time of the clock; a call on a thread comes back in real time."""
    for _ in range(0, seconds, 10):
        if condition():
            return True
        await asyncio.sleep(0.01)
        await kit.clock.advance(10)
    return condition()


@pytest.mark.parametrize(("name", "fault"), FAULTS)
async def test_one_that_fails_or_hangs_is_one_only_and_comes_back(name: str, fault: str) -> None:
    kit, meters = machine()
    async with kit.whole():
        await kit.until(lambda: all(meters[each].ended for each in (*REPEATED, "presets", "logs")))
        before = {each: meters[each].ended for each in REPEATED}
        meters[name].plant(fault)
        kit.docker.write("one", "a line")
        others = [each for each in REPEATED if each not in {name, *BEHIND.get(name, ())}]
        assert await soon(kit, lambda: all(meters[each].ended >= before[each] + 2 for each in others), 100)
        if fault == "raise" and name in REPEATED and name != "state":
            assert await soon(kit, lambda: WHY in reasons(kit))
        meters[name].heal()
        before = {each: meters[each].ended for each in REPEATED}
        assert await soon(kit, lambda: all(meters[each].ended > before[each] for each in REPEATED))
        await kit.clock.advance(10)
        world = kit.context.store.world
        assert all(isinstance(each, Ok) for each in (world.memory, world.vitals, world.docker, world[ENGINES]))
        assert [view.state for view in value_of(world[ENGINES]) or ()] == [EngineState.SERVING]
        kit.docker.write("one", "the last line")
        lines = kit.context[EngineSupervisor].get("one").buffer
        await kit.until(lambda: "the last line" in [lines.line(at).text for at in range(lines.first, lines.end)])


@pytest.mark.parametrize(("name", "fault"), FAULTS)
async def test_the_core_starts_where_one_port_fails_from_the_beginning(name: str, fault: str) -> None:
    kit, meters = machine()
    meters[name].plant(fault)
    async with kit.whole():
        needs_engine = {"health", "metrics"} if name in ("containers", "health") else set()
        others = [each for each in REPEATED if each not in {name, *BEHIND.get(name, ()), *needs_engine}]
        assert await soon(kit, lambda: all(meters[each].ended for each in others))
        meters[name].heal()
        assert await soon(kit, lambda: all(meters[each].ended for each in REPEATED))


async def test_a_command_s_supervisor_outlives_everything_that_fails() -> None:
    kit, meters = machine()
    async with kit.supervised():
        await kit.until(lambda: meters["health"].ended > 0)
        for each in meters.values():
            each.plant("raise")
        await kit.clock.advance(200)
        for each in meters.values():
            each.heal()
        await kit.clock.advance(100)
        kit.docker.end("one", 1)
        await kit.until(lambda: kit.context[EngineSupervisor].get("one").state is EngineState.FAILED)


async def test_what_is_shown_may_fail_too() -> None:
    """An observer of engines that raises: the next look is whole again."""
    kit, _ = machine()
    fails = [ValueError("odd")]

    def observe(_: object) -> None:
        if fails:
            raise fails.pop()

    async with kit.supervised():
        kit.context[EngineSupervisor].on_views = observe
        await kit.until(lambda: not fails)
        await kit.until(lambda: isinstance(kit.context.store.world[ENGINES], Ok))


# --- keep -------------------------------------------------------------------------------------------------


async def kept(clock: FakeClock, outcomes: list[Exception | None], told: list[SparkError]) -> Callable[[], bool]:
    async def work() -> None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    return asyncio.ensure_future(keep("The part", work, clock, told.append)).done


async def test_a_part_is_begun_again_ever_later_until_it_ends_well_and_says_each_reason_once() -> None:
    clock, told = FakeClock(), list[SparkError]()
    group = ExceptionGroup("many", [ExceptionGroup("one", [OSError(errno.EMFILE, WHY)])])
    outcomes: list[Exception | None] = [group, OSError(errno.EMFILE, WHY), SparkError("No.", "Wait."), KeyError(), None]
    done = await kept(clock, outcomes, told)
    await clock.advance(14)
    assert not done() and len(outcomes) == 1
    await clock.advance(1)
    assert done()
    assert [WHY in str(error) for error in told] == [True, False, False]
    assert [error.summary for error in told[1:]] == ["No.", "The part: KeyError."]


async def test_a_failure_of_a_part_is_an_event_with_its_reason() -> None:
    kit, meters = machine()
    meters["presets"].plant("raise")
    async with kit.whole():
        await kit.clock.advance(60)
    found = [event for event in kit.context.store.world.events if WHY in event.text]
    assert [(event.severity, event.kind) for event in found] == [(Severity.ERROR, EventKind.NOTE)]
